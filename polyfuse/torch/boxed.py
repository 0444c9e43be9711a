"""A compiled graph as the function that AOTAutograd calls: of the list of its arguments, to its results.

    p0, p1, p2  ->  region(p2, p0)  ->  (r1, r0)

A graph that is one region calls the region itself. Any other is called as torch.fx prints it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyfuse.torch.nests import placeholders
from polyfuse.torch.region import Compiled

Boxed = Callable[[list[Any]], Any]


def boxed(whole: torch.fx.GraphModule) -> Boxed:
    """Return a graph as a function of the list of its arguments.

    Args:
        whole: The graph, with its regions as submodules.

    Returns:
        The function; it returns a tuple.
    """
    run = _of_one_region(whole) or _as_printed(whole)
    run._boxed_call = True  # type: ignore[attr-defined]  # torch's mark of a function of a list
    return run


def _as_printed(whole: torch.fx.GraphModule) -> Boxed:
    assert whole.code, "a graph is printed when it is read, and its `forward` is a detour before that"
    forward = whole.forward
    return lambda args: forward(*args)


def _of_one_region(whole: torch.fx.GraphModule) -> Boxed | None:
    """The graph's only region, with the arguments that it takes and the results that leave; None for other graphs."""
    calls = [node for node in whole.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    regions = [node for node in calls if node.target is not operator.getitem]
    leaving = next(node for node in whole.graph.nodes if node.op == "output").args[0]
    if len(regions) != 1 or regions[0].op != "call_module" or not isinstance(leaving, list | tuple):
        return None
    (region,) = regions
    made, of_call = whole.get_submodule(region.target), placeholders(whole)
    several = len(calls) > 1
    if not isinstance(made, Compiled) or any(
        one not in calls or (several and one is region) for one in leaving
    ):
        return None
    held = list(dict.fromkeys(one for one in region.args if one.op == "get_attr"))
    kept = [getattr(whole, one.target) for one in held]
    places = {one: place for place, one in enumerate((*of_call, *held))}
    taken = _picked([places[one] for one in region.args])
    if not several:
        return lambda args: (made.called(taken([*args, *kept])),)
    results = _picked([one.args[1] for one in leaving])
    return lambda args: results(made.called(taken([*args, *kept])))


def _picked(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function from a sequence to the tuple of its elements at some places."""
    if len(places) == 1:
        (place,) = places
        return lambda given: (given[place],)
    return operator.itemgetter(*places) if places else lambda given: ()
