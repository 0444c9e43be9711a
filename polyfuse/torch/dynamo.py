"""The backend: Dynamo's graphs through AOTAutograd, divided into regions of polyfuse and nodes of torch.

    Dynamo -> AOTAutograd (functional ATen, our decompositions) -> regions -> nests -> executables

A node that polyfuse does not compute is torch's, with the reason in the log "polyfuse.torch" and in `explain`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from polyfuse.errors import BadArgument
from polyfuse.frontend.torch.decompositions import decompositions
from polyfuse.torch.boxed import boxed
from polyfuse.torch.inductor import with_inductor
from polyfuse.torch.known import fold
from polyfuse.torch.options import Options
from polyfuse.torch.record import Graph, Record, Region
from polyfuse.torch.region import Compiled
from polyfuse.torch.regions import divided, is_size, refusals, shared
from polyfuse.torch.whole import keep_whole

LOG = logging.getLogger("polyfuse.torch")


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    record: Record | None = None,
) -> Callable[..., Any]:
    """Compile one of Dynamo's graphs; torch.compile(model, backend="polyfuse") calls this.

    Args:
        module: The graph.
        example_inputs: Its inputs; their values are not read.
        options: Arguments of `pf.compile` by name; fallback="eager", "inductor" or "error": what becomes of a node that
            polyfuse does not compute; freeze=True: parameters and buffers are constants in graphs without gradients,
            and "unchecked": that will not change;
            threads=2: how many threads a call uses at most.
        mode: torch.compile's mode; has to be None or "default".
        record: Is given what becomes of each graph.

    Returns:
        A function of the graph's inputs. Forward, backward and inference graphs are compiled alike.

    Raises:
        BadArgument: for an unknown option or mode.
        PolyfuseError: for a value of an option that `pf.compile` refuses.
    """
    wanted = Options.of(options)
    if mode not in (None, "default"):
        raise BadArgument(f'backend "polyfuse": mode is {mode!r}; it has options={{…}} instead')
    devices = {one.device.type for one in example_inputs if isinstance(one, torch.Tensor)}
    wanted.check("cuda" if "cuda" in devices else "cpu")
    kept = record if record is not None else Record()
    weights = weights_of(module) if wanted.freeze else ()
    keep_whole(module)
    compilers = {kind: _compiler(kind, wanted, kept, ()) for kind in ("forward", "backward")}
    trace = aot_autograd(
        fw_compiler=compilers["forward"],
        bw_compiler=compilers["backward"],
        inference_compiler=_compiler("inference", wanted, kept, weights),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    threads = torch.get_num_threads()
    try:
        compiled: Callable[..., Any] = trace(module, example_inputs)
    finally:  # numba sets OpenMP's number of threads, which torch reads; Dynamo refuses a graph that changes it
        torch.set_num_threads(threads)
    return compiled


def weights_of(module: torch.fx.GraphModule) -> tuple[bool, ...]:
    """Say for each placeholder of Dynamo's graph whether it is a parameter or a buffer of a module.

    Args:
        module: The graph.

    Returns:
        A truth value for each placeholder; none where the graph holds its parameters itself.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple("_parameters_" in node.name or "_buffers_" in node.name for node in placeholders)


def _compiler(kind: str, options: Options, record: Record, weights: tuple[bool, ...]) -> Callable[..., Any]:
    def compile_graph(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return boxed(compiled_graph(module, kind, options, record, weights))

    return compile_graph


def compiled_graph(
    module: torch.fx.GraphModule, kind: str, options: Options, record: Record, weights: tuple[bool, ...] = ()
) -> torch.fx.GraphModule:
    """Return a functional graph with each region compiled.

    Args:
        module: The graph, with meta values; it is changed.
        kind: "forward", "backward" or "inference".
        options: The user's options.
        record: Is given the graph's regions and the nodes that are left.
        weights: For each placeholder, whether a region may hold it as a constant; used if there are as many.

    Returns:
        The graph.

    Raises:
        BadArgument: if nodes are left and fallback is "error".
    """
    folded = fold(module)
    refused = refusals(module.graph)
    calls = [node for node in module.graph.nodes if node.op == "call_function" and not is_size(node)]
    left = [refusal for node, refusal in refused.items() if not is_size(node)]
    graph = Graph(kind, len(calls), left=left, known=folded)
    record.graphs.append(graph)
    for refusal in graph.left:
        LOG.info("%s: left to torch: %s", kind, refusal)
    if graph.left and options.fallback == "error":
        lines = "\n".join(f"  {refusal}" for refusal in graph.left)
        raise BadArgument(f"the {kind} graph has nodes that polyfuse does not compute:\n{lines}")
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    kept = {
        name
        for name, weight in (
            zip(placeholders, weights, strict=True) if len(weights) == len(placeholders) else ()
        )
        if weight
    }
    whole, names = divided(module, refused | shared(module.graph))
    for name in names:
        part = whole.get_submodule(name)
        assert isinstance(part, torch.fx.GraphModule)
        operators = tuple(str(node.target) for node in part.graph.nodes if node.op == "call_function")
        region = Region(name, operators)
        graph.regions.append(region)
        (call,) = (node for node in whole.graph.nodes if node.op == "call_module" and node.target == name)
        held = tuple(at for at, operand in enumerate(call.args) if operand.name in kept)
        setattr(whole, name, Compiled(part, options, region, held))
    return with_inductor(whole) if graph.left and options.fallback == "inductor" else whole
