"""The models by name, with weights that leave no part of them without effect."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from benchmarks.torch_models.packaged import CLASSIFIERS, TRANSFORMERS, classifier, deeplabv3
from benchmarks.torch_models.written import WRITTEN, Case

IMAGES = {**WRITTEN, "deeplabv3": deeplabv3, **{name: partial(classifier, name) for name in CLASSIFIERS}}

NAMES = (*IMAGES, *TRANSFORMERS)


class Skipped(Exception):
    """A model whose package is not installed."""


def case(name: str, size: int, layers: int | None = None) -> Case:
    """The model of a name in inference, and its arguments; the same in each process.

    `size` is that of images, `layers` how many a transformer has in place of its own number.
    """
    torch.manual_seed(0)
    try:
        made = TRANSFORMERS[name](layers) if name in TRANSFORMERS else IMAGES[name](size)
    except ImportError as error:
        raise Skipped(str(error)) from error
    disturb(made.model)
    made.model.eval()
    return made


def disturb(model: nn.Module) -> None:
    """Add noise to parameters and statistics that are one number: a scale of 1, a head of zeros, a mean of 0.

    As they are, a ViT's result is 0, ConvNeXt's blocks count for a millionth, and a batch norm does nothing.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn_like(buffer))
            if name.endswith("running_var"):
                buffer.mul_(0.5 + torch.rand_like(buffer))
