"""Everything that emitted CPU source imports from polyfuse: operations that numba compiles, one name each.

    from polyfuse.intrinsics import Part, get_num_threads, on_cores, share_from, tile_mac

Emitted CPU source calls nothing else of polyfuse; CUDA source imports from `polyfuse.intrinsics.cuda`. The table
`polyfuse.codegen.cpu.intrinsic_table` names the same for the printer.
"""

from polyfuse.codegen.cpu.intrinsics.cache_prefetch import fetch, fetch_to_write
from polyfuse.codegen.cpu.intrinsics.doacross import (
    await_all,
    await_turn,
    close_turns,
    end_turn,
    next_turn,
    turns_of,
)
from polyfuse.codegen.cpu.intrinsics.extrema import larger, smaller
from polyfuse.codegen.cpu.intrinsics.half_conversions import (
    from_bfloat16,
    from_float16,
    to_bfloat16,
    to_float16,
)
from polyfuse.codegen.cpu.intrinsics.interleave import interleave
from polyfuse.codegen.cpu.intrinsics.microkernels.row_mac import row_mac
from polyfuse.codegen.cpu.intrinsics.microkernels.row_mac_window import row_mac_windows
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_dot import tile_dot
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import (
    tile_mac,
    tile_mac_ahead,
    tile_mac_columns_ahead,
    tile_mac_rows_ahead,
)
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac_edge import tile_mac_cut
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac_triangular import tile_mac_slanted
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac_window import tile_mac_windows
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_values import tile_first, tile_zero
from polyfuse.codegen.cpu.intrinsics.parallel_parts import Part, Relay, get_num_threads, on_cores, run
from polyfuse.codegen.cpu.intrinsics.reassociated import (
    add_any_order,
    max_any_order,
    min_any_order,
    multiply_any_order,
    opaque,
)
from polyfuse.codegen.cpu.intrinsics.recurrence_rows import RowElement, rows_abreast
from polyfuse.codegen.cpu.intrinsics.reduced_row import reduced_row
from polyfuse.codegen.cpu.intrinsics.row_operation import address, beside, row_of_lanes, row_of_lanes_ahead
from polyfuse.codegen.cpu.intrinsics.short_row import short_row
from polyfuse.codegen.cpu.intrinsics.stack_arrays import on_heap, on_stack
from polyfuse.codegen.cpu.intrinsics.streaming_stores import line_of, past_line, store_past, stores_done
from polyfuse.codegen.cpu.intrinsics.transpose_tile import load_transposed, store_transposed, tile_like
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow
from polyfuse.codegen.cpu.intrinsics.vector_width import whole_registers
from polyfuse.codegen.cpu.intrinsics.worksharing import (
    first_share,
    next_share,
    share_from,
    team_of,
    within,
)
from polyfuse.codegen.looptree.collapse_axes import joined
from polyfuse.codegen.vector_math.vector_functions import (
    vector_ceil,
    vector_cos,
    vector_erf,
    vector_exp,
    vector_floor,
    vector_fmod,
    vector_log,
    vector_pow,
    vector_sin,
    vector_tanh,
)

__all__ = [
    "Part",
    "Relay",
    "RowElement",
    "TileSpec",
    "VectorRow",
    "add_any_order",
    "address",
    "await_all",
    "await_turn",
    "beside",
    "close_turns",
    "end_turn",
    "fetch",
    "fetch_to_write",
    "first_share",
    "from_bfloat16",
    "from_float16",
    "get_num_threads",
    "interleave",
    "joined",
    "larger",
    "line_of",
    "load_transposed",
    "max_any_order",
    "min_any_order",
    "multiply_any_order",
    "next_share",
    "next_turn",
    "on_cores",
    "on_heap",
    "on_stack",
    "opaque",
    "past_line",
    "reduced_row",
    "row_mac",
    "row_mac_windows",
    "row_of_lanes",
    "row_of_lanes_ahead",
    "rows_abreast",
    "run",
    "share_from",
    "short_row",
    "smaller",
    "store_past",
    "store_transposed",
    "stores_done",
    "team_of",
    "tile_dot",
    "tile_first",
    "tile_like",
    "tile_mac",
    "tile_mac_ahead",
    "tile_mac_columns_ahead",
    "tile_mac_cut",
    "tile_mac_rows_ahead",
    "tile_mac_slanted",
    "tile_mac_windows",
    "tile_zero",
    "to_bfloat16",
    "to_float16",
    "turns_of",
    "vector_ceil",
    "vector_cos",
    "vector_erf",
    "vector_exp",
    "vector_floor",
    "vector_fmod",
    "vector_log",
    "vector_pow",
    "vector_sin",
    "vector_tanh",
    "whole_registers",
    "within",
]
