"""Trains the network of `training.py` with torch from the same weights, and keeps the losses: in the repository

    python -m papers.nngraph_60_char_rnn.torch_training [STEPS]

For an environment that has torch; everything else here needs its result alone.
"""

from __future__ import annotations

import csv
import sys

import torch

from papers.nngraph_60_char_rnn.training import CURVE, RATE, batches, first_network


def losses(count: int) -> list[float]:
    """The losses of so many steps."""
    torch.set_num_threads(1)
    network = first_network()
    rnn = torch.nn.LSTM(network.letters, network.layers[0].hidden, len(network.layers))
    last = torch.nn.Linear(network.layers[0].hidden, network.letters)
    with torch.no_grad():
        for n, layer in enumerate(network.layers):
            for kind, array in (
                ("weight_ih", layer.w),
                ("weight_hh", layer.u),
                ("bias_ih", layer.b),
                ("bias_hh", layer.bu),
            ):
                getattr(rnn, f"{kind}_l{n}").copy_(torch.from_numpy(array))
        last.weight.copy_(torch.from_numpy(network.out_w))
        last.bias.copy_(torch.from_numpy(network.out_b))
    optimizer = torch.optim.Adam([*rnn.parameters(), *last.parameters()], RATE)
    found = []
    for x, target in batches(count):
        rows = torch.nn.functional.one_hot(torch.from_numpy(x), network.letters).float()
        loss = torch.nn.functional.cross_entropy(last(rnn(rows)[0]).flatten(0, 1), torch.from_numpy(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def main(count: int) -> None:
    with CURVE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", "loss"))
        writer.writerows((n, f"{loss:.8f}") for n, loss in enumerate(losses(count)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
