"""Where emitted source lives: one file per text in the user's cache directory, so that tracebacks show its lines."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/polyfuse, or ~/.cache/polyfuse."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "polyfuse"


def source_file(name: str, text: str) -> Path:
    """A file that holds exactly this text, written whole or not at all."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache_directory() / "source" / f"{name[:60]}_{digest}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return path
