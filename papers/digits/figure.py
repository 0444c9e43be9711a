"""The figure: images and what the network takes them for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLUMNS, MOST = 10, 40


def draw(images: Any, predicted: Any, labels: Any, path: Path) -> None:
    """The first images with their predictions, those that are wrong in red with what they are."""
    from matplotlib.figure import Figure

    number = min(MOST, len(images))
    rows = -(-number // COLUMNS)
    figure = Figure(figsize=(COLUMNS * 0.7, rows * 0.9), layout="constrained")
    every = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in every:
        axes.axis("off")
    for axes, image, found, label in zip(every, images[:number], predicted, labels, strict=False):
        axes.imshow(image, cmap="gray_r", interpolation="nearest")
        is_right = found == label
        title = str(found) if is_right else f"{found}, not {label}"
        axes.set_title(title, fontsize=8, color="black" if is_right else "red")
    figure.savefig(path)
