"""The names in `polyfuse.intrinsics` that emitted CPU source may call, besides Python's and numba's functions."""

from __future__ import annotations

import re
from textwrap import fill

from polyfuse.codegen.cpu.intrinsics.doacross import TURN_OPERATIONS
from polyfuse.codegen.cpu.intrinsics.extrema import EXTREMA
from polyfuse.codegen.cpu.intrinsics.reassociated import IN_ANY_ORDER, OPAQUE
from polyfuse.codegen.cpu.intrinsics.worksharing import SHARED_OUT
from polyfuse.codegen.cpu.patterns.outer_loop_vectorize import ROWS_ABREAST
from polyfuse.codegen.cpu.patterns.stencil_row import ROW_OPERATIONS
from polyfuse.codegen.cpu.patterns.transposed.reads import LOAD_TRANSPOSED
from polyfuse.codegen.cpu.patterns.transposed.stores import STORE_TRANSPOSED, TILE_LIKE
from polyfuse.codegen.looptree.half_types import HALF_OPERATIONS
from polyfuse.codegen.vector_math.vector_functions import VECTOR_FUNCTIONS, WHOLE_NUMBERS
from polyfuse.ir.number_types import NUMBER_TYPES

HEADER = """\
import math

import numpy as np
from numba import float32, float64, int32, int64, uint64
"""

RARE = ("int8", "int16", "uint8", "uint16", "uint32")
"""The types of numba that source imports only where it converts to them."""

FACADE = "polyfuse.intrinsics"
"""The module that emitted source imports intrinsics from; it stands above this package."""

COLUMNS = 110
"""Characters in a line of imports."""

ON_STACK = "on_stack"
ON_HEAP = "on_heap"
WHOLE = "whole_registers"
INTERLEAVE = "interleave"
FETCH, FETCH_TO_WRITE = "fetch", "fetch_to_write"
TAKE = "next_turn"
LINE_OF, PAST_LINE, STORE_PAST, DONE = "line_of", "past_line", "store_past", "stores_done"

INTRINSICS = (
    # a kernel's parts, and cores
    *("Part", "Relay", "run", "on_cores", "get_num_threads"),
    *SHARED_OUT,
    *TURN_OPERATIONS,
    # memory
    *(ON_STACK, ON_HEAP, "joined"),
    *(FETCH, FETCH_TO_WRITE, LINE_OF, PAST_LINE, STORE_PAST, DONE),
    # numbers
    *EXTREMA.values(),
    *VECTOR_FUNCTIONS.values(),
    *WHOLE_NUMBERS.values(),
    *IN_ANY_ORDER.values(),
    *HALF_OPERATIONS,
    *(OPAQUE, WHOLE, INTERLEAVE),
    # rows of numbers
    *ROW_OPERATIONS,
    *("VectorRow", "RowElement", "short_row", "reduced_row", ROWS_ABREAST),
    # tiles in registers
    *("TileSpec", "tile_zero", "tile_first", "row_mac", "row_mac_windows"),
    *("tile_mac", "tile_mac_ahead", "tile_mac_rows_ahead", "tile_mac_columns_ahead", "tile_mac_cut"),
    *("tile_mac_slanted", "tile_mac_windows", "tile_dot"),
    *(TILE_LIKE, STORE_TRANSPOSED, LOAD_TRANSPOSED),
)
"""The names that emitted source imports from `FACADE`."""

FUNCTIONS = {**VECTOR_FUNCTIONS, **WHOLE_NUMBERS, **EXTREMA}
"""The names of the floating-point functions that a body may call."""

CALLED = frozenset(("math", "np", *NUMBER_TYPES, "range", "min", "max", *INTRINSICS))
"""Names that mean something in emitted source: no array and no loop of a kernel is called so."""


def header(source: str) -> str:
    """The imports of emitted source: one statement for all intrinsics that it calls."""
    called = set(re.findall(r"\b\w+(?=\()|(?<=@)\w+", source))
    others = sorted(called.intersection(RARE))
    types = HEADER.replace("uint64\n", f"{', '.join(['uint64', *others])}\n")
    names = ", ".join(sorted(called.intersection(INTRINSICS)))
    if not names:
        return types
    line = f"from {FACADE} import {names}"
    if len(line) > COLUMNS:
        inside = fill(names, COLUMNS, initial_indent="    ", subsequent_indent="    ")
        line = f"from {FACADE} import (\n{inside},\n)"
    return f"{types}{line}\n"
