"""Make loop bounds arguments of a kernel, so that kernels which differ in them alone share one function.

    norm_fold:   for e in range(0, 1280): for e_2 in range(0, 320): …
    norm_fold_2: for e in range(0, 16): for e_2 in range(0, 32): …
    ->  norm_fold(w, r, w_folded, e_stop, e_2_stop):  for e in range(0, e_stop): for e_2 in range(0, e_2_stop): …

MobileNetV2 has 83 different kernels, of which 59 run once for all calls: they fold and pack weights of 19 shapes. A
bound becomes an argument only where machine code gains little from its value:

- of a loop each of whose steps runs many statements: LLVM keeps such a loop as it is, and tiles inside keep their
  constant sizes;
- in a kernel that runs once, of every loop around others and of a long loop;
- and where no condition or bound inside depends on the loop's values.

    part[i] = x[i] / 8    ->    part[i] = x[i] / float64(divisor)

    x[1024 * i + j]    ->    x[i_stride * i + j]

A kernel that has no other to share with then gives away what stands beside the values of loops around others, too, and
the bound of a loop of `ROW` values or more; one that runs once that of any loop.

In a kernel that runs once, so does an integer by which a fraction is divided, as that of the angles of a Fourier
transform's stage: with a known one LLVM multiplies at best.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy

from polyfuse.codegen.looptree.alpha_equal import node_form
from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.members_as_arguments import with_members_as_arguments
from polyfuse.codegen.looptree.nodes import (
    For,
    Guard,
    Kernel,
    Node,
    Store,
    below,
    nodes_in,
    stores_in,
    variables,
    with_below,
)
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.number_types import computed_in, is_real
from polyfuse.ir.scalar import leaf_types, rebuild, type_of

LONG = 32
"""Values that a loop without others inside has more of; of fewer LLVM makes vectors of a known length."""

ROW = 512
"""Values of an innermost loop from which on LLVM gains nothing by their number: what is left over after the last whole
vector takes no time beside them."""

MANY = 256
"""Instances of statements from which on a step of a loop is not unrolled, nor made vectors of with others."""

ON_BOUNDS = ("min", "max", "opaque", "uint64")
"""Operations that say what LLVM may know of a number: an argument is not known."""

CORES = "cores"

OUTSIDE = (None, CORES, "microkernel", "vector")
"""The binds of loops whose bounds may be arguments; a microkernel's is that of its steps."""


@dataclass(frozen=True)
class Bounded:
    """A kernel whose last arguments are members of batches and bounds of loops.

    Attributes:
        kernel: The kernel; its last `sizes` are the names of the members, bounds and divisors.
        values: The numbers that stood there.
    """

    kernel: Kernel
    values: tuple[int, ...]

    @property
    def form(self) -> str:
        """Return text that is equal for two kernels that differ in names, extents of arrays and values alone."""
        arrays = {name: (tensor.dtype, tensor.rank) for name, tensor in self.kernel.arrays.items()}
        stored = (store.statement for store in stores_in(self.kernel.body))
        names: dict[str, object] = dict.fromkeys((*stored, *variables(self.kernel.body), *self.kernel.sizes))
        return node_form(self.kernel.body, {**names, **arrays}).text


def with_bounds_as_arguments(kernel: Kernel, once: bool, strides: bool = False) -> Bounded | None:
    """Return a kernel with bounds as arguments, or None where every bound is better known.

    Args:
        kernel: The kernel.
        once: True if it runs once for all calls.
        strides: Give away bounds of long rows, and the distances of what neighbouring values of outer loops access.
    """
    named = with_members_as_arguments(kernel)
    lifting = _Lifting(named.kernel, once, strides)
    body = lifting.node(named.kernel.body)
    values = *named.values, *lifting.values
    if not values:
        return None
    return Bounded(replace(named.kernel, body=body, sizes=(*named.kernel.sizes, *lifting.names)), values)


