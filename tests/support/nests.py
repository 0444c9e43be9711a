"""Random affine nests: 1-4 statements of 1-3 dimensions, every subscript in bounds by construction.

    nest  ::= init* work*          an init stores to every element of one temporary or output, by its own indices
    work  ::= target op body       op is "=" or a reduction; the target is not an input

In a part of the nests all works update P by one operator.

Tensors: inputs A (two dimensions), B (one), U (N, only with a symbolic size); inouts P and Q; temporaries T*; outputs
O*. Shapes of inputs and inouts follow from the accesses. All data are small integers held as float64, and bodies clamp
what they read from tensors that are written, so results are exact in any order that is legal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from polyfuse.ir import Nest, Statement, Tensor, statement
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tree import Leaf, Loop, Tree, sequence
from polyfuse.sets import dimension

LARGEST = 6
"""The largest symbolic size; contexts say 1 <= N <= LARGEST."""

DIMS = "ijk"
BODIES = (
    "{0}",
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "max({0}, {1})",
    "{0} + 2 * {1}",
    "where({0} > {1}, {0}, 1)",
)


@dataclass(frozen=True)
class Affine:
    """The number per_n * N + rest."""

    per_n: int
    rest: int

    def __add__(self, other: Affine | int) -> Affine:
        added = other if isinstance(other, Affine) else Affine(0, other)
        return Affine(self.per_n + added.per_n, self.rest + added.rest)

    def or_more(self, other: Affine) -> Affine:
        """At least as large as both, for every N >= 0."""
        return Affine(max(self.per_n, other.per_n), max(self.rest, other.rest))

    def __str__(self) -> str:
        if not self.per_n:
            return str(self.rest)
        factor = "N" if self.per_n == 1 else f"{self.per_n}*N"
        return factor if not self.rest else f"{factor} {'+' if self.rest > 0 else '-'} {abs(self.rest)}"

    @property
    def size(self) -> int | str:
        """As a tensor's shape has it."""
        return str(self) if self.per_n else self.rest


@dataclass(frozen=True)
class Index:
    """A subscript and the largest value it takes; the smallest is 0 or more."""

    text: str
    highest: Affine


@dataclass
class Draft:
    """A nest in the making; `update` is the operator by which all works update P, if they do."""

    symbolic: bool
    interleaved_from: int | None
    common_depth: int
    update: str | None = None
    statements: list[Statement] = field(default_factory=list)
    extents: list[list[Affine]] = field(default_factory=list)
    shifts: list[tuple[int, ...]] = field(default_factory=list)
    grown: dict[str, list[Affine]] = field(default_factory=dict)
    fixed: dict[str, list[Affine]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)

    def interleaves(self, position: int) -> bool:
        """Whether a statement shares its outer loops with its neighbours."""
        return self.interleaved_from is not None and position >= self.interleaved_from


@st.composite
def nests(draw: st.DrawFn, max_statements: int = 4) -> Nest:
    """Nests as described above, in textual order or with outer loops shared (dates shifted)."""
    symbolic = draw(st.booleans())
    count = draw(st.integers(1, max_statements))
    start = draw(st.sampled_from([None, 0, 0, 1]))
    draft = Draft(symbolic, start if count > 1 else None, draw(st.sampled_from([1, 1, 2])))
    draft.update = draw(st.sampled_from([None, None, "+=", "max="]))
    inits = draw(st.integers(0, count - 1))
    for position in range(count):
        if position < inits:
            draw(initial(draft, position))
        else:
            draw(work(draft, position))
    return finished(draft)


def some_sizes(nest: Nest) -> st.SearchStrategy[dict[str, int]]:
    """Allowed numbers for a nest's symbolic sizes."""
    return st.fixed_dictionaries({name: st.integers(1, LARGEST) for name in nest.params})


