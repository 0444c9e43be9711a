"""Everything that emitted CUDA source imports from polyfuse: the device operations (polyfuse.codegen.cuda.device_ops).

    from polyfuse.intrinsics.cuda import await_copies, copy_ahead, tile_fma

An operation's module is imported when the operation is: numba-cuda is needed for it, the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS


def __getattr__(name: str) -> Any:
    if name not in DEVICE_OPS:
        raise AttributeError(f"there is no device operation {name!r}; there are {', '.join(DEVICE_OPS)}")
    return getattr(import_module(DEVICE_OPS[name].emission), name)


def __dir__() -> list[str]:
    return sorted(DEVICE_OPS)
