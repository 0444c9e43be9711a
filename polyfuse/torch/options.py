"""The options of `torch.compile(model, backend="polyfuse", options={…})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numba

from polyfuse.compiler import compile
from polyfuse.errors import BadArgument
from polyfuse.ir.whole import is_whole
from polyfuse.machine import CpuMachine, Machine
from polyfuse.nn import input
from polyfuse.nn.lower import lower_values
from polyfuse.strategy.pipeline import wishes_of

COMPILE = (
    "target",
    "fuse",
    "machine",
    "device",
    "fast_matmul",
    "accuracy",
    "fold",
    "math",
    "force",
    "budget",
)
"""Options that are arguments of `pf.compile`."""

Fallback = Literal["eager", "inductor", "error"]

Freeze = bool | Literal["unchecked"]
"""Whether weights are constants; "unchecked" if a call is not to ask whether they have changed."""


@dataclass(frozen=True)
class Options:
    """What a user wants: arguments of `pf.compile`, and where nodes go that polyfuse does not compile.

    Attributes:
        compile: Arguments of `pf.compile` by name.
        fallback: "eager" leaves nodes that are not supported to torch, "inductor" to torch's own compiler; "error"
            refuses the graph and names them all.
        freeze: True makes constants of parameters and buffers in graphs without gradients; "unchecked" promises that
            they do not change.
        threads: How many threads a call uses at most; None for all that this process may use.
    """

    compile: Mapping[str, Any] = field(default_factory=dict)
    fallback: Fallback = "eager"
    freeze: Freeze = False
    threads: int | None = None

    @staticmethod
    def of(given: Mapping[str, Any] | None, where: str = "options") -> Options:
        """Return the options that were given to torch.compile.

        Args:
            given: The options by name, or None.
            where: What they were given to, for messages.

        Returns:
            The options.

        Raises:
            BadArgument: for an option that does not exist, or a value that it cannot have.
        """
        options = dict(given or {})
        fallback = options.pop("fallback", "eager")
        if fallback not in get_args(Fallback):
            expected = ", ".join(map(repr, get_args(Fallback)))
            raise BadArgument(f"{where}: fallback is {fallback!r}, expected one of {expected}")
        freeze = options.pop("freeze", False)
        if not isinstance(freeze, bool) and freeze != "unchecked":
            raise BadArgument(f"{where}: freeze is {freeze!r}, expected True, False or 'unchecked'")
        threads = options.pop("threads", None)
        unknown = sorted(set(options) - set(COMPILE))
        if unknown:
            every = (*COMPILE, "threads", "fallback", "freeze")
            raise BadArgument(f"{where}: there is no {', '.join(unknown)}; expected {', '.join(every)}")
        if threads is not None:
            most = int(numba.config.NUMBA_NUM_THREADS)
            if not is_whole(threads) or not 1 <= threads <= most:
                raise BadArgument(
                    f"{where}: threads is {threads!r}, expected 1 to {most}: the cores that this process may use, or "
                    "NUMBA_NUM_THREADS"
                )
            options["machine"] = _with_threads(where, options, threads)
        return Options(options, fallback, freeze, threads)

    def arguments(self, kind: str) -> Mapping[str, Any]:
        """Return the arguments of `pf.compile` for tensors on a device: its target, unless one was asked for.

        Args:
            kind: "cpu" or "cuda".

        Returns:
            The arguments by name.
        """
        return {"target": kind, **self.compile}

    def check(self, kind: str) -> None:
        """Refuse values that no nest can be compiled with, by compiling one of a single operation.

        A region that cannot be compiled runs in eager; a wrong option shall not have this effect.

        Args:
            kind: "cpu" or "cuda": the device of a graph's tensors.

        Raises:
            PolyfuseError: what `pf.compile` raises.
        """
        force = self.compile.get("force")
        named = {} if isinstance(force, Mapping) else force  # what a pass can do depends on the nest
        x = input("x", (1,))
        compile(lower_values([x * 2.0], "options", [x]), **{**self.arguments(kind), "force": named})
        wishes_of(force or {})


def _with_threads(where: str, options: Mapping[str, Any], threads: int) -> CpuMachine:
    """The machine that is planned for, with as many cores as there are threads."""
    machine = options.get("machine")
    given = Machine.preset(machine) if isinstance(machine, str) else machine or Machine.detect()
    if options.get("target") == "cuda" or not isinstance(given, CpuMachine):
        raise BadArgument(f"{where}: threads is {threads}, and they are a CPU's: the target is a GPU")
    return replace(given, units=threads)
