"""The card of an executable: kernels with their times and loops, buffers, decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from polyfuse.codegen.program import Launch
from polyfuse.errors import quantity
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import Sizes
from polyfuse.ir.tree import Tree, parts
from polyfuse.machine.levels import bytes_text
from polyfuse.measure import duration
from polyfuse.runtime.artifact import Compiled, Product
from polyfuse.runtime.memory.memory_plan import nbytes
from polyfuse.runtime.profile import Profile, shortened
from polyfuse.show.card import bar, card, folded, line, table, text_block, written
from polyfuse.show.folded_tree import add_tree
from polyfuse.show.views import add_remarks
from polyfuse.strategy import KernelCost


@dataclass(frozen=True)
class Row:
    """A launch with its tree, its price, the least time that the roofline allows, and its measured time."""

    launch: Launch
    tree: Tree
    cost: KernelCost
    bound: float
    measured: float | None

    @property
    def seconds(self) -> float:
        """The measured time; the predicted one without a measurement."""
        return self.cost.total if self.measured is None else self.measured


def executable_card(
    net: str, nest: Nest, product: Product, done: Compiled, sizes: Sizes, profile: Profile | None
) -> str:
    """Return the card as HTML.

    Args:
        net: The first line: what is shown, and where it runs.
        nest: The nest whose buffers are listed.
        product: The kernels and their prices.
        done: The schedule and the plan.
        sizes: Values of symbolic sizes.
        profile: The measured times, if there are any.
    """
    made = card()
    rows = _rows(product, done, profile)
    groups = _equal(rows)
    predicted = f"{duration(product.work.seconds)} predicted"
    measured = "" if profile is None else f", {duration(profile.seconds)} measured"
    line(
        made, net, f": {quantity(len(product.program.launches), 'launch', 'launches')}, {predicted}{measured}"
    )
    _times(made, groups)
    if profile is None:
        SubElement(
            made, "p", {"class": "dim"}
        ).text = "bound: as a part of the prediction; profile(…) measures"
    for group in groups:
        first = group[0]
        part = folded(SubElement(made, "div", {"class": "kernel"}), _name(group), opened=len(groups) == 1)
        add_tree(part, done.schedule.nest, first.tree)
        text_block(folded(part, "source"), first.launch.source)
    _buffers(made, nest, product, sizes)
    if done.plan is None:
        SubElement(made, "p").text = "the schedule was given by hand"
    else:
        add_remarks(folded(made, quantity(len(done.plan.log), "decision")), done.plan.log)
    text_block(folded(made, "the verbs that made the schedule"), done.schedule.trace())
    return written(made)


def _rows(product: Product, done: Compiled, profile: Profile | None) -> list[Row]:
    times = iter(() if profile is None else [kernel.seconds for kernel in profile.kernels])
    launches = product.program.launches
    each = zip(launches, parts(done.schedule.tree), product.costs, product.bounds, strict=True)
    return [
        Row(launch, tree, cost, bound, None if launch.once else next(times, None))
        for launch, tree, cost, bound in each
    ]


def _equal(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by the code that they run, in order of first launch."""
    groups: dict[tuple[object, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.launch.code, row.launch.once), []).append(row)
    return list(groups.values())


def _name(group: Sequence[Row]) -> str:
    times = f" × {len(group)}" if len(group) > 1 else ""
    return f"{group[0].launch.name}{times}: {shortened(group[0].launch.statements)}"


HEADER = ("kernel", "predicted", "measured", "share of the bound", "FLOP", "bytes", "runs")
NUMBERS = ("predicted", "measured", "FLOP", "bytes")


def _times(parent: Element, groups: Sequence[Sequence[Row]]) -> None:
    """Add the table of kernels; of equal ones, the time of all together."""
    made = SubElement(parent, "table")
    head = SubElement(SubElement(made, "thead"), "tr")
    for title in HEADER:
        SubElement(head, "th", {"class": "number"} if title in NUMBERS else {}).text = title
    body = SubElement(made, "tbody")
    for group in groups:
        row = SubElement(body, "tr")
        SubElement(SubElement(row, "td"), "code").text = _name(group)
        measured = [one.measured for one in group if one.measured is not None]
        for text in (
            duration(sum(one.cost.total for one in group)),
            duration(sum(measured)) if measured else "—",
        ):
            SubElement(row, "td", {"class": "number"}).text = text
        share = sum(one.bound for one in group) / max(sum(one.seconds for one in group), 1e-12)
        part = SubElement(row, "td")
        bar(part, share)
        part[-1].tail = f"{share:.0%}"
        for count in (
            sum(one.cost.flops for one in group),
            sum(one.cost.compulsory + one.cost.again for one in group),
        ):
            SubElement(row, "td", {"class": "number"}).text = f"{count:,}"
        SubElement(row, "td", {"class": "dim"}).text = "once" if group[0].launch.once else "each call"


def _buffers(parent: Element, nest: Nest, product: Product, sizes: Sizes) -> None:
    """Add the tensors and their bytes, folded."""
    arena = product.memory.calls.plan(sizes)
    tensors = [
        (t.name, t.role, f"{t.dtype}{list(t.shape)}", bytes_text(nbytes(t, sizes))) for t in nest.tensors
    ]
    title = f"{quantity(len(tensors), 'buffer')}; temporaries take {bytes_text(arena.size)} in one arena"
    table(folded(parent, title), ("buffer", "role", "elements", "bytes"), tensors)
