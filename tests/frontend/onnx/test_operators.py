"""Each importer's value, by the oracle, against ONNX's reference implementation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

RNG = np.random.default_rng(3)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype("float32")


def ints(*shape: int, low: int = -9, high: int = 9) -> np.ndarray:
    return RNG.integers(low, high, shape)


class Known:
    """An operand that is an initialiser."""

    def __init__(self, value: object, dtype: str = "int64") -> None:
        self.array = np.array(value, dtype)


def model_of(operator: str, operands: list, results: int = 1, opset: int = 22, **attributes: object):
    """A model of one node: Known operands are initialisers, None is left out, arrays are inputs."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(operands)]
    outputs = [f"y{k}" for k in range(results)]
    node = onnx.helper.make_node(operator, names, outputs, name="it", **attributes)
    described, held = [], []
    for name, x in zip(names, operands, strict=True):
        if isinstance(x, Known):
            held.append(onnx.numpy_helper.from_array(x.array, name))
        elif x is not None:
            kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
            described.append(onnx.helper.make_tensor_value_info(name, kind, x.shape))
    graph = onnx.helper.make_graph(
        [node], "one", described, [onnx.ValueInfoProto(name=name) for name in outputs], held
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def check(operator: str, operands: list, results: int = 1, opset: int = 22, **attributes: object) -> None:
    model = model_of(operator, operands, results, opset, **attributes)
    arrays = {f"x{k}": x for k, x in enumerate(operands) if isinstance(x, np.ndarray)}
    want = reference.ReferenceEvaluator(model).run(None, arrays)
    nest = pf.from_onnx(model)
    found = pf.interpret(nest, arrays).values()
    for one, expected in zip(found, want, strict=True):
        assert (one.shape, one.dtype) == (np.shape(expected), np.asarray(expected).dtype)
        wide = np.asarray(expected, "float64")
        assert_allclose(one, wide, rtol=1e-5, atol=2e-6 * max(1.0, np.abs(wide).max(initial=0)))


UNARY = (
    *(
        "Abs",
        "Atan",
        "Asinh",
        "Ceil",
        "Cos",
        "Cosh",
        "Erf",
        "Exp",
        "Floor",
        "HardSwish",
        "IsNaN",
        "IsInf",
        "Mish",
        "Neg",
    ),
    *(
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Tan",
        "Tanh",
    ),
    *(
        "Celu",
        "Dropout",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "Identity",
        "LeakyRelu",
        "Selu",
        "Shrink",
        "ThresholdedRelu",
    ),
)


@pytest.mark.parametrize("operator", UNARY)
def test_functions_of_elements(operator: str) -> None:
    check(operator, [floats(3, 4) > 0 if operator == "Not" else floats(3, 4)])


@pytest.mark.parametrize("operator", ["Sqrt", "Log", "Acosh"])
def test_functions_of_positive_elements(operator: str) -> None:
    check(operator, [floats(3, 4, low=1.0)])


@pytest.mark.parametrize("operator", ["Acos", "Asin", "Atanh"])
def test_functions_of_small_elements(operator: str) -> None:
    check(operator, [floats(3, 4, low=-0.9, high=0.9)])


@pytest.mark.parametrize(
    "operator", ["Add", "Sub", "Mul", "Div", "Equal", "Less", "GreaterOrEqual", "Max", "Mod"]
)
def test_arithmetic_of_integers(operator: str) -> None:
    check(operator, [ints(3, 4), ints(4, low=1)])


@pytest.mark.parametrize(
    "operator",
    ["Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "PRelu", "Max", "Min", "Sum", "Mean"],
)
def test_arithmetic(operator: str) -> None:
    check(operator, [floats(2, 3, 4), floats(4)])


@pytest.mark.parametrize("operator", ["And", "Or", "Xor"])
def test_truth_values(operator: str) -> None:
    check(operator, [floats(3, 4) > 0, floats(4) > 0])


@pytest.mark.parametrize("operator", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(operator: str) -> None:
    check(operator, [ints(3, 4), ints(4)])


X, IMAGE = (2, 3, 4), (2, 4, 7, 6)

CASES = [
    ("Pow", [floats(3, low=0.1), floats(3)], {}),
    *(
        ("Div", [ints(7, low=lo).astype(t), ints(7, low=1).astype(t)], {})
        for t, lo in (("i1", -9), ("u2", 0))
    ),
    ("QuantizeLinear", [floats(3, 4, high=9.0), Known(0.03, "float32"), Known(7, "int8")], {}),
    (
        "QuantizeLinear",
        [floats(2, 6), Known([[0.1], [0.2]], "float32")],
        {"block_size": 6, "output_dtype": 4},
    ),
    (
        "DequantizeLinear",
        [ints(2, 3).astype("int16"), floats(3, low=0.1), ints(3).astype("int16")],
        {"axis": 1},
    ),
    (
        "MatMulInteger",
        [ints(2, 3, low=0).astype("u1"), ints(3, 4).astype("i1"), Known(3, "u1"), Known([1, 2, 3, 4], "i1")],
        {},
    ),
    (
        "ConvInteger",
        [ints(1, 2, 5, 5, low=0).astype("u1"), Known(ints(3, 2, 3, 3), "i1"), Known(4, "u1")],
        {"pads": [1] * 4},
    ),
    (
        "QLinearConv",
        [
            *(ints(1, 2, 5, 5, low=0).astype("u1"), Known(0.1, "float32"), Known(4, "u1")),
            *(Known(ints(3, 2, 3, 3), "i1"), Known([0.1, 0.2, 0.3], "float32"), Known([0, 1, 2], "i1")),
            *(Known(0.05, "float32"), Known(100, "u1"), Known([5, -5, 0], "int32")),
        ],
        {},
    ),
    ("BitCast", [ints(5).astype("int8")], {"to": 2, "opset": 26}),
    ("ReduceMax", [np.zeros((2, 0), "int8"), Known([1])], {}),
    ("SpaceToDepth", [floats(1, 2, 4, 6)], {"blocksize": 2, "mode": "CRD", "opset": 28}),
    ("Pow", [floats(3), Known(2.0, "float32")], {}),
    ("Mod", [floats(7), floats(7, low=0.5)], {"fmod": 1}),
    ("Mod", [ints(7), ints(7, low=1)], {"fmod": 1}),
    ("Div", [ints(7), ints(7, high=-1)], {}),
    ("BitwiseNot", [ints(5)], {}),
    ("Clip", [floats(5), Known(-1.0, "float32"), Known(0.5, "float32")], {}),
    ("Clip", [floats(5), None, floats()], {}),
    ("Clip", [ints(5), Known(-3), Known(3)], {}),
    ("Where", [floats(3, 1) > 0, floats(3, 4), floats(4)], {}),
    ("Where", [floats(3, 1) > 0, ints(3, 4), Known(7)], {}),
    ("IsInf", [np.array([1, np.inf, -np.inf, np.nan], "float32")], {"detect_positive": 0}),
    ("Gelu", [floats(5)], {"approximate": "tanh"}),
    ("Swish", [floats(5)], {"alpha": 0.5, "opset": 24}),
    ("Cast", [floats(5)], {"to": 7}),
    ("Cast", [ints(5)], {"to": 1}),
    ("Cast", [ints(5)], {"to": 9}),
    ("CastLike", [floats(5), ints(2)], {}),
    ("ReduceSum", [floats(*X), Known([0, 2])], {"keepdims": 0}),
    ("ReduceSum", [ints(*X)], {}),
    ("ReduceSum", [floats(*X), Known([])], {"noop_with_empty_axes": 1}),
    ("ReduceMean", [floats(*X)], {"axes": [1], "opset": 13}),
    ("ReduceMax", [ints(*X), Known([-1])], {}),
    ("ReduceMin", [floats(*X), Known([-1])], {}),
    ("ReduceProd", [floats(*X), Known([1])], {}),
    ("ReduceL1", [floats(*X), Known([1])], {}),
    ("ReduceL2", [floats(*X), Known([1])], {}),
    ("ReduceLogSum", [floats(*X, low=0.1), Known([1])], {}),
    ("ReduceLogSumExp", [floats(*X), Known([1])], {}),
    ("ReduceSumSquare", [floats(*X), Known([1])], {}),
    ("ArgMax", [floats(*X)], {"axis": 1}),
    ("ArgMin", [floats(*X)], {"axis": 2, "keepdims": 0}),
    ("ArgMax", [ints(3, 6, high=-7)], {"axis": 1, "select_last_index": 1}),
    ("Hardmax", [floats(*X)], {"axis": 1}),
    ("Softmax", [floats(*X)], {"axis": 1}),
    ("LogSoftmax", [floats(*X)], {}),
    ("LpNormalization", [floats(*X)], {"axis": 1}),
    ("CumSum", [floats(*X), Known(1)], {}),
    ("CumSum", [ints(*X), Known(-1)], {"reverse": 1, "exclusive": 1}),
    ("MatMul", [floats(2, 3, 4), floats(4, 5)], {}),
    ("MatMul", [floats(4), floats(2, 4, 5)], {}),
    ("MatMul", [floats(4), floats(4)], {}),
    ("Gemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1}),
    ("Gemm", [floats(4, 3), floats(4, 5), floats(3, 1)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    ("Einsum", [floats(2, 3, 4), floats(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    ("Einsum", [floats(2, 3, 3)], {"equation": "...ii->...i"}),
    ("Einsum", [floats(3), floats(3)], {"equation": "i,i"}),
    ("Shape", [floats(*X)], {"start": 1}),
    ("Reshape", [floats(*X), Known([0, -1])], {}),
    ("Flatten", [floats(*X)], {"axis": -1}),
    ("Squeeze", [floats(2, 1, 3, 1), Known([1])], {}),
    ("Squeeze", [floats(2, 1, 3, 1)], {}),
    ("Unsqueeze", [floats(2, 3), Known([-1, 0])], {}),
    ("Transpose", [floats(*X)], {}),
    ("Transpose", [ints(*X)], {"perm": [1, 0, 2]}),
    ("Expand", [floats(3, 1), Known([2, 1, 4])], {}),
    ("Tile", [floats(2, 3), Known([2, 3])], {}),
    ("Concat", [floats(2, 3), Known([[1, 2, 3]], "float32")], {"axis": 0}),
    ("Split", [floats(7, 2)], {"num_outputs": 3, "results": 3}),
    ("Split", [floats(6, 2), Known([1, 5])], {"results": 2}),
    ("Slice", [floats(9, 8), Known([7, -3]), Known([-100, 100]), Known([0, 1]), Known([-2, 1])], {}),
    ("Slice", [ints(9), Known([1]), Known([2**62])], {}),
    ("Pad", [floats(3, 4), Known([1, 2, 0, 1]), Known(1.5, "float32")], {}),
    ("Pad", [floats(3, 4), Known([1, 2, 2, 3])], {"mode": "reflect"}),
    ("Pad", [floats(3, 4), Known([1, 2, 4, 3])], {"mode": "edge"}),
    ("Pad", [floats(3, 4), Known([1, 2, 2, 4])], {"mode": "wrap"}),
    ("Pad", [ints(3), Known([1, 1]), Known(-4), Known([0])], {}),
    ("Gather", [floats(4, 5), Known([[0, 2], [3, -1]])], {"axis": 1}),
    ("Gather", [floats(4, 5), ints(3, low=0, high=4)], {}),
    ("Gather", [floats(4, 5), ints(2, 3, low=-5, high=5)], {"axis": 1}),
    ("GatherElements", [floats(3, 4), ints(2, 4, low=-3, high=3)], {"axis": 0}),
    ("GatherElements", [floats(3, 4), Known([[1, 0], [2, 3], [1, 1]])], {"axis": 1}),
    ("ScatterElements", [floats(3, 4), Known([[1, 0, 2, 1]]), floats(1, 4)], {"axis": 0}),
    ("ScatterElements", [floats(3, 4), ints(2, 4, low=0, high=3), floats(2, 4)], {"reduction": "mul"}),
    ("DepthToSpace", [floats(2, 8, 2, 3)], {"blocksize": 2}),
    ("DepthToSpace", [floats(2, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [floats(2, 2, 4, 6)], {"blocksize": 2}),
    ("Trilu", [floats(3, 4), Known(1)], {}),
    ("Trilu", [ints(3, 4), Known(-1)], {"upper": 0}),
    ("ReverseSequence", [floats(4, 3), Known([1, 4, 2])], {}),
    ("CenterCropPad", [floats(6, 3), Known([3, 7])], {}),
    ("OneHot", [ints(3, low=-4, high=4), Known(4), Known([0.5, 2.0], "float32")], {"axis": 0}),
    ("EyeLike", [floats(3, 4)], {"k": 1}),
    ("ConstantOfShape", [Known([2, 3])], {}),
    ("Conv", [floats(*IMAGE), floats(5, 4, 3, 2), floats(5)], {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", [floats(2, 4, 9), floats(4, 1, 3)], {"group": 4, "dilations": [2]}),
    ("Conv", [floats(*IMAGE), floats(5, 4, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    (
        "ConvTranspose",
        [floats(1, 4, 3, 3), floats(4, 2, 3, 3)],
        {"strides": [3, 2], "output_padding": [1, 1]},
    ),
    ("ConvTranspose", [floats(1, 4, 3, 3), floats(4, 2, 3, 3)], {"strides": [2, 2], "output_shape": [7, 8]}),
    ("MaxPool", [floats(*IMAGE)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", [floats(*IMAGE)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("LpPool", [floats(*IMAGE)], {"kernel_shape": [3, 2], "p": 3}),
    ("GlobalAveragePool", [floats(*IMAGE)], {}),
    ("GlobalMaxPool", [floats(*IMAGE)], {}),
    ("Resize", [floats(1, 2, 3, 4), None, Known([1, 1, 2, 1.5], "float32")], {"mode": "linear"}),
    ("Resize", [floats(1, 2, 3, 4), None, None, Known([1, 2, 7, 3])], {"mode": "nearest"}),
    (
        "Resize",
        [floats(1, 2, 4, 4), None, Known([1, 1, 0.8, 2], "float32")],
        {"mode": "cubic", "exclude_outside": 1},
    ),
    (
        "Resize",
        [floats(1, 2, 6, 6), None, Known([1, 1, 0.5, 0.6], "float32")],
        {"mode": "linear", "antialias": 1},
    ),
    ("BatchNormalization", [floats(*IMAGE), *(floats(4, low=0.1) for _ in range(4))], {}),
    ("InstanceNormalization", [floats(*IMAGE), floats(4), floats(4)], {}),
    ("GroupNormalization", [floats(*IMAGE), floats(4), floats(4)], {"num_groups": 2}),
    ("LayerNormalization", [floats(*X), floats(4), floats(4)], {}),
    ("LayerNormalization", [floats(*X), floats(3, 4), None], {"axis": 1, "results": 3}),
    ("RMSNormalization", [floats(*X), floats(4)], {"opset": 23}),
    ("MeanVarianceNormalization", [floats(*IMAGE)], {}),
    (
        "LRN",
        [floats(4, 4, 3, 3)],
        {"size": 3},
    ),  # the reference computes as many channels as there are examples
    (
        "LSTM",
        [floats(5, 2, 3), floats(2, 16, 3), floats(2, 16, 4), floats(2, 32)],
        {"hidden_size": 4, "direction": "bidirectional", "results": 3},
    ),
    (
        "GRU",
        [floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4), floats(1, 24)],
        {"hidden_size": 4, "linear_before_reset": 1, "results": 2},
    ),
    ("RNN", [floats(5, 2, 3), floats(1, 4, 3), floats(1, 4, 4)], {"hidden_size": 4, "results": 2}),
    ("SoftmaxCrossEntropyLoss", [floats(3, 5), ints(3, low=0, high=5)], {}),
    ("NegativeLogLikelihoodLoss", [floats(3, 5), ints(3, low=0, high=5)], {"reduction": "sum"}),
    (
        "Attention",
        [floats(2, 3, 4, 8), floats(2, 3, 6, 8), floats(2, 3, 6, 8)],
        {"opset": 23, "is_causal": 1},
    ),
]


@pytest.mark.parametrize(("operator", "operands", "attributes"), CASES)
def test_operators(operator: str, operands: list, attributes: dict) -> None:
    check(operator, operands, **attributes)
