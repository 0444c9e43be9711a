"""Whole models as nests: names, symbolic sizes, known inputs, branches, functions, compiled values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf
from polyfuse.errors import BadArgument

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
helper = onnx.helper
FLOAT, INT = 1, 7


def made(nodes: list, inputs: dict, held: dict | None = None, opset: int = 20, **named: object):
    """A model with the output y; inputs are (type, shape), or a shape of floats."""
    described = [
        helper.make_tensor_value_info(name, *(of if of and of[0] is INT else (FLOAT, of)))
        for name, of in inputs.items()
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    graph = helper.make_graph(nodes, "net", described, [onnx.ValueInfoProto(name="y")], tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **named)


def node(operator: str, inputs: str, outputs: str = "y", **attributes: object):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def reference(model, **arrays: np.ndarray) -> np.ndarray:
    return evaluator(model).run(None, arrays)[0]


RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def encoder():
    """A block as exporters write it: heads split by Shape, Gather, Concat and Reshape, a mask from constants."""
    held = {
        "layers.0.weight": draw(8, 24),
        "layers.0.bias": draw(24),
        "gamma": np.ones(8, "float32"),
        "beta": np.zeros(8, "float32"),
        "heads": np.array([2, 4]),
        "zero": np.array(0),
        "one": np.array([1]),
        "mask": np.triu(np.full((5, 5), -np.inf, "float32"), 1),
        "scale": np.array(0.5, "float32"),
    }
    nodes = [
        node("LayerNormalization", "x gamma beta", "n"),
        node("MatMul", "n layers.0.weight", "p"),
        node("Add", "p layers.0.bias", "qkv"),
        node("Split", "qkv", "q k v", axis=-1, num_outputs=3),
        node("Shape", "x", "shape"),
        node("Slice", "shape first last", "rows"),
        node("Concat", "rows heads", "apart", axis=0),
        *(node("Reshape", f"{name} apart", f"{name}h") for name in "qkv"),
        node("Transpose", "qh", "qt", perm=[0, 2, 1, 3]),
        node("Transpose", "kh", "kt", perm=[0, 2, 3, 1]),
        node("Transpose", "vh", "vt", perm=[0, 2, 1, 3]),
        node("MatMul", "qt kt", "scores"),
        node("Mul", "scores scale", "scaled"),
        node("Add", "scaled mask", "masked"),
        node("Softmax", "masked", "weights"),
        node("MatMul", "weights vt", "heads_out"),
        node("Transpose", "heads_out", "turned", perm=[0, 2, 1, 3]),
        node("Reshape", "turned shape", "joined"),
        node("Add", "joined x", "y"),
    ]
    held |= {"first": np.array([0]), "last": np.array([2])}
    return made(nodes, {"x": ("batch", 5, 8)}, held)


def test_an_encoder_block_compiled() -> None:
    model = encoder()
    x = draw(3, 5, 8)
    nest = pf.from_onnx(model, sizes={"batch": 3})
    assert {"layers_0_weight", "layers_0_bias", "gamma", "beta"} <= set(nest.constants)
    net = pf.compile(nest)
    assert_allclose(net(x), reference(model, x=x), rtol=1e-4, atol=1e-5)


def test_a_convolutional_net_compiled_with_other_weights() -> None:
    held = {
        "w": draw(4, 3, 3, 3),
        "b": draw(4),
        "s": np.ones(4, "float32"),
        "m": draw(4),
        "v": np.ones(4, "float32"),
    }
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s m m v", "n"),
        node("Clip", "n low high", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "g"),
        node("Flatten", "g", "y"),
    ]
    held |= {"low": np.array(0, "float32"), "high": np.array(6, "float32")}
    model = made(nodes, {"x": (2, 3, 8, 8)}, held)
    x, other = draw(2, 3, 8, 8), draw(4, 3, 3, 3)
    net = pf.compile(pf.from_onnx(model))
    assert_allclose(net(x), reference(model, x=x), rtol=1e-4, atol=1e-5)
    net.replace_constants({"w": other})
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(other, "w"))
    assert_allclose(net(x), reference(model, x=x), rtol=1e-4, atol=1e-5)


def test_a_branch_by_a_known_condition_reads_names_outside_of_it() -> None:
    then = helper.make_graph([node("Add", "a w", "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph(
        [node("Loop", "  a", "e", body=then)], "else", [], [onnx.ValueInfoProto(name="e")]
    )
    nodes = [
        node("Relu", "x", "a"),
        node("Size", "a", "n"),
        node("Greater", "n w0", "c"),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    model = made(nodes, {"x": (3,)}, {"w": draw(3), "w0": np.array(2)})
    x = draw(3)
    found = pf.interpret(pf.from_onnx(model), {"x": x})["out"]
    assert_allclose(found, np.maximum(x, 0) + onnx.numpy_helper.to_array(model.graph.initializer[0]))


def test_functions_of_the_model_are_written_out() -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["c"]),
    ]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    function = helper.make_function(
        "own", "Leaky", ["a"], ["c"], body, [helper.make_opsetid("", 20)], attributes=["slope"]
    )
    model = made(
        [helper.make_node("Leaky", ["x"], ["y"], domain="own", slope=0.5)], {"x": (4,)}, functions=[function]
    )
    x = draw(4)
    found = pf.interpret(pf.from_onnx(model), {"x": x})["out"]
    assert_allclose(found, np.where(x < 0, x / 2, x) ** 2, rtol=1e-6)


def test_inputs_that_decide_about_shapes_are_given_as_constants() -> None:
    model = made([node("Reshape", "x shape")], {"x": (2, 6), "shape": (INT, (2,))})
    with pytest.raises(BadArgument, match="depend on the inputs shape: give these as constants"):
        pf.from_onnx(model)
    nest = pf.from_onnx(model, constants={"shape": np.array([3, 4])})
    assert [tensor.name for tensor in nest.inputs] == ["x"]
    assert nest.tensors[-1].shape == (3, 4)


def test_sizes_of_inputs_without_names() -> None:
    model = made([node("Add", "x w")], {"x": (None, 3), "w": ("N", 3)})
    nest = pf.from_onnx(model, sizes={"x": (4, 3), "N": 4})
    assert [tensor.shape for tensor in nest.inputs] == [(4, 3), (4, 3)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": {"M": 3, "N": 4}}, "sizes names 'M', which is no symbolic size of the model"),
        ({"sizes": {"x": (4, 5)}}, r"gives input 'x' \(4, 5\); the model has \[None, 3\]"),
        (
            {"sizes": {"N": 4}, "constants": {"q": np.ones(2)}},
            "constants names 'q'; the model's inputs are x",
        ),
    ],
)
def test_options_that_do_not_fit(given: dict, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        pf.from_onnx(made([node("Relu", "x")], {"x": ("N", 3)}), **given)


def test_an_initialiser_that_is_also_an_input_is_a_constant() -> None:
    model = made([node("Add", "x w")], {"x": (3,), "w": (3,)}, {"w": draw(3)})
    assert [tensor.name for tensor in pf.from_onnx(model).inputs] == ["x"]


def test_numbers_are_computed_from_weights_where_an_operator_asks_for_them() -> None:
    nodes = [node("Mul", "s s", "ss"), helper.make_node("Resize", ["x", "", "ss"], ["y"], mode="nearest")]
    model = made(nodes, {"x": (1, 1, 2, 3)}, {"s": np.array([1, 1, 1.5, 1.5], "float32")})
    assert pf.from_onnx(model).tensors[-1].shape == (1, 1, 4, 6)


def test_names_that_are_no_identifiers() -> None:
    model = made([node("Add", "/in/x:0 lambda")], {"/in/x:0": (3,)}, {"lambda": draw(3)})
    nest = pf.from_onnx(model, name="renamed")
    assert nest.name == "renamed"
    assert [tensor.name for tensor in nest.inputs] == ["_in_x_0"]
    assert list(nest.constants) == ["lambda_"]


# -- symbolic sizes ----------------------------------------------------------------------------------------------------


def test_one_compile_serves_every_batch() -> None:
    model = encoder()
    nest = pf.from_onnx(model)
    assert str(nest.inputs[0]) == "input x: float32[batch, 5, 8]"
    net = pf.compile(nest)
    for batch in (1, 3):
        x = draw(batch, 5, 8)
        assert_allclose(net(x), reference(model, x=x), rtol=1e-4, atol=1e-5)


HELD = {
    "zero": np.array(0),
    "first": np.array([0]),
    "axis": np.array([0]),
    "two": np.array([2]),
    "one": np.array([1]),
}
HELD |= {"end": np.array([2**63 - 1]), "w": draw(4, 6), "rest": np.array([-1])}


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("Flatten", "x", "y")], ("N", "4 * M")),
        ([node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n axis", "a"),
          node("Concat", "a rest", "t", axis=0), node("Reshape", "x t")], ("N", "4 * M")),
        ([node("Shape", "x", "s", start=0, end=1), node("Mul", "s two", "d"), node("Div", "d two", "h"),
          node("Concat", "h one one", "t", axis=0), node("Expand", "x t")], ("N", "M", "4")),
        ([node("Slice", "x one end axis")], ("N - 1", "M", "4")),
        ([node("Shape", "x", "s"), node("Slice", "s first one", "n"),
          node("Slice", "x first n axis")], ("N", "M", "4")),
        ([node("Shape", "x", "s"), node("ConstantOfShape", "s", "o"), node("Add", "x o")], ("N", "M", "4")),
        ([node("Shape", "x", "s"), node("Cast", "s", "c", to=7), node("Squeeze", "c", "q"),
          node("Identity", "q", "i"), node("Add", "i zero", "p"), node("Sub", "p zero", "m"),
          node("Reshape", "m rest", "t"), node("Relu", "x", "r"), node("Reshape", "r t")], ("N", "M", "4")),
        ([node("MatMul", "x w")], ("N", "M", "6")),
    ],
    ids=["flatten", "reshape", "expand", "slice", "slice to a size", "constant", "arranged", "product"],
)  # fmt: skip
def test_chains_on_symbolic_sizes(nodes: list, shape: tuple) -> None:
    model = made(nodes, {"x": ("N", "M", 4)}, HELD)
    nest = pf.from_onnx(model)
    assert f"[{', '.join(shape)}]" in str(nest.tensors[-1])
    x = draw(3, 2, 4)
    assert_allclose(pf.interpret(nest, {"x": x})["out"], reference(model, x=x), rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Shape", "x", "s"), node("Mul", "s s", "d"), node("Reshape", "x d")], "computes with N, M, 4"),
        ([node("Flatten", "x", axis=2)], "makes one axis of several symbolic ones"),
        ([node("Shape", "x", "s"), node("Tile", "x s")], "its repeats are N, M, 4 and have to be numbers"),
        ([node("Shape", "x")], "y = output: is symbolic sizes: give them"),
    ],
    ids=["product", "flatten", "tile", "output"],
)
def test_what_needs_numbers_asks_for_sizes(nodes: list, why: str) -> None:
    model = made(nodes, {"x": ("N", "M", 4)})
    with pytest.raises(BadArgument, match=why):
        pf.from_onnx(model)


def test_a_name_that_no_size_can_have_needs_a_number() -> None:
    model = made([node("Relu", "x")], {"x": ("batch size", None)})
    with pytest.raises(
        BadArgument, match=r"axis 0 of input 'x' has the name 'batch size'.*axis 1 .* has no name"
    ):
        pf.from_onnx(model)
    assert pf.from_onnx(model, sizes={"x": (2, 3)}).inputs[0].shape == (2, 3)


def test_an_input_that_is_called_as_a_size_is_renamed() -> None:
    nest = pf.from_onnx(made([node("Relu", "N")], {"N": ("N", 3)}))
    assert str(nest.inputs[0]) == "input N_: float32[N, 3]"
