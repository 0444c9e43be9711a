"""char-rnn: kernels and copies of a step, forward and in training, `a / sum(a)`, times, a trained network, and text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from papers.claims import Claim, judged, span
from papers.mxnet_13890_bulking.devices import OnDevice
from papers.nngraph_60_char_rnn.figure import draw
from papers.nngraph_60_char_rnn.model import Array, Network, compiled, generated
from papers.nngraph_60_char_rnn.training import copies as moved
from papers.nngraph_60_char_rnn.training import first_network, one_step, torch_losses, trained
from papers.places import Place, on_one_core, place
from polyfuse import nn
from polyfuse.ir.scalar import Read

Row = dict[str, Any]

TURNS = 15
CURVE_ERROR = 1e-5
"""The largest difference of a loss from torch's, relative to it; 150 steps differ by 1.2e-6."""

SEED, BEGIN = 7, "The "


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Counts asserted, results checked, the same text as NumPy's; rows and a figure into `out`.

    A quick run compiles the whole sequence in a process of its own, beside the steps.
    """
    where = on_one_core(place(target))
    small = quick or not where.timed
    kept = results.Run.begin(out, f"char-rnn-{target}", where.about)
    writer = Network.trained()
    if quick and where.timed:  # its step is compiled once, to be counted and timed and to write the text
        cases = [(writer, 1, 3)]
    elif small:
        cases = [(Network.drawn(12, 16), 1, 3)]
    else:
        cases = [(Network.drawn(65, 128), batch, 50) for batch in (1, 50)]
    for network, batch, times in cases:
        with ThreadPoolExecutor() as processes:
            if quick and target == "cpu":
                given = ("papers.nngraph_60_char_rnn.sequence", target, str(times), str(batch))
                processes.submit(
                    fresh, *given, threads=pf.Machine.detect().units
                )  # else it plans for another
            nets = step_nets(network, batch, where)
            kept.add(steps(network, batch, nets))
        if where.timed and target == "cpu":
            kept.add(sequences(network, times, batch, where, nets, 3 if quick else TURNS))
    if where.target == "cpu" and not quick:
        kept.add(training_steps(Network.drawn(65, 128), 3, where))
        kept.add([curve(where)])
    kept.add([division((6, 8) if small else (3000, 4000), where)])
    net = nets["after"] if network is writer else pf.compile(writer.step_as_written(1), **where.options)
    kept.add([written(writer, net, 20 if quick and where.timed else 2 if small else 300)])
    for row in kept.rows:
        print(line(row), flush=True)
    draw(kept.rows, kept.about, kept.path("svg"))
    return claims(kept.rows)


def claims(rows: list[Row]) -> list[Claim]:
    """What the source proposes, beside these rows."""
    before, after = (
        [r for r in rows if r["what"] == "step" and r["form"] == form] for form in ("before", "after")
    )
    quotient = next(row for row in rows if row["what"] == "a / sum(a)")
    fused = [
        1 / r["ratio_to_unfused"] for r in rows if r["what"] == "sequence" and r["form"] == "a step at a time"
    ]
    return [
        Claim(
            "Views are read through instead of copied.",
            "Narrow and Split vanish from the graph",
            f"{before[0]['copies']} → {after[0]['copies']} copies a step",
            "holds" if all(row["copies"] == 0 for row in after) else "does not hold",
        ),
        Claim(
            "The pointwise nodes around them become few kernels.",
            "a drawing, without numbers",
            f"{before[0]['kernels']} → {after[0]['kernels']} kernels a step",
            "holds"
            if all(a["kernels"] < b["kernels"] for b, a in zip(before, after, strict=True))
            else "does not hold",
        ),
        Claim(
            "a / sum(a) reads the sum on the device.",
            "no round trip to the host",
            f"{quotient['submissions']} submission, {quotient['waits']} wait",
            "holds" if quotient["waits"] == 1 else "does not hold",
        ),
        Claim(
            "Fewer kernels take less time.",
            "expected on small GPUs, not measured",
            span(fused, "as fast as unfused steps"),
            judged(fused, 1.0),
        ),
        *training_claims(rows),
        Claim("The network writes what it writes in NumPy.", "–", "the same text", "holds"),
    ]


def training_claims(rows: list[Row]) -> list[Claim]:
    """Return the claims about training: steps without copies, and the curve of the losses."""
    steps = [r for r in rows if r["what"] == "training step"]
    curves = [r for r in rows if r["what"] == "training"]
    return [
        *(
            Claim(
                "Views are read through backward too.",
                "Narrows of the backward pass vanish",
                f"{before['copies']} → {after['copies']} copies, "
                f"{before['kernels']} → {after['kernels']} kernels a step",
                "holds" if after["copies"] == 0 else "does not hold",
            )
            for before, after in zip(steps[::2], steps[1::2], strict=True)
        ),
        *(
            Claim(
                "The network is trained.",
                "by torch, from the same weights",
                f"{r['times']} steps, losses within {r['error']:.1e} of torch's",
                "holds" if r["error"] <= CURVE_ERROR else "does not hold",
            )
            for r in curves
        ),
    ]


def step_nets(network: Network, batch: int, where: Place) -> dict[str, pf.Executable]:
    """One step, compiled with each statement by itself, and by the default plan."""
    nest = network.step_as_written(batch)
    return {
        "before": pf.compile(nest, fuse=False, **where.options),
        "after": pf.compile(nest, **where.options),
    }


def steps(network: Network, batch: int, nets: Mapping[str, pf.Executable]) -> list[Row]:
    """Kernels and copies of one step in each form."""
    x = np.arange(batch) % network.letters
    states = network.start(batch)
    probabilities, expected = network.reference(x, states)
    rows = []
    for form, net in nets.items():
        found, after = compiled(net)(x, states)
        for ours, theirs in zip([found, *after], [probabilities, *expected], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
        counts = {"kernels": net.report().launches, "copies": copies(network.step_as_written(batch), net)}
        rows.append({"what": "step", "form": form, **about(network, batch), **counts})
    before, after_ = rows
    assert before["copies"] == 4 * len(network.layers), "each Narrow is a copy where nothing is composed"
    assert after_["copies"] == 0, "views are read through"
    assert after_["kernels"] <= 1 + 2 * len(network.layers) < before["kernels"]
    return rows


def training_steps(network: Network, batch: int, where: Place) -> list[Row]:
    """Kernels and copies of a training step of one step in time: each statement by itself, and by the default plan."""
    x = np.eye(network.letters, dtype=np.float32)[np.arange(batch) % network.letters]
    given = (x, *network.start(batch), np.arange(batch) % network.letters)
    rows, losses = [], []
    for form, fuse in (("before", False), ("after", True)):
        step = one_step(network.copied(), batch, fuse=fuse, **where.options)
        counts = {"kernels": step.net.report().launches, "copies": len(moved(step.net))}
        rows.append({"what": "training step", "form": form, **about(network, batch), **counts})
        losses.append([step(*given) for _ in range(2)])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    before, after = rows
    assert before["copies"] >= 8 * len(network.layers), "each Narrow is a copy, and so is its adjoint"
    assert after["copies"] == 0, "views are read through, forward and backward"
    return rows


def curve(where: Place) -> Row:
    """The network trained from the weights that torch began with, and how far the losses are from torch's."""
    network, expected = first_network(), torch_losses()
    count = len(expected)
    ours = np.array(trained(network, count, **where.options))
    error = float((np.abs(ours - expected) / expected).max())
    assert error <= CURVE_ERROR, "the same losses, but for the rounding of float32"
    return {
        "what": "training",
        "form": "losses beside torch's",
        **about(network, 16),
        "times": count,
        "error": error,
    }


