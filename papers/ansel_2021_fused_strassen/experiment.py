"""The grid of dense networks: unfused, fused, Strassen in every layer, and what the cost model chooses.

python -m papers.ansel_2021_fused_strassen.experiment [--layers 1,4] [--batches 64] [--widths 512] [--out DIR]

`polyfuse papers run` measures every cell that the latest run of this commit and machine does not have; the command
here, a part of the grid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import polyfuse as pf
from benchmarks import results
from benchmarks.fresh import fresh
from benchmarks.options import numbers
from papers.ansel_2021_fused_strassen import training
from papers.ansel_2021_fused_strassen.cell import VARIANTS, network
from papers.ansel_2021_fused_strassen.figure import draw
from papers.claims import Claim, judged, span
from papers.places import Place, place
from polyfuse.errors import quantity
from polyfuse.strategy import plan_for

LAYERS = (1, 2, 4, 8)
BATCHES = (2, 4, 8, 16, 32, 64, 128)
WIDTHS = (128, 256, 512, 1024, 2048, 4096)
"""The source's grid."""

Row = dict[str, Any]

Cell = tuple[int, int, int]
"""Layers, batch, width."""

Measured = Mapping[Cell, Callable[[], list[Row]]]
"""For each cell, what measures it in a process of its own, or waits for one that runs already."""

ODD: tuple[Cell, ...] = ((2, 63, 511), (2, 127, 1025))
"""The source needs even sizes."""

LARGE: tuple[Cell, ...] = ((1, 1024, 1024), (1, 2048, 2048), (1, 4096, 4096), (2, 4096, 4096))
"""Beyond the source's batches: on a CPU a level of Strassen's algorithm pays for larger blocks only."""

QUICK: tuple[Cell, ...] = ((1, 5, 19),)

RED = 1.03
"""A cell is red where auto takes longer than this times the best of the others."""

TURNS = 15


def run(target: str, quick: bool, out: Path) -> list[Claim]:
    """Kernels counted, then the cells, each checked against float64; rows and a figure into `out`.

    A quick run measures its forward cell beside the counts, since two turns of the smallest sizes are no measurement;
    of forward and backward pass it counts kernels only.
    """
    where = place(target)
    small = quick or not where.timed  # the stand-in for a GPU takes seconds for each thousand of elements
    cells = QUICK if small else (*product(LAYERS, BATCHES, WIDTHS), *ODD, *LARGE)
    turns, depths = (2, (1,)) if quick else (TURNS, LAYERS)
    ahead = forward(where, cells, turns)
    trains = {} if quick else both(where, cells, turns)
    with ThreadPoolExecutor() as processes:
        if quick:
            ahead = _started(processes, ahead)
        found = claims(count(where, out, depths), grid(where, out, ahead))
        return [*found, *trained(where, out, trains, depths)] if target == "cpu" else found


def forward(where: Place, cells: Sequence[Cell], turns: int) -> Measured:
    """The forward pass of cells."""
    return {
        cell: partial(_fresh, "papers.ansel_2021_fused_strassen.cell", where, cell, turns) for cell in cells
    }


def both(where: Place, cells: Sequence[Cell], turns: int) -> Measured:
    """Forward and backward pass of cells."""
    return {
        cell: partial(_fresh, "papers.ansel_2021_fused_strassen.training", where, cell, turns)
        for cell in cells
    }


def _fresh(module: str, where: Place, cell: Cell, turns: int) -> list[Row]:
    rows: list[Row] = fresh(module, where.target, *map(str, cell), str(turns), threads=1)
    return rows


def _started(processes: ThreadPoolExecutor, cells: Measured) -> Measured:
    """Start measuring all cells; each is then waited for."""
    return {cell: processes.submit(measure).result for cell, measure in cells.items()}


def trained(where: Place, out: Path, cells: Measured, depths: Sequence[int]) -> list[Claim]:
    """Forward and backward pass: kernels counted, then cells that are not there yet."""
    kernels = [training.counted(layers) for layers in depths]
    for row in kernels:
        print(
            f"{quantity(row['layers'], 'layer')} forward and backward: {quantity(row['kernels'], 'kernel')} a call",
            flush=True,
        )
    kept = results.Run.begin(out, f"training-{where.target}", where.about, resume=True)
    done = {_cell(row) for row in kept.rows}
    for cell, measure in cells.items():
        if cell not in done:
            rows = measure()
            kept.add(rows)
            print(training.line(rows), flush=True)
    return training.claims(kernels, kept.rows)


