"""Folders beside the package in its checkout: benchmarks/, papers/. An installed package has none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from polyfuse.errors import BadArgument

ROOT = Path(__file__).parents[2]


def present(folder: Path, what: str) -> None:
    """Raises BadArgument if there is no such folder: then the package was installed without its checkout."""
    if not folder.is_dir():
        raise BadArgument(
            f"there is no folder {folder}: {what} are in polyfuse's repository, not in the installed package. "
            "Check the repository out, install it with pip install -e '.[dev]', and ask again"
        )


def module(name: str) -> Any:
    """A module of the checkout, such as papers.NAME.experiment."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(name)
