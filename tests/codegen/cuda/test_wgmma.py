"""A warpgroup's instructions: where a descriptor says that elements lie, and which thread has which result."""

import ast
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from polyfuse.analysis.banks import waits
from polyfuse.codegen.cuda.compile.cubin import for_warpgroups
from polyfuse.errors import TargetUnavailable
from polyfuse.layouts.core_matrix import CoreMatrixLayout
from polyfuse.layouts.wgmma_descriptors import Described, Form, descriptor
from polyfuse.simulator.device_ops import perform
from polyfuse.simulator.wgmma_matrices import matrices, warpgroups_multiplied


def place(cores: CoreMatrixLayout, width: int, step: int, along: int) -> int:
    """Where a layout has an element."""
    digits = ((step, cores.along_steps(width)), (along, cores.along_results(width)))
    return sum(
        value // d.divisor % (d.modulus or 1 << 30) * d.weight for value, every in digits for d in every
    )


def test_fields_of_a_descriptor() -> None:
    """PTX ISA, "Matrix Descriptor Format": start 0-13, leading offset 16-29, stride offset 32-45, all in 16 bytes."""
    assert descriptor(16, 0, 0) == 1
    assert descriptor(0, 16, 0) == 1 << 16
    assert descriptor(0, 0, 16) == 1 << 32
    assert descriptor(0x3FFF0, 0x3FFF0, 0x3FFF0) == 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32
    assert Described.by(descriptor(32, 128, 1024)) == Described(32, 128, 1024)
    with pytest.raises(ValueError, match="a leading offset of 24 bytes; it is a multiple of 16"):
        descriptor(0, 24, 0)
    assert Described.by(descriptor(32, 16, 1024, swizzle=True)) == Described(32, 16, 1024, swizzle=True)
    assert descriptor(0, 0, 0, swizzle=True) == 1 << 62
    with pytest.raises(ValueError, match="another swizzle"):
        Described.by(2 << 62)


def test_a_descriptor_without_swizzle_tells_of_core_matrices() -> None:
    """The PTX ISA's canonical layout without swizzle, in 16 bytes: 8 rows, m times `stride`, two times `leading`."""
    leading, stride = 2048, 144
    found = Described(64, leading, stride)
    for row in range(64):
        for step in range(16):
            unit = row % 8 + row // 8 * (stride // 16) + step // 8 * (leading // 16)
            assert found.address(row, step, 2) == 64 + 16 * unit + 2 * (step % 8)


