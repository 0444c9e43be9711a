"""The GPU by torch: arrays on it, its clock, and the peers. Imported only where there is a GPU.

TF32 is off everywhere. A peer's graph is captured by torch for each set of arrays, so that it copies nothing into
buffers of its own: the strongest form for arrays that stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import torch

from benchmarks.gpu.clock import Call
from benchmarks.gpu.kinds import GRADIENTS, PASSED
from benchmarks.sides import by_torch

SETS = 16
"""At most so many sets of arrays, also where they still fit into L2 together."""

ROUNDS = 3
"""Warm-up calls of what torch captures."""

Tensors = Mapping[str, Any]
Compute = Callable[[Tensors], Any]


def prepare() -> None:
    """No TF32, no gradients; cuDNN tries its algorithms and keeps the fastest."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)


def facts() -> dict[str, Any]:
    """The L2 cache, the memory, and versions."""
    about = torch.cuda.get_device_properties(0)
    return {"l2_bytes": about.L2_cache_size, "memory_bytes": about.total_memory, "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # fmt: skip


def seconds_of(work: Callable[[], object]) -> float:
    """The clock: two events on the current stream."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3


def put(arrays: Tensors) -> dict[str, Any]:
    """On the GPU."""
    return {name: _of_numpy(array).cuda() for name, array in arrays.items()}


def _of_numpy(array: Any) -> Any:
    """bfloat16, which torch does not take from NumPy, by its bits."""
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("uint16")).view(torch.bfloat16)


def sets_of(arrays: Tensors, changing: Sequence[str]) -> list[dict[str, Any]]:
    """The changing arrays, so often that together they are three times L2, but at least twice."""
    one = {name: arrays[name] for name in changing}
    size = sum(tensor.nbytes for tensor in one.values())
    count = min(SETS, max(2, ceil(3 * torch.cuda.get_device_properties(0).L2_cache_size / max(size, 1))))
    return [one, *({name: tensor.clone() for name, tensor in one.items()} for _ in range(count - 1))]


def poisoned(results: Sequence[Any]) -> tuple[Any, ...]:
    """Outputs of NaN, for tensors."""
    return tuple(
        torch.full(tuple(map(int, t.shape)), float("nan"), dtype=getattr(torch, t.dtype), device="cuda")
        for t in results
    )


def error(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference relative to the largest element; infinite for NaN."""
    worst = 0.0
    for mine, right in zip(found, expected, strict=True):
        off = torch.nan_to_num((mine.double().reshape(right.shape) - right).abs(), nan=float("inf")).max()
        worst = max(worst, float(off / right.abs().max()))
    return worst


def compute_of(kind: str, arrays: Tensors, changing: Sequence[str]) -> Compute:
    """What torch computes, a function of the arrays that change; the others are fixed."""
    fixed = {name: tensor for name, tensor in arrays.items() if name not in changing}
    if kind == "lstm":
        module = _lstm(arrays)
        return lambda given: (module(given["x"])[0],)
    if kind in GRADIENTS:
        return gradients_of(NETWORKS[GRADIENTS[kind]], [name for name in arrays if name not in PASSED])
    if kind in NETWORKS:
        return lambda given: (NETWORKS[kind](given["x"], fixed),)
    function = EXPRESSIONS[kind]
    names = by_torch.ordered(function, {name: name for name in arrays})
    return lambda given: function(*(given[name] for name in names))


def gradients_of(network: Callable[..., Any], names: Sequence[str]) -> Compute:
    """The forward pass and the gradients by weights of these names."""

    def compute(given: Tensors) -> Any:
        with torch.enable_grad():
            weights = {name: given[name].detach().requires_grad_() for name in names}
            out = network(given["x"], weights)
        return torch.autograd.grad(out, list(weights.values()), given["out_bar"])

    return compute


def _lstm(arrays: Tensors) -> Any:
    layers, width = sum(name.startswith("wx") for name in arrays), arrays["x"].shape[2]
    module = torch.nn.LSTM(width, width, layers).to(arrays["x"]).eval()
    for n in range(layers):
        for name, value in (
            (f"weight_ih_l{n}", arrays[f"wx{n}"].T), (f"weight_hh_l{n}", arrays[f"wh{n}"].T),
            (f"bias_ih_l{n}", arrays[f"b{n}"]), (f"bias_hh_l{n}", 0 * arrays[f"b{n}"]),
        ):  # fmt: skip
            getattr(module, name).copy_(value)
    module.flatten_parameters()
    return module


def gemm(x: Any, w: Any) -> Any:
    return (x @ w,)


def gemm_tf32(x: Any, w: Any) -> Any:
    """cuBLAS rounds float32 factors to tf32; others stay as they are."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return (x @ w,)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def gemm_bf16(x: Any, w: Any) -> Any:
    """float32 factors rounded to bf16 for cuBLAS, which sums in float32 and rounds the results; others as they are."""
    if x.dtype != torch.float32:
        return (x @ w,)
    return ((x.bfloat16() @ w.bfloat16()).float(),)


def gemm_halves(x: Any, w: Any) -> Any:
    return (x @ w,)


def normalised(x: Any) -> Any:
    return (x / x.sum(),)


def turned(x: Any) -> Any:
    return (x.T.contiguous(),)


def pointwise(x: Any) -> Any:
    return (torch.relu(x * 1.1 + 0.3) * x / (1 + x.abs()),)


def epilogue(x: Any, p: Tensors) -> Any:
    """Layers with bias and ReLU in cublasLt's own epilogue."""
    for n in range(sum(name.startswith("w") for name in p)):
        x = torch._addmm_activation(p[f"b{n}"], x, p[f"w{n}"])
    return x


def fused_convolution(x: Any, p: Tensors) -> Any:
    """Bias and ReLU in cuDNN's own convolution."""
    return torch.cudnn_convolution_relu(x, p["weight"], p["bias"], (1, 1), (1, 1), (1, 1), 1)


NETWORKS: Mapping[str, Callable[..., Any]] = {
    f.__name__: f for f in (by_torch.mlp, by_torch.ensemble, by_torch.conv, by_torch.layer_norm)
}
EXPRESSIONS: Mapping[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        gemm,
        gemm_tf32,
        gemm_bf16,
        gemm_halves,
        normalised,
        turned,
        pointwise,
        by_torch.softmax,
        by_torch.chain,
    )
}


