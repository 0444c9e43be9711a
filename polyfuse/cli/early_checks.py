"""Checks of arguments of the command line, before anything is imported that takes time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyfuse.errors import BadArgument, TargetUnavailable

TEXT_SUFFIXES = (".tex", ".html", ".dot")
PICTURE_SUFFIXES = (
    ".avif", ".eps", ".gif", ".jpeg", ".jpg", ".pdf", ".pgf", ".png", ".ps", ".raw", ".rgba", ".svg", ".svgz", ".tif",
    ".tiff", ".webp",
)  # fmt: skip
"""What `draw` writes as text, and what matplotlib writes."""

GPU_PARTS = (
    "calls", "gemm", "tiles", "tensor", "memory", "conv", "lstm", "train", "ensembles", "strassen", "grid",
)  # fmt: skip
"""The parts of gpu-bench, as benchmarks/gpu has them."""

MACHINES = ("a100", "h100", "h200", "rtx4090", "xeon", "zen4", "zen5")
"""The machines of the cost model, as polyfuse.machine has them: to import it takes seconds."""

SCHEDULES = (".json", ".py")
"""The suffixes of schedules: what `Schedule.save` writes, and code that makes a schedule s of nest."""


def parts_of(file: str) -> tuple[Path, str]:
    """Return a FILE's path and the name behind its colon, if any.

    >>> parts_of("net.py:model")
    (PosixPath('net.py'), 'model')
    """
    path, _, name = file.partition(":") if not Path(file).exists() else (file, "", "")
    return Path(path), name


def existing(file: str) -> str:
    """Return a FILE; BadArgument if there is none."""
    path, _ = parts_of(file)
    if not path.is_file():
        raise BadArgument(f"there is no file {path}")
    return file


def schedule_file(path: Path | None) -> Path | None:
    """Return the file of a schedule; BadArgument if there is none, or it is of another kind."""
    if path is None:
        return None
    if not path.is_file():
        raise BadArgument(f"there is no file {path}")
    if path.suffix not in SCHEDULES:
        raise BadArgument(
            f"{path} is no schedule: expected a .json file that Schedule.save wrote, or a .py file that makes a "
            "schedule s of nest, as written by compile --emit"
        )
    return path


def known_machine(name: str | None) -> str | None:
    """Return a machine's name; TargetUnavailable, with the names that there are, if no preset has it."""
    if name is not None and name not in MACHINES:
        raise TargetUnavailable(f"unknown machine {name!r}; expected one of {', '.join(MACHINES)}")
    return name


def picture_file(out: Path) -> Path:
    """Return the file of a picture; BadArgument if its suffix names no format."""
    known = sorted([*TEXT_SUFFIXES, *PICTURE_SUFFIXES])
    if out.suffix not in known:
        raise BadArgument(f"cannot write {out.name}: expected a suffix out of {', '.join(known)}")
    file_to_write(out)
    return out


def file_to_write(out: Path | None) -> Path | None:
    """Return a file to be written; BadArgument if it is a folder, or its folder is not there."""
    if out is not None and out.is_dir():
        raise BadArgument(f"cannot write {out}: it is a folder")
    if out is not None and not out.parent.is_dir():
        raise BadArgument(f"cannot write {out}: there is no folder {out.parent}")
    return out


def schedule_to_write(out: Path | None) -> Path | None:
    """Return a file for a schedule as JSON; BadArgument if it cannot be written, or is of another kind."""
    if out is not None and out.suffix != ".json":
        raise BadArgument(
            f"cannot write {out}: a schedule is written as JSON, into a file that ends in .json"
        )
    return file_to_write(out)


def machine_names() -> list[str]:
    """Return the presets' names, for a shell's completion."""
    return list(MACHINES)


def paper_names() -> list[str]:
    """Return the names of the papers in the checkout, for a shell's completion."""
    folder = Path(__file__).parents[2] / "papers"
    return sorted(path.parent.name for path in folder.glob("*/experiment.py"))


def gpu_parts(names: list[str] | None) -> list[str] | None:
    """Return the parts of gpu-bench; BadArgument if one is unknown."""
    unknown = [name for name in names or () if name not in GPU_PARTS]
    if unknown:
        raise BadArgument(f"unknown part {', '.join(unknown)}; expected some of {', '.join(GPU_PARTS)}")
    return names


def sized(given: list[str] | None) -> list[str] | None:
    """Return sizes as they are given; BadArgument if one is not NAME=NUMBER."""
    numbers(given or ())
    return given


def numbers(given: Sequence[str]) -> dict[str, int]:
    """Numbers by name.

    >>> numbers(["N=8", "k = 0"])
    {'N': 8, 'k': 0}
    """
    pairs = {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in given)}
    for name, value in pairs.items():
        if not value.removeprefix("-").isdecimal():
            raise BadArgument(f"expected NAME=NUMBER such as N=8, not {name}={value}")
    return {name: int(value) for name, value in pairs.items()}
