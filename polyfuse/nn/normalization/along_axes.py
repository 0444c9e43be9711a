"""Operations that normalise along axes, in numerically stable form: softmax, log-softmax, layer and RMS norm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import Operation, fold, kept
from polyfuse.nn.sizes import Shape, divisor_text

STATISTICS = (
    "meansum_init",
    "meansum",
    "mean",
    "apart",
    "devsum_init",
    "devsum",
    "varsum_init",
    "varsum",
    "rstd",
    "shift",
    "norm",
    "affine",
)
"""The statements of a norm that makes its own mean and variance, by the corrected two-pass algorithm."""


def corrected(squares: str, total: str, count: str) -> str:
    """The sum of squared differences from the mean, as text, given those from a rounded mean and their total."""
    return f"max({squares} - {total} * ({total} / {count}), 0.0)"


@dataclass(frozen=True)
class AlongAxis(Operation):
    """An operation that keeps its operand's shape and normalises along one axis (counted from the left)."""

    axis: int

    @property
    def result(self) -> str:
        """Probabilities, or their logarithms."""
        return "p"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        return shapes[0]


@dataclass(frozen=True)
class Softmax(AlongAxis):
    """exp(x - max x) / sum exp(x - max x) along one axis (counted from the left).

    One division for each sum, which lies between 1 and the number of values, and a product for each value: divisions
    took a third of the time of softmax over 1024 values in cache.
    """

    @property
    def stems(self) -> tuple[str, ...]:
        """rowmax: m; exp: e; rowsum: s; inverse: r = 1 / s; scale: p = e * r."""
        return ("rowmax_init", "rowmax", "exp", "rowsum_init", "rowsum", "inverse", "scale")

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Row maximum, exponentials, their sum and its inverse, the products."""
        (x,) = operands
        every = to.dims(x.rank)
        domain = dict(zip(every, extents(x), strict=True))
        outside, row = kept(every, extents(x), (self.axis,), keepdims=False)
        small = tuple(outside.values())
        m = to.temporary("m", n, small, out.dtype)
        e = to.temporary("e", n, extents(x), out.dtype)
        s = to.temporary("s", n, small, out.dtype)
        r = to.temporary("r", n, small, out.dtype)
        fold(to, (f"rowmax_init{n}", f"rowmax{n}"), "max=", x, (self.axis,), m, "{0}")
        to.assign(f"exp{n}", domain, f"{element(e, every)} = exp({element(x, every)} - {element(m, row)})")
        fold(to, (f"rowsum_init{n}", f"rowsum{n}"), "+=", e, (self.axis,), s, "{0}")
        to.assign(f"inverse{n}", outside, f"{element(r, row)} = 1.0 / {element(s, row)}")
        to.assign(f"scale{n}", domain, f"{element(out, every)} = {element(e, every)} * {element(r, row)}")


@dataclass(frozen=True)
class LogSoftmax(AlongAxis):
    """(x - max x) - log sum exp(x - max x) along one axis (counted from the left)."""

    @property
    def stems(self) -> tuple[str, ...]:
        """rowmax: m; rowsum: s += exp(x - m); logsum: l = log(s); shift: p = (x - m) - l."""
        return ("rowmax_init", "rowmax", "rowsum_init", "rowsum", "logsum", "shift")

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Row maximum, the sum of exponentials, its logarithm, the difference."""
        (x,) = operands
        every = to.dims(x.rank)
        domain = dict(zip(every, extents(x), strict=True))
        outside, row = kept(every, extents(x), (self.axis,), keepdims=False)
        m, s, l_ = (to.temporary(stem, n, tuple(outside.values()), out.dtype) for stem in ("m", "s", "l"))
        fold(to, (f"rowmax_init{n}", f"rowmax{n}"), "max=", x, (self.axis,), m, "{0}")
        fold(to, (f"rowsum_init{n}", f"rowsum{n}"), "+=", x, (self.axis,), s, "exp({0} - {1})", others=(m,))
        to.assign(f"logsum{n}", outside, f"{element(l_, row)} = log({element(s, row)})")
        value = f"({element(x, every)} - {element(m, row)}) - {element(l_, row)}"
        to.assign(f"shift{n}", domain, f"{element(out, every)} = {value}")


@dataclass(frozen=True)
class OverLastAxes(Operation):
    """An operation that keeps its operand's shape, which ends in `normalized`, and divides by a root over these axes.

    Where it is `affine`, what follows the operand has the normalized shape too: a scale, and maybe an offset.
    """

    normalized: Shape
    eps: float
    affine: bool

    @property
    def result(self) -> str:
        """h, or o after gamma and beta."""
        return "o" if self.affine else "h"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The scale and the offset are the layer's parameters."""
        return ("c", "gamma", "beta")

    @property
    @abstractmethod
    def function(self) -> str:
        """The name of the function that users call."""

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        x, n = shapes[0], len(self.normalized)
        if len(x) < n or x[len(x) - n :] != self.normalized:
            raise BadArgument(
                f"{self.function}: the input {x} does not end in the normalized shape {self.normalized}"
            )
        for name, given in zip(("gamma", "beta"), shapes[1:], strict=False):
            if given != self.normalized:
                raise BadArgument(f"{self.function}: {name} has shape {given}, expected {self.normalized}")
        return x

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """The normalized ones."""
        return tuple(range(x.rank - len(self.normalized), x.rank))

    @property
    def count(self) -> str:
        """The number of values that are normalised together."""
        return divisor_text(self.normalized)


