"""Layers for images: convolutions, pooling, batch and group norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.ir.whole import all_whole
from polyfuse.nn.conv import functional as images
from polyfuse.nn.conv.functional import Sizes
from polyfuse.nn.conv.windows import LAYOUTS, Padding, layout_named, per_axis, windows_of
from polyfuse.nn.graph import Value, apply, constant, dtype_of
from polyfuse.nn.initial_weights import generator
from polyfuse.nn.layers import Module
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.normalization.by_channel import Renewed
from polyfuse.nn.torch_names import torch_names
from polyfuse.nn.training import training_mode


@torch_names(kernel_size="window")
class Convolution(Module):
    """A convolution: `weight` (out_channels, in_channels / groups, *window) in both layouts, `bias` (out_channels,).

    Weights are drawn as a Linear's are: uniformly from ±1/sqrt(in_channels / groups * window), by shape and `seed`.
    """

    rank: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        window: Sizes,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        layout: str | None = None,
        dtype: str = "float32",
        seed: int | np.random.Generator = 0,
    ) -> None:
        """Draw the weights.

        Args:
            in_channels: The channels of the input.
            out_channels: The channels of the output.
            window: The window's extents, for all spatial axes or for each.
            stride: The step between windows, for all axes or for each.
            padding: Zeros around the input, as for `conv2d`.
            dilation: The step between elements of a window, for all axes or for each.
            groups: The number of groups of channels; it divides both numbers of channels.
            bias: False leaves the bias out.
            layout: The order of the axes, such as "NHWC"; channels come first by default.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            seed: Seeds the weights: a number, or a numpy Generator that several layers share.

        Raises:
            BadArgument: if a size is below 1, groups do not divide the channels, or a layout or dtype is unknown.
        """
        name = type(self).__name__
        all_whole(f"{name}: channels and groups", (in_channels, out_channels, groups))
        if min(in_channels, out_channels, groups) < 1 or in_channels % groups or out_channels % groups:
            raise BadArgument(
                f"{name}({in_channels}, {out_channels}, groups={groups}): all at least 1, and the groups divide both "
                "numbers of channels"
            )
        windows_of(name, self.rank, stride, padding, dilation)
        layout_named(name, layout, self.rank)
        shape = (out_channels, in_channels // groups, *per_axis(name, "window", self.rank, window))
        draw = generator(name, seed, shape)
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        self.weight: Array = draw.uniform(-bound, bound, shape).astype(dtype_of(dtype))
        self.bias: Array | None = (
            draw.uniform(-bound, bound, out_channels).astype(self.dtype) if bias else None
        )
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.layout = layout or LAYOUTS[self.rank][0]

    def forward(self, x: Value) -> Value:
        """The convolution, with its bias."""
        function = (images.conv1d, images.conv2d, images.conv3d)[self.rank - 1]
        return function(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups, self.layout
        )

    @property
    def dtype(self) -> DType:
        """The weight's."""
        return dtype_of(self.weight.dtype)

    def __repr__(self) -> str:
        out, channels, *window = self.weight.shape
        return (
            f"{type(self).__name__}({channels * self.groups}, {out}, {tuple(window)}, stride={self.stride!r}, "
            f"padding={self.padding!r}, dilation={self.dilation!r}, groups={self.groups}, "
            f"bias={self.bias is not None}, layout={self.layout!r}, dtype={self.dtype!r})"
        )


class Conv1d(Convolution):
    """Convolution of (N, C, W), or of (N, W, C) with layout="NWC"; see `conv1d`."""

    rank = 1


class Conv2d(Convolution):
    """Convolution of (N, C, H, W), or of (N, H, W, C) with layout="NHWC"; see `conv2d`."""

    rank = 2


class Conv3d(Convolution):
    """Convolution of (N, C, D, H, W), or of (N, D, H, W, C) with layout="NDHWC"; see `conv3d`."""

    rank = 3


@torch_names(kernel_size="window")
@dataclass(frozen=True)
class MaxPool(Module):
    """The maximum of each window, along one to three spatial axes; see `max_pool`.

    Attributes:
        window: The window's extents, one for each spatial axis, or one for all.
        stride: The steps between windows; the window's extents by default.
        padding: The elements added at both ends of each axis.
        dilation: The steps between a window's elements.
        layout: The order of the axes, such as "NHWC"; channels come first by default.
    """

    window: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Padding = 0
    dilation: int | tuple[int, ...] = 1
    layout: str | None = None

    def forward(self, x: Value) -> Value:
        """The maxima."""
        return images.max_pool(x, self.window, self.stride, self.padding, self.dilation, self.layout)


@torch_names(kernel_size="window", count_include_pad="count_padding")
@dataclass(frozen=True)
class AvgPool(Module):
    """The average of each window, along one to three spatial axes; see `avg_pool`.

    Attributes:
        window: The window's extents, one for each spatial axis, or one for all.
        stride: The steps between windows; the window's extents by default.
        padding: The elements added at both ends of each axis.
        dilation: The steps between a window's elements.
        layout: The order of the axes, such as "NHWC"; channels come first by default.
        count_padding: True if padding counts as elements of a window.
    """

    window: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Padding = 0
    dilation: int | tuple[int, ...] = 1
    layout: str | None = None
    count_padding: bool = True

    def forward(self, x: Value) -> Value:
        """The averages."""
        return images.avg_pool(
            x, self.window, self.stride, self.padding, self.dilation, self.layout, self.count_padding
        )


