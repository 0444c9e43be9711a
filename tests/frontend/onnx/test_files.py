"""Damaged models, external data and functions: what is read, and what is refused with which words."""

import os
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument

onnx = pytest.importorskip("onnx")
helper = onnx.helper

FLOAT = 1


def graph(nodes: list, held: list = (), inputs: dict | None = None, outputs: dict | None = None):
    described = [
        helper.make_tensor_value_info(name, FLOAT, shape)
        for name, shape in ({"x": (2, 3)} if inputs is None else inputs).items()
    ]
    made = [
        helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (outputs or {"y": None}).items()
    ]
    return helper.make_graph(nodes, "net", described, made, list(held))


def model(nodes: list, held: list = (), opset: int = 20, functions: list = (), **of_graph: object):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(
        graph(nodes, held, **of_graph), opset_imports=imports, functions=list(functions), ir_version=10
    )


def relu(source: str = "x", target: str = "y", **named: str):
    return helper.make_node("Relu", [source], [target], **named)


ADD = helper.make_node("Add", ["x", "w"], ["y"])
W = np.arange(6, dtype="float32").reshape(2, 3)


def outside(folder: Path, **entries: object) -> Path:
    """A model whose weight w lies in another file."""
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=W.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(model([ADD], [tensor]).SerializeToString())
    return path


def test_a_path_bytes_and_a_model_give_the_same_nest(tmp_path: Path) -> None:
    proto = model([ADD], [onnx.numpy_helper.from_array(W, "w")])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    nests = [pf.from_onnx(given) for given in (path, str(path), path.read_bytes(), proto)]
    assert len({str(nest) for nest in nests}) == 1
    found = pf.interpret(nests[0], {"x": np.ones((2, 3), "float32")})
    np.testing.assert_array_equal(found["out"], W + 1)


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"12345678" + W.tobytes())
    nest = pf.from_onnx(outside(tmp_path, offset=8, length=24))
    assert isinstance(nest.constants["w"].base, np.ndarray)
    net = pf.compile(nest)
    np.testing.assert_array_equal(net(np.ones((2, 3), "float32")), W + 1)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../w.bin"}, "inside of the model's folder alone"),
        ({"location": "sub/../../w.bin"}, "inside of the model's folder alone"),
        ({"location": "/etc/passwd"}, "inside of the model's folder alone"),
        ({"location": "C:\\w.bin"}, "inside of the model's folder alone"),
        ({"location": ""}, "inside of the model's folder alone"),
        ({"location": "link.bin"}, "links out of it are not followed"),
        ({"location": "folder/w.bin"}, "links out of it are not followed"),
        ({"location": "sub"}, "no regular file"),
        ({"location": "none.bin"}, "cannot be read"),
        ({"length": 20}, "needs 24 bytes; the model says 20"),
        ({"offset": 8}, "which has 24"),
        ({"offset": -8}, "from -8 on"),
        ({"offset": "many"}, "its offset in the external data is 'many', expected a number of bytes"),
    ],
)
def test_external_data_elsewhere_is_refused(tmp_path: Path, entries: dict, message: str) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "w.bin").write_bytes(W.tobytes())
    os.symlink(tmp_path / "w.bin", folder / "link.bin")
    os.symlink(tmp_path, folder / "folder")
    with pytest.raises(BadArgument, match=message):
        pf.from_onnx(outside(folder, **entries))


def test_a_pipe_in_place_of_a_model_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(BadArgument, match=r"m\.onnx is no regular file: copy the model into one"):
        pf.from_onnx(tmp_path / "m.onnx")


def test_external_data_needs_the_models_path(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="pass the model's path"):
        pf.from_onnx(outside(tmp_path).read_bytes())


def _truncated() -> bytes:
    whole = model([ADD], [onnx.numpy_helper.from_array(W, "w")]).SerializeToString()
    return whole[: len(whole) // 2]


def _short() -> object:
    tensor = onnx.numpy_helper.from_array(W, "w")
    tensor.raw_data = tensor.raw_data[:-4]
    return model([ADD], [tensor])


def _sparse() -> object:
    made = model([ADD])
    values = helper.make_tensor("w", FLOAT, [1], [2.0])
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [1], [3]), [2, 3])
    )
    return made


def _calls_itself() -> object:
    body = [helper.make_node("B", ["x"], ["y"], domain="own")]
    other = [helper.make_node("A", ["x"], ["y"], domain="own")]
    functions = [
        helper.make_function("own", name, ["x"], ["y"], nodes, [helper.make_opsetid("own", 1)])
        for name, nodes in (("A", body), ("B", other))
    ]
    return model([helper.make_node("A", ["x"], ["y"], domain="own")], functions=functions)


