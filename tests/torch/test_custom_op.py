"""A nest as an operator of torch: opcheck, torch.compile with symbolic sizes, gradients, arrays in place, refusals."""
# ruff: noqa: F821  # sizes are names in annotations

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument

torch = pytest.importorskip("torch")

from polyfuse.torch import custom_op  # noqa: E402  # needs torch


def later_rows():
    """tanh(x[1:] @ w) for any number of rows, and the columns of its maxima."""
    x, w = nn.input("x", ("N", 6)), nn.input("w", (6, 4))
    y = nn.tanh(x[1:] @ w)
    return pf.lower((y, nn.argmax(y, -1)))


def plain(x, w):
    y = torch.tanh(x[1:] @ w)
    return y, y.argmax(-1)


def gradients(call, x, w, number=0):
    x, w = (one.detach().clone().requires_grad_(one.requires_grad) for one in (x, w))
    (call(x, w)[number] ** 2).sum().backward()
    return [one.grad for one in (x, w)]


def test_gradients_and_opcheck() -> None:
    op = custom_op("pf_tests::later", later_rows(), threads=1)
    torch.manual_seed(0)
    x, w = torch.randn(5, 6, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    y, at = op(x, w)
    assert torch.allclose(y, plain(x, w)[0], atol=1e-6)
    assert torch.equal(at, plain(x, w)[1])
    for ours, theirs in zip(gradients(op, x, w), gradients(plain, x, w), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert gradients(op, x.detach(), w)[0] is None
    assert set(torch.library.opcheck(op, (x, w)).values()) == {"SUCCESS"}


def test_one_graph_for_all_sizes() -> None:
    op = custom_op("pf_tests::later", later_rows())  # takes the place of the one before
    torch._dynamo.reset()
    fast = torch.compile(lambda x, w: op(x * 2, w), backend="aot_eager", dynamic=True, fullgraph=True)
    w = torch.randn(6, 4)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (5, 9):
            x = torch.randn(rows, 6, requires_grad=True)
            ours, theirs = gradients(fast, x, w), gradients(lambda x, w: plain(x * 2, w), x, w)
            assert torch.allclose(ours[0], theirs[0], atol=1e-5)
    with pytest.raises(Exception, match=r"x has shape .*, expected input x: float32\[N, 6\]"):
        fast(torch.randn(5, 7), w)


@pf.nest
def moved(x: "bf16[N]", y: "f64[N, 2]"):
    for i in range(N):
        y[i, 0] = y[i, 0] + x[i]


def test_an_array_in_place() -> None:
    op = custom_op("pf_tests::moved", pf.compile(moved))
    x, y = torch.arange(3).to(torch.bfloat16), torch.ones(2, 3, dtype=torch.float64).t()
    assert op(x, y) is None
    assert y.t().tolist() == [[1, 2, 3], [1, 1, 1]]
    assert set(torch.library.opcheck(op, (x, torch.ones(3, 2, dtype=torch.float64))).values()) == {"SUCCESS"}


@pf.nest
def turned(x: "c64[N]", w: "f32[N]"):
    return x * x * w


def test_complex_numbers() -> None:
    op = custom_op("pf_tests::turned", turned)
    x, w = torch.randn(3, dtype=torch.complex64), torch.randn(3)
    found = []
    for call in (op, lambda x, w: x * x * w):
        given = [one.clone().requires_grad_() for one in (x, w)]
        y = call(*given)
        (y * torch.tensor([1, 2j, 1 - 1j])).real.sum().backward()
        found.append([y.detach(), *(one.grad for one in given)])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_second_and_third_derivatives() -> None:
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    ours = nn.tanh(nn.input("x", (3, 4), "float64") @ nn.input("w", (4, 2), "float64"))
    op = custom_op("pf_tests::often", pf.lower((ours, ours * ours)))
    assert torch.autograd.gradgradcheck(op, (x, w))
    found = []
    for call in (op, lambda x, w: (torch.tanh(x @ w), torch.tanh(x @ w) ** 2)):
        value = call(x, w)[1].sum()
        for _ in range(3):
            value = torch.autograd.grad(value, x, create_graph=True)[0].pow(2).sum()
        found.append(value.item())
    assert found[0] == pytest.approx(found[1], rel=1e-12)


@pf.nest
def scaled(x: "f32[N]", a: "f32" = 3.0):
    return x * a


def test_a_number_may_be_left_out() -> None:
    op = custom_op("pf_tests::scaled", scaled)
    x = torch.arange(3.0).requires_grad_()
    (op(x) + op(x, a=torch.tensor(2.0))).sum().backward()
    assert x.grad.tolist() == [5, 5, 5]
    assert set(torch.library.opcheck(op, (x,)).values()) == {"SUCCESS"}


def test_refusals() -> None:
    x = nn.input("x", (4,))
    with pytest.raises(BadArgument, match="expected such as 'mylib::attention'"):
        custom_op("twice", pf.lower(x * 2))
    with pytest.raises(BadArgument, match="has no inputs"):
        custom_op("pf_tests::none", pf.lower(nn.constant(torch.ones(2).numpy()) * 2.0))
    with pytest.raises(BadArgument, match="custom_op: there is no speed; expected target"):
        custom_op("pf_tests::twice", pf.lower(x * 2), speed=3)
    with pytest.raises(BadArgument, match=r"freeze is an option of torch\.compile; a nest"):
        custom_op("pf_tests::twice", pf.lower(x * 2), freeze=True)
    with pytest.raises(BadArgument, match=r"takes a nest or an executable, given Linear"):
        custom_op("pf_tests::twice", nn.Linear(4, 4))
    whole = custom_op("pf_tests::places", pf.lower(nn.argmax(x, 0)))
    assert whole(torch.tensor([1.0, 3.0, 2.0, 0.0])).item() == 1
    assert not whole(torch.randn(4, requires_grad=True)).requires_grad
