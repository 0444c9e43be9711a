"""One page on a model: graph breaks, regions, the nodes that torch computes and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from polyfuse.errors import quantity
from polyfuse.torch.dynamo import backend
from polyfuse.torch.record import Graph, Record, Region


def explain(model: Any, *args: Any, options: Mapping[str, Any] | None = None, **named: Any) -> str:
    """Return a page on what `torch.compile(model, backend="polyfuse")` does with a model on these arguments.

    The model is called twice: once to find graph breaks, once with the backend. Dynamo's caches are reset.

    Args:
        model: A module or a function.
        *args: Arguments of the call.
        options: As for torch.compile.
        **named: Arguments by name.

    Returns:
        The page.

    Raises:
        BadArgument: for an unknown option.
    """
    torch._dynamo.reset()
    broken = torch._dynamo.explain(model)(*args, **named)
    torch._dynamo.reset()
    record = Record()
    torch.compile(model, backend=partial(backend, options=options, record=record))(*args, **named)
    torch._dynamo.reset()
    graphs, breaks = quantity(broken.graph_count, "graph"), quantity(broken.graph_break_count, "graph break")
    lines = [f"{graphs}, {breaks}"]
    lines += [f"  break: {reason.reason}" for reason in broken.break_reasons]
    return "\n".join((*lines, *page_lines(record)))


def page_lines(record: Record) -> Iterator[str]:
    """Yield the lines about each graph.

    Args:
        record: What the backend did.

    Yields:
        The lines.
    """
    for number, graph in enumerate(record.graphs):
        yield from _graph(number, graph)


def _graph(number: int, graph: Graph) -> Iterator[str]:
    computed = sum(len(region.operators) for region in graph.regions if region.compiled or not region.failed)
    yield ""
    regions = quantity(len(graph.regions), "region")
    inside = f"{computed} of {quantity(graph.nodes, 'node')} in {regions} of polyfuse"
    once = f"; {graph.known} more were computed once" if graph.known else ""
    yield f"graph {number} ({graph.kind}): {inside}{once}"
    for region in graph.regions:
        yield from _region(region)
    reasons = Counter((refusal.operator, refusal.reason) for refusal in graph.left)
    if reasons:
        yield "  left to torch:"
    for (called, reason), count in reasons.items():
        yield f"    {called}{f' ({count} times)' if count > 1 else ''}: {reason}"


def _region(region: Region) -> Iterator[str]:
    yield f"  {region.name}: {quantity(len(region.operators), 'node')}: {', '.join(dict.fromkeys(region.operators))}"
    yield from (f"    {remark}" for remark in region.remarks)
    yield from (f"    run in eager at {sizes}: {reason}" for sizes, reason in region.failed.items())
    for executable in region.compiled:
        kernels = quantity(len(executable.kernels), "kernel")
        yield f"    {kernels} for inputs {', '.join(map(_shape, executable.nest.inputs))}"
        yield from (f"      {line}" for line in executable.explain().splitlines())


def _shape(tensor: Any) -> str:
    return f"{tensor.name} {list(tensor.shape)}"
