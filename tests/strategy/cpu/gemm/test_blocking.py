"""The analytical model of blocks: what fits where, what is packed, and what it says of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfuse.machine import KiB, Machine, MiB, cpu
from polyfuse.strategy.cpu.gemm.block_cost import (
    STREAMS,
    arithmetic,
    asks_further_on,
    carrying,
    leaving,
    packing,
    seconds,
)
from polyfuse.strategy.cpu.gemm.blocking import blocking, choices, step_blocks
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Extents, Operand, Results, Task
from polyfuse.strategy.cpu.gemm.remarks import sentences

AVX512 = Machine.preset("zen5")
AVX2 = cpu("avx2", 2, 32, (32 * KiB, 512 * KiB, 16 * MiB), 3.5e9)
NEON = cpu("neon", 4, 16, (64 * KiB, 1 * MiB, 8 * MiB), 3.0e9, registers=32)
MACHINES = pytest.mark.parametrize("machine", [AVX512, AVX2, NEON], ids=lambda m: m.name)
SIDES = [
    (64, 512, 512),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (257, 333, 1000),
    (2, 40, 3),
]


def task(rows: int, columns: int, steps: int, machine: Machine = AVX512, itemsize: int = 4) -> Task:
    left = Operand("x", steps * itemsize, contiguous=True)
    right = Operand("w", columns * itemsize, contiguous=True)
    return Task(Extents(rows, columns, steps), left, right, itemsize, machine)


def chosen(t: Task) -> Blocking:
    found = blocking(t)
    assert found is not None
    return found


@MACHINES
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("sides", SIDES)
def test_every_choice_fits_registers_and_half_of_l1_or_streams_a_by_one_panel(
    sides: tuple[int, int, int], itemsize: int, machine: Machine
) -> None:
    t = task(*sides, machine, itemsize)
    every = list(choices(t))
    assert every
    for b in every:
        vectors, rest = divmod(b.columns * itemsize, machine.vector_bytes)
        assert rest == 0
        assert b.rows * vectors + vectors + 1 <= machine.vector_registers
        assert b.rows <= sides[0]
        if (b.steps, b.width) != (sides[2], min(b.columns, sides[1])):
            assert b.rows * b.steps * itemsize <= t.l1.size / 2 + b.rows * 8 * itemsize
        assert b.width == sides[1] or b.width % b.columns == 0


@MACHINES
@pytest.mark.parametrize("sides", SIDES)
def test_the_choice_is_the_cheapest(sides: tuple[int, int, int], machine: Machine) -> None:
    t = task(*sides, machine)
    assert chosen(t).seconds == pytest.approx(min(seconds(t, b) for b in choices(t)), rel=1e-9)


def test_where_loads_are_dear_a_row_of_a_tile_has_more_vectors() -> None:
    rows, columns, steps = (
        20,
        128,
        256,
    )  # tiles of 10 x 2 vectors: 12 loads for 20 multiply-adds; 6 x 4: 10 for 24
    tiles = [
        (b.rows, b.columns)
        for loading in (0.05, 0.5)
        if (b := chosen(task(rows, columns, steps, replace(AVX512, loading=loading))))
    ]
    assert tiles == [(10, 32), (6, 64)]


@pytest.mark.parametrize(("broadcast", "times"), [(0.0, 1.0), (1.0, 2.0)])
def test_rows_of_one_vector_take_twice_as_long_where_a_broadcast_takes_a_cycle(
    broadcast: float, times: float
) -> None:
    machine = replace(AVX2, broadcast=broadcast)
    narrow, wide = (
        arithmetic(task(48, 64, 256, machine), Blocking(rows, columns, 256, 64, False, False))
        for rows, columns in ((8, 8), (6, 16))
    )
    assert narrow == pytest.approx(times * wide, rel=0.1)
    assert chosen(task(768, 768, 768, machine)).columns == 16


def test_a_tile_that_is_cut_short_costs_what_it_holds() -> None:
    whole, cut = (arithmetic(task(rows, 64, 256), Blocking(6, 64, 256, 64, False, False)) for rows in (12, 8))
    assert cut == pytest.approx(whole * 2 / 3, rel=0.03)  # 6 x 4 vectors and 2 x 4, which wait for no sum


def test_columns_below_a_vector_are_one_vector_or_half_of_one() -> None:
    assert [chosen(task(64, columns, 64)).columns for columns in (15, 8, 3)] == [16, 8, 4]
    assert blocking(task(64, 1, 64)) is None
    assert blocking(task(1, 64, 64)) is None


def test_small_products_are_not_packed_large_ones_are() -> None:
    small, large = chosen(task(192, 192, 192)), chosen(task(2048, 2048, 2048))
    assert not small.pack_left
    assert not small.pack_right
    assert large.pack_right
    assert large.steps < 2048


@pytest.mark.parametrize(("side", "itemsize"), [(256, 4), (511, 4), (512, 4), (256, 8), (1024, 4)])
def test_a_factor_with_few_rows_in_a_page_is_packed_where_many_rows_use_it(side: int, itemsize: int) -> None:
    """As they lie, panels of 1 to 2 KiB rows take a tenth to a third of the time of the whole product."""
    assert chosen(task(side, side, side, itemsize=itemsize)).pack_right
    assert not chosen(task(16, side, side, itemsize=itemsize)).pack_right


def test_constants_from_behind_l2_come_in_panel_by_panel() -> None:
    """Eight layers' weights do not fit where one layer's do."""
    t = task(64, 512, 512)
    fixed = replace(t, right=replace(t.right, fixed=True))
    for held, asks in ((1 * MiB, False), (9 * MiB, True)):
        one = replace(fixed, held=held)
        assert chosen(one).pack_right
        assert one.asks(chosen(one)) is asks


@pytest.mark.parametrize("rows", [2, 8, 16, 64, 128])
def test_blocks_of_a_constant_leave_the_next_one_room_in_l2(rows: int) -> None:
    """All steps of a panel would be a MiB, as would the next one, which tiles ask for meanwhile."""
    t = task(rows, 4096, 4096)
    fixed = replace(t, right=replace(t.right, fixed=True), held=64 * MiB)
    found = chosen(fixed)
    assert fixed.in_time(found)
    assert found.steps < 4096
    assert found.width == found.columns
    every = replace(found, steps=4096)
    assert not fixed.in_time(every)
    assert seconds(fixed, found) < seconds(fixed, every)


def test_a_product_takes_no_less_than_its_constant_from_memory() -> None:
    """Two rows compute for less time than their weights take to come, however early these are asked for."""
    t = task(2, 4096, 4096)
    fixed = replace(t, right=replace(t.right, fixed=True), held=1024 * MiB)
    assert chosen(fixed).seconds >= 4096 * 4096 * 4 / AVX512.levels[-1].bandwidth


def test_a_zen_4_has_all_columns_in_a_block_and_its_panels_in_l3() -> None:
    """Narrower blocks read and write pieces of rows of sums: 160 ms at 2048, and 154 so."""
    zen4 = replace(Machine.preset("zen4"), units=1)
    for sides in ((1024, 1024, 1024), (2048, 2048, 2048), (800, 1200, 900)):
        b, t = chosen(task(*sides, machine=zen4)), task(*sides, machine=zen4)
        assert (b.width, b.pack_left, b.pack_right) == (sides[1], False, True)
        assert t.block(b) <= zen4.levels[2].size / 2


def test_panels_take_no_less_than_their_cache_gives() -> None:
    """Tiles of 2 x 64 need 32 bytes a cycle, of an L3 that gives 26: they took 1.26 of the time of 6 x 64."""
    t = task(1024, 1024, 1024, machine=replace(Machine.preset("zen4"), units=1))
    few, many = (seconds(t, Blocking(rows, 64, 512, 1024, False, True)) for rows in (2, 6))
    assert 1.15 < few / many < 1.35


def test_an_operand_across_memory_is_packed() -> None:
    t = task(64, 64, 64)
    across = Task(t.extents, t.left, Operand("w", 64 * 4, contiguous=False), 4, AVX512)
    assert chosen(across).pack_right


@MACHINES
@pytest.mark.parametrize("sides", [(2, 2500, 7500), (8, 2500, 7500), (4, 1024, 1024)])
def test_rows_of_a_weight_that_few_rows_use_go_by_as_streams(
    sides: tuple[int, int, int], machine: Machine
) -> None:
    """Its columns lie in pages of their own: a panel of them would come in line by line."""
    rows, columns, steps = sides
    b = chosen(replace(task(rows, columns, steps, machine), held=4 * columns * steps))
    assert (b.steps, b.width) == (STREAMS, columns)
    assert not b.pack_right


def test_a_weight_that_many_rows_use_does_not_go_by_in_streams() -> None:
    assert chosen(replace(task(512, 1024, 1024, AVX2), held=12 * MiB)).steps > STREAMS


def along(rows: int, columns: int, steps: int, machine: Machine, fixed: bool = False) -> Task:
    """x[i, k] * w[j, k], with w as torch has weights."""
    left, right = Operand("x", 4 * steps, contiguous=True), Operand("w", 4 * steps, False, fixed)
    return Task(Extents(rows, columns, steps), left, right, 4, machine, along=True)


@pytest.mark.parametrize("sides", [(2, 3072, 768), (32, 256, 256), (32, 50257, 768), (64, 768, 3072)])
def test_a_weight_that_few_rows_use_is_read_as_it_lies(sides: tuple[int, int, int]) -> None:
    """Packing transposes it for each call; in dot products both are read along the steps."""
    b = chosen(along(*sides, AVX2))
    assert b.lanes == 8
    assert not b.pack_left
    assert not b.pack_right
    assert b.rows * b.columns + min(b.rows, b.columns) < AVX2.vector_registers


def test_a_weight_that_many_rows_use_or_no_call_changes_is_packed() -> None:
    assert not chosen(along(2048, 512, 512, AVX512)).lanes
    assert not chosen(along(64, 512, 512, AVX2, fixed=True)).lanes


def test_dot_products_wait_for_rows_that_l1_does_not_hold() -> None:
    """Rows of 12 KiB: 4 of each factor do not stay in 48 KiB, and come from L2 for each tile; of 3 KiB they do."""

    def of_arithmetic(steps: int) -> float:
        b = Blocking(4, 4, steps, 32, pack_left=False, pack_right=False, lanes=16)
        t = replace(along(32, 768, steps, AVX512), held=steps * 768 * 4)
        return seconds(t, b) * AVX512.peak(4, 1.0) / (2.0 * 32 * 768 * steps)

    assert of_arithmetic(3072) > 1.4 * of_arithmetic(768)


def test_fewer_steps_than_two_vectors_are_no_dot_products() -> None:
    assert not any(b.lanes for b in choices(along(32, 64, 15, AVX2)))


@pytest.mark.parametrize(("steps", "window"), [(2500, 1), (50, 50)])
def test_steps_whose_lines_crowd_into_few_sets_of_l2_are_in_more_blocks(steps: int, window: int) -> None:
    """A gradient of weights: lines 2 KiB apart, of which half of an L2 of 2 MiB holds 512, whatever L1 holds."""
    machine = cpu("roomy", 1, 64, (48 * KiB, 2 * MiB, 8 * MiB), 3.0e9)
    extents = Extents(512, 128, steps, window=window)
    left, right = Operand("x", 2048, contiguous=False, packable=False), Operand("w", 512, contiguous=True)
    crowded = Task(extents, left, right, 4, machine, held=16 * MiB)
    best = chosen(crowded)
    assert best.steps * window <= 512
    spread = replace(crowded, left=replace(left, stride=2048 + 64))
    long = replace(best, steps=1000 // window)
    assert seconds(crowded, long) - seconds(crowded, best) > 2 * (
        seconds(spread, long) - seconds(spread, best)
    )


def test_what_is_packed_before_many_turns_costs_a_turn_little() -> None:
    t = replace(task(50, 512, 128), right=Operand("w", 512, contiguous=False))
    turns = replace(t, right=replace(t.right, turns=50))
    assert chosen(t).pack_right
    assert chosen(turns).pack_right
    once, each = packing(turns, chosen(t)), packing(t, chosen(t))
    assert each == pytest.approx(50 * once)
    assert "w is packed before 50 turns" in sentences(turns, chosen(turns), ("i", "j", "k"))[-2]


def test_a_batch_of_few_rows_does_not_pay_for_packing() -> None:
    assert not chosen(task(16, 1024, 512)).pack_right


@pytest.mark.parametrize(("side", "channels", "inside"), [(8, 512, True), (56, 64, False)])
def test_rows_of_pixels_go_through_a_block_of_weights_that_l2_does_not_hold(
    side: int, channels: int, inside: bool
) -> None:
    """Windows of 3 x 3, as many filters as channels: 9 MiB of weights, or 144 KiB beside an image of 784."""
    extents = Extents(side, channels, channels, batches=side, window=9, overlap=3, alike=side, between=3)
    left = Operand("x", 4 * side * side, contiguous=False, packable=False)
    right = Operand("w", 4 * 9, contiguous=False, fixed=True)
    held = 4 * channels * (9 * channels + 2 * side * side)
    asked = Task(extents, left, right, 4, AVX2, across=True, held=held)
    assert chosen(asked).inside == inside


def test_results_that_crowd_into_few_sets_of_l1_cost_their_lines() -> None:
    """A gradient of 1024 x 1024 weights by 16 samples, and two tensors in its place: rows of 4 KiB, or a line more."""
    crowded = replace(task(1024, 1024, 16), held=32 * MiB, results=Results(4096, 2))
    spread = replace(crowded, results=Results(4096 + 64, 2))
    tall, low = (Blocking(rows, 32, 16, 1024, False, False) for rows in (14, 8))
    assert leaving(crowded, low) == leaving(spread, tall) == leaving(spread, low) == 0.0
    assert leaving(crowded, tall) > arithmetic(crowded, tall)
    assert chosen(crowded).rows * 2 <= 18
    small = replace(task(64, 64, 16), results=Results(256, 2))
    assert leaving(small, replace(tall, width=64)) == 0.0


def test_sums_and_rows_of_b_that_crowd_into_few_sets_come_again_for_each_block() -> None:
    """16 x 1024 sums in blocks of 8 steps: 24 lines in a set of 12 in tiles of 16 rows, 16 in tiles of 8."""
    t = replace(task(16, 1024, 1024), held=16 * MiB, results=Results(4096, 1))
    spread = replace(t, results=Results(4096 + 64, 1))
    tall, low = Blocking(16, 16, 8, 1024, False, False), Blocking(8, 32, 8, 1024, False, False)
    assert carrying(t, tall) > 2 * carrying(spread, tall)
    assert carrying(t, low) == carrying(spread, low)


def test_rows_that_go_by_as_they_lie_are_asked_for_further_on() -> None:
    """Few rows of weights behind L2, whole, in more than one tile; a call that L2 holds needs nothing."""
    t = replace(task(8, 1024, 1024), held=16 * MiB)
    b = Blocking(8, 32, 8, 1024, False, False)
    assert asks_further_on(t, b)
    assert "each tile asks for w of the tile 8 further on" in sentences(
        t, replace(b, seconds=1e-3), ("i", "j", "k")
    )
    assert not asks_further_on(replace(t, held=MiB // 2), b)
    assert not asks_further_on(t, replace(b, steps=2 * STREAMS))
    assert not asks_further_on(t, replace(b, pack_right=True))


@MACHINES
def test_parts_of_lines_in_pages_of_their_own_cost_more_than_neighbours(machine: Machine) -> None:
    """1 x 1 windows over images of 56 x 56: rows are pixels, whose channels lie 12.25 KiB apart."""
    asked = replace(task(56, 64, 256, machine), across=True)
    apart = replace(asked, left=Operand("x", 56 * 56 * 4, contiguous=False))
    near = replace(asked, left=Operand("x", 64, contiguous=False))
    b = Blocking(6, 16, 256, 64, pack_left=True, pack_right=False)
    assert seconds(apart, b) > 1.2 * seconds(near, b)


def test_the_decision_in_words() -> None:
    t = task(1024, 1024, 1024)
    b = Blocking(8, 32, 256, 512, pack_left=True, pack_right=True, seconds=0.01)
    assert sentences(t, b, ("i", "j", "k")) == (
        "i x j in tiles of 8 x 32 sums: 19 of 32 vector registers",
        "k in blocks of 256: 8 x 256 of x is 8 KiB of L1's 48 KiB",
        "j in blocks of 512: 512 KiB of w in L2",
        "w is packed (256 x 512 of it is 512 KiB, read from L2); "
        "x is packed (8 rows of it, 4 KiB apart, stay in L1); packing takes 614 µs",
        "10 ms expected on one core, 82% of its peak",
    )


def test_batches_that_go_through_a_block_together_are_said() -> None:
    t = replace(task(8, 512, 512), extents=Extents(8, 512, 512, batches=8, alike=8))
    apart, together = (
        Blocking(8, 32, 512, 32, False, True, seconds=0.01, inside=each) for each in (False, True)
    )
    said = set(sentences(t, together, ("l", "j", "m"))) - set(sentences(t, apart, ("l", "j", "m")))
    assert said == {"8 batches go through a block one after the other: w comes once for all"}


def test_blocks_of_steps_are_equal_where_steps_are_a_multiple_of_their_number() -> None:
    """A block that is shorter than the others has loops of its own, and in a triangle slower tiles."""
    assert [*step_blocks(task(1400, 1400, 1800, AVX2, itemsize=8), 6, 8)] == [300, 264, 150]
    assert [*step_blocks(task(1400, 1400, 1804, AVX2, itemsize=8), 6, 8)] == [304, 264, 152]


def test_constant_filters_on_few_pixels_go_by_in_whole_panels_each_asking_for_the_next() -> None:
    """Weights of a layer of 4 x 4 pixels come from memory once; its pixels, one tile of columns, are what is near."""
    t = task(256, 16, 1024)
    far = replace(t, left=replace(t.left, fixed=True), held=64 * MiB)
    found = chosen(far)
    assert (found.steps, found.columns, found.pack_left) == (1024, 16, True)
    assert far.asks_rows(found)
    assert f"each tile asks for its share of the next {found.rows} rows of x" in sentences(
        far, found, ("j", "l", "m")
    )
    near = replace(far, held=far.l2.size)
    assert not near.asks_rows(chosen(near))
    assert not t.asks_rows(chosen(t))
