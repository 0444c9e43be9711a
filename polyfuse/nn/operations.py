"""Operations: the graph's nodes, lowered to statements.

    operation ::= Copy | Pointwise | Linear | Matmul | Reduce
                | Softmax | LogSoftmax | LayerNorm | RMSNorm                             (along_axes.py)
                | Variance | Norm | LogSumExp | Place                                    (reductions.py)

Each knows the shape it gives for the shapes it gets, and how to write itself as a few simple statements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from polyfuse.errors import BadArgument
from polyfuse.ir import DType, Tensor
from polyfuse.ir.number_types import NUMBER_TYPES, Kind
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.sizes import Shape, Size, broadcast, divisor_text

Kinds = tuple[Kind, ...]
"""The kinds of elements that an operation takes."""

FLOAT: Kinds = ("float",)
NUMBERS: Kinds = ("float", "integer")
EVERY: Kinds = ("float", "integer", "bool")


@dataclass(frozen=True)
class Operation:
    """One operation on tensors of known shapes."""

    @property
    @abstractmethod
    def stems(self) -> tuple[str, ...]:
        """The statements' names without their number."""

    @property
    @abstractmethod
    def result(self) -> str:
        """The result tensor's name without its number."""

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """Names for operands that are constants, by position; "c" for those not listed."""
        return ()

    @property
    def dtype(self) -> DType | None:
        """The result's element type, if it is not that of the operands."""
        return None

    @property
    def reduces(self) -> bool:
        """True if a statement reduces into the result itself; a half could not hold the partial sums."""
        return False

    @property
    def kinds(self) -> Kinds:
        """The kinds of elements that its operands may have."""
        return FLOAT

    @abstractmethod
    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The result's shape; BadArgument, naming the shapes, where they do not go together."""

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """Sizes that the operation is defined for only if none is negative, beside those of its result."""
        return ()

    @abstractmethod
    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Add the statements, numbered n, that compute `out`."""


@dataclass(frozen=True)
class Pointwise(Operation):
    """A scalar expression of one element of each operand, which broadcast as in NumPy.

    `text` has {0}, {1}, … where the operands' elements go.
    """

    kind: str
    text: str
    of: Kinds = field(default=FLOAT, kw_only=True)

    @property
    def kinds(self) -> Kinds:
        """The kinds that there is an expression for."""
        return self.of

    @property
    def stems(self) -> tuple[str, ...]:
        """One statement, named after the kind."""
        return (self.kind,)

    @property
    def result(self) -> str:
        """Every pointwise result is an `a` (activation)."""
        return "a"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The broadcast shape."""
        found = broadcast(shapes)
        if found is None:
            given = " and ".join(map(str, shapes))
            raise BadArgument(
                f"{self.kind}: shapes {given} do not broadcast: from the right, sizes must be equal or 1"
            )
        return found

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`out[i, j] = text`."""
        names = to.dims(out.rank)
        leaves = [element(t, broadcast_subscripts(extents(t), names)) for t in operands]
        domain = dict(zip(names, extents(out), strict=True))
        to.assign(f"{self.kind}{n}", domain, f"{element(out, names)} = {self.text.format(*leaves)}")


@dataclass(frozen=True)
class Cast(Pointwise):
    """A pointwise expression whose value has an element type of its own."""

    to: DType

    @property
    def dtype(self) -> DType:
        """The type that was asked for."""
        return self.to


@dataclass(frozen=True)
class Masked(Pointwise):
    """A pointwise expression of truth values, the first operand, and of others, whose type it has."""


def broadcast_subscripts(shape: Shape, names: Sequence[str]) -> tuple[str, ...]:
    """Return an operand's subscripts for the result's element [names]: aligned right, 0 if its size is 1.

    >>> broadcast_subscripts((1, 8), ("i", "j", "k"))
    ('0', 'k')
    """
    aligned = names[len(names) - len(shape) :]
    return tuple("0" if size == 1 else name for name, size in zip(aligned, shape, strict=True))


class WithBias(Operation):
    """A sum of products with a weight, and maybe a bias."""

    bias: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """The tensor names. A number is reserved for the bias even without one, so that a layer's zero, mac and bias
        agree.
        """
        return ("zero", "mac", "bias")

    @property
    def result(self) -> str:
        """The product is y, with its bias z."""
        return "z" if self.bias else "y"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """Weight and bias are the layer's parameters."""
        return ("c", "w", "b")

    @property
    def reduces(self) -> bool:
        """True without a bias: the product is the result."""
        return not self.bias

    @property
    def kinds(self) -> Kinds:
        """Sums of products of integers are integers."""
        return NUMBERS


