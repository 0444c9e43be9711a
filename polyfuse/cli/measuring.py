"""`polyfuse tune` and `polyfuse profile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from polyfuse.cli.load import known_sizes
from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.nest import Nest
from polyfuse.runtime.executable import Executable
from polyfuse.runtime.samples import Array, drawn
from polyfuse.workbench.terminal import Terminal, writing


def show_profile(terminal: Terminal, net: Executable, arrays: Mapping[str, Array], turns: int) -> None:
    """Print the time of each kernel on these arrays."""
    with terminal.working(f"measuring {quantity(turns, 'turn')}"):
        profile = net.profile(*arrays.values(), turns=turns)
    terminal.text(str(profile))


def random_arrays(asked: str, nest: Nest, sizes: Mapping[str, int], seed: int) -> Mapping[str, Array]:
    """Return standard normal inputs of a nest.

    Args:
        asked: What needs them, for errors.
        nest: The nest.
        sizes: Values of its symbolic sizes.
        seed: Of the random numbers.

    Raises:
        BadArgument: for symbolic sizes without a number, numbers of sizes that the nest does not have, and tensors of
            row numbers, whose values are no samples.
    """
    known_sizes(nest, sizes)
    absent = [name for name in nest.params if name not in sizes]
    if absent:
        example = " ".join(f"--size {name}=64" for name in absent)
        raise BadArgument(f"{asked}: the arrays of {nest.name} depend on {', '.join(absent)}: give {example}")
    indices = [t.gather.index for t in nest.tensors if t.gather is not None]
    if indices:
        raise BadArgument(
            f"{asked}: {', '.join(indices)} holds numbers of rows, which random values are not; give "
            "arrays of yours to net.profile(…), or to pf.verdict(…, inputs=…)"
        )
    concrete = nest.with_sizes(sizes) if sizes else nest
    return drawn(concrete.inputs, np.random.default_rng(seed))


def show_tuning(terminal: Terminal, net: Executable, save: Path | None) -> None:
    """Print what a search found, and keep its schedule in a file."""
    assert net.tuning is not None, "the net was compiled with tune="
    terminal.text(str(net.tuning))
    if save is not None:
        with writing(save):
            net.schedule.save(save)
        terminal.text(f"wrote {save}")
