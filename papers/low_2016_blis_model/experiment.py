"""The model's blocks beside those that experts gave BLIS, beside ours, and beside what a search finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks import results
from benchmarks.peak import peak_of
from papers.claims import Claim, judged, span
from papers.low_2016_blis_model.figure import draw
from papers.low_2016_blis_model.model import Blocks, Cache, Cpu, blocks, tile
from papers.places import place
from polyfuse.machine import MiB, cpu
from polyfuse.strategy.cpu.gemm.blocking import blocking
from polyfuse.strategy.cpu.gemm.blocks import Extents, Operand, Task

Row = dict[str, Any]

SIDE, QUICK_SIDE = 1024, 384
TURNS, TRIALS = 15, 12
WITHIN = 0.97
"""A search that finds no schedule below this part of our model's time has found nothing."""


@dataclass(frozen=True)
class Case:
    """A CPU, a type, and the blocks that BLIS has for it."""

    name: str
    dtype: str
    cpu: Cpu
    expert: Blocks

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize


SANDY_BRIDGE = Cpu(32, 8, 1, Cache(64, 8), Cache(512, 8), Cache(16384, 20))
HASWELL = Cpu(32, 5, 2, Cache(64, 8), Cache(512, 8), Cache(16384, 20))
PILEDRIVER = Cpu(32, 6, 1, Cache(64, 4), Cache(2048, 16))
"""Sandy Bridge has no multiply-add: its latency is a multiplication's and an addition's, 5 and 3 cycles."""

CASES = (
    Case("Sandy Bridge", "float64", SANDY_BRIDGE, Blocks(8, 4, 256, 96, 4096)),
    Case("Sandy Bridge", "float32", SANDY_BRIDGE, Blocks(8, 8, 384, 128, 4096)),
    Case("Haswell", "float64", HASWELL, Blocks(6, 8, 256, 72, 4080)),
    Case("Haswell", "float32", HASWELL, Blocks(6, 16, 256, 144, 4080)),
    Case("Piledriver", "float64", PILEDRIVER, Blocks(8, 3, 128, 1008, 8400)),
    Case("Piledriver", "float32", PILEDRIVER, Blocks(16, 3, 128, 2016, 8400)),
)
"""BLIS's, from config/NAME/bli_cntx_init_NAME.c of its repository."""


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """The blocks of every case, and one product measured and searched; rows and a figure into `out`."""
    where = place(target)
    kept = results.Run.begin(out, f"blocks-{target}", where.about)
    kept.add(row for case in CASES for row in compared(case))
    for row in kept.rows:
        print(line(row), flush=True)
    measured = [product(QUICK_SIDE if quick else SIDE, quick)] if where.timed and target == "cpu" else []
    results.write(out, f"product-{target}", where.about, measured)
    draw(kept.rows, kept.about, kept.path("svg"))
    return claims(kept.rows, measured)


def compared(case: Case) -> Iterator[Row]:
    """The blocks of one case: the model's for its own tile and for BLIS's, BLIS's, and ours."""
    own = tile(case.cpu, case.itemsize)
    found = {
        "model": blocks(case.cpu, case.itemsize, *own),
        "model, BLIS's tile": blocks(case.cpu, case.itemsize, case.expert.mr, case.expert.nr),
        "BLIS": case.expert,
        "ours": ours(case),
    }
    for who, each in found.items():
        yield {"cpu_kind": case.name, "dtype": case.dtype, "who": who, **vars(each)}


def ours(case: Case) -> Blocks:
    """What our strategy takes for a product of 2048 on such a core: steps are kc, rows and columns the tile.

    Its loops have no block of rows: a panel of rows goes through L1, and a block of columns stays in L2.
    """
    caches = (case.cpu.l1.way * case.cpu.l1.ways, case.cpu.l2.way * case.cpu.l2.ways)
    l3 = case.cpu.l3.way * case.cpu.l3.ways if case.cpu.l3 else 8 * MiB
    machine = cpu(case.name, 1, case.cpu.vector_bytes, (*caches, l3), 2.7e9, registers=16)
    side = 2048
    factors = (Operand(name, side * case.itemsize, contiguous=True) for name in "ab")
    chosen = blocking(Task(Extents(side, side, side), *factors, case.itemsize, machine))
    assert chosen is not None, "the product has rows and columns"
    return Blocks(chosen.rows, chosen.columns, chosen.steps, 0, chosen.width)