@pytest.mark.parametrize(("rows", "groups"), [(2, 1), (4, 1), (4, 2)])
def test_rows_of_a_thread_are_neighbours(rows: int, groups: int) -> None:
    """Instruction m's row 16 * warp + g + 8h, as the descriptor finds it, is the thread's row 2m + h."""
    width = 32 * groups * rows
    cores = CoreMatrixLayout(rows, 8, 2, 8, 8, 24, 16)
    for tile in range(32 * groups):
        group, warp, g = tile // 32, tile % 32 // 8, tile % 8
        start = place(cores, width, 0, group * 32 * rows)
        for m in range(rows // 2):
            first = 2 * (start + m * cores.far(width))
            known = Described.by(descriptor(first, 2 * cores.line(width), 2 * cores.core))
            for h, step in ((0, 0), (1, 5), (0, 15)):
                own = 2 * place(cores, width, step, tile * rows + 2 * m + h)
                assert known.address(16 * warp + g + 8 * h, step, 2) == own


@pytest.mark.parametrize(("columns", "groups"), [(16, 1), (32, 2)])
def test_columns_of_a_thread_are_neighbours(columns: int, groups: int) -> None:
    """Column 8j + 2t + e of an instruction is the thread's column 2j + e."""
    width = 4 * groups * columns
    cores = CoreMatrixLayout(columns, 4, columns // 2, 8, 8, 0, 16)
    for group in range(groups):
        first = 2 * place(cores, width, 0, group * 4 * columns)
        known = Described.by(descriptor(first, 2 * cores.line(width), 2 * cores.core))
        for t in range(4):
            for c in range(columns):
                own = 2 * place(cores, width, 9, (4 * group + t) * columns + c)
                assert known.address(8 * (c // 2) + 2 * t + c % 2, 9, 2) == own


def test_places_of_a_panel_are_its_own() -> None:
    cores = CoreMatrixLayout(4, 8, 2, 8, 16, 32, 8)
    found = {place(cores, 128, step, along) for step in range(32) for along in range(128)}
    assert len(found) == 32 * 128
    assert max(found) < cores.size(32, 128)


def test_a_core_matrix_meets_no_bank_twice() -> None:
    """What the tensor cores read at once: 8 rows of 16 bytes, one after the other."""
    addresses = [Described(0, 2048, 144).address(np.arange(32) % 8, 0, 2)]
    assert waits(np.array(addresses), 16) == 0


def test_an_instruction_is_a_product_of_matrices() -> None:
    """A[64, 16] and B[N, 16] found by descriptors in one memory, C[64, N] handed out as the PTX ISA says for D."""
    generator, count = np.random.default_rng(3), 24
    memory = generator.integers(-4, 5, 8192).astype(np.float64)

    def load(at: Any) -> Any:
        assert (np.asarray(at) % 2 == 0).all()
        return memory[np.asarray(at) // 2]

    bits = [descriptor(0, 1280, 144), descriptor(4096, 1280, 144)]
    a, b = (matrices(bits, n, 2, load) for n in (64, count))
    described = Described.by(bits[1])
    assert a[1, 37, 11] == memory[described.address(37, 11, 2) // 2]
    held = [generator.integers(-9, 9, 256).astype(np.float32) for _ in range(count // 2)]
    found = warpgroups_multiplied(a, b, held)
    lane = np.arange(256)
    group, warp, g, t = lane // 128, lane % 128 // 32, lane % 32 // 4, lane % 4
    for register, values in enumerate(found):
        row = 16 * warp + g + 8 * (register // 2 % 2)
        column = 8 * (register // 4) + 2 * t + register % 2
        exact = (a[group, row] * b[group, column]).sum(axis=1)
        assert np.array_equal(values, exact + held[register])


def test_machine_code_is_for_the_only_gpu_that_has_them() -> None:
    assert for_warpgroups(".target sm_90\n add;", "sm_90") == (".target sm_90\n add;", "sm_90")
    ptx, arch = for_warpgroups(".version 8.0\n.target sm_90\nwgmma.fence;", "sm_90")
    assert (".target sm_90a\n" in ptx, arch) == (True, "sm_90a")
    with pytest.raises(TargetUnavailable, match="sm_90a and of no other GPU, and this is sm_80"):
        for_warpgroups(".target sm_80\nwgmma.fence;", "sm_80")


def test_what_only_some_threads_show_is_refused() -> None:
    call = ast.parse("show_tensor_cores()").body[0]
    some = SimpleNamespace(active=SimpleNamespace(mask=np.array([True, False])), unshown={"a"})
    with pytest.raises(TypeError, match="only some threads show"):
        perform(some, "show_tensor_cores", call, [])


def test_a_descriptor_of_turned_core_matrices() -> None:
    """CUTLASS' canonical layout Major-MN, INTERLEAVE, in 16 bytes: ((1, n), (8, k)) : ((-, stride), (1, leading))."""
    leading, stride = 2048, 144
    found = Described(64, leading, stride)
    for row in range(64):
        for step in range(16):
            unit = row // 8 * (stride // 16) + step % 8 + step // 8 * (leading // 16)
            assert found.address(row, step, 2, turned=True) == 64 + 16 * unit + 2 * (row % 8)
    with pytest.raises(ValueError, match="elements of 4 bytes in turned core matrices: these are of halves"):
        found.address(0, 0, 4, turned=True)


@pytest.mark.parametrize(("columns", "groups"), [(16, 1), (32, 2), (64, 1)])
def test_turned_columns_of_a_thread_are_neighbours_in_pairs(columns: int, groups: int) -> None:
    """Column 8j + 2t + e of an instruction is the thread's column 2j + e, which follows 2j in memory."""
    width = 4 * groups * columns
    cores = CoreMatrixLayout(columns, 4, columns // 2, 8, 8, 0, 16, True)
    assert cores.fits(width)
    assert not CoreMatrixLayout(columns, 4, columns // 2, 4, turned=True).fits(width)
    for group in range(groups):
        first = 2 * place(cores, width, 0, group * 4 * columns)
        known = Described.by(descriptor(first, 2 * cores.line(width), 2 * cores.core))
        for t, c, step in product(range(4), range(columns), (0, 7, 9)):
            own = 2 * place(cores, width, step, (4 * group + t) * columns + c)
            assert known.address(8 * (c // 2) + 2 * t + c % 2, step, 2, turned=True) == own
    held = {place(cores, width, step, along) for step in range(32) for along in range(width)}
    assert len(held) == 32 * width
    assert max(held) < cores.size(32, width)


def in_lines(lines: int, line: int, element: int) -> int:
    """Where a halves' element lies, in bytes: panels of so many lines, each of 64 whose 16 bytes are XORed."""
    panel, within = divmod(element, 64)
    first = (panel * lines + line) * 128
    return first + (within // 8 ^ line % 8) * 16 + 2 * (within % 8)


def test_descriptors_of_swizzled_lines() -> None:
    """CUTLASS' canonical layouts Major-K and Major-MN, B128: steps along a line, or lines that are steps."""
    for step in range(0, 64, 16):
        rows = Described.by(Form(False, True).described(2 * step, 16, 1024))
        for row, k in product(range(64), (0, 7, 8, 15)):
            assert rows.address(row, k, 2) == in_lines(64, row, step + k)
        columns = Described.by(Form(True, True).described(step // 8 * 1024, 1024, 64 * 128))
        for column, k in product(range(0, 256, 5), (0, 7, 8, 15)):
            assert columns.address(column, k, 2, turned=True) == in_lines(64, step + k, column)


def test_swizzled_lines_meet_no_bank_twice() -> None:
    """What the tensor cores read at once: 16 bytes of each of 8 lines, or eight parts of 16 bytes of one."""
    eight = np.arange(32) % 8
    for step in (0, 16, 48):
        rows = Described(2 * step, 16, 1024, swizzle=True).address(eight, 8, 2)
        assert waits(np.array([rows]), 16) == 0
    turned = Described(0, 8192, 1024, swizzle=True)
    assert waits(np.array([turned.address(8, eight, 2, turned=True)]), 16) == 0
