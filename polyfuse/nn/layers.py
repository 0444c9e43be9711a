"""Layers: modules that hold weights and apply functions to values.

`nn.Linear(512, 10)(nn.input("x", (64, 512)))` is a value; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.ir.whole import all_whole
from polyfuse.nn import functional
from polyfuse.nn.dropout import dropout
from polyfuse.nn.graph import Value, dtype_of
from polyfuse.nn.initial_weights import generator
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.shape.embedding import embedding
from polyfuse.nn.sizes import Shape
from polyfuse.nn.torch_names import torch_names
from polyfuse.nn.training import training_mode


class Module:
    """A function from values to one value, with weights. Subclasses define `forward`, most often of one value."""

    def forward(self, x: Value) -> Value:
        """Return the layer's output.

        Args:
            x: The input.

        Returns:
            The output.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward(self, x)")

    def __call__(self, *inputs: Value) -> Value:
        """`forward`, for values only; BadArgument for arrays, which a compiled nest takes."""
        for x in inputs:
            if not isinstance(x, Value):
                raise BadArgument(
                    f"{type(self).__name__} was called with {type(x).__name__}, expected a value such as "
                    "nn.input('x', (64, 512)); to run on arrays: polyfuse.compile(polyfuse.lower(model, batch=…))"
                )
        return self.forward(*inputs)

    def children(self) -> Iterator[Module]:
        """The modules that this one consists of, in the order in which they were set."""
        return (part for part in vars(self).values() if isinstance(part, Module))

    def arrays(self) -> Iterator[Array]:
        """The weights of this module, by itself or in a list, and of those it consists of."""
        for part in vars(self).values():
            for one in part if isinstance(part, list | tuple) else (part,):
                if isinstance(one, np.ndarray):
                    yield one
        for child in self.children():
            yield from child.arrays()

    @property
    def in_features(self) -> Shape | None:
        """The shape of one input, from the first layer that determines it; None if none does."""
        return next((shape for child in self.children() if (shape := child.in_features) is not None), None)

    @property
    def indexed(self) -> bool:
        """True if the input holds row numbers, as the first module's does."""
        first = next(self.children(), None)
        return first is not None and first.indexed

    @property
    def dtype(self) -> DType | None:
        """The element type of the first weights found; None if there are none."""
        return next((dtype for child in self.children() if (dtype := child.dtype) is not None), None)


class Linear(Module):
    """x @ weight + bias. `weight` is (in_features, out_features), `bias` (out_features,) or None.

    Both are drawn uniformly from ±1/sqrt(in_features). The draw depends only on the shape and `seed`: layers of one
    shape are equal unless they get different seeds, or share one numpy Generator as their seed.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        dtype: str = "float32",
        seed: int | np.random.Generator = 0,
    ) -> None:
        """Draw the weights.

        Args:
            in_features: The size of the input's last axis.
            out_features: The size of the output's last axis.
            bias: False leaves the bias out.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            seed: Seeds the weights: a number, or a numpy Generator that several layers share.

        Raises:
            BadArgument: if a size is below 1, or dtype is another type.
        """
        element, sizes = dtype_of(dtype), all_whole("Linear", (in_features, out_features))
        if min(sizes) < 1:
            raise BadArgument(f"Linear({in_features}, {out_features}): both sizes must be at least 1")
        draw = generator("Linear", seed, sizes)
        bound = 1 / np.sqrt(in_features)
        self.weight: Array = draw.uniform(-bound, bound, sizes).astype(element)
        self.bias: Array | None = draw.uniform(-bound, bound, out_features).astype(element) if bias else None

    def forward(self, x: Value) -> Value:
        """`x @ weight + bias`."""
        return functional.linear(x, self.weight, self.bias)

    @property
    def in_features(self) -> Shape:
        """The size of the weight's first axis."""
        return (int(self.weight.shape[0]),)

    @property
    def dtype(self) -> DType:
        """The element type of the weight."""
        return dtype_of(self.weight.dtype)

    def __repr__(self) -> str:
        bias = "" if self.bias is not None else ", bias=False"
        return f"Linear({self.weight.shape[0]}, {self.weight.shape[1]}{bias}, dtype={self.dtype!r})"


