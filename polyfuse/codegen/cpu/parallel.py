"""Loops over cores as functions that run on each core, with the values that are its share.

    for i (cores): A                        @Part
                                            def k_cores(x, a, member, members):
                             ->                 for i in range(share_from(…, member), share_from(…, member + 1)): A
                                            def k(x, a):
                                                on_cores(k_cores, get_num_threads(), (x, a))

Kernels whose cores share out several, one after the other, are one parallel region, in which they wait.

    for i (cores): A                        @Part
    for j (cores): B                        def k_part(x, a, first, stop):
                                                for i in range(first, stop): A
                                            @Part
                             ->             def k_part_2(a, y, first, stop):
                                                for j in range(first, stop): B
                                            @Relay
                                            def k_cores(x, a, y, team, member, members):
                                                phase = 0
                                                share = first_share(team, phase, member)
                                                while share >= 0:
                                                    run(k_part, (x, a, share_from(…, share), share_from(…, share + 1)))
                                                    share = next_share(team, phase, share)
                                                phase += 1
                                                …
                                            @Relay
                                            def k(x, a, y):
                                                members = get_num_threads()
                                                team = team_of(members)
                                                on_cores(k_cores, members, (x, a, y, team))

The same inside loops in order, which every core runs. What no loop over cores is around is the first share's. Equal
parts are one: layers of one shape are compiled once. Where several are equal up to names, the loop over shares is a
function too, and is printed once: `run(k_phase, (x, a, team, phase, member, members))`. What only passes arrays on is a
relay (`parallel_parts.py`): it gets their addresses. A part states the shapes of its arrays, `z: (250, 250, 2)`: LLVM
does not know those that it finds in memory (`kernel_lowering.py`).
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeGuard

from polyfuse.codegen.looptree.alpha_equal import NodeForm, canonical, node_form
from polyfuse.codegen.looptree.emit import Emitter
from polyfuse.codegen.looptree.index import operand
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Block,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    apart_from_buffers,
    below,
    block,
    nodes_in,
    variables,
)
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import ON_CORES

CORES = "cores"

PART, RELAY = "Part", "Relay"
"""The marks of a kernel's functions: those that read arrays, and those that only pass them on."""

SHORT = 4
"""Elements of a last axis whose distance from the next ones a function of any sizes states."""

REPEATED = 4
"""Equal parts from which on the loop over their shares is a function: numba takes longer for one than for fewer."""


def is_region(body: Node) -> bool:
    """True if a kernel has several worksharing loops, or executes one repeatedly.

    Not where one of them is taken value by value, or is a pipeline, or where a scalar variable is for all cores.
    """
    buffers, rest = apart_from_buffers(body)
    scalars = any(isinstance(buffer, Allocate) and not buffer.shape for buffer in buffers)
    places = list(_places(rest, again=False))
    only = all(bind == CORES for bind, _ in places)
    return only and not scalars and (len(places) > 1 or any(again for _, again in places))


def _places(node: Node, again: bool) -> Iterator[tuple[str, bool]]:
    """The loops over cores: their bind, and whether a loop in order is around."""
    if isinstance(node, For) and node.bind in ON_CORES:
        yield str(node.bind), again
        return
    for inner in below(node):
        yield from _places(inner, again or isinstance(node, For))


@dataclass(frozen=True)
class _Names:
    """The names of a region's variables in one kernel."""

    team: str
    phase: str
    share: str
    first: str
    stop: str


def _is_share(node: Node) -> TypeGuard[For]:
    """True if a node is a worksharing loop."""
    return isinstance(node, For) and node.bind == CORES


def _is_between(node: Node) -> bool:
    """True if a node is not a part but contains parts: a sequential loop, or a condition."""
    return isinstance(node, For | Guard) and not _is_share(node) and any(_places(node, again=False))


