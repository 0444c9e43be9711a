"""The compiled nests that the explorer's tests look at."""

from __future__ import annotations

from functools import cache

import numpy as np

import polyfuse as pf
from polyfuse import nn
from polyfuse.machine import Machine
from polyfuse.show.explorer import Explorer, Instruction, KernelShown, explored
from polyfuse.strategy.plan import Decision
from tests.show.subjects import fused


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
    # as many steps as such a net has: each puts the rows of one copy in the place of the copy itself
    height = len(tree)
    steps = [{"text": "as written", "splice": [0, 0, whole], "tiles": first["tiles"]}]
    for n in range(3000):
        at = height * (n % times)
        splice = [at, height, whole[at : at + height]]
        steps.append({"text": f"s.step({n})", "splice": splice, "tiles": {}})
    data["steps"] = steps
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


SOURCE = '''def f(x, w, b, out):
    """
    mac: y[i, j] += x[i, k] * w[k, j]
    """
    for i in range(0, 4):
        for j in range(0, 6):
            y = 0.0
            for k in range(0, 8):
                y = y + x[i, k] * w[k, j]
            out[i, j] = max(y + b[j], 0)
'''

CODE = (
    ("f:", None),
    ("vxorps %xmm0, %xmm0, %xmm0", 7),
    ("vmovss (%rdi), %xmm1", 9),
    ("vfmadd231ss", 9),
    ("ret", 10),
)


@cache
def fixed() -> Explorer:
    """A page that no plan, price, clock or compiler changes: a schedule by hand, with a kernel, times and a refusal."""
    schedule = fused()
    violation = pf.Schedule(schedule.nest).why_not("bind", "mac0", k="cores")
    assert violation is not None
    refused = Decision("zero0", "mac0", False, "k", 0, 0, 2e-6, 0.0, violation, str(violation))
    kernel = KernelShown(
        "f", schedule.tree.names, SOURCE, bound=1e-6, predicted=2e-6, measured=3e-6,
        assembly=tuple(Instruction(*line) for line in CODE),
    )  # fmt: skip
    data = explored(schedule, Machine.preset("zen5"), [kernel], "import numpy", [refused], most_next=0)
    data["next"] = [
        {"step": "split('mac0', 'k', 4)", "python": "s = s.split('mac0', 'k', 4)", "seconds": 1.5e-6}
    ]
    data["remarks"] = [
        {"pass": "group", "statements": [1], "taken": taken, "reason": "pays", "text": text, "seconds": None}
        for taken, text in ((True, "mac0 and bias0 are fused at j."), (False, "k is not split."))
    ]
    return Explorer(data)
