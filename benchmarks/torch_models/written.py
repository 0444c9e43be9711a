"""Models that no package has, or that are short: written down here, of the sizes of their papers or smaller."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Case:
    """A model and the arguments of a call: tensors by place, and by name."""

    model: nn.Module
    args: tuple[torch.Tensor, ...]
    named: dict[str, torch.Tensor] = field(default_factory=dict)


class ConvBlock(nn.Module):
    """Two convolutions of 3 × 3 with ReLU."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(before, after, 3, padding=1),
            nn.Conv2d(after, after, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


class UNet(nn.Module):
    """Three levels with bilinear interpolation. Ronneberger et al., U-Net (2015)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [ConvBlock(3, width), ConvBlock(width, 2 * width), ConvBlock(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([ConvBlock(6 * width, 2 * width), ConvBlock(3 * width, width)])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
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
    return Case(UNet(), (torch.randn(1, 3, size, size),))


def dcgan(_: int) -> Case:
    """The generator of Radford et al., Unsupervised Representation Learning with DCGAN (2016), of half its width."""
    widths = (256, 128, 64, 32)
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, 1, 0, bias=False)]
    for before, after in zip(widths, (*widths[1:], 3), strict=True):
        layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)]
    return Case(nn.Sequential(*layers, nn.Tanh()), (torch.randn(1, 100, 1, 1),))


class VAE(nn.Module):
    """Convolutions down to a mean and a deviation, and transposed ones up. Kingma and Welling (2013)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        inner = 32 * (size // 4) ** 2
        self.encode = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mean, self.spread, self.back = nn.Linear(inner, 32), nn.Linear(inner, 32), nn.Linear(32, inner)
        self.decode = nn.Sequential(
            nn.ReLU(),
            nn.Unflatten(1, (32, size // 4, size // 4)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.encode(x)
        mean, spread = self.mean(h), self.spread(h)
        return self.decode(self.back(mean + noise * torch.exp(0.5 * spread))), mean, spread


def vae(size: int) -> Case:
    """A VAE for small images; its noise is an input."""
    return Case(VAE(size), (torch.randn(2, 3, size, size), torch.randn(2, 32)))


def mlp(_: int) -> Case:
    """Four layers of 256."""
    layers = [part for _ in range(4) for part in (nn.Linear(256, 256), nn.GELU())]
    return Case(nn.Sequential(*layers), (torch.randn(32, 256),))


def encoder(_: int) -> Case:
    """Two layers of a transformer's encoder, of width 128."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=True)
    return Case(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 32, 128),))


class LanguageModel(nn.Module):
    """Words as vectors, an LSTM of two layers, and a linear layer back to words."""

    def __init__(self, words: int = 1000, width: int = 128) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(words))[0])


def lstm(_: int) -> Case:
    """A language model of two LSTM layers, on 8 words."""
    return Case(LanguageModel(), (torch.randint(0, 1000, (2, 8)),))


class DLRM(nn.Module):
    """Sums of rows of tables, an MLP, and products of all pairs. Naumov et al., DLRM (2019)."""

    def __init__(self, tables: int = 8, rows: int = 1000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
        first, second = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        every = torch.stack([x, *(table(sparse[:, at]) for at, table in enumerate(self.tables))], 1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([x, products], 1))


def dlrm(_: int) -> Case:
    """DLRM with 8 tables of 1000 rows, each read by 4 numbers."""
    return Case(DLRM(), (torch.randn(16, 13), torch.randint(0, 1000, (16, 8, 4))))


class NeRF(nn.Module):
    """Sines of positions, eight layers with one shortcut, colours. Mildenhall et al., NeRF (2020), figure 7."""

    def __init__(self, width: int = 128, octaves: int = 10) -> None:
        super().__init__()
        inner = 3 + 6 * octaves
        self.octaves = octaves
        self.layers = nn.ModuleList(
            nn.Linear((inner if at == 0 else width) + (inner if at == 5 else 0), width) for at in range(8)
        )
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.colour = nn.Sequential(nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3))

    def forward(self, x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        place = _waves(x, self.octaves)
        h = place
        for at, layer in enumerate(self.layers):
            h = torch.relu(layer(torch.cat([place, h], -1) if at == 5 else h))
        colour = self.colour(torch.cat([self.feature(h), _waves(direction, 4)], -1))
        return torch.cat([torch.sigmoid(colour), torch.relu(self.density(h))], -1)


def _waves(x: torch.Tensor, octaves: int) -> torch.Tensor:
    scaled = [x * (2.0**octave * math.pi) for octave in range(octaves)]
    return torch.cat([x, *(wave(one) for one in scaled for wave in (torch.sin, torch.cos))], -1)


def nerf(_: int) -> Case:
    """NeRF of half its width, at 256 points."""
    return Case(NeRF(), (torch.rand(256, 3), torch.rand(256, 3)))


class Mixer(nn.Module):
    """MLPs along patches and along channels in turns. Tolstikhin et al., MLP-Mixer (2021)."""

    def __init__(self, size: int, patch: int = 8, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        count = (size // patch) ** 2
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.patches = nn.ModuleList(_two_layers(count, 64) for _ in range(depth))
        self.channels = nn.ModuleList(_two_layers(width, 256) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        for at, (patches, channels) in enumerate(zip(self.patches, self.channels, strict=True)):
            x = x + patches(self.norms[2 * at](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * at + 1](x))
        return self.head(self.norm(x).mean(1))


def _two_layers(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def mixer(size: int) -> Case:
    """MLP-Mixer of four blocks."""
    return Case(Mixer(size), (torch.randn(1, 3, size, size),))


WRITTEN: dict[str, Callable[[int], Case]] = {
    "mlp": mlp,
    "encoder": encoder,
    "dcgan": dcgan,
    "vae": vae,
    "unet": unet,
    "lstm": lstm,
    "dlrm": dlrm,
    "nerf": nerf,
    "mixer": mixer,
}
"""Functions of the images' size, by name."""
