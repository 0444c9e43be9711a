"""Symbolic sizes under torch.compile: one compile for all, and what becomes of sizes that it is not for."""

from functools import partial

import pytest

from polyfuse.errors import BadArgument

torch = pytest.importorskip("torch")

import polyfuse.torch.region  # noqa: E402  # needs torch
from polyfuse.torch import backend  # noqa: E402
from polyfuse.torch.page import page_lines  # noqa: E402
from polyfuse.torch.record import Graph, Record, Region  # noqa: E402


def dynamic(model, record, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend=partial(backend, record=record), dynamic=True, options=options)


def regions(record):
    return [region for graph in record.graphs for region in graph.regions]


def test_one_compile_for_all_batches_and_lengths() -> None:
    """The product N * T that torch makes for each linear layer is no size of a nest; it needs none."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU(), torch.nn.Linear(6, 4))
    record = Record()
    fast = dynamic(model, record, fallback="error")  # nodes that compute sizes are not missed
    with torch.no_grad():
        for batch, length in ((5, 3), (2, 9), (7, 4)):
            x = torch.randn(batch, length, 8)
            assert torch.allclose(fast(x), model(x), atol=1e-6)
    (region,) = regions(record)
    (executable,) = region.compiled
    assert len(executable.nest.params) == 2
    assert not region.remarks


def test_results_have_the_strides_that_torch_expects_at_each_size() -> None:
    def f(x):
        return torch.relu(x).t(), torch.empty_like(x.t()).copy_(x.t() * 2)

    fast = dynamic(f, Record())
    for shape in ((3, 4), (6, 5)):
        x = torch.randn(shape)
        for ours, theirs in zip(fast(x), f(x), strict=True):
            assert torch.equal(ours, theirs)
            assert ours.stride() == theirs.stride()


def test_gradients_at_several_batches() -> None:
    torch.manual_seed(1)
    model, record = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh()), Record()
    fast = dynamic(model, record)
    for batch in (4, 7):
        x, found = torch.randn(batch, 6), []
        for net in (fast, model):
            model.zero_grad()
            (net(x) ** 2).sum().backward()
            found.append([p.grad.clone() for p in model.parameters()])
        for ours, theirs in zip(*found, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)
    assert [graph.kind for graph in record.graphs] == ["forward", "backward"]
    assert all(len(region.compiled) == 1 for region in regions(record))


def test_last_axes_are_numbers_where_torch_does_not_relate_them_to_weights(monkeypatch) -> None:
    """The layer is one operator, which torch does not ask whether its input fits the weights."""
    nests = []

    def only_seen(nest, **options):
        nests.append(nest)
        raise BadArgument("not compiled")

    monkeypatch.setattr(polyfuse.torch.region, "compile", only_seen)
    model, record = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval(), Record()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        assert torch.equal(dynamic(model, record)(x), model(x))
    assert [len(one.params) for one in nests] == [2, 0]
    assert nests[0].inputs[0].shape[-1] == 8
    (region,) = regions(record)
    assert " = 8 in the code for all sizes" in region.remarks[0]


def test_a_failure_at_one_size_is_not_one_at_others(monkeypatch) -> None:
    """Neither all sizes nor five rows can be compiled: five rows run in eager, others do not."""
    whole = polyfuse.torch.region.compile

    def some(nest, **options):
        if nest.params or nest.inputs[0].shape == (5, 4):
            raise BadArgument(f"not {nest.inputs[0]}")
        return whole(nest, **options)

    monkeypatch.setattr(polyfuse.torch.region, "compile", some)
    record = Record()
    fast = dynamic(lambda x: torch.relu(x) * 2, record)
    for rows in (5, 3, 5, 3):
        torch._dynamo.mark_static(x := torch.randn(rows, 4), 1)
        assert torch.equal(fast(x), torch.relu(x) * 2)
    (region,) = regions(record)
    assert [one.nest.inputs[0].shape for one in region.compiled] == [(3, 4)]
    assert list(region.failed) == ["[5, 4]"]
    (remark,) = region.remarks
    assert remark.startswith("one compile for each combination of sizes: not input")


def test_the_page_has_remarks_and_failures_by_size() -> None:
    region = Region("polyfuse_0", ("aten.relu.default",), failed={"[5, 4]": "too odd"}, remarks=["one each"])
    page = list(page_lines(Record([Graph("inference", 1, [region])])))
    assert page[2:] == [
        "  polyfuse_0: 1 node: aten.relu.default",
        "    one each",
        "    run in eager at [5, 4]: too odd",
    ]
