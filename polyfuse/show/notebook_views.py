"""Display LaTeX and Figures in notebooks.

Nests, schedules and other values show themselves as HTML (`polyfuse.errors.viewed`). What is here is registered with
IPython by type.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.ir import Nest, Statement
from polyfuse.show.formulas import latex

VIEWS = (
    ("text/latex", Nest, lambda nest: f"$${latex(nest)}$$"),
    ("text/latex", Statement, lambda statement: f"$${latex(statement)}$$"),
)
"""(MIME type, type, what shows it)."""


@proving("the view notebook")
def notebook() -> None:
    """Make notebook cells that end in a Statement or Figure display it, and nests as LaTeX too. In a notebook:

        from polyfuse import show
        show.notebook()                 or: %load_ext polyfuse.show

    Raises:
        BadArgument: outside of IPython.
    """
    shell = _shell()
    if shell is None:
        raise BadArgument("notebook() registers views with IPython, and this is not an IPython session")
    load_ipython_extension(shell)


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext polyfuse.show`.

    Args:
        ipython: The running shell.
    """
    formatters = ipython.display_formatter.formatters
    for mime, kind, view in VIEWS:
        formatters[mime].for_type(kind, view)
    if find_spec("matplotlib") is not None:
        # IPython shows Figures by itself only once pyplot is in use, and ours are made without its global state.
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(ipython, {"svg"})


def _shell() -> Any:
    """The running IPython, if there is one."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return None
    return get_ipython()
