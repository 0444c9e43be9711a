"""`polyfuse demo`: two dense networks through the whole pipeline, checked and timed against NumPy and unfused code."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from rich.progress import Progress

from polyfuse import measure
from polyfuse.checks import cuda_cases as cases
from polyfuse.checks.cuda_cases import TOLERANCE, Array
from polyfuse.compiler import compile
from polyfuse.errors import PolyfuseError, quantity
from polyfuse.ir import Nest
from polyfuse.runtime.cuda.driver import available
from polyfuse.runtime.executable import Executable
from polyfuse.workbench.terminal import Terminal

T = TypeVar("T")

BUSY = 0.5
"""A load from which on the times of a run say as much about its neighbours."""


class WrongResult(PolyfuseError):
    """A kernel's result is not NumPy's: a bug of the compiler."""


@dataclass(frozen=True)
class Network:
    """A chain of `layers` dense layers of `width` with ReLU."""

    layers: int
    width: int
    batch: int

    def __str__(self) -> str:
        return f"{self.layers} × Linear({self.width}) + ReLU, batch {self.batch}, float32"

    def nest(self) -> Nest:
        """Layers to nest, with seeded weights."""
        return cases.dense(*[self.width] * (self.layers + 1), batch=self.batch)

    def numpy(self, weights: dict[str, Array], x: Array) -> Array:
        """Compute the network with plain NumPy."""
        for layer in range(self.layers):
            x = np.maximum(x @ weights[f"w{layer}"] + weights[f"b{layer}"], 0)
        return x


NETWORKS = (Network(4, 512, 64), Network(8, 64, 1))


def run_demo(terminal: Terminal, turns: int) -> None:
    """Both networks on the CPU, then on a GPU if there is one. Raises WrongResult if a result is not NumPy's."""
    about = measure.environment()
    terminal.text(f"{about['date']}  {about['cpu']}, {about['cpus']} CPUs usable, load {about['load']}")
    terminal.text(
        f"python {about['python']}, " + ", ".join(f"{n} {v}" for n, v in measure.versions().items())
    )
    targets: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda") if available() else ("cpu",)
    summary = []
    for target in targets:
        for network in NETWORKS:
            summary += show(terminal, network, target, turns)
    terminal.title("times per call, in turns")
    columns = (
        "network",
        "target",
        "candidate",
        "median",
        "quartiles",
        "best",
        "median compared with polyfuse",
    )
    terminal.table(columns, summary)
    if isinstance(load := about["load"], float) and load > BUSY:
        terminal.text(
            f"the load was {load} before the demo began: other processes used this machine; medians of kernels"
        )
        terminal.text(
            "that wait for all their threads suffer most. The best turns are closer to those of an idle machine"
        )
    if "cuda" not in targets:
        terminal.text(
            "no GPU can be used here; `polyfuse info` says why. `polyfuse gpu-check --device lockstep` runs in a CPU "
            "emulator"
        )
    else:
        terminal.text("on the GPU a call includes copying its input there and its result back")


def show(
    terminal: Terminal, network: Network, target: Literal["cpu", "cuda"], turns: int
) -> list[tuple[str, ...]]:
    """One network: everything the compiler knows of it, a check, and rows for the table of times."""
    terminal.title(f"{network}, target {target}")
    nest = timed(terminal, "lower the layers to a nest", network.nest)
    deps = timed(terminal, "find all dependences", nest.dependences)
    net = timed(
        terminal, f"schedule, validate, emit, compile for {target}", lambda: compile(nest, target=target)
    )
    unfused = timed(terminal, "the same, unfused", lambda: compile(nest, target=target, fuse=False))
    terminal.heading("the nest")
    terminal.text(str(nest))
    terminal.text(f"{len(deps.pairs)} dependence relations")
    terminal.heading("the schedule tree")
    terminal.text(str(net.schedule))
    terminal.heading("the explanation")
    terminal.text(net.explain())
    terminal.heading("the kernels")
    terminal.code(net.source)
    terminal.heading("the report")
    terminal.text(str(net.report()))
    x = np.random.default_rng(0).standard_normal((network.batch, network.width), np.float32)
    reference = partial(network.numpy, dict(nest.constants), x)
    terminal.heading("the check")
    verify(terminal, "polyfuse", net, x, reference())
    verify(terminal, "unfused", unfused, x, reference())
    times = race(
        terminal, {"polyfuse": lambda: net(x), "unfused": lambda: unfused(x), "NumPy": reference}, turns
    )
    kernels = {"polyfuse": kernels_of(net), "unfused": kernels_of(unfused)}
    short = f"{network.layers} × {network.width}, batch {network.batch}"
    ours = times["polyfuse"].median
    return [
        (
            short,
            target,
            name + kernels.get(name, ""),
            measure.duration(time.median),
            f"{measure.duration(time.low)} – {measure.duration(time.high)}",
            measure.duration(time.best),
            compared(time.median, ours),
        )
        for name, time in times.items()
    ]


def kernels_of(net: Executable) -> str:
    """Return the text after a candidate's name: its number of kernels."""
    return f", {quantity(len(net.kernels), 'kernel')}"


def timed(terminal: Terminal, what: str, work: Callable[[], T]) -> T:
    """Do something that may take a while, and say how long it took."""
    start = time.perf_counter()
    with terminal.working(what):
        result = work()
    terminal.text(f"{what}: {measure.duration(time.perf_counter() - start)}")
    return result


def verify(terminal: Terminal, name: str, net: Executable, x: Array, expected: Array) -> None:
    """Compare a call's result with NumPy's."""
    found: Any = net(x)
    error = float(np.abs(found - expected).max())
    allowed = TOLERANCE * float(np.finfo(np.float32).eps) * max(1.0, float(np.abs(expected).max()))
    terminal.text(f"{name:<9} largest difference from NumPy {error:.2e} ({allowed:.2e} allowed)")
    if not error <= allowed:
        raise WrongResult(f"{name} differs from NumPy by {error:.2e}, {allowed:.2e} is allowed")


def race(
    terminal: Terminal, candidates: dict[str, Callable[[], object]], turns: int
) -> dict[str, measure.Timing]:
    """Time the candidates in turns, with a progress bar in a terminal."""
    with Progress(console=terminal.err, transient=True, disable=not terminal.err.is_terminal) as progress:
        task = progress.add_task(f"timing {', '.join(candidates)} in turns", total=turns)
        return measure.in_turns(
            candidates, turns, after_turn=lambda done: progress.update(task, completed=done)
        )


def compared(seconds: float, ours: float) -> str:
    """Format a time relative to polyfuse's; a row in which polyfuse is slower says so."""
    if seconds == ours:
        return "1.00 ×"
    return f"{seconds / ours:.2f} ×{'' if seconds >= ours else ' (faster)'}"