@dataclass(frozen=True)
class Linear(WithBias):
    """x @ w, or x @ w + b: x is (…, K), w (K, N), b (N,), the result (…, N)."""

    bias: bool

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(…, K), (K, N) -> (…, N)."""
        x, w = shapes[:2]
        if len(w) != 2:
            raise BadArgument(f"linear: the weight has shape {w}, expected (in_features, out_features)")
        if not x or x[-1] != w[0]:
            raise BadArgument(f"linear: the input {x} does not fit the weight {w}: expected (…, {w[0]})")
        if self.bias and shapes[2] != w[1:]:
            raise BadArgument(f"linear: the bias {shapes[2]} does not fit the weight {w}: expected {w[1:]}")
        return (*x[:-1], w[1])

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: y = 0; `mac`: y += x * w; `bias`: z = y + b."""
        x, w = operands[:2]
        *names, k = to.dims(out.rank + 1)
        shape = extents(out)
        domain = dict(zip(names, shape, strict=True))
        y = to.temporary("y", n, shape, out.dtype) if self.bias else out
        target = element(y, names)
        product = f"{element(x, [*names[:-1], k])} * {element(w, [k, names[-1]])}"
        to.assign(f"zero{n}", domain, f"{target} = {initial('+=', y.dtype)}")
        to.assign(f"mac{n}", {**domain, k: extents(w)[0]}, f"{target} += {product}")
        if self.bias:
            to.assign(
                f"bias{n}", domain, f"{element(out, names)} = {target} + {element(operands[2], names[-1:])}"
            )


@dataclass(frozen=True)
class Matmul(Operation):
    """x @ y of two batches of matrices: x is (…, M, K), y (…, K, N), the result (…, M, N); batches broadcast."""

    @property
    def stems(self) -> tuple[str, ...]:
        """The tensor names, as for a linear layer without bias."""
        return ("zero", "mac")

    @property
    def result(self) -> str:
        """A product is a y."""
        return "y"

    @property
    def reduces(self) -> bool:
        """The product is the result."""
        return True

    @property
    def kinds(self) -> Kinds:
        """Sums of products of integers are integers."""
        return NUMBERS

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(…, M, K), (…, K, N) -> (…, M, N)."""
        x, y = shapes
        if min(len(x), len(y)) < 2 or x[-1] != y[-2]:
            raise BadArgument(f"matmul: {x} and {y} do not fit: expected (…, M, K) and (…, K, N)")
        batch = broadcast((x[:-2], y[:-2]))
        if batch is None:
            raise BadArgument(
                f"matmul: the batches {x[:-2]} and {y[:-2]} do not broadcast: from the right, sizes must be equal or 1"
            )
        return (*batch, x[-2], y[-1])

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: y = 0; `mac`: y += x * y, batch by batch."""
        x, y = operands
        *names, k = to.dims(out.rank + 1)
        *batch, row, column = names
        domain = dict(zip(names, extents(out), strict=True))
        left = (*broadcast_subscripts(extents(x)[:-2], batch), row, k)
        right = (*broadcast_subscripts(extents(y)[:-2], batch), k, column)
        target = element(out, names)
        to.assign(f"zero{n}", domain, f"{target} = {initial('+=', out.dtype)}")
        steps = extents(x)[-1]
        to.assign(f"mac{n}", {**domain, k: steps}, f"{target} += {element(x, left)} * {element(y, right)}")


INITIAL = {"+=": "0.0", "*=": "1.0", "max=": "-inf", "min=": "inf"}
"""The initial value of a reduction's target, in floating point."""


