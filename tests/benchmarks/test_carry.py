"""The folder of wheels for a machine without a package index: what is asked for, what is kept, how it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.gpu.carry import ROOT, THERE, download, drop, requirements, scripts, wanted


def test_what_is_carried_is_what_is_needed_and_not_there() -> None:
    needed = requirements(ROOT / "pyproject.toml")
    carried = {Requirement(line).name for line in wanted(needed, THERE)}
    assert {"islpy", "cuda-core"} <= carried
    assert not carried & set(THERE)
    assert {r.name for r in needed} == {Requirement(line).name for line in wanted(needed, ())}
    command = download(["islpy>=2026.2"], Path("w"), "3.12", "x86_64")
    assert command[command.index("--python-version") + 1] == "3.12"
    assert "manylinux_2_28_x86_64" in command
    assert command[-1] == "islpy>=2026.2"


def wheel(folder: Path, name: str) -> None:
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_the_folder_is_installed_without_an_index_and_used(tmp_path: Path) -> None:
    folder, checkout = tmp_path / "two words", tmp_path / "checkout"
    folder.mkdir()
    checkout.mkdir()
    wheel(folder, "carried_one")
    wheel(folder, "num_py")
    drop(folder, ["Num.Py"])
    assert [path.name for path in folder.glob("*.whl")] == ["carried_one-1.0-py3-none-any.whl"]
    scripts(folder)
    (checkout / "here.py").write_text("answer = 1\n")
    asked = f'sh "{folder}/use.sh" && . "{folder}/env.sh" && cd / && python3 -c "import carried_one, here; print(1)"'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PIP_INDEX_URL": "http://127.0.0.1:9"}
    done = subprocess.run(["sh", "-c", asked], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
