"""Trains the network of `model.py` on `data/text.txt` with torch, and keeps the weights: python train.py [EPOCHS].

A plain script for an environment that has torch and NumPy; everything else here needs its result alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

DATA = Path(__file__).parent / "data"
HIDDEN, LAYERS, STEPS, BATCH = 48, 2, 64, 16


def main(epochs: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(letter) for letter in text])
    rnn = torch.nn.LSTM(len(letters), HIDDEN, LAYERS)
    last = torch.nn.Linear(HIDDEN, len(letters))
    optimiser = torch.optim.Adam([*rnn.parameters(), *last.parameters()], 4e-3)
    draw = np.random.default_rng(0)
    for epoch in range(epochs):
        starts = torch.from_numpy(draw.integers(0, len(codes) - STEPS - 1, BATCH))
        at = starts[None] + torch.arange(STEPS + 1)[:, None]
        x = torch.nn.functional.one_hot(codes[at[:-1]], len(letters)).float()
        wanted = codes[at[1:]]
        loss = torch.nn.functional.cross_entropy(last(rnn(x)[0]).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimiser.step()
        if epoch % 100 == 99:
            print(epoch + 1, round(float(loss), 3), flush=True)
    arrays = {name: value.detach().numpy().astype(np.float16) for name, value in rnn.named_parameters()}
    arrays |= {"out_w": last.weight.detach().numpy().astype(np.float16)}
    arrays |= {"out_b": last.bias.detach().numpy().astype(np.float16)}
    np.savez_compressed(DATA / "weights.npz", **arrays)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
