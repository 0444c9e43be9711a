"""Find how the rows of a product's factors lie in memory, and so how threads may copy tiles of them."""

from __future__ import annotations

from polyfuse.analysis.copies import holds_rounded
from polyfuse.analysis.vector_access import ACCESS_BYTES, agrees, flat_position, is_multiple
from polyfuse.ir import Access, Nest
from polyfuse.ir.number_types import HALVES, ITEMSIZE
from polyfuse.ir.precision import STORED, Math
from polyfuse.sets import IN, dimension
from polyfuse.strategy.match.gemm import Factor, Product, moved_axes, moves_by_one
from polyfuse.strategy.match.gemm_problem import Kept, Terms


def in_vectors(nest: Nest, product: Product, factor: Factor, itemsize: int, halves: bool = False) -> bool:
    """True if every row of a factor begins at a multiple of 16 bytes; isl proves each copy when code is made.

    With `halves` rows of these may be, of 8 bytes, which come through registers or are kept as they are. Of a computed
    factor all reads have such rows along the same dimension, or are the same along it.
    """
    tensor = nest.tensor(factor.access.tensor)
    if factor.computed:
        return _terms_in_vectors(nest, product, factor, itemsize)
    if tensor.is_half and not halves:
        return False
    if not _by_one(nest, product, factor):
        return _neighbours(nest, product, factor.access, factor, ACCESS_BYTES // itemsize) is not None
    size = tensor.shape[-1]
    return isinstance(size, int) and size * itemsize % ACCESS_BYTES == 0


def by_steps(nest: Nest, product: Product, factor: Factor) -> bool:
    """True if a factor's steps are neighbours in memory."""
    if not _by_one(nest, product, factor):
        return _neighbours(nest, product, factor.access, factor, 1) == product.steps[0]
    axes = moved_axes(factor.access, len(nest.statement(product.statement).dims)) or {}
    return axes.get(product.steps[0]) == nest.tensor(factor.access.tensor).rank - 1


def _by_one(nest: Nest, product: Product, factor: Factor) -> bool:
    return factor.computed or moves_by_one(factor.access, len(nest.statement(product.statement).dims))


def may_run_ahead(nest: Nest, product: Product, factor: Factor, itemsize: int) -> bool:
    """True if copies of a factor go on while a thread does other things: of rows that nothing is computed from."""
    return not factor.computed and in_vectors(nest, product, factor, itemsize)


def terms_of(factor: Factor) -> Terms:
    """The reads and operations of a factor's element."""
    return Terms(len(factor.reads), factor.operations)


def _terms_in_vectors(nest: Nest, product: Product, factor: Factor, itemsize: int) -> bool:
    """True if what a value is computed from is in rows of 16 bytes, all along one dimension.

    { mac[i, j, k] -> x[i, k] + x[512 + i, 512 + k] } is, along k; x[i, k] + x[k, i] is not.
    """
    results = product.rows if factor is product.left else product.columns
    along = product.steps[0] if by_steps(nest, product, factor) else results
    moving = [a for a in factor.reads if a.subscripts().involves_dims(IN, along, 1)]
    return bool(moving) and all(
        not nest.tensor(a.tensor).is_half
        and _neighbours(nest, product, a, factor, ACCESS_BYTES // itemsize) == along
        for a in moving
    )


def _neighbours(nest: Nest, product: Product, access: Access, factor: Factor, count: int) -> int | None:
    """The dimension along which a factor's elements are neighbours, rows of `count` of them from multiples of it on.

    { mac[i, j, k] -> x[2i, k // 8, k % 8] }: k, in rows of 1, 2, 4 or 8.
    """
    domain, dims = nest.domains[product.statement], len(nest.statement(product.statement).dims)
    position = flat_position(access, nest.tensor(access.tensor).shape)
    if position is None:
        return None
    for d in factor.axes:
        others = [dimension(domain, other) for other in range(dims) if other != d]
        first = position.sub(dimension(domain, d))
        if agrees(domain, others, first) and is_multiple(domain, first, count):
            return d
    return None


def kept_factors(nest: Nest, product: Product, math: Math) -> Kept | None:
    """The contiguous dimension of the right factor, if a product's factors may be copied as they are."""
    if math not in STORED or why_not_kept(nest, product, math) is not None:
        return None
    return "steps" if by_steps(nest, product, product.right) else "columns"


def why_not_kept(nest: Nest, product: Product, math: Math) -> str | None:
    """The reason why a warpgroup's factors cannot be copied to shared memory unchanged; None if they can.

    Copies that no thread waits for bring 4 bytes at least and round nothing. In a core matrix two columns of a thread
    are neighbours, but only one of its rows (core_matrix.py): the left factor's neighbours have to be steps. So do both
    of tf32 numbers, of which nothing is turned on its way (PTX ISA, "wgmma.mma_async": transposed halves alone).
    """
    for factor in (product.left, product.right):
        tensor, size = nest.tensor(factor.access.tensor), ITEMSIZE[STORED[math]]
        if factor.computed:
            return f"{factor.name} is computed"
        if not holds_rounded(nest, tensor.name, math):
            return f"{tensor.name} is {tensor.dtype} and rounded to {math}"
        if not in_vectors(nest, product, factor, size, halves=True):
            return f"rows of {tensor.name} begin at no multiples of {ACCESS_BYTES} bytes"
    if not by_steps(nest, product, product.left):
        return f"rows of the product are neighbours in {product.left.name}, and not its steps"
    if STORED[math] not in HALVES and not by_steps(nest, product, product.right):
        return f"columns of the product are neighbours in {product.right.name}, and not its steps"
    return None
