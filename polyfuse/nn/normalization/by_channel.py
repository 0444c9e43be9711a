"""Normalisation by channel: batch norm with given statistics, and group norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir import Tensor
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.normalization.along_axes import STATISTICS, corrected
from polyfuse.nn.operations import Operation, Pointwise
from polyfuse.nn.sizes import Product, Shape, Size, divisor_text, number


@dataclass(frozen=True)
class BatchNorm(Operation):
    """(x - mean) / sqrt(var + eps) * gamma + beta for each channel, as x * scale + shift; mean and var are operands.

    Ioffe and Szegedy, Batch Normalization (2015), section 3.1, the inference form. Where the statistics are constants,
    so are scale and shift, and their kernels run once for all calls.
    """

    axis: int
    eps: float
    affine: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """scale: r = gamma / sqrt(var + eps); shift: d = beta - mean * r; norm: h = x * r + d."""
        return ("scale", "shift", "norm")

    @property
    def result(self) -> str:
        """The normalised value."""
        return "h"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The statistics, and the layer's parameters."""
        return ("c", "mean", "var", "gamma", "beta")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The input's shape; the others are (C,)."""
        x = shapes[0]
        for name, given in zip(self.operand_stems[1:], shapes[1:], strict=False):
            if given != (x[self.axis],):
                raise BadArgument(
                    f"batch_norm: {name} has shape {given}, expected {(x[self.axis],)}: the input {x} has its channels "
                    f"on axis {self.axis}"
                )
        return x

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Scale and shift of each channel, and the value."""
        x, mean, var = operands[:3]
        every = to.dims(x.rank)
        c, channels = every[0], extents(x)[self.axis]
        scale, shift = (to.temporary(stem, n, (channels,), out.dtype) for stem in ("r", "d"))
        gamma, beta = (element(t, [c]) for t in operands[3:]) if self.affine else ("1.0", "")
        root = f"sqrt({element(var, [c])} + {self.eps!r})"
        offset = f"{element(mean, [c])} * {element(scale, [c])}"
        to.assign(f"scale{n}", {c: channels}, f"{element(scale, [c])} = {gamma} / {root}")
        to.assign(f"shift{n}", {c: channels}, f"{element(shift, [c])} = {beta} - {offset}")
        own = [every[self.axis]]
        value = f"{element(x, every)} * {element(scale, own)} + {element(shift, own)}"
        domain = dict(zip(every, extents(x), strict=True))
        to.assign(f"norm{n}", domain, f"{element(out, every)} = {value}")


MEAN, VARIANCE = "mean", "var"
"""The further results of batch norm in training."""


@dataclass(frozen=True)
class BatchNormOfBatch(Operation):
    """(x - mean) / sqrt(variance + eps) * gamma + beta for each channel, with the batch's statistics.

    Ioffe and Szegedy, Batch Normalization (2015), algorithm 1. Further results are the mean, and the variance with
    Bessel's correction. Calls refuse a batch with one element a channel, where one size is symbolic.
    """

    axis: int
    eps: float
    affine: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """meansum: s; mean: mu; varsum: q; var: v; rstd: r; norm: h."""
        return ("meansum_init", "meansum", "mean", "varsum_init", "varsum", "var", "rstd", "norm")

    @property
    def result(self) -> str:
        """The normalised value."""
        return "h"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The scale and the offset are the layer's parameters."""
        return ("c", "gamma", "beta")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The input's shape; gamma and beta are (C,)."""
        x = shapes[0]
        count = Product.of(self._counted(x))
        if not count.symbols and count.factor < 2:
            raise BadArgument(
                f"batch_norm_of_batch: a channel of the input {x} has {quantity(count.factor, 'element')}, "
                "expected 2 or more: their variance is taken"
            )
        for name, given in zip(("gamma", "beta"), shapes[1:], strict=False):
            if given != (x[self.axis],):
                raise BadArgument(
                    f"batch_norm_of_batch: {name} has shape {given}, expected {(x[self.axis],)}"
                )
        return x

    def _counted(self, x: Shape) -> list[Size]:
        """The axes of a channel's elements."""
        return [size for a, size in enumerate(x) if a != self.axis]

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Mean, variance, reciprocal standard deviation, and the value."""
        x, shape = operands[0], extents(operands[0])
        every = to.dims(x.rank)
        channel = {every[self.axis]: shape[self.axis]}
        domain = channel | dict(zip(every, shape, strict=True))
        stems = ("s", "mu", "q", "v", "r")
        total, mean, squares, variance, root = (
            to.temporary(stem, n, (shape[self.axis],), out.dtype) for stem in stems
        )
        s, mu, q, v, r = (element(t, channel) for t in (total, mean, squares, variance, root))
        apart, count = f"({element(x, every)} - {mu})", divisor_text(self._counted(shape))
        whole = Product.of(self._counted(shape))
        if len(whole.symbols) == 1:
            to.assume([whole.symbols[0] - -(-2 // whole.factor)])
        others = f"({whole} - 1)" if whole.symbols else repr(float(whole.factor - 1))
        to.assign(f"meansum_init{n}", channel, f"{s} = 0.0")
        to.assign(f"meansum{n}", domain, f"{s} += {element(x, every)}")
        to.assign(f"mean{n}", channel, f"{mu} = {s} / {count}")
        to.assign(f"varsum_init{n}", channel, f"{q} = 0.0")
        to.assign(f"varsum{n}", domain, f"{q} += {apart} * {apart}")
        to.assign(f"var{n}", channel, f"{v} = {q} / {others}")
        to.assign(f"rstd{n}", channel, f"{r} = 1.0 / sqrt({q} / {count} + {self.eps!r})")
        affine = "".join(
            f" {sign} {element(t, channel)}" for sign, t in zip("*+", operands[1:], strict=False)
        )
        to.assign(f"norm{n}", domain, f"{element(out, every)} = {apart} * {r}{affine}")
        to.further[out.name, MEAN] = mean
        to.further[out.name, VARIANCE] = variance


@dataclass(frozen=True)
class Renewed(Pointwise):
    """The next value of what a layer keeps: a step from the old value, a constant with a name, to another."""

    stem: str = "c"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The kept array, and what it moves to."""
        return (self.stem, "c")


