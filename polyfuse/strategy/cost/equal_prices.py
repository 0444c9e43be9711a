"""Price kernels that are equal up to names once, such as those of a network's layers.

mac0, relu0 in one kernel: priced    ->    mac1, relu1 in one: the same seconds, with their names

What a kernel moves and computes is the same on every machine: models of one nest share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyfuse.ir.form import Form, dependences_of, form_of
from polyfuse.ir.tree import Loop, Tree, statements
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import Kernel, is_internal, is_read, kernel_of


@dataclass(frozen=True)
class Priced:
    """All that a kernel's model depends on: its form, the dependences inside, and what each access passes on.

    For each access `crossing` says whether only the kernel touches the tensor, and whether others wrote what is read.
    """

    form: Form
    pairs: tuple[str, ...]
    crossing: tuple[tuple[bool, bool], ...]

    @staticmethod
    def of(counts: Counts, part: Tree) -> Priced:
        """Return the key of a part of a schedule's tree."""
        form, inside = form_of(counts.nest, part), part.members
        crossing = (
            (is_internal(counts, access.tensor, inside), is_read(counts, name, position, inside))
            for name in statements(part)
            for position, access in enumerate(counts.nest.statement(name).accesses)
        )
        return Priced(form, dependences_of(counts.nest, part, form), tuple(crossing))

    def names_in(self, other: Priced) -> Mapping[str, str]:
        """For each name of this kernel that of an equal one."""
        return dict(zip(self.form.names, other.form.names, strict=True))


class Known:
    """The kernels of one nest as models see them: each part of a tree once, and equal ones together."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self._parts: dict[int, tuple[Tree, Priced, Kernel]] = {}
        self._equal: dict[Priced, tuple[Priced, Kernel]] = {}

    def of(self, part: Tree) -> tuple[Priced, Kernel]:
        """A part's key, which equal ones share, and the kernel that it is."""
        if id(part) not in self._parts:  # a part is kept with its answer: another never has its id
            priced = Priced.of(self.counts, part)
            if priced not in self._equal:
                self._equal[priced] = priced, kernel_of(self.counts, part)
            first, kernel = self._equal[priced]
            if first is not priced:
                kernel = with_names(kernel, part, first.names_in(priced))
            self._parts[id(part)] = part, first, kernel
        _, key, kernel = self._parts[id(part)]
        return key, kernel


def with_names(kernel: Kernel, part: Tree, names: Mapping[str, str]) -> Kernel:
    """The kernel that an equal part is."""
    band: list[Loop] = []
    while len(band) < len(kernel.band):
        assert isinstance(part, Loop), "an equal part has as many loops"
        band.append(part)
        part = part.body
    return replace(
        kernel,
        names=tuple(names[name] for name in kernel.names),
        band=tuple(band),
        uses=tuple(replace(use, tensor=names[use.tensor]) for use in kernel.uses),
        shares=tuple(replace(share, statement=names[share.statement]) for share in kernel.shares),
    )