class _Lifting:
    """Walks from the outermost loops inwards and gives bounds, divisors and strides names."""

    def __init__(self, kernel: Kernel, once: bool, strides: bool) -> None:
        self.once, self.strides = once, strides
        self.outer: set[str] = set()
        self.known: dict[tuple[str, int], str] = {}
        self.taken = {*kernel.arrays, *kernel.sizes, *variables(kernel.body)}
        self.names: list[str] = []
        self.values: list[int] = []

    def node(self, node: Node) -> Node:
        if isinstance(node, Store):
            strided = self._with_strides(node) if self.strides else node
            return self._with_divisors(strided) if self.once else strided
        if not isinstance(node, For):
            return with_below(node, self.node)
        if node.bind in (None, CORES) and _is_around(node):
            self.outer.add(node.variable)
        inside = node if _is_tile(node) else with_below(node, self.node)
        match inside:
            case For(low=ast.Constant(value=0), high=ast.Constant(value=int(stop))) if self._may_be(
                node, stop
            ):
                return replace(inside, high=ast.Name(self._named(f"{node.variable}_stop", stop)))
        return inside

    def _with_strides(self, store: Store) -> Store:
        """A store with factors of outer loops' values in its subscripts named."""
        if store.operation is not None:
            return store
        target, *reads = (
            replace(element, subscripts=tuple(map(self._strided, element.subscripts)))
            for element in (store.target, *store.reads)
        )
        return replace(store, target=target, reads=tuple(reads))

    def _strided(self, index: ast.expr) -> ast.expr:
        match index:
            case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                return ast.BinOp(self._strided(left), index.op, self._strided(right))
            case ast.BinOp(ast.Constant(value=int(stride)), ast.Mult(), ast.Name(variable)) if (
                variable in self.outer and stride > 1
            ):
                if (variable, stride) not in self.known:
                    self.known[variable, stride] = self._named(f"{variable}_stride", stride)
                return ast.BinOp(ast.Name(self.known[variable, stride]), ast.Mult(), index.right)
        return index

    def _with_divisors(self, store: Store) -> Store:
        """A store of fractions with the integers by which it divides named: as a size is, they are converted first."""
        own = computed_in(store.target.dtype)
        if not is_real(own) or store.operation is not None:
            return store
        leaf = leaf_types(store.target.dtype, [read.dtype for read in store.reads])

        def named(body: sympy.Basic) -> sympy.Basic:
            args = [named(arg) for arg in body.args]
            if isinstance(body, sympy.Mul) and type_of(body, leaf) == own:
                args = [
                    _by(arg, self._named("divisor", of)) if (of := _divisor(arg)) else arg for arg in args
                ]
            return rebuild(body, args)

        return replace(store, body=named(store.body))

    def _may_be(self, node: For, stop: int) -> bool:
        """True if the bound of a loop may be an argument."""
        if node.bind not in OUTSIDE or _decides(node):
            return False
        if _instances(node.body) >= MANY:
            return True
        around = _is_around(node)
        if self.strides and node.bind in (None, CORES) and not around and stop >= ROW:
            return True
        return self.once and not _is_tile(node) and (around or self.strides or stop > LONG)

    def _named(self, wanted: str, value: int) -> str:
        name = fresh(wanted, self.taken)
        self.taken.add(name)
        self.names.append(name)
        self.values.append(value)
        return name


def _divisor(factor: sympy.Basic) -> int:
    """The integer above 1 that a factor divides by; 0 for another factor."""
    match factor:
        case sympy.Pow(args=(sympy.Integer() as number, sympy.Integer(p=-1))) if number > 1:
            return int(number)
    return 0


def _by(factor: sympy.Basic, name: str) -> sympy.Basic:
    """A factor that divides by a name instead."""
    return rebuild(factor, (sympy.Symbol(name), factor.args[1]))


def _is_around(loop: For) -> bool:
    """True if a loop has others inside."""
    return any(isinstance(each, For) for each in nodes_in(loop.body))


def _is_tile(node: Node) -> bool:
    return isinstance(node, For) and node.bind == "microkernel"


def _decides(loop: For) -> bool:
    """True if conditions or bounds inside depend on a loop's values: they are simpler where these are known."""
    for node in nodes_in(loop.body):
        match node:
            case Guard(condition):
                asked = [condition]
            case For(low=low, high=high):
                asked = [low, high]
            case _:
                continue
        if any(mentions(each, loop.variable) for each in asked):
            return True
    return False


def _instances(node: Node) -> int:
    """The instances of statements that a node runs, with loops of unknown length as one step."""
    inside = sum(map(_instances, below(node)))
    match node:
        case Store():
            return 1
        case For(low=ast.Constant(value=int(low)), high=ast.Constant(value=int(stop)), step=step):
            return inside * max(1, (stop - low) // step)
    return inside


def operations_called(source: str) -> tuple[str, ...]:
    """Return the names of the operations that a kernel's source calls, in order, but for those on bounds alone.

    >>> operations_called("tile_mac(TileSpec(rows=opaque(6)), y=y, b_at=(min(j, 3), 0))")
    ('TileSpec', 'tile_mac')
    """
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return tuple(sorted(call.id for call in calls if isinstance(call, ast.Name) and call.id not in ON_BOUNDS))


def alike(kernels: Sequence[Bounded]) -> frozenset[str]:
    """Return the forms that kernels with different values have."""
    seen: dict[str, tuple[int, ...]] = {}
    several = set()
    for each in kernels:
        if seen.setdefault(each.form, each.values) != each.values:
            several.add(each.form)
    return frozenset(several)
