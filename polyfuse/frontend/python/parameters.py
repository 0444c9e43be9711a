"""Annotations: "f64", "f64[M, N]", "f32[2 * N + 1]" as tensors over symbolic sizes.

A size is a name in a shape, or an integer parameter that bounds a loop, stands in a subscript or in an `if`: the call
gives its value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import islpy as isl
import numpy as np

from polyfuse.frontend.python.affine import Affine, instances
from polyfuse.frontend.python.aliases import assigned_in, used_as_sizes
from polyfuse.frontend.python.scope_names import Names
from polyfuse.frontend.python.source import Source
from polyfuse.ir import DType, Tensor
from polyfuse.ir.number_types import COMPLEX, COMPLEX_NOTES, NUMBER_TYPES, is_integer
from polyfuse.sets import WORDS

DTYPES: dict[str, DType] = {NUMBER_TYPES[dtype].note: dtype for dtype in get_args(DType)}
PYTHON_FLOAT = "float"
"""The annotation of a float of Python: a float64 that takes the type of what it meets, as a literal does."""
WHOLE = "A[…] = …, in loops; another name for another array"
ALLOWED = (
    f'"f64", "f64[M, N]", "f32[2 * N + 1]"; {", ".join((*DTYPES, *COMPLEX_NOTES))}; extents affine in sizes'
)


@dataclass(frozen=True)
class Annotated:
    """One parameter as it is written; the shape of an array of complex numbers ends with their 2 parts (`pairs`).

    `is_python_float` is said of a number that takes the type of what it meets.
    """

    node: ast.arg
    dtype: DType
    shape: tuple[ast.expr, ...]
    pairs: bool = False
    is_python_float: bool = False

    @property
    def is_integer(self) -> bool:
        """True for an integer scalar."""
        return not self.shape and self.dtype in ("int32", "int64")


@dataclass(frozen=True)
class Assigned:
    """The names a function assigns: variables, loop indices, and the arrays it makes."""

    locals: frozenset[str]
    indices: frozenset[str]
    made: frozenset[str]


def parameters(source: Source) -> tuple[Annotated, ...]:
    """The parameters in order. NotAffine where one has no annotation that can be read."""
    args = source.tree.args
    for odd in (args.vararg, args.kwarg, *args.posonlyargs):
        if odd is not None:
            source.refuse(odd, "only plain parameters can be read", "def f(A: …, alpha: … = 1.5)")
    return tuple(_annotated(source, node) for node in (*args.args, *args.kwonlyargs))


def defaults(names: Names) -> dict[str, float]:
    """The values of parameters that a call may leave out. NotAffine for other values than numbers, and for arrays."""
    source, args = names.source, names.source.tree.args
    plain, named = source.function.__defaults__ or (), source.function.__kwdefaults__ or {}
    nodes = [
        *args.args[len(args.args) - len(plain) :],
        *(node for node in args.kwonlyargs if node.arg in named),
    ]
    given = [*plain, *(named[node.arg] for node in nodes[len(plain) :])]
    texts = [*args.defaults, *(text for text in args.kw_defaults if text is not None)]
    for node, value, written in zip(nodes, given, texts, strict=True):
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        whole = number and (not is_integer(names.tensors[node.arg].dtype) or float(value).is_integer())
        if names.tensors[node.arg].rank or not whole:
            source.refuse(
                written,
                f"the default {ast.unparse(written)} of {names.tensors[node.arg]}",
                "a number for a scalar",
            )
    return {node.arg: value for node, value in zip(nodes, given, strict=True)}


def _annotated(source: Source, node: ast.arg) -> Annotated:
    note = node.annotation
    if note is None:
        source.refuse(node, f"the parameter {node.arg} has no annotation with type and shape", ALLOWED)
    parsed = note  # unquoted, under `from __future__ import annotations`
    if isinstance(note, ast.Constant) and isinstance(note.value, str):
        try:
            parsed = ast.parse(note.value.strip(), mode="eval").body
        except SyntaxError:
            source.refuse(note, f"the annotation {note.value!r} cannot be read", ALLOWED)
        for part in ast.walk(parsed):  # errors point at the annotation
            ast.copy_location(part, note)
    shape: tuple[ast.expr, ...] = ()
    if isinstance(parsed, ast.Subscript):
        shape = tuple(parsed.slice.elts) if isinstance(parsed.slice, ast.Tuple) else (parsed.slice,)
        parsed = parsed.value
    if isinstance(parsed, ast.Name) and parsed.id in COMPLEX_NOTES:
        dtype = COMPLEX[COMPLEX_NOTES[parsed.id]]
        return Annotated(node, dtype, (*shape, ast.copy_location(ast.Constant(2), note)), pairs=True)
    if isinstance(parsed, ast.Name) and parsed.id == PYTHON_FLOAT and not shape:
        return Annotated(node, "float64", (), is_python_float=True)
    if not (isinstance(parsed, ast.Name) and parsed.id in DTYPES):
        source.refuse(note, f"the annotation {ast.unparse(note)} cannot be read", ALLOWED)
    return Annotated(node, DTYPES[parsed.id], shape)


def assigned(source: Source) -> Assigned:
    """Return the names that a function assigns. Raises NotAffine if one is used as a loop index or array and as
    something else.
    """
    indices: set[str] = set()
    variables: set[str] = set()
    made: set[str] = set()
    outside = Names(source, (), {}, {}, frozenset(), frozenset())
    for node in ast.walk(source.tree):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            indices.add(node.target.id)
    for node in ast.walk(source.tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                if target.id in indices:
                    source.refuse(
                        target, f"{target.id} is a loop variable and assigned as well", "another name"
                    )
                makes = isinstance(node, ast.Assign) and outside.array_maker(node.value) is not None
                (made if makes else variables).add(target.id)
                if target.id in made & variables:
                    source.refuse(target, f"the array {target.id} is assigned as a whole", WHOLE)
    return Assigned(frozenset(variables), frozenset(indices), frozenset(made))


def names_of(source: Source) -> Names:
    """Every name of a function, and the tensors of its parameters (all with role input)."""
    given, changed = parameters(source), assigned(source)
    as_size = names_in_sizes(source)
    sizes: dict[str, None] = {}
    for parameter in given:
        for extent in parameter.shape:
            sizes.update(
                dict.fromkeys(_size_names(source, extent, {p.node.arg for p in given if not p.is_integer}))
            )
    for parameter in given:
        name = parameter.node.arg
        if parameter.is_integer and name in as_size and name not in changed.locals:
            sizes.setdefault(name)
        elif name in changed.made or (name in changed.locals and parameter.shape):
            source.refuse(parameter.node, f"the array {name} is assigned as a whole", WHOLE)
    for name in (*sizes, *changed.locals, *changed.made, *changed.indices, *(p.node.arg for p in given)):
        _check_name(source, name)
        if name in sizes and name in changed.locals | changed.indices | changed.made:
            source.refuse(
                source.tree, f"the size {name} is assigned in the function", "another name for the variable"
            )
    shapes = {p.node.arg: p.shape for p in given}
    names = Names(source, tuple(sizes), {}, shapes, changed.locals, changed.indices, changed.made)
    return replace(names, tensors={p.node.arg: _tensor(names, p) for p in given})


def _check_name(source: Source, name: str) -> None:
    """Raise NotAffine for a name that isl's notation has no place for."""
    if name in WORDS or (name.startswith("read") and name[4:].isdigit()):
        source.refuse(source.tree, f"the name {name!r} has a meaning in printed nests", "another name")
    if not name.isascii():
        source.refuse(source.tree, f"isl reads no letters such as those of the name {name!r}", "a to z")


