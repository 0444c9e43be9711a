"""One model measured: what of it runs in polyfuse, how far off it is, how long it compiles and takes.

cold: in a process whose cache is empty: coverage, the compile, the memory it takes, the error
warm: in another one: the compile that finds its kernels in the cache, and times in turns with other sides; with weights
      as constants those of the nest by itself, too, as `from_torch` makes it
none: a backend that computes nothing, in turns with the same sides: what torch takes around any backend
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import polyfuse as pf
from benchmarks.torch_models.cases import case
from benchmarks.torch_models.coverage import coverage
from benchmarks.torch_models.peers import peers
from benchmarks.torch_models.written import Case
from polyfuse.torch import backend
from polyfuse.torch.options import Freeze
from polyfuse.torch.record import Record
from polyfuse.torch.whole import keep_whole

Row = dict[str, Any]

TURNS = 10
"""Turns at least."""

MOST_TURNS, SECONDS = 200, 1.0
"""Turns at most, and the seconds after which there are no more: calls of microseconds have many."""


def cold(name: str, size: int, layers: int | None, freeze: Freeze, whole: bool) -> Iterator[Row]:
    """Yield a model's row after each measurement, so that a process stopped by its limit has printed a part of it."""
    made = _case(name, size, layers)
    with torch.no_grad():
        counted = coverage(made)
        yield {
            "model": name,
            "size": size,
            "layers": layers,
            "freeze": freeze,
            "graphs": counted.graphs,
            "nodes": counted.nodes,
            "known": counted.known,
            "left": [[count, operator, reason] for (operator, reason), count in counted.left.items()],
            "no nest": list(counted.failed.values()),
            "MFLOP": counted.flops / 1e6,
            "share": counted.share,
        }
        if whole:
            yield from _cold(made, freeze, counted.region_flops, counted.flops)


def warm(name: str, size: int, layers: int | None, freeze: Freeze, others: Sequence[str]) -> Iterator[Row]:
    """Yield what a process finds that compiles a model again, and then times it beside others."""
    made = _case(name, size, layers)
    with torch.no_grad():
        since, (_, fast, _) = _processor_time(), _compiled(made, freeze)
        yield {"cached CPU s": _processor_time() - since}
        calls = {"ms": fast}
        if freeze:
            since = _processor_time()
            try:
                calls["exported ms"] = _exported(made)
                yield {"exported CPU s": _processor_time() - since}
            except pf.PolyfuseError as error:  # operators that torch.compile leaves to torch
                yield {"no exported": str(error).splitlines()[0]}
        for side, call, seconds in peers(made, others):
            if isinstance(call, str):
                yield {f"no {side}": call}
                continue
            yield {f"{side} compile s": seconds}
            calls[f"{side} ms"] = call
        yield {side: seconds * 1e3 for side, seconds in _shortest(calls).items()}


def none(name: str, size: int, layers: int | None, others: Sequence[str]) -> Iterator[Row]:
    """Yield what a call takes of a backend that computes nothing, in turns with other sides."""
    made = _case(name, size, layers)
    with torch.no_grad():
        fast = torch.compile(made.model, backend=_nothing)
        calls = {"torch alone ms": partial(fast, *made.args, **made.named)}
        calls["torch alone ms"]()
        calls |= {side: call for side, call, _ in peers(made, others) if not isinstance(call, str)}
        yield {"torch alone ms": _shortest(calls)["torch alone ms"] * 1e3}


def _nothing(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend of AOTAutograd, as polyfuse is one, whose graphs return the same tensors in each call."""

    def compiled(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        metas = [node.meta["val"] for node in output.args[0]]
        made = tuple(torch.zeros([int(size) for size in meta.shape], dtype=meta.dtype) for meta in metas)
        boxed: Callable[[list[Any]], Any] = make_boxed_func(lambda *args: made)
        return boxed

    keep_whole(module)
    traced: Callable[..., Any] = aot_autograd(fw_compiler=compiled, inference_compiler=compiled)(
        module, inputs
    )
    return traced


def _case(name: str, size: int, layers: int | None) -> Case:
    torch._dynamo.config.allow_rnn = True
    return case(name, size, layers)


def _compiled(made: Case, freeze: Freeze) -> tuple[Record, Callable[[], Any], tuple[torch.Tensor, ...]]:
    """A record of a model's graphs, a call, and the results of the first one."""
    record = Record()
    options: dict[str, Any] = {"freeze": freeze} if freeze else {}
    if freeze == "unchecked":
        options["guard_filter_fn"] = torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
    fast = torch.compile(made.model, backend=partial(backend, record=record), options=options)
    call = partial(fast, *made.args, **made.named)
    return record, call, _tensors(call())


def _exported(made: Case) -> Callable[[], Any]:
    """A call of a model's nest by itself, its weights constants, with arrays: as onnxruntime is called."""
    executable = pf.compile(pf.from_torch(made.model, made.args, example_kwargs=made.named))
    call = partial(executable, *(tensor.numpy() for tensor in (*made.args, *made.named.values())))
    call()
    return call


def _cold(made: Case, freeze: Freeze, flops: dict[tuple[int, str], int], every: int) -> Iterator[Row]:
    model, args, named = made.model, made.args, made.named
    plain = _tensors(model(*args, **named))
    before = _memory()
    started, since = _processor_time(), time.perf_counter()
    record, _, ours = _compiled(made, freeze)
    yield {"compile CPU s": _processor_time() - started, "compile s": time.perf_counter() - since}
    failed = {
        (number, region.name): reason
        for number, graph in enumerate(record.graphs)
        for region in graph.regions
        for reason in region.failed.values()
    }
    regions = [region for graph in record.graphs for region in graph.regions]
    inside = sum(count for region, count in flops.items() if region not in failed)
    yield {
        "regions": len(regions),
        "in eager": list(failed.values()),
        "share": inside / every if every else None,
        "kernels": sum(len(one.kernels) for region in regions for one in region.compiled),
        "MiB before": before,
        "peak MiB": _memory(),
    }
    double = {key: _double(value) for key, value in named.items()}
    exact = _tensors(model.double()(*map(_double, args), **double))
    yield {"error": _error(ours, exact), "error of torch": _error(plain, exact)}


def _memory() -> float:
    """The most memory that this process had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _tensors(found: Any) -> tuple[torch.Tensor, ...]:
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def _error(found: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> float:
    """The largest difference over the largest element, of the result where it is largest."""
    pairs = zip(found, exact, strict=True)
    return max(float((one.double() - right).abs().max() / right.abs().max()) for one, right in pairs)


def _processor_time() -> float:
    """Seconds of the processor, those of processes that have ended too."""
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def _shortest(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The shortest of several calls of each in turns, in seconds: of the processor where one thread runs them.

    Each turn has an order of its own: a call finds in the caches what the one before it left there.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    since = time.perf_counter()
    for turn in range(MOST_TURNS):
        if turn >= TURNS and time.perf_counter() - since > SECONDS:
            break
        for name in order.sample(sorted(calls), len(calls)):
            started = clock()
            calls[name]()
            found[name].append(clock() - started)
    return {name: min(every) for name, every in found.items()}
