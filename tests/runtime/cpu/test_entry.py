"""The entry: what it takes as it is, what it refuses, what a call leaves behind."""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor, statement
from polyfuse.runtime.cpu.aligned_arrays import OWN_CACHES, aligned_array
from polyfuse.runtime.cpu.objects import ArrayFields
from polyfuse.runtime.cpu.threading_layer import layer_is_thread_safe

Array = np.ndarray[Any, Any]


@cache
def net() -> pf.Executable:
    """Unfused, so that it has temporaries in an arena."""
    return pf.compile(cases.dense(6, 9, 4, batch=5), target="cpu", fuse=False)


def entry(compiled: pf.Executable) -> Callable[[tuple[Any, ...], Any], Any]:
    assert compiled._direct is not None
    return compiled._direct


def x() -> Array:
    return np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)


class Marked(np.ndarray):  # type: ignore[type-arg]
    """An array with more to it than NumPy knows."""


def marked(array: Array) -> Array:
    return array.view(Marked)


def unaligned(array: Array) -> Array:
    memory = np.empty(array.nbytes + 1, np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def with_metadata(array: Array) -> Array:
    return array.view(np.dtype(array.dtype, metadata={"unit": "m"}))


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def test_an_arrays_fields_are_where_numpy_has_them() -> None:
    array = np.zeros((3, 5), np.float32)
    fields = ArrayFields.from_address(id(array))
    assert fields.data == array.ctypes.data
    assert fields.nd == 2
    assert fields.descr == id(array.dtype)
    assert fields.flags == array.flags.num
    assert (ctypes.c_ssize_t * 2).from_address(fields.dimensions)[:] == [3, 5]
    assert (ctypes.c_ssize_t * 2).from_address(fields.strides)[:] == [20, 4]


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (x(), x()),
        (x().astype(np.float64),),
        (x()[:4],),
        (x().reshape(6, 5),),
        (x().reshape(-1),),
        (x().reshape(1, 5, 6),),
        (np.asfortranarray(x()),),
        (np.repeat(x(), 2, axis=1)[:, ::2],),
        (unaligned(x()),),
        (marked(x()),),
        (x().astype(">f4"),),
        (with_metadata(x()),),
        (x().tolist(),),
        (None,),
    ],
)
def test_inputs_that_are_not_as_compiled_are_refused(inputs: tuple[Any, ...]) -> None:
    assert entry(net())(inputs, None) is NotImplemented


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((5, 4)),
        np.zeros((4, 5), np.float32),
        np.zeros((4, 5), np.float32).T,
        read_only(np.zeros((5, 4), np.float32)),
        unaligned(np.zeros((5, 4), np.float32)),
        (np.zeros((5, 4), np.float32),),
        "out",
    ],
)
def test_results_that_are_not_as_compiled_are_refused_and_left(out: Any) -> None:
    before = np.array(out)
    assert entry(net())((x(),), out) is NotImplemented
    np.testing.assert_array_equal(out, before)


def test_results_that_share_memory_are_refused() -> None:
    memory = np.zeros(64, np.float32)
    given, out = memory[:30].reshape(5, 6), memory[29:49].reshape(5, 4)
    assert entry(net())((given,), out) is NotImplemented
    assert entry(net())((given,), memory[30:50].reshape(5, 4)) is not NotImplemented
    weights = aligned_array((9, 4), np.dtype(np.float32))  # others are copied where they are given
    changed = pf.compile(cases.dense(6, 9, 4, batch=5), target="cpu")
    changed.replace_constants({"w1": weights})
    assert entry(changed)((x(),), weights[:5]) is NotImplemented
    with pytest.raises(BadArgument, match="out for out shares memory with w1, which is read"):
        changed(x(), out=weights[:5])


def test_two_results_in_one_array_are_refused() -> None:
    two = pf.compile(cases.two_outputs(), target="cpu")
    (given,) = cases.draw(cases.two_outputs(), np.random.default_rng(1)).values()
    outs = cases.poisoned(cases.two_outputs())
    assert isinstance(two(given), tuple)
    assert all(found is out for found, out in zip(two(given, out=outs), outs, strict=True))
    for wrong in ((outs[0], outs[0]), outs[0], list(outs), (*outs, outs[0])):
        assert entry(two)((given,), wrong) is NotImplemented
    with pytest.raises(BadArgument, match=r"shares memory with .*, which is written as well"):
        two(given, out=(outs[0], outs[0]))


