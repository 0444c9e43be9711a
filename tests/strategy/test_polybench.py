"""PolyBench's 30 kernels under the default strategy: what is found and done, and both targets agree with Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.ir.tree import Tree, loops, parts, statements
from polyfuse.strategy.transforms.loop_remarks import findings
from tests.frontend.python.running import assert_close, by_python, called
from tests.frontend.python.test_polybench import NAMES, inputs_of, smaller

PRICED = re.compile(r" expected\b")
"""In a note of what the model expects, which is no fact of the loops: it changes with every constant of the model."""

PRICE = re.compile(r"; [^;]* (takes [^;]*s$|expected: .*)")
"""The model's figures at the end of a note, which are left out of the golden files: "…; packing takes 10.7 µs"."""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_found_and_done_on_both_targets(name: str, golden: Callable[[str, str], None]) -> None:
    # one test, because compiling takes most of its time
    kernel = KERNELS[name]
    cpu = pf.compile(kernel.nest, target="cpu", machine="zen5")
    cuda = pf.compile(kernel.nest, target="cuda", machine="h200", device="lockstep")
    for sizes in (kernel.mini, smaller(kernel)):
        arrays = inputs_of(kernel, sizes)
        assert_close(called(cpu, arrays), by_python(kernel.nest, arrays))
    assert_close(called(cuda, arrays), by_python(kernel.nest, arrays))
    found = findings(cpu.nest, cpu.nest.order)
    golden(
        f"found/{name}.txt",
        "\n".join(["as written", *indented(found), *done(cpu, found), *done(cuda, found)]),
    )


def indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def done(net: pf.Executable, found: tuple[str, ...]) -> list[str]:
    """Kernel by kernel: the loops that have a place, and the tiles; then what the plan says beyond what was found."""
    assert net.compiled.plan is not None
    lines = []
    for part in parts(net.schedule.tree):
        placed = ", ".join(f"{loop.name} on {loop.bind}" for loop in loops(part) if loop.bind is not None)
        lines.append(f"{', '.join(statements(part))}: {placed or 'in order'}; tiled: {tiles(net, part)}")
    groups = net.compiled.plan.groups
    for group in (own for one in groups for own in (one.parts or (one,))):
        told = [PRICE.sub("", note) for note in group.notes]
        new = [note for note in told if note not in found and not PRICED.search(note)]
        lines += [f"{', '.join(group.statements)}: {note}" for note in new]
    return [f"on {net.compiled.machine.name}", *indented(lines)]


def tiles(net: pf.Executable, part: Tree) -> str:
    """The loops of a kernel that were cut, with the values in a tile: "i by 32, j by 512"."""
    sizes: dict[str, object] = {}
    for step in net.schedule.steps:
        if step.verb in ("tile", "split") and step.args[0] in statements(part):
            sizes.update(step.options if step.verb == "tile" else [step.args[1:]])
    return ", ".join(f"{loop} by {size}" for loop, size in sizes.items()) or "none"