def initial(op: str, dtype: DType) -> str:
    """The initial value of a reduction's target: of others than floats, the smallest or largest one for an infinity.

    >>> initial("max=", "float32"), initial("max=", "int32"), initial("+=", "int64")
    ('-inf', '-2147483647 - 1', '0')
    """
    known = NUMBER_TYPES[dtype]
    if known.kind == "float":
        return INITIAL[op]
    if op in ("+=", "*="):
        return INITIAL[op].removesuffix(".0")
    smallest = (
        f"-{known.largest} - 1" if known.signed else "0"
    )  # the smallest one itself is no literal of its type
    return str(known.largest) if op == "min=" else smallest


@dataclass(frozen=True)
class Reduce(Operation):
    """The sum, mean, product, maximum or minimum over some axes (all counted from the left)."""

    kind: Literal["sum", "mean", "prod", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """sum: sum_init, sum; mean: meansum_init, meansum, mean."""
        if self.kind == "mean":
            return ("meansum_init", "meansum", "mean")
        return (f"{self.kind}_init", self.kind)

    @property
    def result(self) -> str:
        """A sum is s, a mean mu, a product q, a maximum or minimum m."""
        return {"sum": "s", "mean": "mu", "prod": "q", "max": "m", "min": "m"}[self.kind]

    @property
    def kinds(self) -> Kinds:
        """All but a mean, which divides."""
        return FLOAT if self.kind == "mean" else EVERY if self.kind in ("max", "min") else NUMBERS

    @property
    def reduces(self) -> bool:
        """All but a mean, which divides a sum."""
        return self.kind != "mean"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape without the axes, or with size 1 there."""
        (x,) = shapes
        if self.kind in ("max", "min") and any(x[a] == 0 for a in self.axes):
            raise BadArgument(f"{self.kind}: axes {self.axes} of {x} are empty, so {self.kind} is undefined")
        sizes = [1 if d in self.axes else size for d, size in enumerate(x)]
        return tuple(size for d, size in enumerate(sizes) if self.keepdims or d not in self.axes)

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """There is a largest or smallest element."""
        return tuple(shapes[0][a] - 1 for a in self.axes) if self.kind in ("max", "min") else ()

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """An init statement, the reduction, and for a mean the division."""
        (x,) = operands
        if self.kind != "mean":
            op = {"sum": "+=", "prod": "*=", "max": "max=", "min": "min="}[self.kind]
            fold(to, (f"{self.kind}_init{n}", f"{self.kind}{n}"), op, x, self.axes, out, "{0}", self.keepdims)
            return
        total = to.temporary("s", n, extents(out), out.dtype)
        fold(to, (f"meansum_init{n}", f"meansum{n}"), "+=", x, self.axes, total, "{0}", self.keepdims)
        names, target = kept(to.dims(x.rank), extents(x), self.axes, self.keepdims)
        count = divisor_text(extents(x)[a] for a in self.axes)
        to.assign(f"mean{n}", names, f"{element(out, target)} = {element(total, target)} / {count}")


def kept(
    names: Sequence[str], shape: Shape, axes: tuple[int, ...], keepdims: bool
) -> tuple[dict[str, Size], list[str]]:
    """The dimensions (with extents) outside the axes, and the subscripts of a tensor reduced over them.

    >>> kept("ijk", (4, 5, 6), (1,), keepdims=True)
    ({'i': 4, 'k': 6}, ['i', '0', 'k'])
    """
    outside = {name: size for d, (name, size) in enumerate(zip(names, shape, strict=True)) if d not in axes}
    return outside, [name if name in outside else "0" for name in names if keepdims or name in outside]


def fold(
    to: Emitter,
    names: tuple[str, str],
    op: str,
    x: Tensor,
    axes: tuple[int, ...],
    out: Tensor,
    text: str,
    keepdims: bool = False,
    others: Sequence[Tensor] = (),
) -> None:
    """Two statements, an initial value and `out op text`, over the axes of x.

    In the text {0} is x's element, {1}, … those of `others`, which have out's shape.
    """
    every = to.dims(x.rank)
    outside, target = kept(every, extents(x), axes, keepdims)
    to.assign(names[0], outside, f"{element(out, target)} = {initial(op, out.dtype)}")
    body = text.format(element(x, every), *(element(t, target) for t in others))
    to.assign(names[1], dict(zip(every, extents(x), strict=True)), f"{element(out, target)} {op} {body}")
