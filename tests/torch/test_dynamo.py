"""torch.compile with the backend: values, gradients, sizes, aliases, mutation, and what is left to torch."""

import tomllib
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import polyfuse as pf

torch = pytest.importorskip("torch")

from polyfuse.torch import backend, explain  # noqa: E402  # needs torch
from polyfuse.torch.boxed import boxed  # noqa: E402
from polyfuse.torch.record import Record  # noqa: E402


def compiled(model, record=None, **named):
    torch._dynamo.reset()
    return torch.compile(model, backend=partial(backend, record=record), **named)


def test_the_entry_point_is_the_backend() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    module, name = project["entry-points"]["torch_dynamo_backends"]["polyfuse"].split(":")
    assert getattr(import_module(module), name) is backend


def test_inference_at_several_batches() -> None:
    """One graph of Dynamo's for all batches, and one nest."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4), torch.nn.Softmax(-1)
    )
    record = Record()
    fast = compiled(model, record, dynamic=True)
    with torch.no_grad():
        for batch in (5, 7, 5):
            x = torch.randn(batch, 8)
            assert torch.allclose(fast(x), model(x), atol=1e-6)
    (graph,) = record.graphs
    assert graph.kind == "inference"
    assert not graph.left
    (region,) = graph.regions
    assert len(region.compiled) == 1
    assert [str(one) for one in region.compiled[0].nest.inputs if one.shape[-1] == 8][-1].endswith(", 8]")
    assert not region.remarks


def test_a_graph_of_one_region_calls_it_with_what_it_takes_and_picks_what_leaves() -> None:
    """And not as torch.fx prints it, which passes hundreds of weights twice."""
    table = torch.randn(3, 4)

    def f(x, y):
        chosen = torch.nn.functional.embedding(torch.tensor([2, 0]), table)
        total, product = x + y, x @ chosen.T
        return product, total * 2, total

    x, y = torch.randn(5, 4), torch.randn(5, 4)
    record = Record()
    with torch.no_grad():
        fast = compiled(f, record)
        for _ in range(2):
            for ours, theirs in zip(fast(x, y), f(x, y), strict=True):
                assert torch.allclose(ours, theirs, atol=1e-5)
    (graph,) = record.graphs
    assert len(graph.regions) == 1

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return (x * 2,)

    def region(args, passes):
        made = torch.fx.Graph()
        given = [made.placeholder(name) for name in args]
        called = made.call_module("region", tuple(given[at] for at in passes))
        made.output((called,))
        return torch.fx.GraphModule({"region": Doubled()}, made)

    run = boxed(region("abc", [1]))
    assert run._boxed_call
    assert torch.equal(run([x, y, x])[0][0], y * 2), "what is no region of ours is called as it is printed"


@pytest.mark.parametrize("kind", ["rows", "split"])
def test_row_numbers_that_are_views_of_an_argument_are_read_in_the_region(kind: str) -> None:
    tables = torch.randn(9, 4), torch.randn(3, 4)

    def f(numbers):
        first, second = numbers.unbind(1) if kind == "rows" else (one[:, 0] for one in numbers.split(1, 1))
        return torch.nn.functional.embedding(first, tables[0]) * torch.nn.functional.embedding(
            second, tables[1]
        )

    numbers, record = torch.stack([torch.randint(0, rows, (5,)) for rows in (9, 3)], 1), Record()
    fast = compiled(f, record)
    assert torch.equal(fast(numbers), f(numbers))
    (graph,) = record.graphs
    assert not graph.left
    (region,) = graph.regions
    assert not region.failed
    assert [str(one) for one in region.compiled[0].nest.inputs if one.dtype == "int64"] == [
        f"input {region.compiled[0].nest.inputs[0].name}: int64[5, 2]"
    ]
    numbers[3, 1] = 3
    with pytest.raises(pf.BadArgument, match=r"\[3, 1\] is 3, expected 0 <= .* < 3"):
        fast(numbers)


@pytest.mark.parametrize("truths", [True, False])
def test_rows_of_attention_that_see_no_key_and_their_gradients(truths: bool) -> None:
    torch.manual_seed(3)
    mask = torch.rand(5, 5) > 0.3
    mask[2] = False
    added = mask if truths else torch.zeros(5, 5).masked_fill(~mask, -torch.inf)
    attention, record = torch.nn.functional.scaled_dot_product_attention, Record()
    q, k, v = (torch.randn(2, 3, 5, 8) for _ in range(3))
    found = []
    for run in (compiled(attention, record), attention):
        x = q.clone().requires_grad_(True)
        y = run(x, k, v, attn_mask=added)
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert not found[0][0][..., 2, :].any()
    assert record.graphs


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_that_torch_calls_as_one_operator(norm_first) -> None:
    torch.manual_seed(2)
    model = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=norm_first).eval()
    x, record = torch.randn(2, 3, 8), Record()
    with torch.no_grad():
        assert torch.allclose(compiled(model, record)(x), model(x), atol=1e-5)
    assert [len(graph.left) for graph in record.graphs] == [0]


def test_gradients() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.GELU(), torch.nn.Linear(5, 3)
    )
    x, want = torch.randn(4, 6, requires_grad=True), torch.randn(4, 3)
    record = Record()
    fast = compiled(model, record)
    found = []
    for net in (fast, model):
        model.zero_grad()
        x.grad = None
        torch.nn.functional.mse_loss(net(x), want).backward()
        found.append([x.grad.clone(), *(p.grad.clone() for p in model.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert [graph.kind for graph in record.graphs] == ["forward", "backward"]
    assert not [refusal for graph in record.graphs for refusal in graph.left]


def test_what_is_not_supported_is_left_to_torch_with_the_reason(caplog) -> None:
    def f(x, ids):
        y = torch.special.bessel_j0(x * 2 + 1)
        return (torch.relu(y) * 3).sum(-1), ids + 1, torch.i0(y)

    record = Record()
    x, ids = torch.randn(3, 4), torch.tensor([1, 2])
    with caplog.at_level("INFO", "polyfuse.torch"):
        found = compiled(f, record)(x, ids)
    for ours, theirs in zip(found, f(x, ids), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    (graph,) = record.graphs
    reasons = {refusal.operator: refusal.reason for refusal in graph.left}
    assert "no importer" in reasons["aten.special_bessel_j0.default"]
    assert "integers as row numbers alone" in reasons["aten.add.Tensor"]
    assert len(graph.regions) == 2
    assert "left to torch: special_bessel_j0" in caplog.text


def test_mutation_aliases_and_views() -> None:
    def f(x, y):
        x.add_(1)
        view = y[1:].t()
        return view, x * 2, x

    pairs = []
    for call in (compiled(f), f):
        x, y = torch.ones(3), torch.arange(6.0).reshape(3, 2)
        view, twice, same = call(x, y)
        assert view.data_ptr() == y[1:].data_ptr()
        pairs.append((x, view, twice, same))
    for ours, theirs in zip(*pairs, strict=True):
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize(
    "views",
    [
        lambda y: (y, y.t()),
        lambda y: (y[1:], y),
        lambda y: (y.t()[0], y.view(-1)),
        lambda y: (y, *y.chunk(2)),
    ],
)
def test_results_that_show_one_another_are_one_memory(views) -> None:
    def function(x):
        return views(torch.relu(x) * 2)

    x = torch.randn(4, 3)
    for found in (compiled(function, Record(), options=o)(x) for o in ({}, {"fallback": "error"})):
        expected = function(x)
        for one, right in zip(found, expected, strict=True):
            assert torch.equal(one, right)
        found[0].add_(1.0)
        expected[0].add_(1.0)
        for one, right in zip(found, expected, strict=True):
            assert torch.equal(one, right)


def test_a_first_layer_trains_whose_input_wants_no_gradient() -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU())
    x, record = torch.randn(2, 2, 5, 5), Record()
    compiled(model, record)(x).sum().backward()
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for one, p in zip(ours, model.parameters(), strict=True):
        assert torch.allclose(one, p.grad, atol=1e-4)
    assert not [refusal for graph in record.graphs for refusal in graph.left]


def test_complex_tensors_are_left_to_torch_with_the_reason() -> None:
    x, record = torch.randn(3, 3, dtype=torch.complex64), Record()
    assert torch.allclose(compiled(lambda x: x * x + 1, record)(x), x * x + 1)
    assert {"complex64" in str(one) for one in record.graphs[0].left} == {True}
    assert not record.graphs[0].regions


def test_truth_values_cross_regions() -> None:
    def f(x, mask):
        small = (x < 0) & mask
        return small, torch.where(small, -x, x)

    x, mask = torch.randn(3, 4), torch.rand(3, 4) > 0.5
    found = compiled(f)(x, mask)
    assert found[0].dtype == torch.bool
    for ours, theirs in zip(found, f(x, mask), strict=True):
        assert torch.equal(ours, theirs)


def test_a_graph_break_and_one_page() -> None:
    def f(x):
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return torch.i0(y)

    page = explain(f, torch.randn(3, 4))
    assert "2 graphs, 1 graph break\n" in page
    assert "graph 0 (inference): 2 of 2 nodes in 1 region of polyfuse" in page
    assert "aten.i0.default: there is no importer" in page


def test_frozen_weights_are_constants_and_follow_changes() -> None:
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).eval()
    x, record = torch.randn(4, 6), Record()
    fast = compiled(model, record, options={"freeze": True})
    with torch.no_grad():
        assert torch.allclose(fast(x), model(x), atol=1e-6)
        (region,) = record.graphs[0].regions
        (executable,) = region.compiled
        assert len(executable.nest.inputs) == 1
        assert len(executable.constants) == 4
        model[0].weight.mul_(-2.0)  # torch counts this write
        assert torch.allclose(fast(x), model(x), atol=1e-6)
        model[2].bias = torch.nn.Parameter(torch.randn(3))  # another tensor in its place
        assert torch.allclose(fast(x), model(x), atol=1e-6)
        assert len(region.compiled) == 1
        assert torch.allclose(fast(torch.ones(7, 6)), model(torch.ones(7, 6)), atol=1e-6)


def test_weights_that_are_promised_not_to_change_are_not_asked(monkeypatch) -> None:
    model, record = torch.nn.Linear(6, 5).eval(), Record()
    x, fast = torch.randn(4, 6), compiled(model, record, options={"freeze": "unchecked"})
    with torch.no_grad():
        assert torch.allclose(fast(x), model(x), atol=1e-6)
        monkeypatch.setattr("polyfuse.torch.weights.ADDRESS", None)  # what asks would fail
        assert torch.allclose(fast(x), model(x), atol=1e-6)
    (region,) = record.graphs[0].regions
    assert len(region.compiled[0].constants) == 2


def test_graphs_with_gradients_are_not_frozen() -> None:
    model, record = torch.nn.Linear(3, 2), Record()
    compiled(model, record, options={"freeze": True})(torch.randn(4, 3)).sum().backward()
    kinds = {graph.kind: graph for graph in record.graphs}
    assert set(kinds) == {"forward", "backward"}
    assert not [
        one
        for graph in kinds.values()
        for region in graph.regions
        for e in region.compiled
        for one in e.constants
    ]


def test_a_convolutional_net_trains() -> None:
    """Forward and backward in polyfuse: convolution, batch norm, both poolings, and their gradients."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 1, 1),
        torch.nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
    )
    x, record = torch.randn(3, 2, 9, 8, requires_grad=True), Record()
    fast, found = compiled(model, record), []
    for net in (fast, model):
        model.zero_grad()
        x.grad = None
        (net(x) ** 2).sum().backward()
        found.append([x.grad.clone(), *(p.grad.clone() for p in model.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    left = {refusal.operator for graph in record.graphs for refusal in graph.left}
    assert left <= {"aten.add.Tensor"}  # num_batches_tracked + 1, which is an integer


def test_strides_of_axes_of_one_element_are_no_view() -> None:
    """torch pools an image in channels last to (N, C, 1, 1) by as_strided."""
    record = Record()
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    pool = torch.nn.functional.adaptive_avg_pool2d
    fast = compiled(lambda x: pool(torch.relu(x), 1) * 2, record)
    assert torch.allclose(fast(x), pool(torch.relu(x), 1) * 2, atol=1e-6)
    assert not record.graphs[0].left
    row = torch.randn(4)
    assert torch.equal(compiled(lambda x: x.as_strided((2, 2), (1, 2)) * 2)(row), row.reshape(2, 2).t() * 2)


def test_options() -> None:
    x = torch.randn(3, 4)
    torch._dynamo.reset()
    fast = torch.compile(
        lambda x: torch.relu(x) @ x.t(),
        backend=backend,
        options={"target": "cpu", "fuse": False, "budget": 5.0},
    )
    assert torch.allclose(fast(x), torch.relu(x) @ x.t(), atol=1e-6)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="there is no speed"):
        torch.compile(torch.relu, backend=backend, options={"speed": 3})(x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"nodes that polyfuse does not compute:\n.*i0"):
        torch.compile(lambda x: torch.i0(x), backend=backend, options={"fallback": "error"})(x)


def test_polyfuse_has_the_folder_as_an_attribute() -> None:
    assert pf.torch.explain is explain
