"""A folder of wheels for a machine with a GPU where the package index cannot be reached.

python -m benchmarks.gpu.carry FOLDER [--python 3.12] [--platform x86_64] [--toolkit] [--also numpy<2.4]

Downloads what polyfuse needs and is not `--there`, for that Python and platform, whatever machine this is. On the other
machine, in the checkout:

    sh FOLDER/use.sh            installs the wheels into build/carried, without an index, beside what is there
    . FOLDER/env.sh             puts build/carried and the checkout on PYTHONPATH
    python3 -m polyfuse gpu-check && python3 -m polyfuse gpu-bench
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

THERE = (
    "torch", "triton", "numba-cuda", "numba", "llvmlite", "cupy-cuda13x", "numpy", "sympy", "mpmath", "typer", "rich",
    "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-nvjitlink",
)  # fmt: skip
"""What such machines usually have, the last three with torch; `--there ""` carries everything."""

TOOLKIT = ("nvidia-nvvm", "nvidia-cuda-nvdisasm")
"""What is there as well where CUDA's toolkit is installed (nvcc): 60 of 80 MiB."""

EXTRAS = ("cuda",)

GLIBC = ("2_17", "2_24", "2_27", "2_28", "2_31", "2_34", "2_35")
"""Of the manylinux wheels: pip matches each of them exactly."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.carry", description="Wheels to carry along.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="of the other machine")
    parser.add_argument("--platform", default="x86_64", help="of the other machine: x86_64 or aarch64")
    parser.add_argument("--there", default=",".join(THERE), help="packages that it has, with commas")
    parser.add_argument("--toolkit", action="store_true", help="CUDA's toolkit is installed there")
    parser.add_argument(
        "--also", default="", help="with commas; for packages whose version there does not suit another's"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    also = [line for line in options.also.split(",") if line]
    there = there_but(options.there.split(","), options.toolkit, also)
    needed = [*wanted(requirements(ROOT / "pyproject.toml"), there), *also]
    subprocess.run(download(needed, options.folder, options.python, options.platform), check=True)
    drop(options.folder, there)
    for path in scripts(options.folder):
        print(f"wrote {path}")
    size = sum(wheel.stat().st_size for wheel in options.folder.glob("*.whl"))
    print(f"{len(list(options.folder.glob('*.whl')))} wheels, {size / 2**20:.0f} MiB in {options.folder}")


def there_but(names: Iterable[str], toolkit: bool, also: Iterable[str]) -> list[str]:
    """What is there and need not be carried: not what is to be carried all the same.

    >>> there_but(["numpy", "torch"], True, ["numpy<2.5"])
    ['torch', 'nvidia-nvvm', 'nvidia-cuda-nvdisasm']
    """
    carried = {canonicalize_name(Requirement(line).name) for line in also}
    there = [*filter(None, names), *(TOOLKIT if toolkit else ())]
    return [name for name in there if canonicalize_name(name) not in carried]


def requirements(project: Path) -> list[Requirement]:
    """What the project needs to run on a GPU."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    lines = [
        *about["dependencies"],
        *(line for extra in EXTRAS for line in about["optional-dependencies"][extra]),
    ]
    return [Requirement(line) for line in lines]


def wanted(needed: Iterable[Requirement], there: Iterable[str]) -> list[str]:
    """Those that are not there, without markers: the other machine runs Linux.

    >>> wanted(map(Requirement, ["islpy>=2026.2", "numpy>=2.0; sys_platform != 'darwin'"]), ["NumPy"])
    ['islpy>=2026.2']
    """
    present = {canonicalize_name(name) for name in there}
    found = []
    for requirement in needed:
        if canonicalize_name(requirement.name) not in present:
            requirement.marker = None
            found.append(str(requirement))
    return found


def download(needed: Sequence[str], folder: Path, python: str, platform: str) -> list[str]:
    """pip's command: binary wheels for another Python and platform, with all that they need."""
    platforms = [f"manylinux_{version}_{platform}" for version in GLIBC] + [f"manylinux2014_{platform}"]
    chosen = [word for name in platforms for word in ("--platform", name)]
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", python, *chosen, "--dest", str(folder), *needed,
    ]  # fmt: skip


def drop(folder: Path, there: Iterable[str]) -> None:
    """Wheels of packages that are there, which others need too: a second version would stand before the first."""
    present = {canonicalize_name(name) for name in there}
    for wheel in folder.glob("*.whl"):
        if canonicalize_name(wheel.name.split("-")[0]) in present:
            wheel.unlink()


def scripts(folder: Path) -> list[Path]:
    """What installs the wheels on the other machine, and what uses them."""
    use, env = folder / "use.sh", folder / "env.sh"
    use.write_text(
        'set -e\ncd "$(dirname "$0")"\nwheels=$PWD\ncd - > /dev/null\n'
        "python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target build/carried "
        '"$wheels"/*.whl\n',
        encoding="utf-8",
    )
    env.write_text(
        'export PYTHONPATH="$PWD/build/carried:$PWD${PYTHONPATH:+:$PYTHONPATH}"\n', encoding="utf-8"
    )
    return [use, env]


if __name__ == "__main__":
    main()