def declared_names(source: Source) -> Names:
    """The names that a function's parameters declare: every integer scalar that is never assigned counts as a size."""
    given, changed = parameters(source), frozenset(assigned_names(source.tree))
    arrays = {p.node.arg for p in given if not p.is_integer}
    sizes: dict[str, None] = {}
    for parameter in given:
        for extent in parameter.shape:
            sizes.update(dict.fromkeys(_size_names(source, extent, arrays)))
    for parameter in given:
        if parameter.is_integer and parameter.node.arg not in changed:
            sizes.setdefault(parameter.node.arg)
    for name in (*sizes, *(p.node.arg for p in given)):
        _check_name(source, name)
    shapes = {p.node.arg: p.shape for p in given}
    names = Names(source, tuple(sizes), {}, shapes, changed, frozenset())
    return replace(names, tensors={p.node.arg: _tensor(names, p) for p in given})


def assigned_names(tree: ast.AST) -> tuple[str, ...]:
    """The names that a function assigns anywhere, indices of loops too."""
    return assigned_in([tree])


def names_in_sizes(source: Source) -> frozenset[str]:
    """The names inside of ranges, subscripts, shapes and the tests of `if` statements, and what these come from."""
    outside = Names(source, (), {}, {}, frozenset(), frozenset())
    direct = frozenset(
        inner.id
        for node in ast.walk(source.tree)
        for part in _integer_parts(outside, node)
        for inner in ast.walk(part)
        if isinstance(inner, ast.Name)
    )
    return used_as_sizes(source.tree, direct)