def copies(nest: pf.Nest, net: pf.Executable) -> int:
    """The statements of a call that only move elements from one tensor; rows that letters choose are none."""
    run_here = {name for launch in net.kernels if not launch.once for name in launch.statements}
    written = (s for s in nest.statements if s.name in run_here)
    moves = (s for s in written if s.op == "=" and isinstance(s.body, Read))
    return sum(nest.tensor(s.reads[0].tensor).gather is None for s in moves)


def about(network: Network, batch: int) -> Row:
    return {"layers": len(network.layers), "hidden": network.layers[0].hidden, "batch": batch}


def sequences(
    network: Network, times: int, batch: int, where: Place, nets: Mapping[str, pf.Executable], turns: int
) -> list[Row]:
    """The time of a sequence: a step at a time, unfused and fused, and all steps in one call."""
    x = np.random.default_rng(0).integers(0, network.letters, (times, batch))
    unfused, fused = (compiled(nets[form]) for form in ("before", "after"))
    whole = pf.compile(network.sequence(times, batch), **where.options)

    def by_steps(step: Callable[..., Any]) -> list[Array]:
        states, found = network.start(batch), []
        for t in range(times):
            probabilities, states = step(x[t], states)
            found.append(probabilities)
        return found

    expected = np.stack(by_steps(network.reference))
    candidates: dict[str, Callable[[], Any]] = {
        "a step at a time, unfused": lambda: by_steps(unfused),
        "a step at a time": lambda: by_steps(fused),
        "the whole sequence": lambda: whole(x),
    }
    for call in candidates.values():
        np.testing.assert_allclose(np.stack(list(call())), expected, atol=1e-4)
    timed = pf.measure.in_turns(candidates, turns, clock=time.process_time)
    first = timed["a step at a time, unfused"].median
    return [
        {
            "what": "sequence",
            "form": form,
            **about(network, batch),
            "times": times,
            "median_us": round(1e6 * timing.median, 1),
            "ratio_to_unfused": round(timing.median / first, 3),
            "turns": turns,
        }
        for form, timing in timed.items()
    ]


def division(shape: tuple[int, ...], where: Place) -> Row:
    """a / sum(a): the sum stays on the device, and the host waits once, for the result."""
    a = nn.input("a", shape)
    net = pf.compile(pf.lower(a / nn.sum(a)), **where.options)
    given = np.random.default_rng(0).random(shape, np.float32)
    np.testing.assert_allclose(net(given), given / given.sum(dtype=np.float64), rtol=1e-4)
    row: Row = {"what": "a / sum(a)", "form": " × ".join(map(str, shape)), "kernels": net.report().launches}
    if where.target == "cpu":
        return {**row, "submissions": 1, "waits": 1}  # one native call
    here = OnDevice(pf.compile(net.nest, **{**where.options, "device": "gpu" if where.timed else "none"}))
    here.put(a=given)
    here.host.reset()
    here.one_graph()
    assert (here.host.submissions, here.host.waits) == (1, 1), "no round trip for the sum"
    return {**row, "submissions": here.host.submissions, "waits": here.host.waits}


def written(network: Network, net: pf.Executable, count: int) -> Row:
    """Return what the trained network writes with its compiled step, compared with what it writes in NumPy."""
    ours = generated(network, compiled(net), BEGIN, count, SEED)
    assert ours == generated(network, network.reference, BEGIN, count, SEED)
    return {"what": "text", "form": ours, **about(network, 1), "kernels": net.report().launches}


def line(row: Row) -> str:
    """A row for a person."""
    known = ("layers", "hidden", "batch", "times", "kernels", "copies", "submissions", "waits", "median_us")
    facts = ", ".join(f"{row[name]} {name}" for name in (*known, "ratio_to_unfused") if name in row)
    return f"{row['what']}, {row['form']!r}: {facts}"
