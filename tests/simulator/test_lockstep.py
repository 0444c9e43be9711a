"""The lock-step run against NumPy, and each of its complaints shown by a kernel that deserves it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyfuse.errors import BadArgument
from polyfuse.simulator.lockstep import BarrierError, OutOfBounds, RaceError, Report, UnsupportedKernel, run

GEMM = """
def gemm(a, b, c, n):
    sa = cuda.shared.array((16, 17), float32)
    sb = cuda.shared.array((16, 17), float32)
    acc = cuda.local.array((1, 1), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    i = 16 * cuda.blockIdx.y + ty
    j = 16 * cuda.blockIdx.x + tx
    acc[0, 0] = float32(0.0)
    for k in range(0, n, 16):
        sa[ty, tx] = a[i * n + k + tx] if i < n and k + tx < n else float32(0.0)
        sb[ty, tx] = b[(k + ty) * n + j] if k + ty < n and j < n else float32(0.0)
        cuda.syncthreads()  # before use
        for q in range(0, 16):
            acc[0, 0] += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()  # after use
    if i < n and j < n:
        c[i * n + j] = acc[0, 0]
"""


def _gemm(source: str, n: int, **more: int) -> tuple[Report, float]:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, n, n), dtype=np.float32)
    c = np.zeros((n, n), np.float32)
    blocks = -(-n // 16)
    report = run(source, "gemm", (blocks, blocks), (16, 16), [a.ravel(), b.ravel(), c.ravel(), n], **more)
    return report, float(np.abs(c - a @ b).max())


def _one(body: str, *args: object, grid: object = 1, block: object = 4) -> Report:
    """Runs `def k(x, y, n)` with the given body."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return run(f"def k(x, y, n):\n{lines}\n", "k", grid, block, args)  # type: ignore[arg-type]


def _f32(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


# -- what runs


@pytest.mark.parametrize("n", [16, 33, 64])
def test_a_tiled_product_agrees_with_numpy(n: int) -> None:
    _, error = _gemm(GEMM, n)
    assert error < 1e-4


def test_a_tiled_product_of_64_is_counted() -> None:
    report, _ = _gemm(GEMM, 64)
    assert report.barriers == 8
    assert report.global_loads == 2 * 64 * 64 * 4
    assert report.global_stores == 64 * 64


def test_blocks_in_batches_give_the_same_result() -> None:
    assert _gemm(GEMM, 33) == _gemm(GEMM, 33, memory_limit=1)


def test_divergent_branches_and_else() -> None:
    x, y = _f32(8), np.zeros(8, np.float32)
    _one(
        """
t = cuda.threadIdx.x
if t % 2 == 0:
    if t > 3:
        y[t] = x[t] * float32(2.0)
    else:
        y[t] = -x[t]
elif t == 5:
    y[t] = float32(100.0)
else:
    y[t] = x[t] + float32(1.0)
""",
        x, y, 8, block=8,
    )  # fmt: skip
    assert y.tolist() == [-0.0, 2, -2, 4, 8, 100, 12, 8]


def test_triangular_loop_with_bounds_that_differ_between_threads() -> None:
    x, y = _f32(6), np.zeros(6, np.float32)
    _one(
        """
t = cuda.threadIdx.x
s = float32(0.0)
for i in range(t, n):
    for j in range(i, t, -1):
        s += x[j]
y[t] = s
""",
        x, y, 6, block=6,
    )  # fmt: skip
    expected = [sum(sum(x[j] for j in range(i, t, -1)) for i in range(t, 6)) for t in range(6)]
    assert y.tolist() == expected


def test_inactive_threads_keep_their_scalars() -> None:
    y = np.zeros(4, np.float32)
    _one(
        "t = cuda.threadIdx.x\ns = float32(1.0)\nif t > 1:\n    s = float32(7.0)\ny[t] = s",
        y[:0].copy(),
        y,
        4,
    )
    assert y.tolist() == [1, 1, 7, 7]


def test_functions_agree_with_the_standard_library() -> None:
    names = ("exp", "log", "sqrt", "tanh", "erf", "erfc", "sin", "cos", "fabs")
    for dtype, bound in (("float32", 1e-6), ("float64", 1e-15)):
        x, y = np.linspace(0.5, 2, 4).astype(dtype), np.zeros(4, dtype)
        for name in names:
            _one(f"t = cuda.threadIdx.x\ny[t] = math.{name}(x[t])", x, y, 4)
            assert y == pytest.approx([getattr(math, name)(v) for v in x.tolist()], rel=bound)
        _one("t = cuda.threadIdx.x\ny[t] = math.pow(x[t], x[t]) + min(x[t], abs(-x[t]))", x, y, 4)
        assert y == pytest.approx([v**v + v for v in x.tolist()], rel=bound)


def test_float32_stays_float32_and_a_bare_literal_does_not() -> None:
    y = np.zeros(4, np.float32)
    body = "t = cuda.threadIdx.x\ns = x[t]\ns = s * {}\ny[t] = s"
    _one(body.format("float32(0.1)"), _f32(4), y, 4)
    assert y.tolist() == (_f32(4) * np.float32(0.1)).tolist()
    with pytest.raises(UnsupportedKernel, match="'s' changes type from float32 to float64 at line 4"):
        _one(body.format("0.1"), _f32(4), y, 4)


def test_what_was_never_written_shows_as_nan() -> None:
    y = np.zeros(4, np.float32)
    _one("s = cuda.shared.array(4, float32)\ny[cuda.threadIdx.x] = s[cuda.threadIdx.x]", _f32(4), y, 4)
    assert np.isnan(y).all()


def test_min_and_max_lose_nan_as_the_gpu_does() -> None:
    x, y = np.array([np.nan, 1], np.float32), np.zeros(2, np.float32)
    _one("t = cuda.threadIdx.x\ny[t] = max(x[t], float32(0.0))", x, y, 2, block=2)
    assert y.tolist() == [0, 1]


def test_integer_division_and_remainder_floor() -> None:
    y = np.zeros(4, np.int64)
    _one("t = cuda.threadIdx.x\ny[t] = (t - 2) // 2 * 100 + (t - 2) % 3", _f32(4), y, 4)
    assert y.tolist() == [(t - 2) // 2 * 100 + (t - 2) % 3 for t in range(4)]


# -- what is wrong with a kernel


@pytest.mark.parametrize("missing", ["before use", "after use"])
def test_a_missing_barrier_is_a_race(missing: str) -> None:
    broken = "\n".join(line for line in GEMM.splitlines() if missing not in line)
    with pytest.raises(
        RaceError, match=r"shared array 's[ab]', element \[\d+, \d+\].*no cuda.syncthreads\(\)"
    ) as error:
        _gemm(broken, 32)
    assert "writes it at line" in str(error.value)
    assert "reads it at line" in str(error.value)


def test_a_race_names_element_threads_and_lines() -> None:
    with pytest.raises(RaceError) as error:
        _one("t = cuda.threadIdx.x\ny[t] = x[t]\nx[t] = y[(t + 1) % 4]", _f32(4), _f32(4), 4)
    assert str(error.value) == (
        "race on global array 'y', element [1]: "
        "thread (1, 0, 0) of block (0, 0, 0) writes it at line 3: y[t] = x[t]; "
        "thread (0, 0, 0) of block (0, 0, 0) reads it at line 4: x[t] = y[(t + 1) % 4]; "
        "no cuda.syncthreads() lies between them"
    )


def test_a_write_after_another_threads_read_is_a_race() -> None:
    body = "t = cuda.threadIdx.x\ns = float32(0.0)\ns = y[(t + 1) % 4]\n{}\ny[t] = s"
    with pytest.raises(RaceError, match=r"reads it at line 4.*writes it at line 6"):
        _one(body.format("pass"), _f32(4), _f32(4), 4)
    y = _f32(4)
    _one(body.format("cuda.syncthreads()"), _f32(4), y, 4)
    assert y.tolist() == [1, 2, 3, 0]


def test_a_second_reader_is_not_forgotten() -> None:
    body = "t = cuda.threadIdx.x\ns = y[0]\nif t == 0:\n    y[0] = s"
    with pytest.raises(RaceError, match=r"reads it at line 3.*writes it at line 5"):
        _one(body, _f32(4), _f32(4), 4)


def test_two_writes_in_one_statement_are_a_race() -> None:
    with pytest.raises(RaceError, match=r"element \[0\].*writes it at line 2.*writes it at line 2"):
        _one("y[cuda.threadIdx.x // 2] = x[0]", _f32(4), _f32(4), 4)
    _one("if cuda.threadIdx.x == 3:\n    y[0] = x[0]", _f32(4), _f32(4), 4)


def test_blocks_are_never_ordered() -> None:
    body = "t = cuda.threadIdx.x\nb = cuda.blockIdx.x\n{}\ncuda.syncthreads()\n{}"
    write, read = "y[4 * b + t] = x[t]", "x[4 * b + t] = y[4 * (1 - b) + t]"
    with pytest.raises(RaceError, match=r"no grid_barrier\(\) lies between them"):
        _one(body.format(write, read), _f32(8), _f32(8), 4, grid=2)
    with pytest.raises(RaceError, match=r"no grid_barrier\(\) lies between them"):  # the reader comes first
        _one(body.format(read.replace("x[4", "x[0 * n + 4"), write), _f32(8), _f32(8), 4, grid=2)
    with pytest.raises(RaceError, match=r"no grid_barrier\(\) lies between them"):
        _one("if cuda.threadIdx.x == 0:\n    y[0] = x[0]", _f32(8), _f32(8), 4, grid=2)


def test_blocks_that_run_in_different_batches_conflict_too() -> None:
    source = "def k(y):\n    if cuda.threadIdx.x == 0:\n        y[0] += float32(1.0)\n"
    for limit in (1, 1 << 29):
        with pytest.raises(RaceError, match=r"no grid_barrier\(\) lies between them"):
            run(source, "k", 3, 4, [_f32(4)], memory_limit=limit)


def test_two_names_of_one_memory_conflict() -> None:
    arena = _f32(8)
    body = "t = cuda.threadIdx.x\ny[t] = x[t]"
    with pytest.raises(RaceError, match=r"global array 'y', element \[2\].*reads it at line 3"):
        _one(body, arena[2:6], arena[0:4], 4)
    _one(body, arena[0:4], arena[4:8], 4)
    assert arena[4:8].tolist() == [0, 1, 2, 3]


def test_a_barrier_under_divergence() -> None:
    body = "if cuda.threadIdx.x < {}:\n    cuda.syncthreads()"
    with pytest.raises(
        BarrierError,
        match=r"line 3: cuda.syncthreads\(\): thread \(0, 0, 0\) of block .* reaches it, thread \(2, 0, 0\)",
    ):
        _one(body.format(2), _f32(4), _f32(4), 4)
    assert _one(body.format(4), _f32(4), _f32(4), 4).barriers == 1


def test_a_barrier_that_whole_blocks_skip_is_fine() -> None:
    body = "for i in range(0, cuda.blockIdx.x):\n    cuda.syncthreads()"
    assert _one(body, _f32(4), _f32(4), 4, grid=4).barriers == 3


@pytest.mark.parametrize(("index", "value"), [("t - 1", -1), ("t + n", 4)])
def test_out_of_bounds(index: str, value: int) -> None:
    for access in (f"y[t] = x[{index}]", f"y[{index}] = x[t]"):
        with pytest.raises(
            OutOfBounds, match=rf"shape \(4,\): subscript 0 is {value} for thread .* at line 3"
        ):
            _one(f"t = cuda.threadIdx.x\n{access}", _f32(4), _f32(4), 4)


def test_out_of_bounds_is_seen_per_axis_of_a_shared_array() -> None:
    with pytest.raises(
        OutOfBounds, match=r"shared array 's' of shape \(4, 4\): subscript 1 is 4 for thread \(3, 0, 0\)"
    ):
        _one(
            "s = cuda.shared.array((4, 4), float32)\nt = cuda.threadIdx.x\ns[0, t + 1] = x[t]",
            _f32(4),
            _f32(4),
            4,
        )


def test_a_guarded_subscript_is_not_evaluated() -> None:
    y = np.zeros(4, np.float32)
    _one(
        "t = cuda.threadIdx.x\ny[t] = x[t] if t < n and x[t] > float32(0.5) else float32(9.0)", _f32(2), y, 2
    )
    assert y.tolist() == [9, 1, 9, 9]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("while n > 0:\n    n = 1", "line 2: While"),
        ("y[0] = x[0] ^ 2", "of floating-point values at line 2"),
        ("y[0] = foo(x[0])", r"line 2: the call foo with 1 argument"),
        ("return", "line 2: Return"),
        ("for i in x:\n    pass", "line 2: a loop over anything but range"),
        ("for i in range(n):\n    pass\ny[0] = x[i]", "line 4: the name 'i'"),
        ("y[0] = t", "line 2: the name 't'"),
        ("y[0:2] = x[0]", "line 2: Slice"),
        ("if n > 0:\n    s = cuda.shared.array(4, float32)", r"line 3: the call cuda.shared.array"),
        ("s = cuda.shared.array((n, 4), float32)", "line 2: an array shape"),
    ],
)
def test_what_is_outside_the_subset_is_named(body: str, complaint: str) -> None:
    with pytest.raises(UnsupportedKernel, match=complaint):
        _one(body, _f32(4), _f32(4), 4)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(BadArgument, match="takes 3 arguments, given 1"):
        _one("pass", _f32(4))
    with pytest.raises(BadArgument, match=r"argument 'x' of k is float32\[2, 2\]"):
        _one("pass", _f32(4).reshape(2, 2), _f32(4), 4)


def test_a_block_of_more_threads_than_a_gpu_runs() -> None:
    with pytest.raises(BadArgument, match="at most 1024 threads on a GPU, not 1056"):
        run("def k(x):\n    pass\n", "k", 1, (33, 32), [_f32(4)])
