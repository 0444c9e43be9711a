"""Optional libraries, imported only when a picture or a search needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from polyfuse.errors import TargetUnavailable


def need(module: str, what: str = "this picture", extra: str = "plot") -> Any:
    """An optional module. Raises TargetUnavailable, naming what needs it and what to install, if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != library:
            raise  # the library is there; something it needs is not
        raise TargetUnavailable(
            f"{what} needs {library}, which is not installed: pip install 'polyfuse[{extra}]'"
        ) from error
