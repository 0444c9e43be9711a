"""Handwritten digits: a convolutional network trained by polyfuse alone, then tested on images that it never saw.

python examples/digits.py        in the repository: the images are those of papers/digits
"""

import sys
from pathlib import Path

import numpy as np

import polyfuse as pf
from polyfuse import nn

IMAGES = Path(__file__).parents[1] / "papers" / "digits" / "digits.npz"
WHITE = 16
TRAINING, BATCH, EPOCHS = 288, 32, 20


class Digits(nn.Module):
    """Image [1, 8, 8] -> 16 filters of 3 x 3, ReLU, pooling by 2 -> 10 scores."""

    def __init__(self) -> None:
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, seed=1), nn.ReLU(), nn.MaxPool(2))
        self.scores = nn.Linear(16 * 4 * 4, 10, seed=2)

    def forward(self, x: nn.Value) -> nn.Value:
        """(N, 1, 8, 8) -> (N, 10)."""
        return self.scores(nn.reshape(self.features(x), (x.shape[0], -1)))


def main(epochs: int) -> float:
    """Train, and return the part of the test images whose digit is found."""
    with np.load(IMAGES) as file:
        x = (file["images"][:, None] / np.float32(WHITE)).astype("float32")
        digits = file["labels"].astype("int64")
    model = Digits()
    step = pf.train_step(model, nn.CrossEntropyLoss(), pf.optim.Adam(lr=0.01), BATCH, features=(1, 8, 8))
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        batches = rng.permutation(TRAINING).reshape(-1, BATCH)
        losses = [step(x[batch], digits[batch]) for batch in batches]
        print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}")
    test = slice(TRAINING, None)
    net = pf.compile(pf.lower(model, batch=len(x) - TRAINING, features=(1, 8, 8)))
    accuracy = float((net(x[test]).argmax(1) == digits[test]).mean())
    print(f"test accuracy: {accuracy:.3f} on {len(x) - TRAINING} images, after training on {TRAINING}")
    return accuracy


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS)