class InRegions(Emitter):
    """An emitter that prints loops over cores as functions."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.functions: dict[str, tuple[str, str]] = {}
        """The functions' names and sources, by what makes two of them equal."""
        self.member, self.members = self.unused("member"), self.unused("members")
        """A function's names of its core and of the number of cores."""
        self.region: _Names | None = None
        self.between = False
        """True if the walk is in a region, and in none of its parts."""
        self.part: Node | None = None
        """The part that the walk is in."""
        self.forms: dict[int, NodeForm] = {}
        """The forms of parts that several are equal to, by the part's id()."""
        self.repeated: dict[str, tuple[str, list[str], NodeForm]] = {}
        """Of these the functions that have been made: name, the kernel's names that they are passed, the first form."""

    @abstractmethod
    def shape_of(self, name: str) -> tuple[int | str | None, ...]:
        """The shape of an array or a buffer of the kernel, by its name; () for anything else."""

    @abstractmethod
    def unused(self, name: str) -> str:
        """A name like this one that nothing in the kernel has."""

    @abstractmethod
    def apart(self, body: Callable[[], list[str]], node: Node | None = None) -> list[str]:
        """The lines of a function, all of a node or some around its parts."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the kernel's arrays, sizes and variables."""
        return frozenset((*self.parameters(), *variables(self.kernel.body)))

    def source(self) -> str:
        """The kernel, behind the functions of its parts."""
        main = super().source()
        mark = f"@{RELAY}\n" if self.region is not None else ""
        return "\n\n".join((*(text for _, text in self.functions.values()), f"{mark}{main}"))

    def lines(self, node: Node) -> list[str]:
        """The source lines of a node: of a region's parts, calls."""
        if self.region is None and node is self.kernel.body and is_region(node):
            return self._region(node)
        if not self.between or isinstance(node, Let):
            return super().lines(node)
        if isinstance(node, Block) and any(_places(node, again=False)):
            return [line for part in _phases(node) for line in self.lines(part)]
        if _is_between(node):
            return super().lines(node)
        return self._phase(node)

    def shared_out(self, node: For) -> list[str]:
        """A loop over cores: a function for equally many of its values each, and in a region a share of them."""
        if self.region is not None and node is self.part:
            return self._values(node, f"range({self.region.first}, {self.region.stop})")
        ends = f"{', '.join(_bounds(node))}, {self.members}, {self.member}"
        values = f"range(share_from({ends}), share_from({ends} + 1))"
        return [self.on_cores(self.apart(lambda: self._values(node, values), node))]

    def on_cores(self, body: list[str], also: str = "") -> str:
        """The call that runs lines on every core; `also` is a name that they read beside the kernel's own."""
        return self._called("cores", body, "get_num_threads()", (also,) if also else ())

    def _values(self, node: For, values: str) -> list[str]:
        """A loop's body for some of its values."""
        core, value = f"{node.variable}_core", None
        if node.step == 1:
            match node.low, node.high:
                case ast.Constant(value=int(least)), _ if least >= 0 and _is_innermost(node):
                    value = f"within({core}, {', '.join(_bounds(node))})"
                case ast.Constant(value=int(least)), ast.Constant(value=int(stop)) if least >= 0:
                    value = _clamped(core, least, stop)
                case ast.Constant(value=int(least)), _ if least >= 0:
                    value = _clamped(core, least, None)
        else:  # the shares are of how many values there are
            value = f"{operand(node.low)} + {node.step} * {core}"
        body = self.lines(node.body)
        if value is None:
            return [f"for {node.variable} in {values}:", *self._indented(body)]
        return [f"for {core} in {values}:", *self._indented([f"{node.variable} = {value}", *body])]

    def _region(self, node: Node) -> list[str]:
        names = _Names(*(self.unused(field.name) for field in fields(_Names)))
        buffers, rest = apart_from_buffers(node)
        lines = [line for buffer in buffers for line in super(InRegions, self).lines(buffer)]
        self.region, self.between = names, True
        self.forms = self._repeated(buffers, rest)
        inside = self.apart(lambda: [f"{names.phase} = 0", *self.lines(rest)])
        self.between = False
        return [
            *lines,
            f"{self.members} = get_num_threads()",
            f"{names.team} = team_of({self.members})",
            self._called("cores", inside, self.members, (names.team,)),
        ]

    def _repeated(self, buffers: Iterable[Node], rest: Node) -> dict[int, NodeForm]:
        """The forms of a region's parts, by their id(), of which there are as many as make a function worth it."""
        held: dict[str, object] = {one.buffer: one for one in buffers if isinstance(one, Allocate)}
        kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in self.kernel.arrays.items()}
        names: dict[str, object] = dict.fromkeys((*self.kernel.sizes, *variables(rest)))
        known = {**names, **kinds, **held}
        parts = rest.parts if isinstance(rest, Block) else ()
        forms = {id(part): node_form(part, known) for part in parts if _is_share(part)}
        counts = Counter(form.text for form in forms.values())
        return {key: form for key, form in forms.items() if counts[form.text] >= REPEATED}

    def _phase(self, node: Node) -> list[str]:
        """A part: its shares that are this core's, in a function of their own where several parts are equal."""
        assert self.region is not None, "parts are a region's"
        names, form = self.region, self.forms.get(id(node))
        counted = f"{names.phase} += 1"
        if form is None:
            return [*self._shares(node, names), counted]
        own = (names.team, names.phase, self.member, self.members)
        if form.text not in self.repeated:
            lines = self._shares(node, names)
            passed = self._read(lines)
            name = self._function("phase", lines, (*passed, *own), self._mark(lines))
            self.repeated[form.text] = name, passed, form
        name, passed, first = self.repeated[form.text]
        theirs = dict(zip(first.names, form.names, strict=True))
        return [f"run({name}, {_tuple((*(theirs.get(each, each) for each in passed), *own))})", counted]

    def _shares(self, node: Node, names: _Names) -> list[str]:
        """A part's function called for a core's shares; all is the first share's without a loop over cores."""
        self.between, self.part = False, node
        body = self.apart(lambda: self.lines(node), node)
        self.between = True
        if _is_share(node):
            ends = f"{', '.join(_bounds(node))}, {self.members}, {names.share}"
            share = {names.first: f"share_from({ends})", names.stop: f"share_from({ends} + 1)"}
            call = [self._called_here(body, share)]
        else:
            call = [f"if {names.share} == 0:", *self._indented([self._called_here(body, {})])]
        return [
            f"{names.share} = first_share({names.team}, {names.phase}, {self.member})",
            f"while {names.share} >= 0:",
            *self._indented(call),
            *self._indented([f"{names.share} = next_share({names.team}, {names.phase}, {names.share})"]),
        ]

    def _called_here(self, body: list[str], share: dict[str, str]) -> str:
        """The call of a part for a share of its loop."""
        passed = self._read(body)
        name = self._function("part", body, (*passed, *share))
        return f"run({name}, {_tuple((*passed, *share.values()))})"

    def _called(self, what: str, body: list[str], members: str, also: tuple[str, ...]) -> str:
        """The call of a function for every core."""
        passed = (*self._read(body), *also)
        mark = PART if self.region is None else self._mark(body)
        name = self._function(what, body, (*passed, self.member, self.members), mark)
        return f"on_cores({name}, {members}, {_tuple(passed)})"

    def _mark(self, body: list[str]) -> str:
        """What a function with these lines is: a relay if they only pass the kernel's arrays on."""
        return RELAY if read_here("\n".join(body)).isdisjoint(self.kernel.arrays) else PART

    def _read(self, body: list[str]) -> list[str]:
        """The kernel's names that lines read."""
        known = self.names
        return [name for name in free_names("\n".join(body)) if name in known]

    def vector_row(self, parameters: Sequence[str], lines: Sequence[str]) -> str:
        """The name of a vector row with these parameters and lines."""
        return self._function("row", list(lines), tuple(parameters), "VectorRow")

    def _with_shapes(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """Parameters with the shapes of arrays of several axes, z: (250, 2), or of their last axes if a size is one.

        The distances of an array's elements come from its shape, and LLVM makes vectors of neighbours that it knows.
        Functions that get bounds of loops are shared by kernels with arrays of other shapes, up to short last axes:
        z: (None, 2) are complex numbers.
        """
        shapes = {name: self.shape_of(name) for name in parameters}
        if not set(parameters).isdisjoint(self.kernel.sizes):
            shapes = {name: _last_axes(shape) for name, shape in shapes.items()}
        return tuple(
            f"{name}: {shape}"
            if len(shape) > 1 and shape[-1] is not None and all(isinstance(n, int | None) for n in shape)
            else name
            for name, shape in shapes.items()
        )

    def _function(
        self, what: str, body: list[str], parameters: tuple[str, ...], decorator: str = PART
    ) -> str:
        """The name of a function with these lines, which is made if there is none like it."""
        taken = self.names.union(name for name, _ in self.functions.values())
        name = fresh(f"{self.kernel.name}_{what}", taken)
        if decorator == PART:
            parameters = self._with_shapes(parameters)
        text = (
            "\n".join([f"@{decorator}", f"def {name}({', '.join(parameters)}):", *self._indented(body)])
            + "\n"
        )
        name, _ = self.functions.setdefault(canonical(text), (name, text))
        return name


def _last_axes(shape: Sequence[int | str | None]) -> tuple[int | None, ...]:
    """A shape of which only the last axis is known, and only if it is short.

    >>> _last_axes(("N", 300, 2)), _last_axes((4, 300))
    ((None, None, 2), (None, None))
    """
    *outer, last = shape or (None,)
    known = last if isinstance(last, int) and last <= SHORT else None
    return (*(None for _ in outer), known)


def _tuple(values: Iterable[str]) -> str:
    """A tuple's source.

    >>> _tuple(["x"]), _tuple(["x", "y"])
    ('(x,)', '(x, y)')
    """
    every = tuple(values)
    return f"({every[0]},)" if len(every) == 1 else f"({', '.join(every)})"


def _is_innermost(node: For) -> bool:
    """True if a loop contains no other: LLVM may put its own values on vector lanes.

    Its variable must be a plain count then. Elements whose place is clamped lie anywhere, for LLVM, and are gathered
    and scattered one by one; `within` states the range and leaves the value alone.
    """
    return not any(isinstance(inner, For) for inner in nodes_in(node.body))


def _bounds(node: For) -> tuple[str, str]:
    """The range of a loop over cores: its values, or the number of its steps."""
    low, high = operand(node.low), operand(node.high)
    return (low, high) if node.step == 1 else ("0", f"-(({low} - ({high})) // {node.step})")


def _phases(node: Block) -> list[Node]:
    """The parts of a block; those that no loop over cores is in, and that follow each other, are one."""
    found: list[Node] = []
    alone: list[Node] = []
    for part in (*node.parts, None):
        if part is not None and not isinstance(part, Let) and not any(_places(part, again=False)):
            alone.append(part)
            continue
        found += [block(tuple(alone))] if alone else []
        found += [part] if part is not None else []
        alone = []
    return found


def free_names(lines: str) -> list[str]:
    r"""The names that lines read and do not assign, in the order in which they come.

    >>> free_names("for i in range(n):\n    y[i] = x[i]")
    ['range', 'n', 'y', 'x']
    """
    names = [node for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Name)]
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    names.sort(key=lambda name: (name.lineno, name.col_offset))
    return list(dict.fromkeys(name.id for name in names if name.id not in stored))