def claims(kernels: Sequence[int], rows: Sequence[Row]) -> list[Claim]:
    """Compare each claim of the source with these rows."""
    of = {
        variant: {_cell(r): r for r in rows if r["variant"] == variant and "best_us" in r}
        for variant in VARIANTS
    }
    over = [row["speedup_over_numpy"] for row in of["auto"].values()]
    apart = [of["unfused"][cell]["best_us"] / row["best_us"] for cell, row in of["fused"].items()]
    fast = [of["fused"][cell]["best_us"] / row["best_us"] for cell, row in of["strassen"].items()]
    chosen = [
        of["fused"][cell]["best_us"] / row["best_us"]
        for cell, row in of["auto"].items()
        if row["fast_layers"]
    ]
    return [
        Claim(
            "A network of L layers by Strassen's algorithm is 2 L + 1 kernels.",
            "9 for 4 layers, by hand",
            f"{', '.join(map(str, kernels))}, by the search",
            "holds",
        ),
        Claim(
            "Less overhead, and bias and ReLU in the product's kernel, beat the library.",
            "up to 1.82 × and 2.26 × PyTorch, on a GPU",
            span(over, "NumPy on one core"),
            judged(over, 1.0),
        ),
        Claim(
            "Bias and ReLU in the product's kernel beat kernels of their own.",
            "up to 1.24 ×",
            span(apart),
            judged(apart, 1.0),
        ),
        Claim(
            "Strassen's algorithm in every layer gains, for large sizes.",
            "up to 1.59 ×; 72 of 168 cells are slower than PyTorch",
            span(fast, "the fused network"),
            judged(fast, 1.0),
        ),
        Claim(
            "Strassen's algorithm where a model expects a gain does not lose (ours).",
            "–",
            span(chosen, f"the fused network, in {quantity(len(chosen), 'cell')} of the grid"),
            judged(chosen, 1 / RED),
        ),
    ]


def count(where: Place, out: Path, depths: Sequence[int]) -> list[int]:
    """The kernels of a network with Strassen's algorithm in each layer: 2 L + 1 for L layers, found by the search."""
    rows: list[Row] = []
    for layers in depths:
        nest = network(layers, 512, 512)
        for layer in range(layers):
            nest = pf.rewrite.bilinear(nest, f"mac{layer}", pf.bilinear.strassen).nest
        plan = plan_for(nest, replace(pf.Machine.preset("zen5"), units=1))
        kernels = sum(not once for once in plan.once)
        assert kernels == 2 * layers + 1, f"{kernels} kernels for {layers} layers"
        rows.append({"layers": layers, "batch": 512, "width": 512, "machine": "zen5", "kernels": kernels})
        print(
            f"{quantity(layers, 'layer')}: {quantity(kernels, 'kernel')} a call, {sum(plan.once)} once for all calls",
            flush=True,
        )
    results.write(out, "kernels", where.about, rows)
    return [row["kernels"] for row in rows]


def grid(where: Place, out: Path, cells: Measured) -> list[Row]:
    """Add the cells that are not there yet, one thread each; the figure with them."""
    kept = results.Run.begin(out, f"grid-{where.target}", where.about, resume=True)
    done = {_cell(row) for row in kept.rows}
    for cell, measure in cells.items():
        if cell in done:
            continue
        rows = measure()
        kept.add(rows)
        print(line(rows), flush=True)
        draw(kept.rows, kept.about, kept.path("svg"))
    print("\n".join(summary(kept.rows)))
    return kept.rows


def line(rows: Sequence[Row]) -> str:
    """A cell for a person."""
    first = rows[0]
    parts = [
        f"{row['variant']} {quantity(row['launches'], 'launch', 'launches')}"
        + (f", {row['best_us']} µs, {row['speedup_over_numpy']:.2f} × NumPy" if "best_us" in row else "")
        for row in rows
    ]
    return f"{first['layers']} × {first['width']}, batch {first['batch']}: {'; '.join(parts)}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Where auto chose Strassen's algorithm, and its red cells."""
    auto = [row for row in rows if row["variant"] == "auto" and "time_over_best_variant" in row]
    if not auto:
        yield "no times: counts only"
        return
    fused = {_cell(row): row["best_us"] for row in rows if row["variant"] == "fused"}
    fast = [row for row in auto if row["fast_layers"]]
    yield f"{quantity(len(auto), 'cell')}; auto computes layers by a fast product in {len(fast)}"
    yield _red(
        fast, lambda row: row["best_us"] / fused[_cell(row)], "a fast product against the fused network"
    )
    yield _red(auto, lambda row: row["time_over_best_variant"], "auto against the best of our other variants")
    yield _red(auto, lambda row: 1 / row["speedup_over_numpy"], "auto against NumPy")


def _red(rows: Sequence[Row], ratio: Callable[[Row], float], what: str) -> str:
    cells = [
        f"{r['layers']} × {r['width']}, batch {r['batch']}: {ratio(r):.2f}" for r in rows if ratio(r) > RED
    ]
    return f"red, {what} (by more than 3 %): {len(cells)}{' — ' * bool(cells)}{'; '.join(cells)}"


def _cell(row: Row) -> Cell:
    return row["layers"], row["batch"], row["width"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="papers.ansel_2021_fused_strassen", description="A part of the grid."
    )
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=numbers, default=LAYERS)
    parser.add_argument("--batches", type=numbers, default=BATCHES)
    parser.add_argument("--widths", type=numbers, default=WIDTHS)
    parser.add_argument("--training", action="store_true", help="forward and backward pass")
    parser.add_argument("--extra", action="store_true", help="odd and large sizes too")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    cells = [
        *product(options.layers, options.batches, options.widths),
        *((*ODD, *LARGE) if options.extra else ()),
    ]
    where = place(options.target)
    if options.training:
        trained(where, options.out, both(where, cells, TURNS), LAYERS)
    else:
        grid(where, options.out, forward(where, cells, TURNS))


if __name__ == "__main__":
    main()
