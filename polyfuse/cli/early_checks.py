"""Checks of arguments of the command line, before anything is imported that takes time."""

from __future__ import annotations

from pathlib import Path

from polyfuse.errors import BadArgument

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
    if name is not None:
        from polyfuse.machine import Machine

        Machine.preset(name)
    return name