def names_in_ranges(source: Source) -> frozenset[str]:
    """The names in the bounds of loops."""
    loops = (node.iter for node in ast.walk(source.tree) if isinstance(node, ast.For))
    return frozenset(inner.id for bound in loops for inner in ast.walk(bound) if isinstance(inner, ast.Name))


def _integer_parts(outside: Names, node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(args=[shape, *_]) if outside.array_maker(node) is not None:
            yield shape
        case ast.For():
            yield node.iter
        case ast.If():
            yield node.test
        case ast.Subscript():
            yield node.slice


def _size_names(source: Source, extent: ast.expr, arrays: set[str]) -> Iterator[str]:
    for node in ast.walk(extent):
        if isinstance(node, ast.Name):
            if node.id in arrays:
                source.refuse(node, f"the extent {ast.unparse(extent)} is not affine in sizes", ALLOWED)
            yield node.id


def _tensor(names: Names, parameter: Annotated) -> Tensor:
    shape = tuple(_extent(names, part) for part in parameter.shape)
    return Tensor(parameter.node.arg, shape, parameter.dtype, "input", pairs=parameter.pairs)


def _extent(names: Names, node: ast.expr) -> int | str:
    value = Affine(names, instances(None, names.sizes, ())).value(node)
    if value.is_cst():
        return int(value.max_val().to_python())
    return extent_text(names, node)


def extent_text(names: Names, node: ast.expr) -> str:
    """An extent in the notation of shapes, which isl and Python share: N // 2 becomes floor((N)/2)."""
    if any(isinstance(part, ast.Mod | ast.Call) for part in ast.walk(node)):
        names.source.refuse(node, f"the extent {ast.unparse(node)}", f"{ALLOWED}; // by a constant")
    if not any(isinstance(part, ast.FloorDiv) for part in ast.walk(node)):
        return ast.unparse(node)

    class Floor(ast.NodeTransformer):
        def visit_BinOp(self, inner: ast.BinOp) -> ast.expr:
            inner = ast.BinOp(self.visit(inner.left), inner.op, self.visit(inner.right))
            if not isinstance(inner.op, ast.FloorDiv):
                return inner
            return ast.Name(f"floor(({ast.unparse(inner.left)})/{ast.unparse(inner.right)})")

    return ast.unparse(Floor().visit(node))


def base_context(names: Names, shapes: tuple[Tensor, ...]) -> isl.Set:
    """Return the constraints on sizes that are known before the statements are read.

    Sizes in shapes are at least 1, integer parameters that bound loops at least 0, every extent at least 0.
    """
    affine = Affine(names, instances(None, names.sizes, ()))
    in_shapes = {
        n.id for shape in names.shapes.values() for e in shape for n in ast.walk(e) if isinstance(n, ast.Name)
    }
    in_ranges = names_in_ranges(names.source)
    allowed = affine.domain
    for name in names.sizes:
        least = 1 if name in in_shapes else 0
        value = affine.variable(name)
        if value is not None and (name in in_shapes or name in in_ranges):
            allowed = allowed.intersect(value.ge_set(affine.constant(least)))
    context = allowed.params()
    for tensor in shapes:
        context = not_negative(names, context, names.shapes[tensor.name])
    return context


def not_negative(names: Names, context: isl.Set, extents: tuple[ast.expr, ...]) -> isl.Set:
    """The context, and that some extents are 0 or more."""
    affine = Affine(names, instances(None, names.sizes, ()))
    for extent in extents:
        context = context.intersect(affine.value(extent).ge_set(affine.constant(0)).params())
    return context
