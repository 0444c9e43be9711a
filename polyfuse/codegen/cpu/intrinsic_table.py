"""What emitted CPU source may call beside Python's and numba's own functions, and where it comes from."""

from __future__ import annotations

from polyfuse.codegen.cpu.intrinsics.doacross import TURN_OPERATIONS
from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.intrinsics.reassociated import IN_ANY_ORDER, OPAQUE
from polyfuse.codegen.cpu.intrinsics.worksharing import SHARED_OUT
from polyfuse.codegen.cpu.patterns.outer_loop_vectorize import ROWS_ABREAST
from polyfuse.codegen.cpu.patterns.stencil_row import ROW_OPERATIONS
from polyfuse.codegen.cpu.patterns.transposed_reads import LOAD_TRANSPOSED
from polyfuse.codegen.cpu.patterns.transposed_stores import STORE_TRANSPOSED, TILE_LIKE
from polyfuse.codegen.looptree.half_types import HALF_OPERATIONS
from polyfuse.codegen.vector_math.vector_functions import VECTOR_FUNCTIONS

HEADER = """\
import math

import numpy as np
from numba import float32, float64, int32, int64, uint64
"""

ON_STACK = "on_stack"
ON_HEAP = "on_heap"
WHOLE = "whole_registers"
FETCH, FETCH_TO_WRITE = "fetch", "fetch_to_write"
TAKE = "next_turn"
LINE_OF, PAST_LINE, STORE_PAST, DONE = "line_of", "past_line", "store_past", "stores_done"
OPERATIONS = {
    **dict.fromkeys((*IN_ANY_ORDER.values(), OPAQUE), "polyfuse.codegen.cpu.intrinsics.reassociated"),
    **dict.fromkeys(VECTOR_FUNCTIONS.values(), "polyfuse.codegen.vector_math.vector_functions"),
    **dict.fromkeys(EXTREMA.values(), "polyfuse.codegen.cpu.intrinsics.extrema"),
    **dict.fromkeys(ROW_OPERATIONS, "polyfuse.codegen.cpu.intrinsics.row_operation"),
    **dict.fromkeys(HALF_OPERATIONS, "polyfuse.codegen.cpu.intrinsics.half_conversions"),
    ON_STACK: "polyfuse.codegen.cpu.intrinsics.stack_arrays",
    ON_HEAP: "polyfuse.codegen.cpu.intrinsics.stack_arrays",
    WHOLE: "polyfuse.codegen.cpu.intrinsics.vector_width",
    "joined": "polyfuse.codegen.looptree.collapse_axes",
    FETCH: "polyfuse.codegen.cpu.intrinsics.cache_prefetch",
    FETCH_TO_WRITE: "polyfuse.codegen.cpu.intrinsics.cache_prefetch",
    **dict.fromkeys(
        (LINE_OF, PAST_LINE, STORE_PAST, DONE), "polyfuse.codegen.cpu.intrinsics.streaming_stores"
    ),
    **dict.fromkeys(
        (TILE_LIKE, STORE_TRANSPOSED, LOAD_TRANSPOSED), "polyfuse.codegen.cpu.intrinsics.transpose_tile"
    ),
    **dict.fromkeys(TURN_OPERATIONS, "polyfuse.codegen.cpu.intrinsics.doacross"),
    **dict.fromkeys(SHARED_OUT, "polyfuse.codegen.cpu.intrinsics.worksharing"),
    **dict.fromkeys(
        ("Part", "run", "on_cores", "get_num_threads"), "polyfuse.codegen.cpu.intrinsics.parallel_parts"
    ),
    "row_mac": "polyfuse.codegen.cpu.intrinsics.row_mac",
    "row_mac_windows": "polyfuse.codegen.cpu.intrinsics.row_mac_window",
    "tile_mac": "polyfuse.codegen.cpu.intrinsics.tile_mac",
    "tile_mac_ahead": "polyfuse.codegen.cpu.intrinsics.tile_mac",
    "tile_mac_cut": "polyfuse.codegen.cpu.intrinsics.tile_mac_edge",
    "tile_mac_slanted": "polyfuse.codegen.cpu.intrinsics.tile_mac_triangular",
    "tile_mac_windows": "polyfuse.codegen.cpu.intrinsics.tile_mac_window",
    **dict.fromkeys(("tile_zero", "tile_first"), "polyfuse.codegen.cpu.patterns.tile_init"),
    ROWS_ABREAST: "polyfuse.codegen.cpu.intrinsics.recurrence_rows",
    "short_row": "polyfuse.codegen.cpu.intrinsics.short_row",
}

FUNCTIONS = {**VECTOR_FUNCTIONS, **EXTREMA}
"""What a body's functions of floating-point numbers are called."""

CALLED = frozenset(
    ("math", "np", "float32", "float64", "int32", "int64", "uint64", "range", "min", "max", *OPERATIONS)
)
"""Names that mean something in emitted source: no array and no loop of a kernel is called so."""


def header(source: str) -> str:
    """What emitted source imports."""
    used = {
        name: module for name, module in OPERATIONS.items() if f"{name}(" in source or f"@{name}" in source
    }
    return HEADER + "".join(f"from {module} import {name}\n" for name, module in used.items())
