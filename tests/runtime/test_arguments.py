"""A call's arrays: what is refused, with which words, and what other libraries' arrays become."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument


@cache
def net() -> pf.Executable:
    """out = x + y @ w of float32: x is 4 × 3, y 4 × 5."""
    x, y = nn.input("x", (4, 3)), nn.input("y", (4, 5))
    return pf.compile(nn.lower(x + nn.linear(y, np.ones((5, 3), np.float32))), target="cpu")


X, Y = np.ones((4, 3), np.float32), np.ones((4, 5), np.float32)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((X,), {}, r"input y is missing; expected input x: float32\[4, 3\], input y: float32\[4, 5\]"),
        ((), {}, "input x, y is missing"),
        ((X, Y, Y), {}, "given 3 positional arguments for 2 inputs"),
        ((X,), {"z": Y}, "unknown input 'z'; expected input x"),
        ((X, Y), {"x": X}, "input 'x' is given twice"),
        ((Y, Y), {}, r"x: expected shape \[4, 3\], given \[4, 5\]"),
        ((X, Y[:2]), {}, r"y: expected shape \[4, 5\], given \[2, 5\]"),
        ((X[0], Y), {}, r"x: expected rank 2 with shape \[4, 3\], given rank 1 with shape \[3\]"),
        (
            (X.astype(np.float64), Y),
            {},
            r"x: expected dtype float32, given float64; convert with .astype\('float32'\)",
        ),
        ((X.astype(np.int32), Y), {}, "x: expected dtype float32, given int32"),
        (([[1.0]], Y), {}, r"x: expected an array \(input x: float32\[4, 3\]\), given list"),
        ((None, Y), {}, "x: expected an array .* given NoneType"),
    ],
)
def test_bad_arguments_name_the_tensor_the_given_and_the_expected(
    args: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        net()(*args, **named)


def test_read_only_and_byte_swapped_inputs() -> None:
    fixed = X.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(net()(fixed, Y), X + 5)
    with pytest.raises(BadArgument, match="x: expected dtype float32, given >f4"):
        net()(X.astype(">f4"), Y)


def test_a_scalar_input_may_be_a_number() -> None:
    a = nn.input("a", ())
    scaled = pf.compile(nn.lower(a * nn.input("x", (3,))), target="cpu")
    np.testing.assert_array_equal(scaled(2, np.ones(3, np.float32)), [2, 2, 2])
    np.testing.assert_array_equal(scaled(np.float32(3), np.ones(3, np.float32)), [3, 3, 3])


class Foreign:
    """An array of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that Foreign belongs to, with its from_dlpack."""
    module = ModuleType("foreign")
    module.__dict__["from_dlpack"] = lambda array: Foreign(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "foreign", module)
    monkeypatch.setattr(Foreign, "__module__", "foreign")


@pytest.mark.usefixtures("library")
def test_an_array_that_speaks_dlpack_comes_back_in_its_kind() -> None:
    result = net()(Foreign(X), Y)
    assert isinstance(result, Foreign)
    np.testing.assert_array_equal(result.array, X + 5)
    assert isinstance(net()(X, Y), np.ndarray)


@pytest.mark.usefixtures("library")
def test_dlpack_inputs_are_checked_like_any_other() -> None:
    with pytest.raises(BadArgument, match=r"x: expected shape \[4, 3\], given \[4, 5\]"):
        net()(Foreign(Y), Y)


@pytest.mark.usefixtures("library")
def test_an_array_on_another_device_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"x: the array lies on device 2:0.*move the array"):
        net()(Foreign(X, device=(2, 0)), Y)


@pytest.mark.usefixtures("library")
def test_out_may_be_another_librarys_array() -> None:
    out = np.zeros((4, 3), np.float32)
    net()(X, Y, out=Foreign(out))
    np.testing.assert_array_equal(out, X + 5)


class Bits(Foreign):
    """An array of a library that knows bfloat16, which NumPy's DLPack does not."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: str) -> None:
        super().__init__(array)
        self.dtype = f"foreign.{dtype}"

    def view(self, dtype: str) -> Bits:
        return Bits(self.array, dtype)


def test_bfloat16_goes_in_and_out_as_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("foreign")
    names = {"int16": "int16", "bfloat16": "bfloat16"}
    module.__dict__.update(names, from_dlpack=lambda array: Bits(np.from_dlpack(array), "int16"))
    monkeypatch.setitem(sys.modules, "foreign", module)
    monkeypatch.setattr(Bits, "__module__", "foreign")
    x = np.array([1.5, -2.0, 3.0], "bfloat16")
    double = pf.compile(pf.lower(nn.input("x", (3,), "bfloat16") * 2.0), target="cpu")
    result = double(Bits(x.view(np.int16), "bfloat16"))
    assert (type(result), result.dtype) == (Bits, "foreign.bfloat16")
    assert result.array.view("bfloat16").tolist() == [3.0, -4.0, 6.0]


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    result = net()(torch.from_numpy(X), torch.from_numpy(Y))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), X + 5)