def product(side: int, quick: bool) -> Row:
    """A product of float32 on one core: our model's schedule against the peak, and against a search."""
    nest = pf.einsum("ik,kj->ij", dict.fromkeys("ikj", side), dtype="float32")
    machine = replace(pf.Machine.detect(), units=1)
    tune = None if quick else pf.Trials(count=TRIALS)
    net = pf.compile(nest, target="cpu", machine=machine)
    a, b = np.random.default_rng(0).random((2, side, side), dtype=np.float32)
    np.testing.assert_allclose(net(a, b), a @ b, rtol=1e-4)
    multiply_adds, operations = peak_of(np.float32)
    calls = {"ours": lambda: net(a, b), "peak": multiply_adds}
    times = pf.measure.in_turns(calls, 3 if quick else TURNS, clock=time.process_time)
    peak = operations / times["peak"].best
    row: Row = {"side": side, "dtype": "float32", "peak_gflops": round(peak / 1e9, 1)}
    row["ours_of_peak"] = round(2 * side**3 / times["ours"].best / peak, 3)
    if tune is not None:
        found = pf.compile(nest, target="cpu", machine=machine, tune=tune).tuning
        assert found is not None, "it was tuned"
        row |= {"trials": len(found.trials), "best_of_search": round(found.best.ratio, 3)}
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def claims(rows: list[Row], measured: list[Row]) -> list[Claim]:
    """Compare each claim of the source with these rows."""
    by = {(row["cpu_kind"], row["dtype"], row["who"]): row for row in rows}
    pairs = [(case, by[case.name, case.dtype, "BLIS"]) for case in CASES]

    def told(name: str, who: str) -> str:
        each = (f"{by[c.name, c.dtype, who][name]} for {expert[name]}" for c, expert in pairs)
        return ", ".join(each)

    tiles = [sorted((by[c.name, c.dtype, "model"][k] for k in ("mr", "nr")), reverse=True) for c, _ in pairs]
    experts = [sorted((expert[k] for k in ("mr", "nr")), reverse=True) for _, expert in pairs]
    equal = {
        name: [float(by[c.name, c.dtype, "model, BLIS's tile"][name] == expert[name]) for c, expert in pairs]
        for name in ("kc", "mc")
    }
    sums = [
        by[c.name, c.dtype, "ours"]["mr"] * by[c.name, c.dtype, "ours"]["nr"]
        / (c.cpu.vector_bytes // c.itemsize * c.cpu.latency * c.cpu.units)
        for c, _ in pairs
    ]  # fmt: skip
    searched = [row["best_of_search"] for row in measured if "best_of_search" in row]
    return [
        Claim(
            "The latency of a multiply-add gives the tile in registers.",
            "as experts chose it",
            ", ".join(f"{a} × {b} for {c} × {d}" for (a, b), (c, d) in zip(tiles, experts, strict=True)),
            judged([float(a == b) for a, b in zip(tiles, experts, strict=True)], 1.0),
        ),
        Claim(
            "The ways of L1 give kc, for BLIS's tile.",
            "as experts chose it",
            told("kc", "model, BLIS's tile"),
            judged(equal["kc"], 1.0),
        ),
        Claim(
            "The ways of L2 give mc, for BLIS's tile.",
            "as experts chose it",
            told("mc", "model, BLIS's tile"),
            judged(equal["mc"], 1.0),
        ),
        Claim(
            "Our tiles have sums enough to hide the latency (ours).",
            "–",
            span(sums, "the sums that the model asks for"),
            judged(sums, 1.0),
        ),
        Claim(
            "A model is enough: a search finds nothing better.",
            "analytical blocks reach what tuned ones do",
            f"the best of {measured[0]['trials']} schedules takes {searched[0]:.2f} of our choice's time"
            if searched
            else "no search in a quick run",
            judged(searched, WITHIN),
        ),
        Claim(
            "The product is near the machine's peak.",
            "near the peak of each machine, in double precision",
            "; ".join(f"{r['ours_of_peak']:.0%} of peak at {r['side']}" for r in measured) or "no times",
            judged([row["ours_of_peak"] for row in measured], 0.8),
        ),
    ]


def line(row: Row) -> str:
    """A row for a person."""
    cache = (
        f"kc {row['kc']}" + (f", mc {row['mc']}" if row["mc"] else "") + f", nc {row['nc']}" * bool(row["nc"])
    )
    return f"{row['cpu_kind']}, {row['dtype']}, {row['who']}: {row['mr']} × {row['nr']}, {cache}"