@torch_names(output_size="size")
@dataclass(frozen=True)
class AdaptiveMaxPool(Module):
    """The maximum of each of a given number of windows; see `adaptive_max_pool`.

    Attributes:
        size: The number of windows along each spatial axis, or along all of them.
        layout: The order of the axes, such as "NHWC"; channels come first by default.
    """

    size: int | tuple[int, ...]
    layout: str | None = None

    def forward(self, x: Value) -> Value:
        """The maxima."""
        return images.adaptive_max_pool(x, self.size, self.layout)


@torch_names(output_size="size")
@dataclass(frozen=True)
class AdaptiveAvgPool(Module):
    """The average of each of a given number of windows; see `adaptive_avg_pool`.

    Attributes:
        size: The number of windows along each spatial axis, or along all of them.
        layout: The order of the axes, such as "NHWC"; channels come first by default.
    """

    size: int | tuple[int, ...]
    layout: str | None = None

    def forward(self, x: Value) -> Value:
        """The averages."""
        return images.adaptive_avg_pool(x, self.size, self.layout)


class _Scaled(Module):
    """A layer that may have a scale gamma, 1 at first, and an offset beta, 0 at first, for each channel."""

    def __init__(self, channels: int, eps: float, affine: bool, axis: int, dtype: str) -> None:
        if channels < 1:
            raise BadArgument(f"{type(self).__name__}: {channels} channels, expected at least 1")
        self.eps, self.axis = eps, axis
        self.gamma: Array | None = np.ones(channels, dtype_of(dtype)) if affine else None
        self.beta: Array | None = np.zeros(channels, dtype_of(dtype)) if affine else None


@torch_names(num_features="channels")
class BatchNorm(_Scaled):
    """Batch normalisation with statistics `mean` (initially 0) and `var` (initially 1); channels along `axis`.

    In `nn.training` the statistics are the batch's, and the kept ones move towards them: by `momentum` of the way, and
    to the variance with Bessel's correction. Ioffe and Szegedy, Batch Normalization (2015).
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        axis: int = 1,
        dtype: str = "float32",
        momentum: float = 0.1,
    ) -> None:
        """Start with a mean of 0, a variance of 1, gamma 1 and beta 0.

        Args:
            channels: The number of channels.
            eps: Added to the variance.
            affine: False leaves gamma and beta out.
            axis: The channels' axis.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".
            momentum: The part of the way that the kept statistics move towards a batch's, from 0 to 1.

        Raises:
            BadArgument: if there are no channels, momentum is not in [0, 1], or dtype is another type.
        """
        super().__init__(channels, eps, affine, axis, dtype)
        if not 0 <= momentum <= 1:
            raise BadArgument(f"BatchNorm: momentum={momentum}, expected a number from 0 to 1")
        self.momentum = momentum
        self.mean: Array = np.zeros(channels, dtype_of(dtype))
        self.var: Array = np.ones(channels, dtype_of(dtype))

    def forward(self, x: Value) -> Value:
        """The normalised value."""
        mode = training_mode()
        if mode is None:
            return images.batch_norm(x, self.mean, self.var, self.gamma, self.beta, self.eps, self.axis)
        value, mean, var = images.batch_norm_of_batch(x, self.gamma, self.beta, self.eps, self.axis)
        step = f"{{0}} * {1 - self.momentum!r} + {{1}} * {self.momentum!r}"
        for stem, kept, new in (("mean", self.mean, mean), ("var", self.var, var)):
            mode.renew(kept, apply(Renewed(f"renew_{stem}", step, stem=stem), (constant(kept), new)))
        return value

    @property
    def dtype(self) -> DType:
        """The element type of the statistics."""
        return dtype_of(self.mean.dtype)

    def __repr__(self) -> str:
        return (
            f"BatchNorm({len(self.mean)}, eps={self.eps}, affine={self.gamma is not None}, axis={self.axis})"
        )


@torch_names(num_groups="groups", num_channels="channels")
class GroupNorm(_Scaled):
    """Group normalisation of `channels` in `groups`, along `axis`. As many groups as channels make instance norm."""

    def __init__(
        self,
        groups: int,
        channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        axis: int = 1,
        dtype: str = "float32",
    ) -> None:
        """Start with gamma 1 and beta 0.

        Args:
            groups: The number of groups; it divides the number of channels.
            channels: The number of channels.
            eps: Added to the variance.
            affine: False leaves gamma and beta out.
            axis: The channels' axis.
            dtype: The element type of the weights: "float32", "float64", "float16" or "bfloat16".

        Raises:
            BadArgument: if the groups do not divide the channels, or dtype is another type.
        """
        super().__init__(channels, eps, affine, axis, dtype)
        if groups < 1 or channels % groups:
            raise BadArgument(f"GroupNorm({groups}, {channels}): the groups do not divide the channels")
        self.groups, self.channels = groups, channels

    def forward(self, x: Value) -> Value:
        """The normalised value."""
        return images.group_norm(x, self.groups, self.gamma, self.beta, self.eps, self.axis)

    @property
    def dtype(self) -> DType | None:
        """The element type of gamma; None if not affine."""
        return None if self.gamma is None else dtype_of(self.gamma.dtype)

    def __repr__(self) -> str:
        return (
            f"GroupNorm({self.groups}, {self.channels}, eps={self.eps}, affine={self.gamma is not None}, "
            f"axis={self.axis})"
        )
