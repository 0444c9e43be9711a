"""ONNX's interface of backends: values, types, what is compiled once, and errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyfuse.errors import BadArgument

onnx = pytest.importorskip("onnx")
helper = onnx.helper


def reshaped():
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "shape"], ["r"]),
            helper.make_node("Relu", ["r"], ["y"]),
            helper.make_node("Greater", ["r", "zero"], ["positive"]),
            helper.make_node("Shape", ["y"], ["s"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", 1, ("N", 6)), helper.make_tensor_value_info("shape", 7, (2,))],
        [
            helper.make_tensor_value_info("y", 1, None),
            helper.make_tensor_value_info("positive", 9, None),
            helper.make_tensor_value_info("s", 7, None),
        ],
        [onnx.numpy_helper.from_array(np.zeros((), "float32"), "zero")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_model_runs_and_is_compiled_once_for_its_sizes_and_shapes() -> None:
    from polyfuse.onnx import backend

    x = np.random.default_rng(0).standard_normal((2, 6)).astype("float32")
    rep = backend.prepare(reshaped())
    for inputs in ([x, np.array([3, 4])], {"shape": np.array([4, 3]), "x": x}, [x, np.array([3, -1])]):
        y, positive, shape = rep.run(inputs)
        wanted = np.maximum(x, 0).reshape(inputs["shape"] if isinstance(inputs, dict) else inputs[1])
        assert_array_equal(y, wanted)
        assert_array_equal(positive, wanted > 0)
        assert_array_equal(shape, wanted.shape)
        assert (positive.dtype, shape.dtype) == (bool, np.int64)
    kept = len(rep.kept)
    rep.run([x, np.array([3, 4])])
    assert len(rep.kept) == kept == 3


def test_one_node() -> None:
    from polyfuse.onnx import backend

    node = helper.make_node("Gemm", ["a", "b", ""], ["y"], transB=1)
    a, b = np.ones((2, 3), "float32"), np.arange(12, dtype="float32").reshape(4, 3)
    (found,) = backend.run_node(node, [a, b, None])
    assert_allclose(found, a @ b.T)


def test_what_is_not_supported() -> None:
    from polyfuse.onnx import backend

    node = helper.make_node("Unique", ["x"], ["y"])
    with pytest.raises(backend.NotSupported, match=r"node 1 = Unique of opset"):
        backend.run_node(node, [np.ones(3, "float32")])
    with pytest.raises(BadArgument, match="device 'CUDA:0'"):
        backend.prepare(reshaped(), "CUDA:0")
    with pytest.raises(BadArgument, match="the model's inputs are x, shape; given x"):
        backend.prepare(reshaped()).run([np.ones((2, 6), "float32")])
    assert not backend.supports_device("CUDA")
    assert backend.Backend.is_compatible(reshaped())  # its shape is an input, which the first run knows
