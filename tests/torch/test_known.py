"""What no call changes is computed once: row numbers, masks, positions, and what reads them."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from polyfuse.torch import backend  # noqa: E402  # needs torch
from polyfuse.torch.record import Record  # noqa: E402


def compiled(model, record):
    torch._dynamo.reset()
    return torch.compile(model, backend=partial(backend, record=record))


def test_masks_and_positions_are_computed_once() -> None:
    """The numbers of the first rows are a view of integers, which torch makes: a call checks a nest's inputs."""

    def f(x, rows, table):
        places = torch.arange(4)
        seen = places <= places[:, None]
        drawn = x.new_zeros(4, 4)
        drawn[:2, 1:] = 3.0
        chosen = torch.nn.functional.embedding(rows[:, 1:], table) + table[0]
        again = torch.nn.functional.embedding(places % 3, table)
        return torch.where(seen, x, 0.5) + drawn, chosen, again * 2

    record = Record()
    args = torch.randn(4, 4), torch.randint(0, 6, (2, 3)), torch.randn(6, 5)
    for ours, theirs in zip(compiled(f, record)(*args), f(*args), strict=True):
        assert torch.equal(ours, theirs)
    (graph,) = record.graphs
    assert not graph.left
    assert graph.known >= 5
    (region,) = graph.regions
    assert not region.failed


def test_a_known_result_is_a_new_tensor_in_each_call() -> None:
    def f(x):
        known = torch.arange(6)
        return x * 2, known, known.view(2, 3)

    fast = compiled(f, Record())
    _, first, view = fast(torch.ones(2))
    first.zero_()
    view.zero_()
    _, second, _ = fast(torch.ones(2))
    assert second.tolist() == list(range(6))


def test_random_numbers_are_drawn_in_each_call() -> None:
    record = Record()
    fast = compiled(lambda x: x + torch.rand(3), record)
    assert not torch.equal(fast(torch.zeros(3)), fast(torch.zeros(3)))
    assert record.graphs[0].known == 0


def test_rows_are_summed_in_bags_that_are_known() -> None:
    """Rows (N, count) are bags of `count`; places of bags that are numbers of a call are left to torch."""
    weight = torch.randn(10, 4)
    bag = torch.nn.functional.embedding_bag

    def f(rows, shares):
        same = tuple(bag(rows, weight, mode=mode) for mode in ("sum", "mean", "max"))
        return *same, bag(rows, weight, mode="sum", per_sample_weights=shares)

    record = Record()
    args = torch.randint(0, 10, (3, 4)), torch.rand(3, 4)
    for ours, theirs in zip(compiled(f, record)(*args), f(*args), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    assert not record.graphs[0].left
    record = Record()
    places = torch.tensor([0, 1])
    fast = compiled(lambda rows, places: bag(rows, weight, places, mode="sum"), record)
    assert torch.equal(fast(args[0][0], places), bag(args[0][0], weight, places, mode="sum"))
    assert "places on that are numbers of a call" in record.graphs[0].left[0].reason


def test_a_table_and_rows_that_a_region_computes_are_left_to_torch() -> None:
    """The rest of the region is not lost with them."""

    def f(x, rows, table):
        best = x.argmax(1)
        look = torch.nn.functional.embedding
        return look(best.view(2, 2)[:1], table) * 2, look(rows, table * 3) + 1

    record = Record()
    args = torch.randn(4, 6), torch.tensor([5, 0]), torch.randn(6, 5)
    for ours, theirs in zip(compiled(f, record)(*args), f(*args), strict=True):
        assert torch.equal(ours, theirs)
    (graph,) = record.graphs
    reasons = " ".join(refusal.reason for refusal in graph.left)
    assert [refusal.operator for refusal in graph.left] == ["aten.embedding.default"] * 2
    assert "row numbers computed as argmax" in reasons
    assert "a table computed as mul" in reasons
    assert not any(region.failed for region in graph.regions)
