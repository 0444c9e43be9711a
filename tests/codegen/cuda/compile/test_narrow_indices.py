"""Index arithmetic in 32 bits: the same numbers."""

import ast
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.codegen.cuda.compile.narrow_indices import in_short

KERNEL = """
def k(x, N):
    bz = cuda.blockIdx.z & {blocks}
    tx = cuda.threadIdx.x & 7
    tile_fma()
    for n in range(-1, 8):
        {line}
        cuda.syncthreads()
"""


def shortened(line: str, blocks: int = 2047) -> str:
    tree = ast.parse(KERNEL.format(line=line, blocks=blocks)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    loop = in_short(tree).body[-1]
    assert isinstance(loop, ast.For)
    return ast.unparse(loop.body[0])


def place(index: str, blocks: int = 2047) -> str:
    """What becomes of an index of a tensor that a copy reads."""
    text = shortened(f"copy_ahead(4, s, 0, 1, x, {index})", blocks)
    return text.removeprefix("copy_ahead(4, s, 0, 1, x, ")[:-1]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("8 * (64 * bz + tx) - 57", "int64(uint32(512 * bz + 8 * tx)) + -57"),
        ("(n + 1) // 3", "int64(uint32(int64(uint32(n + 1)) // 3))"),
        ("(n + 1) // 4", "int64(uint32((n + 1) // 4))"),
        ("n % 3", "int64(uint32(n % 3))"),
        ("bz - 4 * tx", "int64(int32(bz + -4 * tx))"),
        ("N * bz + tx", "N * bz + tx"),
    ],
)
def test_what_is_known_to_fit_is_short(index: str, expected: str) -> None:
    assert place(index) == expected


def test_what_may_not_fit_stays_long() -> None:
    assert place("8192 * bz + tx", blocks=2**19 - 1) == "int64(uint32(8192 * bz + tx))"
    assert place("8192 * bz + tx", blocks=2**19) == "8192 * bz + tx"


def test_conditions_are_short_and_places_in_a_block_as_they_were() -> None:
    assert shortened("pad_ahead(1, s, 4 * tx + bz, 1, x, bz, tx < 5 and bz + n <= 7)") == (
        "pad_ahead(1, s, 4 * tx + bz, 1, x, int64(uint32(bz)), tx < 5 and int64(int32(bz + n)) <= 7)"
    )
    assert shortened("if bz + tx < 9: copy_ahead(1, s, 0, 1, x, 0)").startswith(
        "if int64(uint32(bz + tx)) < 9:"
    )


@pytest.mark.parametrize("line", ["copy_vector(4, s, 0, 1, x, 4 * tx)", "a = x[4 * tx]", "x[4 * tx] = 0"])
def test_other_accesses_are_left_as_they_are(line: str) -> None:
    ahead = "copy_ahead(1, s, 0, 1, x, 0)"
    assert ast.unparse(ast.parse(line)) in shortened(f"if tx < 5: {line}; {ahead}")


def test_a_loop_stays_outside_of_a_place() -> None:
    line = "for c in range(0, 9): copy_ahead(1, s, 0, 1, x, 24 * n + 3136 * c + 24 + tx)"
    assert "int64(uint32(tx)) + 24 * n + 3136 * c + 24" in shortened(line)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tx < 125 - 8 * bz", "int64(uint32(8 * bz + tx)) < 125"),
        ("0 < -bz - 8 * tx + 9", "int64(uint32(bz + 8 * tx)) < 9"),
        ("bz - tx <= tx - 1", "int64(uint32(bz + 1)) <= int64(uint32(2 * tx))"),
        ("bz - tx == n", "int64(int32(bz - tx)) == n"),
        ("N - bz < tx", "N - bz < tx"),
        ("y != y", "y != y"),
        ("y + bz <= y", "y + bz <= y"),
        ("max(y, 0) != max(y, 0)", "max(y, 0) != max(y, 0)"),
    ],
)
def test_conditions_compare_natural_numbers(condition: str, expected: str) -> None:
    assert shortened(f"if {condition}: copy_ahead(1, s, 0, 1, x, 0)").startswith(f"if {expected}:")


def test_a_name_that_is_assigned_again_is_unknown() -> None:
    lines = "def k(x):\n  tile_fma()\n  a = 0\n  for i in range(9):\n    a = a + 1\n  copy_ahead(1, s, 0, 1, x, a + {})"
    texts = []
    for index in ("0", "i // 3"):
        tree = ast.parse(lines.format(index)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        texts.append(ast.unparse(in_short(tree).body[-1]))
    assert texts == ["copy_ahead(1, s, 0, 1, x, a)", "copy_ahead(1, s, 0, 1, x, a + int64(uint32(i)) // 3)"]


def test_a_loop_variable_that_is_assigned_too_is_unknown() -> None:
    lines = "if a < 9: a = 5; b = a // 3; copy_ahead(1, s, 0, 1, x, b)"
    tree = ast.parse(f"def k(x):\n  tile_fma()\n  for a in range(99):\n    {lines}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert "copy_ahead(1, s, 0, 1, x, b)" in ast.unparse(in_short(tree))


SPACE: dict[str, Any] = {"int64": np.int64, "uint32": np.uint32, "int32": np.int32}


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["bz", "tx", "n", "(n + 1)"]) | st.integers(0, 99).map(str)

    def grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        number = st.integers(1, 300)
        return (
            st.tuples(parts, st.sampled_from("+-"), parts).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
            | st.tuples(number, parts).map(lambda t: f"{t[0]} * {t[1]}")
            | st.tuples(parts, st.sampled_from(["//", "%"]), number).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        )

    return st.recursive(leaves, grown, max_leaves=8)


@given(expressions(), st.integers(0, 2047), st.integers(0, 7), st.integers(-1, 7))
def test_the_numbers_are_the_same(index: str, bz: int, tx: int, n: int) -> None:
    names = {"bz": np.int64(bz), "tx": np.int64(tx), "n": np.int64(n)}
    assert int(eval(place(index), {**SPACE, **names})) == eval(index, {"bz": bz, "tx": tx, "n": n})


@given(
    expressions(),
    st.sampled_from(["<", "<=", "==", "!="]),
    expressions(),
    st.integers(0, 2047),
    st.integers(0, 7),
    st.integers(-1, 7),
)
def test_conditions_hold_as_before(left: str, op: str, right: str, bz: int, tx: int, n: int) -> None:
    condition = f"{left} {op} {right}"
    made = shortened(f"if {condition}: copy_ahead(1, s, 0, 1, x, 0)")
    names = {"bz": np.int64(bz), "tx": np.int64(tx), "n": np.int64(n)}
    test = made.removeprefix("if ").split(":\n")[0]
    assert bool(eval(test, {**SPACE, **names})) is eval(condition, {"bz": bz, "tx": tx, "n": n})


def test_a_number_that_does_not_fit_is_another_one_in_lock_step() -> None:
    """The stand-in computes what the GPU does: a wrong claim would be a wrong place there as well."""
    from polyfuse.simulator.lockstep import run

    source = "def k(x, i):\n    x[int64(uint32(i))] = 1.0\n"
    x = np.zeros(4, np.float32)
    run(source, "k", 1, 1, (x, 2**32 + 3))
    assert x.tolist() == [0, 0, 0, 1]
