"""JAX on the CPU: jax.jit, the arrays its own. It has as many threads as the process has CPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from benchmarks.sides.jax_functions import FUNCTIONS, Arrays

FORMS = ("jit",)
PACKAGES = ("jax", "jaxlib")


def use(form: str, threads: int) -> None:
    jax.config.update("jax_platforms", "cpu")


def jitted(function: Callable[[Arrays], Any], arrays: Arrays) -> Callable[[], Any]:
    compiled, given = jax.jit(function), jax.device_put(arrays)
    return lambda: jax.block_until_ready(compiled(given))


KINDS = {kind: partial(jitted, function) for kind, function in FUNCTIONS.items()}
