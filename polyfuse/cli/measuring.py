"""`polyfuse tune` and `polyfuse profile`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyfuse.cli.early_checks import numbers
from polyfuse.errors import BadArgument
from polyfuse.runtime.executable import Executable
from polyfuse.runtime.samples import drawn
from polyfuse.workbench.terminal import Terminal, writing


def show_profile(terminal: Terminal, net: Executable, sizes: list[str], turns: int, seed: int) -> None:
    """Print the time of each kernel on random arrays.

    Raises BadArgument for symbolic sizes without a number, and for tensors of row numbers, whose values are no samples.
    """
    nest = net.nest
    given = numbers(sizes)
    absent = [name for name in nest.params if name not in given]
    if absent:
        example = " ".join(f"--size {name}=64" for name in absent)
        raise BadArgument(f"profile: the arrays of {nest.name} depend on {', '.join(absent)}: give {example}")
    indices = [t.gather.index for t in nest.tensors if t.gather is not None]
    if indices:
        raise BadArgument(
            f"profile: {', '.join(indices)} holds numbers of rows, which random values are not; call "
            "net.profile(…) on arrays of yours"
        )
    concrete = nest.with_sizes(given) if given else nest
    arrays = drawn(concrete.inputs, np.random.default_rng(seed))
    with terminal.working(f"measuring {turns} turns"):
        profile = net.profile(*arrays.values(), turns=turns)
    terminal.text(str(profile))


def show_tuning(terminal: Terminal, net: Executable, save: Path | None) -> None:
    """Print what a search found, and keep its schedule in a file."""
    assert net.tuning is not None, "the net was compiled with tune="
    terminal.text(str(net.tuning))
    if save is not None:
        with writing(save):
            net.schedule.save(save)
        terminal.text(f"wrote {save}")
