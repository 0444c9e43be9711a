"""The compiled nests that the explorer's tests look at."""

from __future__ import annotations

from functools import cache

import numpy as np

import polyfuse as pf
from polyfuse import nn
from polyfuse.show.explorer import Explorer


@cache
def two_layers() -> Explorer:
    """Two linear layers on the CPU, fused whether it pays or not: tiles, a refused fusion, a measured kernel."""
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16), nn.ReLU())
    fused = {"group of relu0, mac1": True}
    net = pf.compile(pf.lower(layers, batch=32), target="cpu", machine="zen5", force=fused)
    measured = net.profile(np.ones((32, 64), np.float32), turns=1, pause=0)
    return net.explore(profile=measured)


@cache
def many_layers() -> Explorer:
    """A page as large as that of a network of 500 statements: the data of two layers, each repeated."""
    data = dict(two_layers().data)
    count = len(data["statements"])
    times = -(-500 // count)

    def moved(names: list[int], k: int) -> list[int]:
        return [name + k * count for name in names]

    data["statements"] = [
        s if k == 0 else {**s, "name": f"{s['name']}_{k}"} for k in range(times) for s in data["statements"]
    ]
    data["dependences"] = [
        {**d, "source": d["source"] + k * count, "sink": d["sink"] + k * count}
        for k in range(times)
        for d in data["dependences"]
    ]
    first = data["steps"][-1]
    tree: list[int] = []
    for step in data["steps"]:
        at, removed, rows = step["splice"]
        tree[at : at + removed] = rows
    table = list(data["rows"])
    whole = list(tree)
    for k in range(1, times):
        for row in tree:
            depth, kind, text, *rest = data["rows"][row]
            table.append([depth, kind, f"{text}_{k}" if kind == "statement" else text, *rest])
            whole.append(len(table) - 1)
    data["rows"] = table
    data["steps"] = [{"text": "as written", "splice": [0, 0, whole], "tiles": first["tiles"]}]
    data["kernels"] = [
        {
            **kernel,
            "statements": moved(kernel["statements"], k),
            "source": [[text, moved(names, k), loop] for text, names, loop in kernel["source"]],
        }
        for k in range(times)
        for kernel in data["kernels"]
    ]
    return Explorer(data)
