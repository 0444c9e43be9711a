"""`polyfuse draw`: write a picture of polyfuse.show to a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyfuse.cli.early_checks import numbers
from polyfuse.cli.load import known_sizes, load_nest, load_schedule
from polyfuse.errors import BadArgument
from polyfuse.ir import Nest
from polyfuse.schedule import Schedule
from polyfuse.show import dependence_graph, dependence_plot, domain_plot, latex, tree_picture
from polyfuse.show.pages import page
from polyfuse.workbench.terminal import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS: Mapping[str, Callable[[Nest, Schedule | Nest], str]] = {
    ".tex": lambda nest, what: latex(nest) + "\n",
    ".html": lambda nest, what: page(what),
    ".dot": lambda nest, what: str(dependence_graph(nest).source),
}
"""The outputs that need no plot, by suffix: the statements, the nest or schedule, the dependence graph."""


def draw(
    file: str,
    out: Path,
    picture: str,
    schedule: Path | None,
    statements: Sequence[str],
    dims: Sequence[str],
    sizes: Sequence[str],
    at: Sequence[str],
    batch: int | None,
    features: Sequence[int] | None,
) -> None:
    """Write a picture or a text of what a file defines; the suffix of `out` says in which format.

    Raises BadArgument for a suffix, picture, statement, dimension or number that means nothing, and where `out` cannot
    be written.
    """
    nest = load_nest(file, batch, features)
    what = nest if schedule is None else load_schedule(schedule, nest)
    text = TEXTS.get(out.suffix)
    if text is not None:
        with writing(out):
            out.write_text(text(nest, what), encoding="utf-8")
        return
    given = known_sizes(nest, numbers(sizes))
    figure = _figure(nest, what, picture, statements, dims, given, numbers(at))
    with writing(out):
        figure.savefig(out)


def _figure(
    nest: Nest,
    what: Schedule | Nest,
    picture: str,
    statements: Sequence[str],
    dims: Sequence[str],
    sizes: Mapping[str, int],
    at: Mapping[str, int],
) -> Figure:
    if picture == "dependences":
        return dependence_plot(nest)
    if picture == "tree":
        return tree_picture(what)
    named = list(statements) or [s.name for s in nest.statements]
    absent = [name for name in nest.params if name not in sizes]
    if absent and {*named} <= {s.name for s in nest.statements}:
        example = " ".join(f"--size {name}=8" for name in absent)
        raise BadArgument(
            f"the domains of {nest.name} depend on {', '.join(absent)}; give numbers: {example}"
        )
    return domain_plot(what, named, list(dims) or None, sizes, at)
