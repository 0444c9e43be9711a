"""Compile the nodes that are left to torch by torch's own compiler, inductor.

    graph of regions and nodes  ->  (region | part of inductor's | node)*

Nodes of sizes, and views at a part's ends, stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._guards import tracing
from torch._inductor.compile_fx import compile_fx_inner
from torch.fx.passes.operator_support import OperatorSupportBase

from polyfuse.torch.nests import placeholders
from polyfuse.torch.regions import in_parts, is_size


class _Left(OperatorSupportBase):
    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """Whether a node is an operator on tensors; what picks a region's result is not."""
        picks = node.target is operator.getitem and node.args[0].op == "call_module"
        return node.op == "call_function" and not picks and not is_size(node)


class ByInductor(torch.nn.Module):
    """Some nodes as one function that inductor made."""

    def __init__(self, part: torch.fx.GraphModule) -> None:
        super().__init__()
        output = next(node for node in part.graph.nodes if node.op == "output")
        self._several = isinstance(output.args[0], list | tuple)
        if not self._several:
            output.args = ((output.args[0],),)
            part.recompile()
        metas = [node.meta["val"] for node in placeholders(part)]
        with tracing(None):  # else it would tell AOTAutograd that this part's results are those of the graph
            self._run: Callable[..., Any] = compile_fx_inner(part, metas)

    def forward(self, *args: Any) -> Any:
        """The nodes' results: one, or a tuple."""
        found = self._run(list(args))
        return tuple(found) if self._several else found[0]


def with_inductor(whole: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a graph in which inductor computes all that no region does, in as few parts as there can be.

    Args:
        whole: The graph, with its regions as submodules; it is changed.

    Returns:
        The graph.
    """
    fused, names = in_parts(whole, _Left(), "inductor_")
    for name in names:
        setattr(fused, name, ByInductor(fused.get_submodule(name)))
    return fused