@dataclass(frozen=True)
class LayerNorm(OverLastAxes):
    """(x - mean) / sqrt(variance + eps) over the last axes, then * gamma + beta where it is affine.

    Ba, Kiros, Hinton, Layer Normalization (2016), section 3. The statistics are those of the corrected two-pass
    algorithm, as in `reductions.Variance`, which has the bound of the variance's error:

        mu = Σ x / N;  y = x - mu;  t = Σ y;  q = Σ y²;  r = 1 / sqrt((q - t² / N) / N + eps);  h = (x - mu) r - t r / N

    mu may be off by m u |mean|, with the unit of rounding u and m additions one after the other in a sum. What t leaves
    of this in h is at most about 3 m u (1 + m u |mean| / deviation)² max |h|. Without t it is m u |mean| / deviation.
    """

    @property
    def stems(self) -> tuple[str, ...]:
        """mean: mu; apart: y; devsum: t; varsum: q; rstd: r; shift: c = -t * r / N; norm: h; affine: o."""
        return STATISTICS

    @property
    def function(self) -> str:
        """nn.layer_norm."""
        return "layer_norm"

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Mean, variance, reciprocal standard deviation, the normalised value, gamma and beta."""
        x, *parameters = operands
        every, axes = to.dims(x.rank), self.axes(x)
        domain = dict(zip(every, extents(x), strict=True))
        outside, row = kept(every, extents(x), axes, keepdims=False)
        small = tuple(outside.values())
        s, mu, t, q, r, c = (
            to.temporary(stem, n, small, out.dtype) for stem in ("s", "mu", "t", "q", "r", "c")
        )
        y = to.temporary("y", n, extents(x), out.dtype)
        fold(to, (f"meansum_init{n}", f"meansum{n}"), "+=", x, axes, s, "{0}")
        to.assign(f"mean{n}", outside, f"{element(mu, row)} = {element(s, row)} / {self.count}")
        apart = f"{element(x, every)} - {element(mu, row)}"
        to.assign(f"apart{n}", domain, f"{element(y, every)} = {apart}")
        fold(to, (f"devsum_init{n}", f"devsum{n}"), "+=", y, axes, t, "{0}")
        fold(to, (f"varsum_init{n}", f"varsum{n}"), "+=", y, axes, q, "{0} * {0}")
        total, root, shift = (element(tensor, row) for tensor in (t, r, c))
        variance = corrected(element(q, row), total, self.count)
        to.assign(f"rstd{n}", outside, f"{root} = 1.0 / sqrt({variance} / {self.count} + {self.eps!r})")
        to.assign(f"shift{n}", outside, f"{shift} = (-{total} / {self.count}) * {root}")
        h = to.temporary("h", n, extents(x), out.dtype) if self.affine else out
        to.assign(f"norm{n}", domain, f"{element(h, every)} = ({apart}) * {root} + {shift}")
        if self.affine:
            gamma, beta = (element(t, every[axes[0] :]) for t in parameters)
            to.assign(f"affine{n}", domain, f"{element(out, every)} = {element(h, every)} * {gamma} + {beta}")


@dataclass(frozen=True)
class RMSNorm(OverLastAxes):
    """x / sqrt(mean of x * x + eps) over the last axes, then * gamma where it is affine.

    Zhang, Sennrich, Root Mean Square Layer Normalization (2019), section 4.
    """

    @property
    def stems(self) -> tuple[str, ...]:
        """squares: q; rrms: r = 1 / sqrt(q / N + eps); norm: h = x * r, and * gamma."""
        return ("squares_init", "squares", "rrms", "norm")

    @property
    def function(self) -> str:
        """nn.rms_norm."""
        return "rms_norm"

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The sum of squares, the reciprocal of the root of their mean, the products."""
        x, *parameters = operands
        every, axes = to.dims(x.rank), self.axes(x)
        outside, row = kept(every, extents(x), axes, keepdims=False)
        q, r = (to.temporary(stem, n, tuple(outside.values()), out.dtype) for stem in ("q", "r"))
        fold(to, (f"squares_init{n}", f"squares{n}"), "+=", x, axes, q, "{0} * {0}")
        root = f"sqrt({element(q, row)} / {self.count} + {self.eps!r})"
        to.assign(f"rrms{n}", outside, f"{element(r, row)} = 1.0 / {root}")
        value = " * ".join(
            [element(x, every), element(r, row), *(element(t, every[axes[0] :]) for t in parameters)]
        )
        domain = dict(zip(every, extents(x), strict=True))
        to.assign(f"norm{n}", domain, f"{element(out, every)} = {value}")
