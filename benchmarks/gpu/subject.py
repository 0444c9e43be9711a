"""One subject on the GPU, or on the stand-in for one: every side checked against float64, then timed in turns.

A row is a side's: microseconds of a call on the device and of the host, the error, how long it took to build. `ratio`
is the time of the best other side over this one's, in the same turns: for ours, above 1 is faster than every peer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.gpu import kinds
from benchmarks.gpu.clock import Call, host_seconds, in_turns, ratio
from benchmarks.gpu.clocks import under_load
from benchmarks.gpu.parts import ALL, CAPTURED, OURS, Chosen, Subject
from benchmarks.gpu.tiles import in_other_tiles
from benchmarks.peers.references import WrongResult, error

COPY = "copy"

LARGE, LINE = 1 << 20, 256
"""Elements of an array from which on lines of so many keep together."""

Row = dict[str, Any]
Built = tuple[list[Call], Any, Row]
"""A call on each set of arrays, the results of the first, and what is known of building it."""


def on_stand_in(subject: Subject, seed: int) -> list[Row]:
    """Ours in lock-step, on fresh arrays and poisoned outputs: a dry run, without times."""
    workload, rows = subject.workload, []
    arrays = fresh(workload.make(), np.random.default_rng(seed))
    expected = kinds.reference(workload.kind, arrays)
    for label, options in subject.ways.items():
        row: Row = {"workload": subject.name, "side": label, "measured": False}
        net, built = compiled(subject, arrays, options, "lockstep")
        both = zip(net.nest.results, expected, strict=True)
        outputs = tuple(np.empty(array.shape, tensor.dtype) for tensor, array in both)
        given = [arrays[tensor.name] for tensor in net.nest.inputs]
        run = (
            net.capture(*given, out=outputs) if options.get("captured") else partial(net, *given, out=outputs)
        )
        for output in outputs:
            output.fill(np.nan)
        run()
        try:
            row["error"] = error(workload, list(outputs), expected)
        except WrongResult as why:
            row["missing"] = str(why)
        rows.append({**row, **built})
    return rows


def fresh(arrays: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The same arrays with their elements in another order: new in every run, of the same distribution.

    Of large arrays lines of elements keep together: one by one, 64M numbers take seconds of a run.
    """
    found = {}
    for name, array in arrays.items():
        together = LINE if array.size > LARGE and array.size % LINE == 0 else 1
        found[name] = rng.permutation(array.reshape(-1, together)).reshape(array.shape)
    return found


def compiled(
    subject: Subject, arrays: Mapping[str, Any], options: Mapping[str, Any], device: Any
) -> tuple[Any, Row]:
    """(ours, seconds to compile and launches of a call); from the cache it is not compiled, which the row says."""
    nest, sizes = kinds.nest_of(subject.workload.kind, arrays)
    machine = None if device == "gpu" else "h200"
    start = time.perf_counter()
    more = {name: value for name, value in options.items() if name not in ("tiles", "captured")}
    plan = None
    if "tiles" in options:
        plan = in_other_tiles(nest.with_sizes(sizes), options["tiles"], machine)
        nest, more["schedule"] = plan.schedule.source, plan.schedule
    else:
        more["sizes"] = sizes
    net = pf.compile(nest, target="cuda", machine=machine, device=device, **more)
    return net, {
        "expected_us": digits(1e6 * (plan.seconds if plan else net.report().predicted_seconds)),
        "build_s": round(time.perf_counter() - start, 3),
        "launches": sum(not launch.once for launch in net.kernels),
        "from_cache": "cache" in net.report().compile_seconds,
    }


