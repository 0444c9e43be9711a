"""Recurrent layers under torch.compile: whole in a region, with gradients, for all lengths; packed ones are torch's."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from polyfuse.torch import backend  # noqa: E402  # needs torch
from polyfuse.torch.record import Record  # noqa: E402
from polyfuse.torch.whole import keep_whole  # noqa: E402
from polyfuse.torch.whole.recurrent import LAYERS, OPERATORS  # noqa: E402


@pytest.fixture(autouse=True)
def whole():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def test_a_layer_is_a_part_of_one_region_for_all_lengths() -> None:
    layer, record = torch.nn.LSTM(3, 4, batch_first=True), Record()

    def net(x):
        return layer(torch.relu(x))[0] * 2

    fast = torch.compile(net, backend=partial(backend, record=record), dynamic=True)
    with torch.no_grad():
        for steps in (5, 7):
            x = torch.randn(2, steps, 3)
            assert torch.allclose(fast(x), net(x), atol=1e-5)
    (graph,) = record.graphs
    assert not graph.left
    (region,) = graph.regions
    assert {"aten.relu.default", "polyfuse.lstm.default", "aten.mul.Tensor"} <= set(region.operators)
    assert not region.failed
    assert len(region.compiled) == 1


def test_gradients() -> None:
    layer, x, record = torch.nn.GRU(3, 4, bias=False), torch.randn(5, 2, 3, requires_grad=True), Record()
    fast, found = torch.compile(layer, backend=partial(backend, record=record)), []
    for net in (fast, layer):
        layer.zero_grad()
        x.grad = None
        (net(x)[0] ** 2).sum().backward()
        found.append([x.grad.clone(), *(p.grad.clone() for p in layer.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    forward, backward = record.graphs
    assert any("polyfuse.gru.default" in region.operators for region in forward.regions)
    assert backward.left[0].operator == "polyfuse.gru_backward.default"


@pytest.mark.parametrize("name", LAYERS)
def test_the_operators_pass_opcheck(name) -> None:
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(name, torch.nn.RNN)
    weights = [
        one.detach().requires_grad_() for one in kind(3, 4, num_layers=2, bidirectional=True).parameters()
    ]
    states = [torch.zeros(4, 2, 4) for _ in range(2 if name == "lstm" else 1)]
    args = (torch.randn(2, 5, 3), states, weights, True, 2, 0.0, True, True, True)
    assert set(torch.library.opcheck(OPERATORS[name], args).values()) == {"SUCCESS"}


def test_packed_sequences_are_torchs() -> None:
    layer = torch.nn.GRU(3, 4)

    def packed(x, lengths):
        sequence = torch.nn.utils.rnn.pack_padded_sequence(torch.relu(x), lengths)
        return torch.nn.utils.rnn.pad_packed_sequence(layer(sequence)[0])[0]

    x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 3])
    with torch.no_grad():
        assert torch.allclose(
            torch.compile(packed, backend=backend)(x, lengths), packed(x, lengths), atol=1e-6
        )
        reasons = torch._dynamo.explain(packed)(x, lengths).break_reasons
    assert "pack_padded_sequence" in str(reasons)


@pytest.mark.parametrize(
    ("train", "dropout", "layers", "whole"),
    [(True, 0.5, 2, False), (False, 0.5, 2, True), (True, 0.0, 2, True), (True, 0.5, 1, True)],
)
def test_dropout_between_layers_is_torchs(train, dropout, layers, whole) -> None:
    graph = torch.fx.symbolic_trace(
        lambda x, h, w, u: torch.rnn_tanh(x, h, [w, u], False, layers, dropout, train, False, False)
    )
    keep_whole(graph)
    assert ("polyfuse.rnn_tanh" in graph.code) is whole
