"""Test whether two parts of a program are equal up to names, and rename one to the other.

    for i: for j: mac0: y0[i, j] += x[i, j]       ->  form  for i: for j: #0: #1[i, j] += #2[i, j],  names mac0, y0, x
    for i: for j: mac1: y1[i, j] += a0[i, j]      ->  the same form, names mac1, y1, a0

The layers of a network are such parts. What holds for one of them, and what was decided about it, holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from polyfuse.ir.access import Access
from polyfuse.ir.gather import read_from
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import RENAMED, Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Fetch, Leaf, Loop, Sequence, Tree, children, loops, parts, restrict, statements
from polyfuse.sets import IN, OUT

Names = Callable[[str], str]
"""The new name for a statement, a tensor or a loop."""


@dataclass(frozen=True)
class Form:
    """A part of a tree without the names of its statements, tensors and loops; equal ones differ in `names` alone.

    The names are those of the statements, the tensors and the loops, each in order of appearance.
    """

    text: tuple[str, ...]
    names: tuple[str, ...] = field(compare=False)
    loops: tuple[str, ...] = field(compare=False)


def form_of(nest: Nest, part: Tree) -> Form:
    """The form of some part of a tree over the nest.

    Exact: what isl prints reads back as the same set, and a name stands before a bracket only where it names a tuple.
    """
    inside = [nest.statement(name) for name in statements(part)]
    touched = [nest.tensor(name) for s in inside for name in s.tensors]
    tensors = dict.fromkeys([*touched, *(part for tensor in touched for part in read_from(nest, tensor))])
    names = dict.fromkeys([*(s.name for s in inside), *(t.name for t in tensors)])
    numbers = {name: number for number, name in enumerate(names)}
    steps = {name: number for number, name in enumerate(dict.fromkeys(loop.name for loop in loops(part)))}
    text = (
        *(line for s in inside for line in _statement(s, numbers)),
        *(f"{numbers[t.name]}: {t.dtype} {t.shape} {_gather(t, numbers)} {_checked(t)}" for t in tensors),
        *_tree(part, numbers, steps),
    )
    return Form(text, tuple(names), tuple(steps))


def dependences_of(nest: Nest, part: Tree, form: Form) -> tuple[str, ...]:
    """The dependences among the statements of a part without names, in some fixed order."""
    numbers = {name: number for number, name in enumerate(form.names)}
    inside = nest.pairs_in_order.among(part.members)
    return tuple(sorted(f"{numbers[p.source]} {numbers[p.sink]} {p.form}" for p in inside))


def repeated(nest: Nest, tree: Tree) -> tuple[frozenset[str], ...]:
    """The statements of each part that is equal to an earlier one under the same loops, with equal dependences inside.

    for region in 0: { mac0, relu0; mac1, relu1; pool }   ->   ({ mac1, relu1 },)

    A part is a kernel, or what a kernel whose loops have one value each runs one after the other. All that isl can be
    asked about such a part by itself, with the loops around it, it has answered for the earlier one.
    """
    known: set[tuple[Form, tuple[str, ...]]] = set()
    found = []
    every = [part for kernel in parts(tree) for part in _run_by(kernel)]
    for part in every if len(every) > 1 else ():
        form = form_of(nest, part)
        key = form, dependences_of(nest, part, form)
        if key in known:
            found.append(part.members)
        known.add(key)
    return tuple(found)


def _run_by(kernel: Tree) -> tuple[Tree, ...]:
    """The parts of a kernel, each with the loops around it; the kernel itself where a loop has several values."""
    inside = kernel
    while isinstance(inside, Loop) and all(date.is_cst() for _, date in inside.dates):
        inside = inside.body
    if inside is kernel or not isinstance(inside, Sequence):
        return (kernel,)
    return tuple(part for child in inside.children if (part := restrict(kernel, child.members)) is not None)


def _checked(tensor: Tensor) -> str:
    return "checked" if tensor.is_checked else "in part" if tensor.below else ""


def _gather(tensor: Tensor, numbers: Mapping[str, int]) -> str:
    gather = tensor.gather
    return "" if gather is None else f"= {numbers[gather.table]}[{numbers[gather.index]}]"


def _statement(s: Statement, numbers: Mapping[str, int]) -> Iterable[str]:
    yield str([numbers[name] for name in (s.name, *s.tensors)])
    yield from s.form


def _tree(tree: Tree, numbers: Mapping[str, int], steps: Mapping[str, int]) -> Iterable[str]:
    match tree:
        case Leaf(name):
            yield f"#{numbers[name]}"
            return
        case Sequence():
            yield f"{len(tree.children)} parts, barriers {tree.barriers} {tree.grid}"
        case Loop():
            # a loop around several parts has buffers of tensors, too, that this one does not access
            buffers = [
                replace(b, tensor=f"#{numbers[b.tensor]}") for b in tree.buffers if b.tensor in numbers
            ]
            fetches = [
                (numbers[f.tensor], steps.get(f.loop, f.loop), f.by)
                for f in tree.fetches
                if f.tensor in numbers
            ]
            streams = [numbers[tensor] for tensor in tree.streams if tensor in numbers]
            waits = f"{tree.barrier} {tree.grid} {tree.slots}"
            marks = f"{tree.bind} {waits} {tree.apart} {tree.math} {buffers} {fetches} {streams}"
            yield f"loop {steps[tree.name]} {marks}"
            yield from (f"{numbers[name]} {date}" for name, date in tree.forms)
    for child in children(tree):
        yield from _tree(child, numbers, steps)


def names_between(first: Form, other: Form) -> Mapping[str, str] | None:
    """The names of a part for those of an equal one, where they differ; None if a loop would get another name."""
    names = {old: new for old, new in zip(first.names, other.names, strict=True) if old != new}
    return names if first.loops == other.loops and names.keys().isdisjoint(first.loops) else None


# -- with other names --------------------------------------------------------------------------------------------------


def renamed_statement(s: Statement, names: Names) -> Statement:
    """A statement and the tensors it accesses by other names."""
    name = names(s.name)
    write, *reads = (_renamed_access(access, name, names) for access in s.accesses)
    made = Statement(name, s.domain.set_tuple_name(name), write, s.op, tuple(reads), s.body)
    made.answers[RENAMED] = s.answers.get(RENAMED, s)
    return made


def _renamed_access(access: Access, statement: str, names: Names) -> Access:
    tensor = names(access.tensor)
    return Access(tensor, access.map.set_tuple_name(IN, statement).set_tuple_name(OUT, tensor))


def renamed_tree(tree: Tree, names: Names) -> Tree:
    """A tree over statements and tensors by other names."""
    match tree:
        case Leaf(name):
            return Leaf(names(name))
        case Sequence():
            return replace(tree, children=tuple(renamed_tree(child, names) for child in tree.children))
        case Loop():
            dates = ((names(name), date.set_tuple_id(IN, _id(names(name)))) for name, date in tree.dates)
            return replace(
                tree,
                name=names(tree.name),
                dates=tuple(dates),
                body=renamed_tree(tree.body, names),
                buffers=tuple(replace(b, tensor=names(b.tensor)) for b in tree.buffers),
                fetches=tuple(Fetch(names(f.tensor), names(f.loop), f.by) for f in tree.fetches),
                streams=tuple(names(tensor) for tensor in tree.streams),
            )


def _id(name: str) -> isl.Id:
    """The name as that of a tuple; an Id made by itself equals no other."""
    return isl.Set("{ [] }").set_tuple_name(name).get_tuple_id()
