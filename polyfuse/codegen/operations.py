"""What emitted CPU source may call beside Python's and numba's own functions, and where it comes from."""

from __future__ import annotations

from polyfuse.codegen.abreast import ROWS_ABREAST
from polyfuse.codegen.extrema import EXTREMA
from polyfuse.codegen.halves import HALF_OPERATIONS
from polyfuse.codegen.shared_out import SHARED_OUT
from polyfuse.codegen.stencil_rows import ROW_OPERATIONS
from polyfuse.codegen.sums import IN_ANY_ORDER, OPAQUE
from polyfuse.codegen.transposed_reads import LOAD_TRANSPOSED
from polyfuse.codegen.transposed_stores import STORE_TRANSPOSED, TILE_LIKE
from polyfuse.codegen.turns import TURN_OPERATIONS
from polyfuse.codegen.vector_math import VECTOR_FUNCTIONS

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
    **dict.fromkeys((*IN_ANY_ORDER.values(), OPAQUE), "polyfuse.codegen.sums"),
    **dict.fromkeys(VECTOR_FUNCTIONS.values(), "polyfuse.codegen.vector_math"),
    **dict.fromkeys(EXTREMA.values(), "polyfuse.codegen.extrema"),
    **dict.fromkeys(ROW_OPERATIONS, "polyfuse.codegen.lane_rows"),
    **dict.fromkeys(HALF_OPERATIONS, "polyfuse.codegen.half_operations"),
    ON_STACK: "polyfuse.codegen.stack",
    ON_HEAP: "polyfuse.codegen.stack",
    WHOLE: "polyfuse.codegen.lanes",
    "joined": "polyfuse.codegen.joined",
    FETCH: "polyfuse.codegen.fetching",
    FETCH_TO_WRITE: "polyfuse.codegen.fetching",
    **dict.fromkeys((LINE_OF, PAST_LINE, STORE_PAST, DONE), "polyfuse.codegen.streaming"),
    **dict.fromkeys((TILE_LIKE, STORE_TRANSPOSED, LOAD_TRANSPOSED), "polyfuse.codegen.transposing"),
    **dict.fromkeys(TURN_OPERATIONS, "polyfuse.codegen.turns"),
    **dict.fromkeys(SHARED_OUT, "polyfuse.codegen.shared_out"),
    **dict.fromkeys(("Part", "run", "on_cores", "get_num_threads"), "polyfuse.codegen.parts"),
    "row_mac": "polyfuse.codegen.row_tiles",
    "row_mac_windows": "polyfuse.codegen.row_window_tiles",
    "tile_mac": "polyfuse.codegen.tiles",
    "tile_mac_ahead": "polyfuse.codegen.tiles",
    "tile_mac_cut": "polyfuse.codegen.cut_tiles",
    "tile_mac_slanted": "polyfuse.codegen.slanted_tiles",
    "tile_mac_windows": "polyfuse.codegen.window_tiles",
    **dict.fromkeys(("tile_zero", "tile_first"), "polyfuse.codegen.first_values"),
    ROWS_ABREAST: "polyfuse.codegen.abreast_rows",
    "short_row": "polyfuse.codegen.short_rows",
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
