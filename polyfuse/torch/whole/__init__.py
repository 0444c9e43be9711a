"""Layers that AOTAutograd would write out, kept whole as operators: LSTM, GRU, RNN, interpolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyfuse.torch.whole import interpolation, recurrent

CHOSEN: dict[Any, Callable[..., Any]] = {**recurrent.CHOSEN, **interpolation.CHOSEN}
"""For a function of torch, what says by a node's arguments which operator to call, and with which; None: leave it."""


def keep_whole(module: torch.fx.GraphModule) -> None:
    """Put operators that stay whole in the place of some functions in one of Dynamo's graphs.

    Under autocast, which knows torch's own operators, all stay torch's.

    Args:
        module: The graph; it is changed.
    """
    nodes = list(module.graph.nodes)
    if torch.is_autocast_enabled() or any("autocast" in str(node.target) for node in nodes):
        return
    for node in nodes:
        choose = CHOSEN.get(node.target) if node.op == "call_function" else None
        found = choose(*node.args, **node.kwargs) if choose is not None else None
        if found is not None:
            made, node.args = found
            node.target, node.kwargs = made._opoverload, {}
    module.recompile()


__all__ = ["keep_whole"]
