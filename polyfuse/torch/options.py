"""The options of `torch.compile(model, backend="polyfuse", options={…})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from polyfuse.errors import BadArgument

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

Fallback = Literal["eager", "error"]


@dataclass(frozen=True)
class Options:
    """What a user wants: arguments of `pf.compile`, and where nodes go that polyfuse does not compile.

    Attributes:
        compile: Arguments of `pf.compile` by name.
        fallback: "eager" leaves nodes that are not supported to torch; "error" refuses the graph and names them all.
        freeze: True makes constants of parameters and buffers in graphs without gradients.
    """

    compile: Mapping[str, Any] = field(default_factory=dict)
    fallback: Fallback = "eager"
    freeze: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """Return the options that were given to torch.compile.

        Args:
            given: The options by name, or None.

        Returns:
            The options.

        Raises:
            BadArgument: for an option that does not exist, or a value that it cannot have.
        """
        options = dict(given or {})
        fallback = options.pop("fallback", "eager")
        if fallback not in ("eager", "error"):
            raise BadArgument(f"options: fallback is {fallback!r}, expected 'eager' or 'error'")
        freeze = options.pop("freeze", False)
        if not isinstance(freeze, bool):
            raise BadArgument(f"options: freeze is {freeze!r}, expected True or False")
        unknown = sorted(set(options) - set(COMPILE))
        if unknown:
            raise BadArgument(
                f"options: there is no {', '.join(unknown)}; expected {', '.join((*COMPILE, 'fallback', 'freeze'))}"
            )
        return Options(options, fallback, freeze)