@torch_names(num_embeddings="num", embedding_dim="dim")
class Embedding(Module):
    """Rows of `weight` (num, dim), chosen by number: input (…) of integers from 0 to num - 1, output (…, dim).

    Weights are drawn from the standard normal distribution, by shape and `seed`; row `padding_idx` is 0.
    """

    def __init__(
        self,
        num: int,
        dim: int,
        padding_idx: int | None = None,
        dtype: str = "float32",
        seed: int | np.random.Generator = 0,
    ) -> None:
        """Draw the rows.

        Args:
            num: The number of rows.
            dim: The size of a row.
            padding_idx: The row that is 0, or None.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            seed: Seeds the weights: a number, or a numpy Generator that several layers share.

        Raises:
            BadArgument: if a size is below 1, `padding_idx` is not a row, or dtype is another type.
        """
        if min(all_whole("Embedding", (num, dim))) < 1:
            raise BadArgument(f"Embedding({num}, {dim}): both sizes must be at least 1")
        if padding_idx is not None and not 0 <= padding_idx < num:
            raise BadArgument(
                f"Embedding({num}, {dim}): padding_idx {padding_idx} is not a row; expected 0 to {num - 1}"
            )
        draw = generator("Embedding", seed, (num, dim))
        self.weight: Array = draw.standard_normal((num, dim)).astype(dtype_of(dtype))
        if padding_idx is not None:
            self.weight[padding_idx] = 0

    def forward(self, x: Value) -> Value:
        """The rows."""
        return embedding(x, self.weight)

    @property
    def indexed(self) -> bool:
        """True: the input holds row numbers."""
        return True

    @property
    def dtype(self) -> DType:
        """The element type of the weight."""
        return dtype_of(self.weight.dtype)

    def __repr__(self) -> str:
        return f"Embedding({self.weight.shape[0]}, {self.weight.shape[1]}, dtype={self.dtype!r})"


@torch_names(elementwise_affine="affine")
class OverLastAxes(Module):
    """A layer that normalises over the last axes, of shape `normalized_shape`; gamma is 1 and beta 0, if affine."""

    shifted: ClassVar[bool] = False
    """True if it has a beta."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str = "float32",
    ) -> None:
        """Set gamma to 1, and beta, if there is one, to 0.

        Args:
            normalized_shape: The sizes of the last axes, or the size of the last one.
            eps: Added to the variance, or to the mean square.
            affine: False leaves gamma and beta out.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".

        Raises:
            BadArgument: if a size is below 1 or there is none, or dtype is another type.
        """
        name = type(self).__name__
        self.normalized_shape = all_whole(f"{name}: normalized shape", normalized_shape)
        if not self.normalized_shape or any(size < 1 for size in self.normalized_shape):
            raise BadArgument(f"{name}({normalized_shape}): at least one size, and all at least 1")
        self.eps = eps
        self.gamma: Array | None = np.ones(self.normalized_shape, dtype_of(dtype)) if affine else None
        shifts = affine and self.shifted
        self.beta: Array | None = np.zeros(self.normalized_shape, dtype_of(dtype)) if shifts else None

    @property
    def in_features(self) -> Shape:
        """The normalized shape."""
        return self.normalized_shape

    @property
    def dtype(self) -> DType | None:
        """gamma's; None if not affine."""
        return None if self.gamma is None else dtype_of(self.gamma.dtype)

    def __repr__(self) -> str:
        affine = self.gamma is not None
        return f"{type(self).__name__}({self.normalized_shape}, eps={self.eps}, affine={affine})"


class LayerNorm(OverLastAxes):
    """Layer normalisation over the last axes, of shape `normalized_shape`; initially gamma 1 and beta 0, if affine."""

    shifted = True

    def forward(self, x: Value) -> Value:
        """The normalised value."""
        return functional.layer_norm(x, self.normalized_shape, self.gamma, self.beta, self.eps)


class RMSNorm(OverLastAxes):
    """Root-mean-square normalisation over the last axes, of shape `normalized_shape`; initially gamma 1, if affine."""

    def forward(self, x: Value) -> Value:
        """The normalised value."""
        return functional.rms_norm(x, self.normalized_shape, self.gamma, self.eps)


@dataclass(frozen=True)
class Function(Module):
    """A function of a value as a layer, without weights: `nn.relu`, a lambda, a `pf.scalar`."""

    function: Callable[[Value], Value]

    def forward(self, x: Value) -> Value:
        """Return the function's value; BadArgument if it is none."""
        found = self.function(x)
        if not isinstance(found, Value):
            raise BadArgument(f"{self!r} returned {found!r}, expected a value of polyfuse.nn")
        return found

    def __repr__(self) -> str:
        return str(getattr(self.function, "__name__", None) or getattr(self.function, "name", self.function))


