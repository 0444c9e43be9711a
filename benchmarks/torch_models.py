"""Models of torch through torch.compile: what of each runs in polyfuse, how far off it is, and how long it compiles.

    python -m benchmarks.torch_models [NAME …] [--size 64] [--freeze]

Weights are random. Models come from torchvision where it can be imported, else they are skipped with the reason; the
others are written down here. The error is the largest difference to torch in float64, over the largest element.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from polyfuse.torch import backend
from polyfuse.torch.record import Record

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Block(nn.Module):
    """Two convolutions beside a shortcut. He et al., Deep Residual Learning for Image Recognition (2016), figure 2."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ReLU of the sum."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(size: int) -> Case:
    """ResNet-18, as torchvision has it."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*layers), (torch.randn(1, 3, size, size),)


def dcgan(_: int) -> Case:
    """The generator of Radford et al., Unsupervised Representation Learning with DCGAN (2016), of half its width."""
    widths, layers = (256, 128, 64, 32), [nn.ConvTranspose2d(100, 256, 4, 1, 0, bias=False)]
    found: list[nn.Module] = list(layers)
    for before, after in zip(widths, (*widths[1:], 3), strict=True):
        found += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)]
    return nn.Sequential(*found, nn.Tanh()), (torch.randn(1, 100, 1, 1),)


class UNet(nn.Module):
    """Three levels with bilinear interpolation. Ronneberger et al., U-Net (2015)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [self._pair(3, width), self._pair(width, 2 * width), self._pair(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([self._pair(6 * width, 2 * width), self._pair(3 * width, width)])
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Down, and up again beside what was on the way down."""
        kept = []
        for level in self.down[:-1]:
            x = level(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for level, beside in zip(self.up, reversed(kept), strict=True):
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
            x = level(torch.cat([x, beside], 1))
        return self.last(x)


def unet(size: int) -> Case:
    """A small UNet."""
    return UNet(), (torch.randn(1, 3, size, size),)


def mlp(_: int) -> Case:
    """Four layers of 256."""
    layers = [part for _ in range(4) for part in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*layers), (torch.randn(32, 256),)


def encoder(_: int) -> Case:
    """Two layers of a transformer's encoder, of width 128."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 32, 128),)


WRITTEN: dict[str, Callable[[int], Case]] = {
    "resnet18": resnet18,
    "dcgan": dcgan,
    "unet": unet,
    "mlp": mlp,
    "encoder": encoder,
}
TORCHVISION = (
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "densenet121",
    "squeezenet1_1",
    "shufflenet_v2_x1_0",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "regnet_y_400mf",
)


def case(name: str, size: int) -> Case | str:
    """A model and its inputs, or why it is skipped."""
    if name in WRITTEN:
        return WRITTEN[name](size)
    try:
        import torchvision
    except Exception as error:  # noqa: BLE001  # a torchvision of another torch raises RuntimeError
        return f"torchvision: {error}"
    fitting = 224 if name == "vit_b_16" else size
    return getattr(torchvision.models, name)(weights=None), (torch.randn(1, 3, fitting, fitting),)


def measure(name: str, size: int, freeze: bool) -> str:
    """A row of the table."""
    torch.manual_seed(0)
    found = case(name, size)
    if isinstance(found, str):
        return f"| {name} | skipped: {found.splitlines()[0]} |"
    model, args = found[0].eval(), found[1]
    record = Record()
    torch._dynamo.reset()
    fast = torch.compile(
        model, backend=partial(backend, record=record), options={"freeze": True} if freeze else {}
    )
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            plain = model(*args)
        started = time.perf_counter()
        ours = fast(*args)
        seconds = time.perf_counter() - started
        eager, own = (shortest(partial(net, *args)) for net in (model, fast))
        exact = model.double()(*(x.double() for x in args))
    scale = exact.abs().max()
    errors = [float((y.double() - exact).abs().max() / scale) for y in (ours, plain)]
    nodes = sum(graph.nodes for graph in record.graphs)
    left = [refusal.operator for graph in record.graphs for refusal in graph.left]
    regions = [region for graph in record.graphs for region in graph.regions]
    failed = [reason for region in regions for reason in region.failed.values()]
    kernels = sum(len(one.kernels) for region in regions for one in region.compiled)
    return (
        f"| {name} | {nodes} | {len(left)} {' '.join(sorted(set(left)))} | {len(regions)}, {len(failed)} in eager | "
        f"{kernels} | {counter.get_total_flops() / 1e6:.1f} | {errors[0]:.1e} | {errors[1]:.1e} | {seconds:.1f} | "
        f"{own * 1e3:.2f} | {eager * 1e3:.2f} |" + "".join(f"\n\n{reason}\n" for reason in failed)
    )


def shortest(call: Callable[[], Any], turns: int = 10) -> float:
    """The shortest of several calls, in seconds."""
    found = []
    for _ in range(turns):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return min(found)


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*WRITTEN, *TORCHVISION], help="models")
    parser.add_argument("--size", type=int, default=64, help="rows and columns of images")
    parser.add_argument("--freeze", action="store_true", help="weights are constants")
    args = parser.parse_args(given)
    print(
        "| model | nodes | left to torch | regions | kernels | MFLOP | error | torch's error | compile s | ms | "
        "eager ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in args.names:
        print(measure(name, args.size, args.freeze), flush=True)


if __name__ == "__main__":
    main()
