"""Training steps, which the source measures: kernels called one by one, in bulk, and fused; images a second.

A step is forward pass, gradients and the update of SGD with momentum. One by one, each kernel of the unfused step is an
executable of its own that Python calls on the arrays of the step; in bulk, one native entry runs the same kernels.

python -m papers.mxnet_13890_bulking.steps TARGET SIDE BATCH TURNS [FILTERS…]     the rows of one network, as JSON
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import polyfuse as pf
from papers.claims import Claim, judged, span
from papers.places import Place, place
from polyfuse import nn
from polyfuse.ir.tree import restrict

Row = dict[str, Any]
Array = np.ndarray[Any, Any]

RATE, MOMENTUM, CHECKED = 0.05, 0.9, 2
SOURCE = 620 / 570
"""Images a second after and before, ResNet-50 v1d in training at batch 32 on one GPU."""


@dataclass(frozen=True)
class Trained:
    """A network of images of `side` × `side` that is trained: convolutions of so many filters, ReLU and pooling by 2
    each, then a layer of 10 scores, compared with their targets by the mean of squares.
    """

    side: int
    filters: tuple[int, ...]
    batch: int

    @property
    def name(self) -> str:
        filters = f"convolutions of {' and '.join(map(str, self.filters))} filters, " if self.filters else ""
        return f"{filters}{self.side} × {self.side}"

    def step(self) -> pf.optim.Updated:
        """The nest of a step."""
        x, wanted = nn.input("x", (self.batch, 1, self.side, self.side)), nn.input("target", (self.batch, 10))
        value, channels, side, rng = x, 1, self.side, np.random.default_rng(3)

        def drawn(*shape: int) -> nn.Value:
            fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
            return nn.constant(rng.standard_normal(shape, np.float32) * np.float32(fan_in**-0.5))

        for filters in self.filters:
            weight, bias = drawn(filters, channels, 3, 3), nn.constant(np.zeros(filters, np.float32))
            value = nn.max_pool(nn.relu(nn.conv2d(value, weight, bias, padding=1)), 2)
            channels, side = filters, side // 2
        weight, bias = drawn(channels * side * side, 10), nn.constant(np.zeros(10, np.float32))
        scores = nn.linear(nn.reshape(value, (self.batch, -1)), weight, bias)
        loss = pf.lower(nn.mse_loss(scores, wanted))
        return pf.optim.with_update(loss, tuple(loss.constants), pf.optim.SGD(RATE, MOMENTUM))

    def arrays(self, step: pf.optim.Updated) -> dict[str, Array]:
        """The arguments of a step: images and targets, the rate, weights, and momenta of 0."""
        rng = np.random.default_rng(4)
        found: dict[str, Array] = {}
        for tensor in step.nest.inputs:
            shape = tuple(map(int, tensor.shape))
            if tensor.name in ("x", "target"):
                found[tensor.name] = rng.standard_normal(shape).astype(tensor.dtype)
            elif tensor.name == step.lr:
                found[tensor.name] = np.array(RATE, tensor.dtype)
            elif tensor.name in step.kept:
                found[tensor.name] = np.zeros(shape, tensor.dtype)
            else:
                found[tensor.name] = (0.1 * rng.standard_normal(shape)).astype(tensor.dtype)
        return found


def one_by_one(net: pf.Executable, arrays: dict[str, Array], options: dict[str, Any]) -> Callable[[], None]:
    """The kernels of a step as executables that Python calls; those that run once for all calls have run."""
    nest = net.schedule.nest
    places = {t.name: np.zeros(tuple(map(int, t.shape)), t.dtype) for t in nest.tensors if t.gather is None}
    places |= net.constants | arrays
    calls: list[tuple[pf.Executable, list[Array]]] = []
    for launch in net.kernels:
        piece = part(nest, launch.statements)
        kernel = pf.compile(piece, **options)
        given = [places[t.name] for t in piece.inputs]
        if launch.once:
            kernel(*given)
        else:
            calls.append((kernel, given))

    def call() -> None:
        for kernel, given in calls:
            kernel(*given)

    return call


def part(nest: pf.Nest, names: Sequence[str]) -> pf.Nest:
    """Some statements of a nest by themselves: what they write are arrays that they change in place."""
    chosen = tuple(s for s in nest.statements if s.name in names)
    written = {s.write.tensor for s in chosen}
    read = {access.tensor for s in chosen for access in s.reads}
    tensors = tuple(
        replace(t, role="inout" if t.name in written else "input")
        for t in nest.tensors
        if t.name in written | read
    )
    order = restrict(nest.order, frozenset(names))
    assert order is not None, "a kernel has statements"
    return replace(nest, name=names[0], tensors=tensors, statements=chosen, order=order, constants={})


def measured(trained: Trained, where: Place, turns: int) -> list[Row]:
    """A row for each mode; their weights after some steps are compared with those of the fused step."""
    options = {**where.options, "machine": replace(pf.Machine.detect(), units=1)}
    step = trained.step()
    fused, bulked = (pf.compile(step.nest, fuse=fuse, **options) for fuse in (True, False))
    own = {mode: trained.arrays(step) for mode in ("per kernel", "bulked", "bulked and fused")}
    singly = one_by_one(bulked, own["per kernel"], options)
    modes: dict[str, Callable[[], Any]] = {
        "per kernel": singly,
        "bulked": lambda: bulked(*own["bulked"].values()),
        "bulked and fused": lambda: fused(*own["bulked and fused"].values()),
    }
    for _ in range(CHECKED):
        for call in modes.values():
            call()
    for name, expected in own["bulked and fused"].items():
        for mode in ("per kernel", "bulked"):
            np.testing.assert_allclose(own[mode][name], expected, rtol=1e-3, atol=1e-5)
    times = pf.measure.in_turns(modes, turns, clock=time.process_time)
    launches = {"per kernel": bulked.report().launches, "bulked": bulked.report().launches}
    return [
        {
            "network": trained.name,
            "batch": trained.batch,
            "mode": mode,
            "kernels": launches.get(mode, fused.report().launches),
            "waits": launches[mode] if mode == "per kernel" else 1,
            "median_us": round(1e6 * timing.median, 2),
            "best_us": round(1e6 * timing.best, 2),
            "images_a_second": round(trained.batch / timing.best),
            "turns": turns,
        }
        for mode, timing in times.items()
    ]


def gains(rows: Sequence[Row], mode: str, over: str) -> Iterator[float]:
    """Images a second in one mode over those in another, for each network and batch."""
    of = {(r["network"], r["batch"], r["mode"]): r["images_a_second"] for r in rows}
    for (network, batch, each), images in of.items():
        if each == mode:
            yield images / of[network, batch, over]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The source's figure of training beside ours."""
    bulk = list(gains(rows, "bulked", "per kernel"))
    fused = list(gains(rows, "bulked and fused", "per kernel"))
    images = "; ".join(
        f"batch {r['batch']}: {r['images_a_second']:,} images/s"
        for r in rows
        if r["mode"] == "bulked and fused"
    )
    return [
        Claim(
            "Bulked training steps are faster.",
            f"570 → 620 images/s, {SOURCE:.2f} ×, batch 32",
            span(bulk, "by bulking"),
            judged(bulk, 1.0),
        ),
        Claim(
            "Fused, they are faster still (ours).",
            "–",
            f"{span(fused)}; {images}",
            judged(fused, SOURCE),
        ),
    ]


def line(row: Row) -> str:
    """A row for a person."""
    return (
        f"training step, {row['network']}, batch {row['batch']}, {row['mode']}: {row['kernels']} kernels, "
        f"{row['waits']} waits, {row['median_us']} µs, {row['images_a_second']} images/s"
    )


if __name__ == "__main__":
    target, *numbers = sys.argv[1:]
    side, batch, turns, *filters = map(int, numbers)
    print(json.dumps(measured(Trained(side, tuple(filters), batch), place(target), turns)))
