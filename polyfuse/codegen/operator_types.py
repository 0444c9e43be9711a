"""The types of operators on numbers, looked up once in a process: numba asks its rules, a dozen, at each `a * b`.

    a * b, int64 and int64  ->  what the rules said of the first such product: (int64, int64) -> int64

It is one more rule, which numba tries first since it names its target, and changes no type. Of the time to machine
code of six of checks/cuda_cases.py for a GPU it saved a fifth to a quarter, for a CPU a twentieth (one Zen 4 core).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

from numba.core import types

OPERATORS: tuple[Callable[..., Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.lt, operator.le, operator.gt, operator.ge,
    operator.neg, operator.invert, operator.not_,
    operator.iadd, operator.isub, operator.imul,
)  # fmt: skip
"""The kernels' operators whose types depend on no value: powers and equality have rules for constants."""

NUMBERS = (types.Integer, types.Float, types.Boolean)


def registry_for(target: str, templates: Any) -> Any:
    """The registry for a target's ("cpu", "cuda") typing context; `templates` is its module of that name."""
    registry = templates.Registry()
    for each in OPERATORS:
        registry.register_global(each, types.Function(_rule(each, target, templates.AbstractTemplate)))
    return registry


def _rule(function: Callable[..., Any], target: str, base: Any) -> type:
    known: dict[tuple[types.Type, ...], Any] = {}

    class Known(base):
        key = function
        metadata: ClassVar = {"target": target}

        def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Any:
            if kws or not all(isinstance(each, NUMBERS) for each in args):
                return None
            if args not in known:
                every = self.context.resolve_value_type(function).templates
                others = types.Function([each for each in every if each is not Known])
                found = others.get_call_type(self.context, args, kws)
                known[args] = found if others.get_impl_key(found) is function else None
            return known[args]

    return Known
