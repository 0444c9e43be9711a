"""Recognise attention: find which dimensions are batches, rows, keys, columns of the result, and steps of a score.

    s[b, i, j] += q[b, i, d] * k[b, j, d]     m[b, i]     e[b, i, j]     o[b, i, d] += e[b, i, j] * v[b, j, d]
      b: batch 0, i: row, j: key, d: step     row         row, key         b: batch 0, i: row, j: key, d: column

Starting from the product under the maximum, dimensions tell what the axes of temporaries are, and these what the
dimensions of other statements are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.ir import Access, Nest
from polyfuse.ir.tree import loops, statements
from polyfuse.rewrite import Online
from polyfuse.sets import IN, OUT
from polyfuse.strategy.match.gemm import Product, products_of
from polyfuse.strategy.remarks import Reason, Refused

ROW, KEY, COLUMN, STEP, BLOCK = "row", "key", "column", "step", "block"
BATCH = "batch "
"""The outer dimensions are numbered: batch 0, batch 1."""

Roles = tuple[str, ...]


@dataclass(frozen=True)
class OneKernel:
    """The statements of an attention kernel before, in and after the loop over keys, and their dimensions' roles.

    `scores` is the product of queries and keys, `results` that of exponentials and values.
    """

    nest: Nest
    before: tuple[str, ...]
    inside: tuple[str, ...]
    behind: tuple[str, ...]
    scores: Product
    results: Product
    dims: Mapping[str, Roles]
    axes: Mapping[str, Roles]

    @property
    def names(self) -> tuple[str, ...]:
        """All statements, in order."""
        return (*self.before, *self.inside, *self.behind)

    @property
    def exponentials(self) -> str:
        """The temporary that the second product multiplies with values."""
        return self.results.left.name

    @property
    def batches(self) -> tuple[str, ...]:
        """The roles of the dimensions outside of rows."""
        return tuple(f"{BATCH}{n}" for n in range(len(self.results.others)))

    @property
    def factors(self) -> tuple[str, ...]:
        """The tensors that both products read and sum up in."""
        names = (self.scores.statement, self.results.statement)
        return tuple(tensor for name in names for tensor in self.nest.statement(name).tensors)

    @property
    def between(self) -> int:
        """Operations that are written for each score between its product and its exponential, and conversions."""
        products = {self.scores.statement, self.results.statement}
        names = (n for n in self.inside if {ROW, KEY} <= {*self.dims[n]} and n not in products)
        found = [self.nest.statement(name) for name in names]
        halves = sum(self.nest.tensor(access.tensor).is_half for s in found for access in s.accesses)
        return len(found) + halves

    def extent(self, product: Product, dim: int) -> int:
        """The extent of a product's dimension."""
        values = self.nest.domains[product.statement]
        low, high = values.dim_min_val(dim), values.dim_max_val(dim)
        return int(high.to_python()) - int(low.to_python()) + 1


def one_kernel(made: Online) -> OneKernel | Refused:
    """The attention kernel of a rewritten nest, or the reason why there is none."""
    nest = made.nest
    inside = next(statements(loop) for loop in loops(nest.order) if loop.name == made.loop)
    of_results = [p for name in made.sums for p in products_of(nest, name)]
    of_scores = [p for name in inside if name not in made.sums for p in products_of(nest, name)]
    if len({p.statement for p in of_results}) != 1 or len({p.statement for p in of_scores}) != 1:
        line = "a kernel has one product that makes scores and one of exponentials and values"
        return Refused(Reason.OTHER_FORM, line)
    written = {nest.statement(name).write.tensor for name in inside}
    order = statements(nest.order)
    first, last = order.index(inside[0]), order.index(inside[-1])
    around = [name for name in order if name not in inside and written & set(nest.statement(name).tensors)]
    before = tuple(name for name in around if order.index(name) < first)
    behind = tuple(name for name in around if order.index(name) > last)
    names = (*before, *inside, *behind)
    for results in of_results:
        known = _Known(nest, names, made.loop)
        known.start(results)
        for scores in of_scores:
            found = known.all_of(scores)
            if isinstance(found, Refused):
                continue
            return _with_stores(OneKernel(nest, before, inside, behind, scores, results, *found), made.loop)
    line = "not all loops are those over batches, rows, keys, and steps or columns of a product"
    return Refused(Reason.OTHER_FORM, line)


