"""Measure coverage without compiling: divide a model's graphs into regions and import each region as a nest."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from benchmarks.torch_models.written import Case
from polyfuse.errors import PolyfuseError
from polyfuse.frontend.torch.decompositions import decompositions
from polyfuse.torch.known import fold
from polyfuse.torch.nests import nest_of
from polyfuse.torch.regions import divided, is_size, refusals
from polyfuse.torch.whole import keep_whole


@dataclass
class Coverage:
    """The nodes of a model that polyfuse computes, and those that stay with torch.

    Attributes:
        graphs: How many graphs torch makes of the model.
        nodes: How many operators they call.
        known: Nodes that are computed once, since no call changes their values.
        left: Nodes that torch computes, by operator and reason.
        flops: Those of products, convolutions and attention.
        left_flops: Those of nodes that torch computes.
        region_flops: Those of each region, by the graph's number and the region's name.
        failed: Why regions have no nest.
        seconds: How long dividing and importing took.
    """

    graphs: int = 0
    nodes: int = 0
    known: int = 0
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    flops: int = 0
    left_flops: int = 0
    region_flops: dict[tuple[int, str], int] = field(default_factory=dict)
    failed: dict[tuple[int, str], str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """The share of the FLOPs that regions with a nest have."""
        inside = sum(flops for region, flops in self.region_flops.items() if region not in self.failed)
        return inside / self.flops if self.flops else None


def coverage(case: Case) -> Coverage:
    """Return the coverage of a model, by a backend for torch.compile that records regions and compiles none."""
    found = Coverage()

    def look(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        _look(found, module)
        boxed: Callable[..., Any] = make_boxed_func(module.forward)
        return boxed

    torch._dynamo.reset()
    trace = aot_autograd(fw_compiler=look, inference_compiler=look, decompositions=decompositions())

    def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        keep_whole(module)
        compiled: Callable[..., Any] = trace(module, example_inputs)
        return compiled

    with torch.no_grad():
        torch.compile(case.model, backend=backend)(*case.args, **case.named)
    torch._dynamo.reset()
    return found


def _look(found: Coverage, module: torch.fx.GraphModule) -> None:
    started = time.process_time()
    copied = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    found.known += fold(copied)
    graph, refused = copied.graph, refusals(copied.graph)
    number = found.graphs
    found.graphs += 1
    calls = [node for node in graph.nodes if node.op == "call_function" and not is_size(node)]
    found.nodes += len(calls)
    found.left.update((str(node.target), refused[node].reason) for node in calls if node in refused)
    found.flops += sum(map(flops, calls))
    found.left_flops += sum(flops(node) for node in calls if node in refused)
    whole, names = divided(copied, refused)
    for name in names:
        part = whole.get_submodule(name)
        assert isinstance(part, torch.fx.GraphModule)
        found.region_flops[number, name] = sum(
            flops(node) for node in part.graph.nodes if node.op == "call_function"
        )
        try:
            nest_of(part, name, {}, {})
        except PolyfuseError as error:
            found.failed[number, name] = str(error)
    found.seconds += time.process_time() - started


def flops(node: torch.fx.Node) -> int:
    """The FLOPs of a product, a convolution or an attention, as torch counts them; 0 for other nodes."""
    packet = getattr(node.target, "overloadpacket", None)
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda one: one.meta["val"])
    if str(packet) == "aten._scaled_dot_product_flash_attention_for_cpu":
        return int(sdpa_flop_count(*(one.shape for one in args[:3])))
    formula = flop_registry.get(packet)
    return int(formula(*args, **kwargs, out_val=node.meta["val"])) if formula is not None else 0
