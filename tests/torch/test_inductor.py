"""What is left to torch goes to inductor, in parts: here a stand-in for it that runs their graphs, and once itself."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from polyfuse.torch import backend, inductor  # noqa: E402  # needs torch
from polyfuse.torch.record import Record  # noqa: E402


def run(f, *args, **options):
    torch._dynamo.reset()
    record = Record()
    fast = torch.compile(f, backend=partial(backend, record=record), dynamic=True, options=options)
    for ours, theirs in zip(fast(*args), f(*args), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    return record


def f(x, y):
    ends, order = torch.mode(torch.relu(torch.i0(x) * torch.special.bessel_j1(x)) @ y, -1)
    return torch.i0(ends), order, torch.i0(x)


def test_parts_around_a_region(monkeypatch) -> None:
    parts = []

    def stand_in(part, metas):
        assert isinstance(part.graph.output_node().args[0], tuple | list)
        parts.append([str(node.target) for node in part.graph.nodes if node.op == "call_function"])
        assert len(metas) == len([node for node in part.graph.nodes if node.op == "placeholder"])
        return lambda args: part(*args)

    monkeypatch.setattr(inductor, "compile_fx_inner", stand_in)
    record = run(f, torch.randn(4, 5), torch.randn(5, 6), fallback="inductor")
    assert len(parts) == 2
    assert [any("mode" in one for one in part) for part in parts].count(True) == 1
    assert len(record.graphs[0].regions) == 1
    assert record.graphs[0].left


def test_inductor_itself() -> None:
    """A part that it computes by torch's own kernels, so that it needs no compiler of C++."""
    run(lambda x: torch.mode(torch.relu(x) + 1), torch.randn(4, 5), fallback="inductor")