def _grows() -> object:
    """Sixty functions, each of which calls the next twice."""
    functions = [
        helper.make_function(
            "own",
            f"F{k}",
            ["x"],
            ["y"],
            [
                helper.make_node(f"F{k + 1}", ["x"], ["z"], domain="own"),
                helper.make_node(f"F{k + 1}", ["z"], ["y"], domain="own"),
            ]
            if k < 59
            else [relu()],
            [helper.make_opsetid("own", 1), helper.make_opsetid("", 20)],
        )
        for k in range(60)
    ]
    return model([helper.make_node("F0", ["x"], ["y"], domain="own")], functions=functions)


def _if_of_an_input() -> object:
    branch = helper.make_graph([relu("x", "z")], "branch", [], [onnx.ValueInfoProto(name="z")])
    return model(
        [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["c"], to=9),
            helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="choice"),
        ]
    )


def _large() -> object:
    shape = onnx.numpy_helper.from_array(np.array([2**31, 2**31]), "s")
    return model(
        [helper.make_node("ConstantOfShape", ["s"], ["z"]), helper.make_node("NonZero", ["z"], ["y"])],
        [shape],
    )


def _scan(read: str, shape: tuple) -> object:
    """Running sums of rows, backwards, by nodes that read a value of the body or another."""
    made = [
        helper.make_node("Add", ["before", read], ["sum"]),
        helper.make_node("Identity", ["sum"], ["given"]),
    ]
    values = [helper.make_tensor_value_info(name, FLOAT, (3,)) for name in ("before", "row", "sum", "given")]
    body = helper.make_graph(made, "body", values[:2], values[2:])
    node = helper.make_node(
        "Scan",
        ["s", "x"],
        ["last", "y"],
        name="scan",
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[1],
    )
    return model([node], inputs={"s": (3,), "x": shape}, outputs={"last": None, "y": None})


def _loop(steps: int) -> object:
    """Doubles x until the step that is the third."""
    held = [
        onnx.numpy_helper.from_array(np.array(2), "two"),
        onnx.numpy_helper.from_array(np.array(steps), "steps"),
    ]
    made = [helper.make_node("Add", ["v", "v"], ["z"]), helper.make_node("Less", ["i", "two"], ["going"])]
    values = [
        helper.make_tensor_value_info(name, kind, ())
        for name, kind in (("i", 7), ("c", 9), ("v", FLOAT), ("going", 9), ("z", FLOAT))
    ]
    body = helper.make_graph(made, "body", values[:3], values[3:])
    return model([helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)], held)


def test_steps_are_written_out() -> None:
    x, s = np.arange(6, dtype="float32").reshape(2, 3), np.ones(3, "float32")
    last, y = pf.interpret(pf.from_onnx(_scan("row", (2, 3))), {"s": s, "x": x}).values()
    np.testing.assert_array_equal(y, [1 + x[1], 1 + x[1] + x[0]])
    np.testing.assert_array_equal(last, y[1])
    for steps, factor in ((2, 4), (9, 8)):
        (found,) = pf.interpret(pf.from_onnx(_loop(steps)), {"x": x}).values()
        np.testing.assert_array_equal(found, factor * x)