def read_here(lines: str) -> set[str]:
    r"""The names that lines read, but for those that they only pass to a part.

    >>> sorted(read_here("if x[0] < n:\n    run(part, (x, y, n))"))
    ['n', 'part', 'run', 'x']
    """
    nodes = list(ast.walk(ast.parse(lines)))
    passed = {id(name) for node in nodes for name in _passed(node)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in passed}


def _passed(node: ast.AST) -> Iterator[ast.Name]:
    """The names in the tuple that a call runs a part with."""
    match node:
        case ast.Call(ast.Name("run"), [_, ast.Tuple(values)]):
            yield from (value for value in values if isinstance(value, ast.Name))


def _clamped(value: str, first: int, end: int | None) -> str:
    """A value that is first <= value < end, written so that LLVM sees it, for a loop that contains others.

    >>> _clamped("i_core", 0, None), _clamped("i_core", 0, 4)
    ('max(i_core, 0)', 'min(max(i_core, 0), 3)')

    Else numba's wrap-around of negative indices, or of 512 * i + j beyond 64 bits, keeps it from vectorizing: columns
    of a product over the cores ran at 27 and 180 GFLOP/s without and with the maximum; column sums of 2000 x 2000 in
    four parts took 1.16 and 0.38 ms without and with the minimum, 0.59 and 0.15 on two cores (Zen 5).
    """
    least = f"max({value}, {first})"
    return least if end is None or end <= first else f"min({least}, {end - 1})"
