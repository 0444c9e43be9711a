"""Lower layers or a graph of values to a nest. Nothing is decided or fused here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.ir import Nest, Tensor
from polyfuse.ir.nest_text import set_of
from polyfuse.ir.tree import sequence
from polyfuse.nn.graph import Constant, Further, Input, Value, in_order, input
from polyfuse.nn.joins import Joins
from polyfuse.nn.layers import Module
from polyfuse.nn.nest_writer import Array, Emitter, sizes_in
from polyfuse.nn.operations import EVERY, Operation, Pointwise
from polyfuse.nn.sizes import GivenSize, Size, all_sizes, names_in

Sizes = GivenSize | Sequence[GivenSize]
"""One size, or several."""

COPY = Pointwise("copy", "{0}", of=EVERY)
"""The operation that copies a value with a tensor (an input, a constant, another output) to an output."""

ROUND = Pointwise("round", "{0}")
"""The operation that rounds float32 sums to halves."""


@proving("lower")
def lower(
    model: Module | Value | Sequence[Value],
    batch: Sizes | None = None,
    features: Sizes | None = None,
    dtype: str | None = None,
    name: str | None = None,
) -> Nest:
    """Return the nest of a model, or of one or more output values.

    The output tensor is out; several are out0, out1, …

    Args:
        model: A Module, a value, or several values. Inputs of values keep their names, in the order in which the
            outputs, left to right, first need them; a model's input is the tensor x.
        batch: For a model: the size of the leading dimension, or the sizes of several; 0 is allowed. A symbolic size
            ("N") stands for any number: one compile serves all of them.
        features: For a model: the shape of one input, if no layer (Linear, LayerNorm, …) determines it. An Embedding's
            input has none.
        dtype: For a model: the element type, if no weights determine it. An Embedding's input is int64.
        name: The nest's name.

    Returns:
        The nest, with nothing decided yet.

    Raises:
        BadArgument: if a shape or an element type is missing or does not fit.
    """
    if isinstance(model, Module):
        x = model_input(model, batch, features, dtype)
        return lower_values((model(x),), name or type(model).__name__.lower())
    if not (batch is None and features is None and dtype is None):
        raise BadArgument(
            "batch, features and dtype are for models; the inputs of a graph of values have their shapes"
        )
    values = (model,) if isinstance(model, Value) else tuple(model) if isinstance(model, Iterable) else ()
    if not values or not all(isinstance(value, Value) for value in values):
        raise BadArgument(
            f"lower takes a model, a value, or a tuple of values; given {model!r}; pf.from_onnx takes files of ONNX, "
            "pf.from_torch modules of torch"
        )
    return lower_values(values, name or "graph")


def named_constants(model: Module, batch: Sizes = 1, features: Sizes | None = None) -> dict[str, Array]:
    """Return the model's arrays by their names in its nest: w0, b0, w1, … (the arrays themselves, not copies).

    Change them in place, or pass others of the same shapes to a compiled net's `replace_constants` by these names.

    Args:
        model: The model.
        batch: As for `lower`: a sequence needs batch=(1, 1).
        features: As for `lower`, if no layer determines the shape of the input.

    Returns:
        Arrays by tensor name.
    """
    return dict(lower(model, batch, features).constants)


def model_input(
    model: Module,
    batch: Sizes | None,
    features: Sizes | None,
    dtype: str | None,
) -> Value:
    """The value a model is applied to: input x of shape (*batch, *features)."""
    if batch is None:
        raise BadArgument(
            "lower(model) needs the batch: batch=64, batch=(8, 16), or batch=() for a single input"
        )
    if model.indexed:
        features, dtype = features or (), dtype or "int64"
    shape = features if features is not None else model.in_features
    if shape is None:
        raise BadArgument(
            f"no layer of {type(model).__name__} says the shape of its input: "
            "give it, as in lower(model, batch=64, features=(512,))"
        )
    sizes = *all_sizes("lower: batch", batch), *all_sizes("lower: features", shape)
    return input("x", sizes, dtype or model.dtype or "float32")


def lower_values(
    outputs: Sequence[Value], name: str, inputs: Sequence[Value] = (), assumed: Iterable[Size] = ()
) -> Nest:
    """The nest that computes these values; `inputs` are its first ones in this order, also where nothing reads them.

    It is for sizes of which none in `assumed` is negative.
    """
    every = list(in_order((*inputs, *outputs)))
    to = Emitter(sizes_in(value.shape for value in every))
    to.assume(size for size in assumed if set(names_in(size)) <= set(to.sizes))
    done: dict[int, Tensor] = {}
    for value in every:
        to.assume(value.shape)
        if isinstance(value.source, Input):
            done[id(value)] = to.tensor(value.source.name, value.shape, value.dtype, "input")
        elif isinstance(value.source, Constant) and value.source.name is not None:
            to.named_constant(value.source.array, value.dtype, value.source.name)
    names = ["out"] if len(outputs) == 1 else [f"out{k}" for k in range(len(outputs))]
    targets = [to.tensor(out, v.shape, v.dtype, "output") for out, v in zip(names, outputs, strict=True)]
    direct: dict[int, Tensor] = {}
    joins = Joins()
    for value, target in zip(outputs, targets, strict=True):
        if isinstance(value.source, Operation):
            direct.setdefault(id(value), target)
    for value in every:
        if isinstance(value.source, Operation):
            done[id(value)] = emit(to, joins.shortened(value), done, direct.get(id(value)))
        elif isinstance(value.source, Further):
            done[id(value)] = further(to, value, done, value.source.name)
    for value, target in zip(outputs, targets, strict=True):
        if direct.get(id(value)) is not target:
            n = to.number(COPY.stems)
            COPY.emit(to, n, operands_of(to, COPY, n, (value,), done), target)
    if set_of(to.context).is_empty():
        conditions = ", ".join(f"{size} >= 0" for size in to.assumed)
        raise BadArgument(f"lower: no sizes {', '.join(to.sizes)} are such that {conditions}")
    return Nest.of(
        ordered_tensors(to),
        to.statements,
        sequence(tuple(to.order)),
        to.context,
        constants=to.constants,
        name=name,
    )


def ordered_tensors(to: Emitter) -> list[Tensor]:
    """Inputs, then the others as the statements first access them, outputs last."""
    inputs = [t for t in to.tensors.values() if t.role == "input"]
    outputs = [t for t in to.tensors.values() if t.role == "output"]
    every = (to.tensors[access.tensor] for s in to.statements for access in s.accesses)
    touched = dict.fromkeys(
        name for t in every for name in ((t.gather.table, t.name) if t.gather else (t.name,))
    )
    return [
        *inputs,
        *(to.tensors[t] for t in touched if to.tensors[t].role not in ("input", "output")),
        *outputs,
    ]


def emit(to: Emitter, value: Value, done: dict[int, Tensor], out: Tensor | None) -> Tensor:
    """Add the statements of one operation; the tensor that holds its value is `out`, or a new temporary."""
    operation = value.source
    assert isinstance(operation, Operation)
    n = to.number(operation.stems)
    to.assume(operation.needed([operand.shape for operand in value.operands]))
    operands = operands_of(to, operation, n, value.operands, done)
    target = out if out is not None else to.value(operation.result, n, value.shape, value.dtype)
    if not (target.is_half and operation.reduces):
        operation.emit(to, n, operands, target)
        return target
    wide = to.temporary(operation.result, n, value.shape, value.dtype)
    operation.emit(to, n, operands, wide)
    ROUND.emit(to, to.number(ROUND.stems), (wide,), target)
    to.further.update(
        {(target.name, name): made for (of, name), made in to.further.items() if of == wide.name}
    )
    return target


def further(to: Emitter, value: Value, done: dict[int, Tensor], name: str) -> Tensor:
    """Emit an additional result of an operation; a half is rounded here, since the operation computes in float32."""
    made = to.further[done[id(value.operands[0])].name, name]
    if made.dtype == value.dtype:
        return made
    n = to.number(ROUND.stems)
    target = to.value("a", n, value.shape, value.dtype)
    ROUND.emit(to, n, (made,), target)
    return target


def operands_of(
    to: Emitter, operation: Operation, n: int, values: Sequence[Value], done: dict[int, Tensor]
) -> list[Tensor]:
    """The operands' tensors; constants get theirs here, named by what they are to the operation."""
    found = []
    for position, value in enumerate(values):
        if isinstance(value.source, Constant):
            stems = operation.operand_stems
            stem = stems[position] if position < len(stems) else "c"
            found.append(to.constant(value.source.array, value.dtype, stem, n))
        else:
            found.append(done[id(value)])
    return found