def on_gpu(subject: Subject, seed: int, turns: int, chosen: Chosen = ALL) -> list[Row]:
    """Every side that is chosen, in turns."""
    from benchmarks.gpu import device

    workload = subject.workload
    host = fresh(workload.make(), np.random.default_rng(seed))
    nest, _ = kinds.nest_of(workload.kind, host)
    changing = [tensor.name for tensor in nest.inputs]
    arrays = device.put(host)
    sets = device.sets_of(arrays, changing)
    double = {name: tensor.double() for name, tensor in arrays.items()}
    expected = device.compute_of(workload.kind, double, changing)({name: double[name] for name in changing})
    del double
    makers: dict[str, Callable[[], Built]] = {
        label: partial(_ours, subject, host, options, sets) for label, options in subject.ways.items()
    }
    for label, make in device.peers(workload.kind, arrays, changing).items():
        if chosen.beside(label):
            makers[label] = partial(_peer, label, make, sets)
    sides: dict[str, list[Call]] = {}
    rows: dict[str, Row] = {}
    for label, maker in makers.items():
        rows[label] = _checked(label, maker, expected, workload.bound, sides)
    if subject.moved:
        sides[COPY], rows[COPY] = device.copies(sets, subject.moved), {}
    busy = under_load(next(iter(sides.values())), device.seconds_of) if sides else {}
    taken = in_turns(sides, turns, device.seconds_of)
    for label, seconds in taken.items():
        rows[label] |= figures(subject, label, seconds, taken)
        rows[label]["host_us"] = digits(1e6 * host_seconds(sides[label], device.seconds_of))
    device.release()
    about = {"sets": len(sets), "turns": turns, **busy}
    return [
        {"workload": subject.name, "side": label, "measured": True, **row, **about}
        for label, row in rows.items()
    ]


def _ours(
    subject: Subject,
    host: Mapping[str, Any],
    options: Mapping[str, Any],
    sets: Sequence[Mapping[str, Any]],
) -> Built:
    from benchmarks.gpu import device

    net, row = compiled(subject, host, options, "gpu")
    names = [tensor.name for tensor in net.nest.inputs]
    outs = [device.poisoned(net.nest.results) for _ in sets]
    made = net.capture if options.get("captured") else partial(partial, net)
    calls = [made(*(given[name] for name in names), out=out) for given, out in zip(sets, outs, strict=True)]
    calls[0]()
    for array in outs[0]:
        array.fill_(float("nan"))
    calls[0]()  # addresses that come again: this one is a replay
    return list(calls), outs[0], row


def _peer(label: str, make: Callable[[], Any], sets: Sequence[Mapping[str, Any]]) -> Built:
    from benchmarks.gpu import device

    start = time.perf_counter()
    calls, results = device.calls_of(label, make(), sets)
    return calls, results, {"build_s": round(time.perf_counter() - start, 3)}


def _checked(
    label: str, maker: Callable[[], Built], expected: Any, bound: float, sides: dict[str, list[Call]]
) -> Row:
    """The row of a side; in `sides` too if it is right. What it raises is its row: the others are still measured."""
    from benchmarks.gpu import device

    try:
        calls, results, row = maker()
        wrong = device.error(results, expected)
    except Exception as why:  # noqa: BLE001 — of any library; a broken context shows at the next synchronisation
        return {"missing": f"{type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''}"}
    if not wrong <= bound:
        return {**row, "missing": f"off by {wrong:.2g} of the largest element, {bound:g} is allowed"}
    sides[label] = calls
    return {**row, "error": digits(wrong)}


def figures(
    subject: Subject, label: str, seconds: Sequence[float], taken: Mapping[str, Sequence[float]]
) -> Row:
    """Times and rates of a side, and how it compares in the same turns."""
    median = statistics.median(seconds)
    row: Row = {"median_us": digits(1e6 * median), "best_us": digits(1e6 * min(seconds))}
    if subject.flops and label != COPY:
        row["tflops"] = digits(subject.flops / median / 1e12)
    if subject.moved:
        row["gb_per_s"] = digits(subject.moved / median / 1e9)
        row["of_copy"] = digits(ratio(taken[COPY], seconds))
    other = [name for name in taken if name not in subject.ways and name != COPY]
    if label in subject.ways and label not in (OURS, CAPTURED) and OURS in taken:
        other.append(OURS)
    if label != COPY and (rest := [name for name in other if name != label]):
        best = min(rest, key=lambda name: statistics.median(taken[name]))
        row |= {"best_other": best, "ratio": digits(ratio(taken[best], seconds))}
    return row


def digits(value: float) -> float:
    return float(f"{value:.4g}")