def peers(kind: str, arrays: Tensors, changing: Sequence[str]) -> dict[str, Callable[[], Compute]]:
    """The sides that are not ours; each is made when it is asked for, which may take long or fail."""
    compute = compute_of(kind, arrays, changing)

    def compiled() -> Compute:
        torch._dynamo.reset()
        made: Compute = torch.compile(compute, mode="max-autotune-no-cudagraphs", dynamic=False)
        return made

    found = {"torch eager": lambda: compute, "torch eager, graph": lambda: compute}
    fixed = {name: tensor for name, tensor in arrays.items() if name not in changing}
    if kind == "mlp":
        found["cublasLt epilogue, graph"] = lambda: lambda given: (epilogue(given["x"], fixed),)
    if kind == "conv":
        found["cuDNN fused, graph"] = lambda: lambda given: (fused_convolution(given["x"], fixed),)
    return {**found, "torch max-autotune, graph": compiled}


def calls_of(label: str, compute: Compute, sets: Sequence[Tensors]) -> tuple[list[Call], Any]:
    """(a call on each set of arrays, the results of the first)."""
    if not label.endswith(", graph"):
        return [lambda given=given: compute(given) for given in sets], compute(sets[0])
    graphs, results = [], []
    for given in sets:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(ROUNDS):
                compute(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(compute(given))
        graphs.append(graph)
    graphs[0].replay()
    return [graph.replay for graph in graphs], results[0]


def copies(sets: Sequence[Tensors], moved: int) -> list[Call]:
    """A copy that reads and writes so many bytes together, between buffers as many as there are sets."""
    buffers = [
        torch.zeros((2, moved // 2), dtype=torch.uint8, device="cuda")
        for _ in range(max(2, min(len(sets), 4)))
    ]
    pairs = [(both[0], both[1]) for both in buffers]
    return [lambda to=to, source=source: to.copy_(source) for to, source in pairs]


def release() -> None:
    """What a subject used is free for the next."""
    torch._dynamo.reset()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
