"""Local arrays, such as `np.zeros((N, M))`, as temporaries of that shape.

    t = np.zeros((N, 2))        ->   temporary t: float64[N, 2];   for t_0: for t_1: t[t_0, t_1] = 0.0
    t = np.empty(len(x))        ->   temporary t: float64[N]
    t = np.full_like(x, 3.0)    ->   temporary t: x's type and shape, filled with 3.0

In a loop it is the same array again, filled anew, which no program can tell from a new one: arrays have no other names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import islpy as isl

from polyfuse.frontend.python.affine import Affine, instances
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir import DType, Tensor
from polyfuse.ir.number_types import ITEMSIZE, element_type, is_real
from polyfuse.ir.sizes import extent_text

ALLOWED = (
    "np.zeros, np.ones, np.empty of a shape that is affine in sizes, np.full of a shape and a value, their _like forms "
    f"of an array; dtype= {', '.join(ITEMSIZE)}"
)


@dataclass(frozen=True)
class LocalArray:
    """An array that the function makes. `fill` is what its elements are at first; None if they are nothing yet."""

    tensor: Tensor
    extents: tuple[ast.expr, ...]
    fill: ast.expr | None

    def filling(self, node: ast.stmt) -> ast.stmt | None:
        """The loops that fill it, as Python's syntax at the place of `node`."""
        if self.fill is None:
            return None
        names = [f"{self.tensor.name}_{d}" for d in range(self.tensor.rank)]
        subscript = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        target = ast.Subscript(ast.Name(self.tensor.name, ast.Load()), subscript, ast.Store())
        made: ast.stmt = ast.Assign([target], self.fill)
        for name, extent in reversed(list(zip(names, self.extents, strict=True))):
            bound = ast.Call(ast.Name("range", ast.Load()), [extent], [])
            made = ast.For(ast.Name(name, ast.Store()), bound, [made], [])
        for part in ast.walk(made):
            if not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return made


def local_array(names: Names, name: str, call: ast.Call, context: isl.Set) -> LocalArray:
    """Read a call of np.zeros, np.empty_like, …. Raises NotAffine for a shape or a type that cannot be read."""
    maker = names.array_maker(call)
    assert maker is not None, "only calls that make arrays get here"
    kind, _, like = maker.partition("_")
    wanted = 2 if kind == "full" else 1
    positional, named = list(call.args), {word.arg: word.value for word in call.keywords}
    if "fill_value" in named and kind == "full":
        positional.insert(1, named.pop("fill_value"))
    if len(positional) == wanted + 1:
        named["dtype"] = positional.pop()
    if len(positional) != wanted or set(named) - {"dtype"}:
        _refuse(names, call, f"{ast.unparse(call)}: these arguments")
    model = _model(names, positional[0]) if like else None
    parts = names.shapes[model.name] if model is not None else _extents(positional[0])
    shape = tuple(_extent(names, part, context) for part in parts)
    dtype = _dtype(names, named["dtype"]) if "dtype" in named else model.dtype if model else "float64"
    number = {"zeros": 0, "ones": 1}.get(kind)
    fill = positional[1] if kind == "full" else None
    if number is not None:
        fill = ast.copy_location(ast.Constant(float(number) if is_real(dtype) else number), call)
    if kind == "full" and "dtype" not in named and model is None and not isinstance(fill, ast.Constant):
        _refuse(names, call, f"{ast.unparse(call)}: the type of the elements is not said")
    if isinstance(fill, ast.Constant) and kind == "full" and "dtype" not in named and model is None:
        dtype = "int64" if isinstance(fill.value, int) else "float64"
    return LocalArray(Tensor(name, shape, dtype, "temporary"), parts, fill)


def _extents(node: ast.expr) -> tuple[ast.expr, ...]:
    return tuple(node.elts) if isinstance(node, ast.Tuple | ast.List) else (node,)


def _model(names: Names, node: ast.expr) -> Tensor:
    """The array in np.zeros_like(A)."""
    given = {**names.tensors, **names.arrays}
    found = given.get(node.id) if isinstance(node, ast.Name) else None
    if found is None or found.rank == 0:
        _refuse(names, node, f"{ast.unparse(node)} is not a known array")
    return found


def _extent(names: Names, node: ast.expr, context: isl.Set) -> int | str:
    for index in _indices_in(names, node):
        _refuse(names, index, f"the extent {ast.unparse(node)} depends on the index {index.id}")
    value = Affine(names, instances(None, names.sizes, ())).value(node)
    text = extent_text(value.gist_params(context))
    if text is None:
        _refuse(names, node, f"the extent {ast.unparse(node)} is not affine in sizes")
    return text


def _indices_in(names: Names, node: ast.expr) -> Iterator[ast.Name]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in names.indices)


def _dtype(names: Names, node: ast.expr) -> DType:
    match node:
        case ast.Attribute(value=ast.Name() as array, attr="dtype"):
            return _model(names, array).dtype
    given: Any = node.value if isinstance(node, ast.Constant) else names.outside(node)
    dtype = element_type(given)
    if dtype is None:
        _refuse(names, node, f"the element type {ast.unparse(node)}")
    return dtype


def _refuse(names: Names, node: ast.expr, why: str) -> NoReturn:
    names.source.refuse(node, why, ALLOWED)