def _strange() -> object:
    return model(
        [
            helper.make_node("NonMaxSuppression", ["x", "x"], ["a"], name="first"),
            helper.make_node("Sigmoid", ["x"], ["b"]),
            helper.make_node("Unique", ["b"], ["c"], name="second"),
            helper.make_node("FusedThing", ["b"], ["y"], domain="com.microsoft", name="third"),
        ]
    )


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        (_truncated, ["a part of one: ModelProto.graph at byte 2 of", "bytes, and the file has"]),
        (
            lambda: model([relu(name="here")]).SerializeToString().replace(b"here", b"h\xffre"),
            ["node b'h\\xffre' of 'Relu': the name b'h\\xffre' is no text in UTF-8"],
        ),
        (lambda: b"", ["not an ONNX model, or a part of one"]),
        (lambda: b"no protobuf at all", ["not an ONNX model, or a part of one"]),
        (lambda: 7, ["int is no model"]),
        (lambda: "none.onnx", ["none.onnx cannot be read"]),
        (lambda: model([relu()], opset=12), ["opset 12; 13 to", "convert_version"]),
        (lambda: model([relu()], opset=999), ["opset 999", "install a newer one"]),
        (lambda: model([relu("b", "a", name="one"), relu("a", "b", name="two")]), ["in a circle: one -> two -> one"]),
        (lambda: model([relu("a", "y", name="late"), relu("x", "a")]), ["'late'", "reads what a later node makes"]),
        (lambda: model([relu("q", name="here")]), ["here = Relu of opset 20: reads 'q', which is no input"]),
        (lambda: model([relu(), relu()]), ["'y' is made twice"]),
        (lambda: model([relu("x", "a")]), ["no node makes the output 'y'"]),
        (lambda: model([ADD], inputs={"x": (2, 3), "w": (4,)}), ["Add of opset 20", "do not broadcast"]),
        (lambda: model([relu()], outputs={"y": (2, 4)}), ["y = output: its shape is (2, 3)", "declares (2, 4)"]),
        (
            lambda: model([ADD], [onnx.numpy_helper.from_array(W, "w")], inputs={"x": (2, 3), "w": (2, 4)}),
            ["w = initialiser: its shape is (2, 3), and the model declares (2, 4)"],
        ),
        (_short, ["tensor 'w' of shape (2, 3) is damaged"]),
        (_sparse, ["sparse initialiser: sparse tensors are not read"]),
        (_calls_itself, ["each other in a circle: A -> B -> A"]),
        (_grows, ["functions are written out; at most"]),
        (_if_of_an_input, ["choice = If of opset 20: its condition", "depend on the inputs x"]),
        (_large, ["NonZero of opset 20"]),
        (
            _strange,
            [
                "3 of net's nodes",
                "first = NonMaxSuppression of opset 20",
                "second = Unique of opset 20",
                "third = com.microsoft.FusedThing of opset 20: an operator of the domain 'com.microsoft'",
            ],
        ),
        (
            lambda: model([helper.make_node("Loop", ["", "", "x"], ["y"], body=graph([relu()]))]),
            ["Loop of opset 20: has neither a number of steps nor a condition"],
        ),
        (lambda: model([helper.make_node("Scan", ["x"], ["y"])]), ["Scan of opset 20: has no body"]),
        (lambda: _scan("row", (65, 3)), ["scan = Scan of opset 20: has 65 steps; 1 to 64 are written out"]),
        (lambda: _scan("row", ("N", 3)), ["its lengths are N; expected one number for all"]),
        (lambda: _scan("q", (2, 3)), ["Add of opset 20 (in scan)", "reads 'q', which is no input"]),
        (
            lambda: model([helper.make_node("Softmax", ["x"], ["y"], axes=[1])]),
            ["Softmax of opset 20: its operands or attributes are not those"],
        ),
        (lambda: model([relu()], inputs={"x": ("N!", 3)}), ["axis 0 of input 'x' has the name 'N!'", "sizes="]),
        (lambda: model([relu()], inputs={"x": (None, 3)}), ["axis 0 of input 'x' has no name"]),
        (lambda: model([relu()], inputs={"x": None}), ["input 'x' has no shape"]),
    ],
)  # fmt: skip
def test_bad_models(given: object, messages: list[str]) -> None:
    with pytest.raises(BadArgument) as error:
        pf.from_onnx(given())
    for message in messages:
        assert message in str(error.value)


def test_an_element_type_that_values_do_not_have_is_named() -> None:
    made = model([relu()])
    made.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.COMPLEX64
    with pytest.raises(BadArgument, match="x = input: element type complex64"):
        pf.from_onnx(made)


def test_damaged_bytes_are_refused_by_errors_of_our_own() -> None:
    """Files cut short, and with other bytes here and there; some still are models."""
    whole = model(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), relu("c", "y")],
        [onnx.numpy_helper.from_array(np.ones((1, 1, 3, 3), "float32"), "w")],
        inputs={"x": (1, 1, 4, 4)},
    ).SerializeToString()
    cases = [whole[:length] for length in range(1, len(whole), 5)]
    random = np.random.default_rng(0)
    for _ in range(100):
        changed = bytearray(whole)
        for place in random.integers(0, len(whole), random.integers(1, 4)):
            changed[place] = random.integers(256)
        cases.append(bytes(changed))
    refused = []
    for case in cases:
        try:
            pf.from_onnx(case)
        except pf.PolyfuseError as error:
            refused.append(str(error))
    assert len(refused) > len(cases) // 2
    assert not [message for message in refused if not message.startswith("from_onnx: ")]