def _with_stores(one: OneKernel, block: str) -> OneKernel:
    """The kernel with what alone reads its results, element by element: what rounds them on their way to memory.

    o = o_sum / l   ->   o = o_sum / l;  out = half(o)
    """
    nest, order = one.nest, statements(one.nest.order)
    for name in one.behind:
        result = nest.statement(name).write.tensor
        readers = nest.readers(result)
        if nest.tensor(result).role != "temporary" or len(readers) != 1 or readers[0].op != "=":
            continue
        store = readers[0]
        if store.name in one.names or order.index(store.name) < order.index(name) or len(store.reads) != 1:
            continue
        known = _Known(nest, (*one.names, store.name), block)
        known.start(one.results)
        found = known.all_of(one.scores)
        if not isinstance(found, Refused) and {*found[0][store.name]} == {*one.batches, ROW, COLUMN}:
            dims, axes = found
            one = replace(one, behind=(*one.behind, store.name), dims=dims, axes=axes)
    return one


class _Known:
    """The known roles of temporaries' axes and of dimensions."""

    def __init__(self, nest: Nest, names: tuple[str, ...], block: str) -> None:
        self.nest, self.names, self.block = nest, names, block
        self.dims: dict[str, dict[int, str]] = {name: {} for name in names}
        self.axes: dict[str, dict[int, str]] = {}

    def start(self, p: Product) -> None:
        """The dimensions of the product under the maximum, and all that follows from them."""
        own = {p.rows: ROW, p.columns: COLUMN, **dict.fromkeys(p.steps, KEY)}
        own |= {d: f"{BATCH}{n}" for n, d in enumerate(p.others)}
        self.dims[p.statement] = own
        while self._spread():
            pass

    def all_of(self, scores: Product) -> tuple[dict[str, Roles], dict[str, Roles]] | Refused:
        """Every dimension and every axis; or what does not fit."""
        mine = self.dims[scores.statement]
        if mine.get(scores.rows) != ROW or mine.get(scores.columns) != KEY or len(scores.steps) != 1:
            return Refused(Reason.OTHER_FORM, "scores have other rows or keys")
        found: dict[str, Roles] = {}
        for name in self.names:
            dims = dict(self.dims[name])
            if name == scores.statement:
                dims[scores.steps[0]] = STEP
            s = self.nest.statement(name)
            if self.block in s.dims:
                dims[s.dims.index(self.block)] = BLOCK
            if len(dims) != len(s.dims) or len(set(dims.values())) != len(dims):
                return Refused(Reason.OTHER_FORM, f"{name} has other loops")
            found[name] = tuple(dims[d] for d in range(len(s.dims)))
        axes = {t: tuple(own[a] for a in range(len(own))) for t, own in self.axes.items()}
        return found, axes

    def _spread(self) -> bool:
        """One round over all accesses of temporaries; whether anything was learnt."""
        before = sum(map(len, (*self.dims.values(), *self.axes.values())))
        for name in self.names:
            s = self.nest.statement(name)
            for access in s.accesses:
                if self.nest.tensor(access.tensor).role == "temporary" or access is s.write:
                    self._through(name, access)
        return before != sum(map(len, (*self.dims.values(), *self.axes.values())))

    def _through(self, name: str, access: Access) -> None:
        dims, axes = self.dims[name], self.axes.setdefault(access.tensor, {})
        for axis, dim in _axes_of(access).items():
            if axis in axes:
                dims.setdefault(dim, axes[axis])
            elif dim in dims:
                axes[axis] = dims[dim]


def _axes_of(access: Access) -> dict[int, int]:
    """For each axis of a tensor the dimension that counts it, where the subscript is that dimension."""
    element, found = access.subscripts(), dict[int, int]()
    local = isl.LocalSpace.from_space(element.get_domain_space())
    for axis in range(access.map.dim(OUT)):
        value = element.get_pw_aff(axis)
        for d in range(element.dim(IN)):
            own = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, d))
            if value.intersect_domain(value.domain()).is_equal(own.intersect_domain(value.domain())):
                found[axis] = d
    return found
