"""How the sums of a weight's gradient lie: as a product wants them, where the weight has the elements of a window.

    w_grad[f, c, r] += y_bar[n, f, p] * x[n, c, p + r]    ->    w_sum[r, c, f] += …;  w_grad[f, c, r] = w_sum[r, c, f]

Each element r of the window is a product of its own, of channels by filters, over pixels whose bounds depend on r. Its
columns are the filters, which only y_bar moves with; in w they are far apart, and its neighbours are the window's. So
are those of a window of one element that takes every second pixel, x[n, c, 2 * p]: such steps are no row of numbers.
"""

from __future__ import annotations

from polyfuse.ir import Access, Statement
from polyfuse.sets import IN, OUT

Order = tuple[int, ...]
"""The axes of a tensor, in the order in which an array has them."""


def window_layout(s: Statement, position: int) -> Order | None:
    """The axes of a read's adjoint, window first and columns last; None if the read stands in no product over windows.

    Args:
        s: A sum of products of two reads.
        position: The read whose adjoint is summed.

    Returns:
        The order of axes.
    """
    if s.op != "+=" or not s.body.is_Mul or len(s.reads) != 2 or len(s.body.args) != 2:
        return None
    weight, image = s.reads[position], s.reads[1 - position]
    every = range(len(s.dims))
    subscripts = [{d for d in every if _moves(image, d, o)} for o in range(image.map.dim(OUT))]
    along = [{d for d in every if _moves(weight, d, o)} for o in range(weight.map.dim(OUT))]
    windows = [
        o for o, dims in enumerate(along) if any(dims & other and len(other) > 1 for other in subscripts)
    ]
    if not windows and _skips(image, set().union(*along)):
        windows = [o for o, dims in enumerate(along) if not dims]
        if windows and windows[-1] != len(along) - 1:
            return None
    columns = [o for o, dims in enumerate(along) if dims and not any(dims & other for other in subscripts)]
    if not windows or not columns or windows[-1] < max(o for o, dims in enumerate(along) if dims):
        return None
    rest = [o for o in range(len(along)) if o not in (*windows, *columns)]
    return (*windows, *rest, *columns)


def _skips(image: Access, kept: set[int]) -> bool:
    """True if a sum over dimensions that are not `kept` takes only some of an array's elements along an axis."""
    subscripts = image.subscripts()
    pieces = (p for o in range(image.map.dim(OUT)) for _, p in subscripts.get_pw_aff(o).get_pieces())
    summed = [d for d in range(image.map.dim(IN)) if d not in kept]
    return any(abs(piece.get_coefficient_val(IN, d).to_python()) > 1 for piece in pieces for d in summed)


def _moves(access: Access, d: int, o: int) -> bool:
    """True if a coordinate of an access depends on a dimension."""
    return bool(access.subscripts().get_pw_aff(o).involves_dims(IN, d, 1))