@dataclass(frozen=True)
class GroupNorm(Operation):
    """(x - mean) / sqrt(variance + eps) over each example's groups of channels, then * gamma + beta where it is affine.

    Wu and He, Group Normalization (2018), section 3. The first axis counts examples; as many groups as channels make
    instance norm. The statistics, and the bounds of their errors, are those of `along_axes.LayerNorm`.
    """

    groups: int
    axis: int
    eps: float
    affine: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """The statements of layer norm."""
        return STATISTICS

    @property
    def result(self) -> str:
        """h, or o after gamma and beta."""
        return "o" if self.affine else "h"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The scale and the offset are the layer's parameters."""
        return ("c", "gamma", "beta")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The input's shape; gamma and beta are (C,)."""
        x = shapes[0]
        if number("group_norm: channels", x[self.axis]) % self.groups:
            raise BadArgument(
                f"group_norm: {quantity(x[self.axis], 'channel')} in {quantity(self.groups, 'group')}; the input is {x}"
            )
        for name, given in zip(("gamma", "beta"), shapes[1:], strict=False):
            if given != (x[self.axis],):
                raise BadArgument(f"group_norm: {name} has shape {given}, expected {(x[self.axis],)}")
        return x

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Mean, variance, reciprocal standard deviation, the normalised value, gamma and beta."""
        x, shape = operands[0], extents(operands[0])
        example, group, channel, *rest = to.dims(x.rank + 1)
        own = number("group_norm: channels", shape[self.axis]) // self.groups
        c = f"{own}*{group} + {channel}" if own > 1 else f"{group} + {channel}"
        at = [example, *rest[: self.axis - 1], c, *rest[self.axis - 1 :]]
        outside: dict[str, Size] = {example: shape[0], group: self.groups}
        inside: list[Size] = [own, *(size for axis, size in enumerate(shape) if axis not in (0, self.axis))]
        every = outside | dict(zip((channel, *rest), inside, strict=True))
        count = divisor_text(inside)
        stems = ("s", "mu", "t", "q", "r", "c")
        small = [to.temporary(stem, n, tuple(outside.values()), out.dtype) for stem in stems]
        y = element(to.temporary("y", n, shape, out.dtype), at)
        total, mean, apart, squares, root, shift = (element(t, outside) for t in small)
        difference = f"{element(x, at)} - {mean}"
        to.assign(f"meansum_init{n}", outside, f"{total} = 0.0")
        to.assign(f"meansum{n}", every, f"{total} += {element(x, at)}")
        to.assign(f"mean{n}", outside, f"{mean} = {total} / {count}")
        to.assign(f"apart{n}", every, f"{y} = {difference}")
        to.assign(f"devsum_init{n}", outside, f"{apart} = 0.0")
        to.assign(f"devsum{n}", every, f"{apart} += {y}")
        to.assign(f"varsum_init{n}", outside, f"{squares} = 0.0")
        to.assign(f"varsum{n}", every, f"{squares} += {y} * {y}")
        variance = corrected(squares, apart, count)
        to.assign(f"rstd{n}", outside, f"{root} = 1.0 / sqrt({variance} / {count} + {self.eps!r})")
        to.assign(f"shift{n}", outside, f"{shift} = (-{apart} / {count}) * {root}")
        h = to.temporary("h", n, shape, out.dtype) if self.affine else out
        to.assign(f"norm{n}", every, f"{element(h, at)} = ({difference}) * {root} + {shift}")
        if self.affine:
            gamma, beta = (element(t, [c]) for t in operands[1:])
            to.assign(f"affine{n}", every, f"{element(out, at)} = {element(h, at)} * {gamma} + {beta}")