def inputs_for(
    nest: Nest, rng: np.random.Generator, sizes: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """Small integers for every input and inout of a nest, as arrays of the shapes it wants at these sizes."""
    found = {}
    for tensor in nest.inputs:
        shape = tuple(s if isinstance(s, int) else eval(s, {}, dict(sizes)) for s in tensor.shape)
        found[tensor.name] = rng.integers(-3, 4, shape).astype(tensor.dtype)
    return found


@st.composite
def some_extents(draw: st.DrawFn, draft: Draft, rank: int) -> list[Affine]:
    """The extents of a box: N or a number, smaller where there are three."""
    largest = LARGEST if rank < 3 else 4
    numbers = st.integers(1, largest).map(lambda n: Affine(0, n))
    each = st.one_of(numbers, st.just(Affine(1, 0))) if draft.symbolic else numbers
    return draw(st.lists(each, min_size=rank, max_size=rank))


@st.composite
def some_rank(draw: st.DrawFn, draft: Draft, position: int) -> int:
    return draw(st.integers(draft.common_depth if draft.interleaves(position) else 1, 3))


@st.composite
def initial(draw: st.DrawFn, draft: Draft, position: int) -> None:
    """S: T[i, j] = body, over all of T."""
    rank = min(2, draw(some_rank(draft, position)))
    extents = draw(some_extents(draft, rank))
    name = f"{draw(st.sampled_from('TO'))}{position}"
    begin(draw, draft, position, extents)
    body = draw(some_body(draft, position))
    target = f"{name}[{', '.join(DIMS[:rank])}]"
    draft.statements.append(statement(domain_text(draft, position, box(extents)), f"{target} = {body}"))
    draft.fixed[name], draft.first[name] = extents, position


@st.composite
def work(draw: st.DrawFn, draft: Draft, position: int) -> None:
    """S: target op body, over a box, a triangle, or every second point."""
    extents = draw(some_extents(draft, draw(some_rank(draft, position))))
    begin(draw, draft, position, extents)
    op = draw(st.sampled_from(["=", "=", "=", "+=", "+=", "max=", "min=", "*="]))
    op = draft.update or op
    targets = [name for name in draft.fixed if name.startswith("O") and op == "="]
    targets += [name for name in draft.fixed if op != "=" and readable(draft, name, position)]
    name = "P" if draft.update else draw(st.sampled_from(["P", "Q", *targets, *targets]))
    target = draw(some_access(draft, position, name, ordered=op != "="))
    body = draw(some_body(draft, position))
    value = f"where({body} > 0, 1, -1)" if op == "*=" else body
    bounds = " and ".join([box(extents), *draw(some_restrictions(len(extents)))])
    draft.statements.append(statement(domain_text(draft, position, bounds), f"{target} {op} {value}"))


def begin(draw: st.DrawFn, draft: Draft, position: int, extents: list[Affine]) -> None:
    draft.extents.append(extents)
    shared = draft.common_depth if draft.interleaves(position) else 0
    draft.shifts.append(tuple(draw(st.sampled_from([0, 0, 1, 2])) for _ in range(shared)))


def box(extents: list[Affine]) -> str:
    return " and ".join(f"0 <= {d} < {e}" for d, e in zip(DIMS, extents, strict=False))


def domain_text(draft: Draft, position: int, bounds: str) -> str:
    dims = ", ".join(DIMS[: len(draft.extents[position])])
    return f"{'[N] -> ' if draft.symbolic else ''}{{ S{position}[{dims}] : {bounds} }}"


@st.composite
def some_restrictions(draw: st.DrawFn, rank: int) -> list[str]:
    """Nothing, a triangle, or every second point."""
    choices = ["i mod 2 = 0"]
    if rank > 1:
        choices += ["j <= i", "i < j", "(i + j) mod 2 = 0"]
    if rank > 2:
        choices += ["j <= k", "i + j + k <= 4"]
    return draw(st.lists(st.sampled_from(choices), max_size=1))


@st.composite
def some_body(draw: st.DrawFn, draft: Draft, position: int) -> str:
    leaves = [draw(some_leaf(draft, position)) for _ in range(2)]
    return draw(st.sampled_from(BODIES)).format(*leaves)


@st.composite
def some_leaf(draw: st.DrawFn, draft: Draft, position: int) -> str:
    """A read, clamped where its tensor is written; or an index; or a number."""
    given = ["A", "A", "B", *(["U"] if draft.symbolic else []), "i", "2"]
    written = ["P", "Q", *(name for name in draft.fixed if readable(draft, name, position))]
    name = draw(st.sampled_from([*given, *written]))
    if name in ("i", "2"):
        return name
    read = draw(some_access(draft, position, name))
    return read if name in given else f"min(max({read}, -50), 50)"


def readable(draft: Draft, name: str, position: int) -> bool:
    """Whether a tensor with an init can have its elements read here, all of them written before."""
    first = draft.first[name]
    if not (draft.interleaves(first) and draft.interleaves(position)):
        return True
    depth = draft.common_depth
    same = draft.extents[first][:depth] == draft.extents[position][:depth]
    return same and all(a <= b for a, b in zip(draft.shifts[first], draft.shifts[position], strict=True))


@st.composite
def some_access(draw: st.DrawFn, draft: Draft, position: int, name: str, ordered: bool = True) -> str:
    """An access in bounds. `ordered`: of a tensor with an init, only to elements already written."""
    extents = draft.extents[position]
    if name in draft.fixed:
        first = draft.first[name]
        both = draft.interleaves(first) and draft.interleaves(position)
        own = draft.common_depth if ordered and both else 0
        free = [draw(inside(size, extents)) for size in draft.fixed[name][own:]]
        return f"{name}[{', '.join([*DIMS[:own], *free])}]"
    if name == "U":
        return f"U[{draw(inside(Affine(1, 0), extents))}]"
    rank = {"A": 2, "P": 2, "B": 1, "Q": 1}[name]
    found = [draw(some_index(extents)) for _ in range(rank)]
    sizes = [index.highest + 1 for index in found]
    known = draft.grown.get(name, sizes)
    draft.grown[name] = [a.or_more(b) for a, b in zip(known, sizes, strict=True)]
    return f"{name}[{', '.join(index.text for index in found)}]"


@st.composite
def some_index(draw: st.DrawFn, extents: list[Affine]) -> Index:
    """A dimension as it is, shifted, reversed or doubled; the sum or difference of two; 0."""
    d = draw(st.integers(0, len(extents) - 1))
    e = draw(st.integers(0, len(extents) - 1))
    x, last, other = DIMS[d], extents[d] + -1, extents[e] + -1
    shift = draw(st.integers(1, 2))
    choices = [
        Index(x, last),
        Index(x, last),
        Index(f"{x} + {shift}", last + shift),
        Index(f"{last} - {x}", last),
        Index(f"2 * {x}", last + last),
        Index("0", Affine(0, 0)),
    ]
    if d != e:
        choices += [
            Index(f"{x} + {DIMS[e]}", last + other),
            Index(f"{x} - {DIMS[e]} + {other}", last + other),
        ]
    return draw(st.sampled_from(choices))


def inside(size: Affine, extents: list[Affine]) -> st.SearchStrategy[str]:
    """Subscripts for a dimension whose size is already known."""
    choices = ["0", f"{size + -1}"]
    for x, extent in zip(DIMS, extents, strict=False):
        if extent == size:
            choices += [x, x, f"{size + -1} - {x}"]
        elif not extent.per_n and not size.per_n and extent.rest <= size.rest:
            choices += [x, f"{x} + {size.rest - extent.rest}"]
    return st.sampled_from(choices)


def finished(draft: Draft) -> Nest:
    """Tensors of the shapes the accesses need, and the order."""
    roles = {
        "A": "input",
        "B": "input",
        "U": "input",
        "P": "inout",
        "Q": "inout",
        "T": "temporary",
        "O": "output",
    }
    size = {"U": [Affine(1, 0)]} if draft.symbolic else {}  # so that N can be told from an input's shape
    every = {**draft.grown, **size, **draft.fixed}
    tensors = [
        Tensor(name, tuple(size.size for size in every[name]), "float64", roles[name[0]])
        for name in sorted(every)
    ]
    context = f"[N] -> {{ : 1 <= N <= {LARGEST} }}" if draft.symbolic else "{ : }"
    return Nest.of(tensors, draft.statements, original_order(draft), context, name="random")


def original_order(draft: Draft) -> Tree:
    """Textual order, but with the outer loops of the interleaved statements shared."""
    start = len(draft.statements) if draft.interleaved_from is None else draft.interleaved_from
    parts: list[Tree] = [own_loops(s) for s in draft.statements[:start]]
    inside = draft.statements[start:]
    if inside:
        tree = sequence(tuple(below(own_loops(s), draft.common_depth) for s in inside))
        for level in reversed(range(draft.common_depth)):
            dates = tuple(
                (s.name, dimension(s.domain, level).add_constant_val(draft.shifts[start + k][level]))
                for k, s in enumerate(inside)
            )
            tree = Loop(f"t{level}", dates, tree)
        parts.append(tree)
    return sequence(tuple(parts))


def below(tree: Tree, depth: int) -> Tree:
    """A statement's own loops without the outermost `depth`."""
    for _ in range(depth):
        assert not isinstance(tree, Leaf)
        tree = tree.body if isinstance(tree, Loop) else tree
    return tree
