"""The workloads as ONNX models: run by onnxruntime, imported by TVM. Weights are initializers, the rest are inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.peers.workloads import ALPHA, BETA, EPSILON, NORM_GROUPS

Arrays = dict[str, Any]
OPSET = 17


class Graph:
    """Nodes in order; of every node the first result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def __call__(self, operation: str, *inputs: str, **options: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [name], **options))
        return name

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number{len(self.constants)}", np.float32(value))


def mlp(to: Graph, a: Arrays) -> list[str]:
    h = "x"
    for n in range(sum(name.startswith("w") for name in a)):
        h = to("Relu", to("Gemm", h, f"w{n}", f"b{n}"))
    return [h]


def ensemble(to: Graph, a: Arrays) -> list[str]:
    h = "x"
    for n in range(sum(name.startswith("w") for name in a)):
        h = to("Relu", to("Add", to("MatMul", h, f"w{n}"), f"b{n}"))
    return [h]


def conv(to: Graph, a: Arrays) -> list[str]:
    return [to("Relu", to("Conv", "x", "weight", "bias", pads=[1, 1, 1, 1]))]


def grouped(to: Graph, a: Arrays) -> list[str]:
    groups = a["x"].shape[1] // a["weight"].shape[1]
    return [to("Relu", to("Conv", "x", "weight", "bias", pads=[1, 1, 1, 1], group=groups))]


def first_layers(to: Graph, a: Arrays) -> list[str]:
    sums = to("Relu", to("Conv", "x", "weight", "bias", pads=[3, 3, 3, 3], strides=[2, 2]))
    return [to("MaxPool", sums, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])]


def separable(to: Graph, a: Arrays) -> list[str]:
    inside = to("Relu", to("Conv", "x", "deep", pads=[1, 1, 1, 1], group=len(a["deep"])))
    return [to("Relu", to("Conv", inside, "wide"))]


def normed(to: Graph, a: Arrays) -> list[str]:
    """ONNX 17 has no norm of groups: that of an instance, of groups as channels, and its scales behind it."""
    n, c, h, w = a["x"].shape
    apart = to("Reshape", "x", to.constant("apart", np.array([n, NORM_GROUPS, -1])))
    one = to.constant("ones", np.ones(NORM_GROUPS, np.float32))
    zero = to.constant("zeros", np.zeros(NORM_GROUPS, np.float32))
    norm = to("InstanceNormalization", apart, one, zero, epsilon=EPSILON)
    norm = to("Reshape", norm, to.constant("whole", np.array([n, c, h, w])))
    scale, shift = (to.constant(f"{name}_column", a[name][:, None, None]) for name in ("gamma", "beta"))
    norm = to("Add", to("Mul", norm, scale), shift)
    silu = to("Mul", norm, to("Sigmoid", norm))
    return [to("Add", "x", to("Conv", silu, "weight", "bias", pads=[1, 1, 1, 1]))]


def upsampled(to: Graph, a: Arrays) -> list[str]:
    scales = to.constant("scales", np.array([1, 1, 2, 2], np.float32))
    twice = to(
        "Resize",
        "x",
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return [to("Relu", to("Conv", twice, "weight", "bias", pads=[1, 1, 1, 1]))]


def bias_gradient(to: Graph, a: Arrays) -> list[str]:
    return [to("ReduceSum", "gradient", to.constant("axes", np.array([0, 2, 3])), keepdims=0)]


def lstm(to: Graph, a: Arrays) -> list[str]:
    """ONNX has gates i o f c, weights [1, 4 width, width], two biases, results [steps, 1, batch, width]."""
    h, width = "x", a["x"].shape[2]
    order = np.concatenate([np.arange(width) + g * width for g in (0, 3, 1, 2)])
    squeezed = to.constant("one", np.array([1]))
    for n in range(sum(name.startswith("wx") for name in a)):
        weights = [
            to.constant(f"{w}{n}", np.ascontiguousarray(a[f"{w}{n}"].T[None, order])) for w in ("wx", "wh")
        ]
        bias = a[f"b{n}"][order]
        biases = to.constant(f"b{n}", np.concatenate([bias, 0 * bias])[None])
        every = to("LSTM", h, *weights, biases, hidden_size=width)
        h = to("Squeeze", every, squeezed)
    return [h]


def softmax(to: Graph, a: Arrays) -> list[str]:
    return [to("Softmax", "x", axis=1)]


def layer_norm(to: Graph, a: Arrays) -> list[str]:
    return [to("LayerNormalization", "x", "gamma", "beta", axis=-1, epsilon=EPSILON)]


def chain(to: Graph, a: Arrays) -> list[str]:
    t = to("Add", to("Mul", "x", to.number(1.1)), to.number(0.3))
    t = to("Mul", to("Relu", t), "x")
    t = to("Reciprocal", to("Sqrt", to("Add", to("Abs", t), to.number(1.0))))
    return [to("ReduceSum", to("Sub", to("Exp", t), to.number(0.5)), keepdims=0)]


def two_mm(to: Graph, a: Arrays) -> list[str]:
    return [to("Gemm", to("Gemm", "a", "b", alpha=ALPHA), "c", "d", beta=BETA)]


def three_mm(to: Graph, a: Arrays) -> list[str]:
    return [to("MatMul", to("MatMul", "a", "b"), to("MatMul", "c", "d"))]


def atax(to: Graph, a: Arrays) -> list[str]:
    return [to("MatMul", to("MatMul", "a", "x"), "a")]


GRAPHS: dict[str, Callable[[Graph, Arrays], list[str]]] = {
    f.__name__: f
    for f in (
        mlp, ensemble, conv, grouped, first_layers, separable, normed, upsampled, bias_gradient, lstm, softmax,
        layer_norm, chain, two_mm, three_mm, atax,
    )
}  # fmt: skip

NETWORKS = (
    "mlp", "ensemble", "conv", "grouped", "first_layers", "separable", "normed", "upsampled", "lstm", "layer_norm",
)  # fmt: skip
"""Kinds whose arrays but x are constants; of the others none are."""


def model(kind: str, arrays: Arrays) -> tuple[Any, dict[str, Any]]:
    """(the model, the arrays that each call gives)."""
    graph = Graph()
    outputs = GRAPHS[kind](graph, arrays)
    weights = {n: v for n, v in arrays.items() if n != "x"} if kind in NETWORKS else {}
    inputs = {n: v for n, v in arrays.items() if n not in weights}
    read = {name for node in graph.nodes for name in node.input}
    constants = {n: v for n, v in {**weights, **graph.constants}.items() if n in read}
    made = helper.make_graph(
        graph.nodes,
        kind,
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9), inputs
