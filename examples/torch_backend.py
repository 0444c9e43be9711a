"""An image classifier by torch.compile with polyfuse: the same values, what ran where, and one step of training.

python examples/torch_backend.py        needs the extra: pip install "polyfuse[torch]"
"""

import torch

import polyfuse.torch


class Block(torch.nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(x) + x)


def classifier() -> torch.nn.Module:
    """torchvision.models.resnet18(), or a small one of the same kind."""
    try:
        from torchvision.models import resnet18
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision made for another build of torch
        stem = (torch.nn.Conv2d(3, 16, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
        ends = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10))
        return torch.nn.Sequential(*stem, Block(16), Block(16), *ends)
    return resnet18()


def main() -> None:
    torch.manual_seed(0)
    model = classifier().eval()
    images = torch.randn(1, 3, 64, 64)
    fast = torch.compile(model, backend="polyfuse")
    with torch.no_grad():
        error = (fast(images) - model(images)).abs().max() / model(images).abs().max()
        print(f"largest difference to eager, relative to the largest value: {error:.1e}")
        print(polyfuse.torch.explain(model, images))
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Mish(), torch.nn.Linear(64, 4))
    step = torch.compile(net, backend="polyfuse")
    x, want = torch.randn(16, 32), torch.randn(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        loss = torch.nn.functional.mse_loss(step(x), want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