def module_of(name: str, given: object) -> Module:
    """A layer, or a function as one; BadArgument for anything else: a class, a list of layers."""
    if isinstance(given, Module):
        return given
    if callable(given) and not isinstance(given, type | Value):
        return Function(given)
    instance = f"{given.__name__}() is one" if isinstance(given, type) and issubclass(given, Module) else ""
    raise BadArgument(
        f"{name}: {given!r} is not a layer; {instance or 'expected layers and functions of values as arguments'}, "
        "as in Sequential(Linear(8, 4), ReLU(), nn.exp)"
    )


class Sequential(Module):
    """Layers and functions of values in sequence: Sequential(a, b)(x) is b(a(x))."""

    def __init__(self, *layers: Module | Callable[[Value], Value]) -> None:
        """Take layers in the order in which they act.

        Args:
            *layers: Layers, and functions of one value such as `nn.exp`.

        Raises:
            BadArgument: if one is neither.
        """
        self.layers = tuple(module_of("Sequential", layer) for layer in layers)

    def forward(self, x: Value) -> Value:
        """The last layer's value; x itself if there are no layers."""
        for layer in self.layers:
            x = layer(x)
        return x

    def children(self) -> Iterator[Module]:
        """The layers."""
        return iter(self.layers)

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.layers))})"


@dataclass(frozen=True)
class Residual(Module):
    """inner(x) + x, of a layer or a function of values.

    Attributes:
        inner: The layer or the function.
    """

    inner: Module | Callable[[Value], Value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", module_of("Residual", self.inner))

    def forward(self, x: Value) -> Value:
        """inner(x) + x."""
        return functional.add(self.inner(x), x)


@dataclass(frozen=True)
class Flatten(Module):
    """One axis in place of axes start_dim to end_dim: (N, C, H, W) becomes (N, C · H · W), as torch's Flatten.

    Attributes:
        start_dim: The first of the axes.
        end_dim: The last of them; a negative number counts from the end.
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, x: Value) -> Value:
        """The view."""
        return x.flatten(self.start_dim, self.end_dim)


@dataclass(frozen=True)
class Dropout(Module):
    """The identity; in `nn.training`, elements are dropped (`nn.dropout`). Srivastava et al., Dropout (2014).

    Attributes:
        p: The probability of dropping an element in training; outside of [0, 1] it raises BadArgument.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise BadArgument(f"Dropout(p={self.p}): expected a probability from 0 to 1")

    def forward(self, x: Value) -> Value:
        """Return x itself, with no statement; in training the value with elements dropped."""
        mode = training_mode()
        return x if mode is None or not self.p else dropout(x, self.p, mode.seed, mode.next_draw())


@dataclass(frozen=True)
class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Value) -> Value:
        """max(x, 0)."""
        return functional.relu(x)


@torch_names(negative_slope="slope")
@dataclass(frozen=True)
class LeakyReLU(Module):
    """x where x > 0, else slope * x.

    Attributes:
        slope: The factor of negative elements.
    """

    slope: float = 0.01

    def forward(self, x: Value) -> Value:
        """`x where x > 0, else slope * x`."""
        return functional.leaky_relu(x, self.slope)


@dataclass(frozen=True)
class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Value) -> Value:
        """tanh(x)."""
        return functional.tanh(x)


@dataclass(frozen=True)
class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return functional.sigmoid(x)


@dataclass(frozen=True)
class GELU(Module):
    """x * P(standard normal <= x), exact ("none") or by the tanh formula ("tanh"); see `gelu`.

    Attributes:
        approximate: The formula: "none" or "tanh".
    """

    approximate: Literal["none", "tanh"] = "none"

    def forward(self, x: Value) -> Value:
        """The exact or the approximate value."""
        return functional.gelu(x, self.approximate)


@dataclass(frozen=True)
class SiLU(Module):
    """x / (1 + exp(-x))."""

    def forward(self, x: Value) -> Value:
        """`x / (1 + exp(-x))`."""
        return functional.silu(x)


@torch_names(dim="axis")
@dataclass(frozen=True)
class Softmax(Module):
    """exp(x) / sum exp(x) along an axis.

    Attributes:
        axis: The axis; the last one by default.
    """

    axis: int = -1

    def forward(self, x: Value) -> Value:
        """The probabilities along the axis."""
        return functional.softmax(x, self.axis)


@torch_names(dim="axis")
@dataclass(frozen=True)
class LogSoftmax(Module):
    """The logarithm of softmax along an axis.

    Attributes:
        axis: The axis; the last one by default.
    """

    axis: int = -1

    def forward(self, x: Value) -> Value:
        """The log probabilities along the axis."""
        return functional.log_softmax(x, self.axis)
