"""Where polyfuse keeps files, and how it writes them: whole or not at all, whoever else writes and whenever it ends."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

OFF = "off"
"""The value of POLYFUSE_CACHE that keeps no files."""


def cache_directory() -> Path | None:
    """$POLYFUSE_CACHE, else $XDG_CACHE_HOME/polyfuse, else ~/.cache/polyfuse; None if POLYFUSE_CACHE is "off"."""
    chosen = os.environ.get("POLYFUSE_CACHE")
    if chosen == OFF:
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "polyfuse"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers find the old one, none, or all of this one, also after a crash.

    Its folder is made where it is missing, for this user alone. Raises OSError where that cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash may leave the new name with old blocks
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


PART = ".part"
"""How files end that are being written, or were when their process ended."""


def source_file(name: str, text: str) -> Path:
    """A file that holds exactly this text, for tracebacks to show; only its name where no file can be kept."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    directory, file = cache_directory(), f"{name[:60]}_{digest}.py"
    if directory is None:
        return Path(file)
    path = directory / "source" / file
    with suppress(OSError):
        if not path.exists():
            write_whole(path, text.encode())
    return path
