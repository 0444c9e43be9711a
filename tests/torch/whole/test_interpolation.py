"""Interpolation under torch.compile: whole in a region, with gradients; other modes are torch's."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
interpolate = torch.nn.functional.interpolate

from polyfuse.torch import backend  # noqa: E402  # needs torch
from polyfuse.torch.record import Record  # noqa: E402
from polyfuse.torch.whole.interpolation import OPERATOR  # noqa: E402


def test_modes_in_one_region() -> None:
    def net(x):
        y = torch.relu(x)
        return (
            interpolate(y, scale_factor=2),
            interpolate(y, (7, 5), mode="bicubic"),
            interpolate(y, scale_factor=(2.0, 1.5), mode="bilinear", align_corners=True) * 2,
            interpolate(y[..., 0], 3, mode="linear"),
        )

    torch._dynamo.reset()
    x, record = torch.randn(1, 2, 4, 4), Record()
    found = torch.compile(net, backend=partial(backend, record=record))(x)
    for ours, theirs in zip(found, net(x), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    (graph,) = record.graphs
    assert not graph.left
    assert [region.operators.count("polyfuse.interpolate.default") for region in graph.regions] == [4]


def test_gradients_and_what_is_left() -> None:
    def net(x):
        y = interpolate(torch.relu(x), scale_factor=2, mode="bilinear")
        return interpolate(y * 3, scale_factor=0.7), interpolate(y, (2, 2), mode="area")

    torch._dynamo.reset()
    found, record = [], Record()
    for call in (torch.compile(net, backend=partial(backend, record=record)), net):
        x = torch.linspace(-1, 2, 32).reshape(1, 2, 4, 4).requires_grad_()
        sum((one**2).sum() for one in call(x)).backward()
        found.append(x.grad)
    assert torch.allclose(*found, atol=1e-5)
    left = {refusal.operator: refusal.reason for refusal in record.graphs[0].left}
    assert set(left) == {"polyfuse.interpolate.default"}  # 8 * 0.7 is no size
    assert "interpolates by 0.7 from 8 to 5, which is another factor: pass the size" in left.popitem()[1]


def test_the_operator_passes_opcheck() -> None:
    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    for args in ((x, [6, 7], None, "bicubic", True, None), (x, None, [2.0, 1.5], "nearest", None, None)):
        assert set(torch.library.opcheck(OPERATOR, args).values()) == {"SUCCESS"}