def test_a_tuple_of_the_only_result_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each such call is matched and checked in Python, ten times as long as the 8 × 64 network takes."""
    compiled = pf.compile(cases.dense(6, 9, 4, batch=5), target="cpu")
    monkeypatch.setattr(compiled, "_adapted", lambda *given: given)
    out = np.full((5, 4), np.nan, np.float32)
    assert compiled(x(), out=(out,)) is out
    np.testing.assert_array_equal(out, net()(x()))
    two = pf.compile(cases.two_outputs(), target="cpu")
    (given,) = cases.draw(cases.two_outputs(), np.random.default_rng(1)).values()
    with pytest.raises(BadArgument):
        two(given, out=(out,))


@pytest.mark.parametrize("form", [unaligned, with_metadata, np.asfortranarray, marked, read_only])
def test_inputs_in_another_form_give_the_same(form: Callable[[Array], Array]) -> None:
    found = net()(form(x()))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, net()(x()))


def test_a_mapped_file_is_an_array(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(5, 6))
    mapped[...] = x()
    np.testing.assert_array_equal(net()(mapped), net()(x()))


def test_long_integers_by_either_name() -> None:
    step = pf.statement("{ step[i] : 0 <= i < 4 }", "b[i] = a[i] + a[i]")
    tensors = [pf.Tensor("a", (4,), "int64", "input"), pf.Tensor("b", (4,), "int64", "output")]
    double = pf.compile(pf.Nest.of(tensors, [step]), target="cpu")
    for dtype in (np.dtype("long"), np.dtype("longlong")):
        np.testing.assert_array_equal(double(np.arange(4).astype(dtype)), [0, 2, 4, 6])


def test_too_many_arrays_are_no_result() -> None:
    with pytest.raises(BadArgument, match="given 2 positional arguments for 1 input"):
        net()(x(), np.zeros((5, 4), np.float32))


def test_a_result_that_memory_does_not_hold() -> None:
    size = 2**46
    step = pf.statement("{ step[i] : 0 <= i < 4 }", "b[i] = a[i]")
    tensors = [pf.Tensor("a", (4,), "int64", "input"), pf.Tensor("b", (size,), "int64", "output")]
    huge = pf.compile(pf.Nest.of(tensors, [step]), target="cpu")
    with pytest.raises(MemoryError):
        huge(np.arange(4))


def test_small_constants_begin_with_a_cache_line() -> None:
    size = OWN_CACHES // 4 + 1
    for weights, copied in ((np.ones((size, 1), np.float32), False), (np.ones((6, 4), np.float32), True)):
        memory = aligned_array((weights.size + 1,), weights.dtype)
        apart = memory[1:].reshape(weights.shape)
        apart[...] = weights
        tensors = [
            Tensor("w", apart.shape, "float32", "constant"),
            Tensor("y", apart.shape, "float32", "output"),
        ]
        box = f"0 <= i < {apart.shape[0]} and 0 <= j < {apart.shape[1]}"
        step = statement(f"{{ S[i, j] : {box} }}", "y[i, j] = 2 * w[i, j]")
        made = pf.compile(pf.Nest.of(tensors, [step], constants={"w": apart}), target="cpu")
        held = made.constants["w"]
        assert copied == (not np.shares_memory(held, apart))
        assert copied == (held.ctypes.data % 64 == 0)
        np.testing.assert_array_equal(made(), 2 * apart)


def test_references_are_given_back() -> None:
    given, out = x(), np.empty((5, 4), np.float32)
    weights = net().constants["w0"]
    values = (given, out, weights, given.dtype)
    net()(given), net()(given, out=out)
    before = [sys.getrefcount(value) for value in values]
    for _ in range(100):
        net()(given)
        net()(given, out=out)
        entry(net())((given.T,), out)
        entry(net())((given,), given)
    assert [sys.getrefcount(value) for value in values] == before


def test_an_executable_that_is_dropped_leaves_nothing() -> None:
    compiled = pf.compile(cases.dense(3, 2, batch=2), target="cpu")
    bias = compiled._constants["b0"]  # read as it is: weights may lie in panels, for which no array is kept
    kept = entry(compiled)
    del compiled
    gc.collect()
    result = kept((np.ones((2, 3), np.float32),), None)  # the function alone keeps its machine code
    assert result.shape == (2, 2)
    held = sys.getrefcount(bias)
    del kept
    gc.collect()
    assert sys.getrefcount(bias) < held


def allocated(call: Callable[[], object]) -> int:
    """The most bytes of Python's and NumPy's allocators that were in use during a call, beyond those before.

    The least of several times: the interpreter allocates less once it has specialised what it runs.
    """
    call()
    return min(_allocated_once(call) for _ in range(30))


def _allocated_once(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


class Nothing:
    """What is called as an executable is, and does nothing: Python itself allocates the arguments by name."""

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        return self._called(args, out, named)

    def _called(self, args: tuple[Any, ...], out: Any, named: dict[str, Any]) -> Any:
        return out


@pytest.mark.parametrize("fuse", [False, True], ids=["temporaries in an arena", "buffers in a kernel"])
def test_a_call_with_out_allocates_nothing_and_one_without_its_result(fuse: bool) -> None:
    compiled = pf.compile(cases.dense(*[64] * 4, batch=1), target="cpu", fuse=fuse)
    given, out = np.ones((1, 64), np.float32), np.empty((1, 64), np.float32)
    nothing = Nothing()
    assert allocated(lambda: compiled(given, out=out)) == allocated(lambda: nothing(given, out=out))
    assert allocated(lambda: compiled(given)) == allocated(lambda: np.empty((1, 64), np.float32))


def test_each_thread_has_an_arena_of_its_own() -> None:
    nest = cases.dense(*[64] * 5, batch=64)
    compiled = pf.compile(nest, target="cpu", fuse=False)
    draws = [np.random.default_rng(n).standard_normal((64, 64)).astype(np.float32) for n in range(4)]
    expected = [compiled(given) for given in draws]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled, draws * 50))
    assert layer_is_thread_safe()
    for n, result in enumerate(found):
        np.testing.assert_array_equal(result, expected[n % 4])


def scaled(dtype: str) -> pf.Executable:
    step = pf.statement("{ step[i] : 0 <= i < 4 }", "b[i] = s * a[i]")
    tensors = [
        pf.Tensor("s", (), dtype, "input"),
        pf.Tensor("a", (4,), dtype, "input"),
        pf.Tensor("b", (4,), dtype, "output"),
    ]
    return pf.compile(pf.Nest.of(tensors, [step]), target="cpu")


@pytest.mark.parametrize(
    ("dtype", "value", "taken"),
    [
        ("float64", 0.1, True),
        ("float32", 0.1, True),
        ("float32", np.float32(0.1), False),
        ("float64", 3, False),
        ("int64", 3, True),
        ("int64", -(2**63), True),
        ("int64", -1, False),
        ("int64", 2**63, False),
        ("int64", 3.0, False),
        ("int64", True, False),
        ("int32", -(2**31), True),
        ("int32", 2**31, False),
        ("int32", "3", False),
    ],
)
def test_python_numbers_are_scalars(dtype: str, value: Any, taken: bool) -> None:
    compiled, given = scaled(dtype), np.arange(4).astype(dtype)
    found = entry(compiled)((value, given), None)
    assert (found is not NotImplemented) == taken
    if taken:
        np.testing.assert_array_equal(found, given * np.dtype(dtype).type(value))
    elif value in (2**63, 2**31, "3"):
        with pytest.raises(BadArgument):
            compiled(value, given)
    else:
        np.testing.assert_array_equal(compiled(value, given), given * np.dtype(dtype).type(value))


def test_inputs_by_name_are_tried_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, given = scaled("float64"), np.arange(4.0)
    monkeypatch.setattr(compiled, "_adapted", lambda *_: "adapted")
    for found in (compiled(2.0, given), compiled(2.0, a=given), compiled(a=given, s=2.0)):
        np.testing.assert_array_equal(found, 2 * given)
    assert compiled(2.0, b=given) == compiled(2.0) == compiled(2.0, given, a=given) == "adapted"


def test_the_entry_of_the_last_sizes_is_tried_first() -> None:
    nest = KERNELS["jacobi-1d"].nest
    compiled = pf.compile(nest, target="cpu")
    draw = np.random.default_rng(0).standard_normal
    small, large = (draw(8), draw(8)), (draw(9), draw(9))
    assert entry(compiled)((2, *small), None) is NotImplemented
    compiled(2, *small)
    for wrong in ((3, *small), (np.int64(2), *small), (2, *large), (2, small[0], large[1])):
        assert entry(compiled)(wrong, None) is NotImplemented
    expected = [array.copy() for array in small]
    nest.python(2, *expected)
    assert entry(compiled)((2, *small), None) is None
    np.testing.assert_allclose(small, expected, rtol=1e-13)
    compiled(1, *large)
    assert entry(compiled)((2, *small), None) is NotImplemented


def test_calls_with_ever_other_sizes_keep_the_memory_of_the_latest() -> None:
    sizes = 60
    size = "[N] -> { : N >= 1 }"
    build = pf.NestBuilder("turned", size).tensor("x", ("N",)).tensor("t", ("N",), role="temporary")
    build = build.tensor("y", ("N",), role="output")
    domain = "[N] -> { [i] : 0 <= i < N }"
    build = build.statement("twice", domain, "t[i]", "2 * x[i]").statement(
        "turn", domain, "y[i]", "t[N - 1 - i]"
    )
    net = pf.compile(build.nest(), target="cpu", fuse=False)
    least, x = 50_000, np.arange(1e5)
    arena = 8 * (least + sizes)
    tracemalloc.start()
    for n in (*range(least, least + sizes), least):
        assert (net(x[:n]) == 2 * x[:n][::-1]).all()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 20 * arena, "the arenas of 16 sizes, not of 60"
