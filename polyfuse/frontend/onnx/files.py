"""Read a model: from a file, from bytes, or as it is; its external data inside the model's folder alone."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.inliner
import onnx.numpy_helper
from google.protobuf.message import DecodeError

from polyfuse.errors import BadArgument
from polyfuse.frontend.onnx.damage import damage

Array = np.ndarray[Any, Any]

OLDEST = 13
"""The oldest opset that is read: from it on axes of Squeeze and of sums are operands."""

NODES = 100_000
"""A model of more nodes, its functions written out, is not read."""


@dataclass(frozen=True)
class Model:
    """A model without local functions, its opset, and where its external data lies."""

    proto: onnx.ModelProto
    opset: int
    folder: Path | None

    def array(self, tensor: onnx.TensorProto) -> Array:
        """Return the elements of an initialiser or an attribute.

        Args:
            tensor: The tensor.

        Returns:
            An array; one of external data lies in the memory of the file, and cannot be written.

        Raises:
            BadArgument: if the data is damaged, or lies outside of the model's folder.
        """
        return external(tensor, self.folder) if _is_external(tensor) else inner(tensor)


def read(model: Any) -> Model:
    """Return a model from a path, bytes or a ModelProto, with its local functions written out.

    Args:
        model: The path, the bytes or the model.

    Returns:
        The model.

    Raises:
        BadArgument: if it is damaged, empty, of an opset that is not read, or its functions call each other.
    """
    folder = None
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        try:
            if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for
                raise BadArgument(f"from_onnx: {path} is no regular file: copy the model into one")
            proto = parsed(path.read_bytes(), str(model))
        except OSError as error:
            raise BadArgument(f"from_onnx: {path} cannot be read: {error.strerror}") from error
        folder = path.resolve().parent
    elif isinstance(model, bytes | bytearray | memoryview):
        proto = parsed(bytes(model), "the bytes")
    elif isinstance(model, onnx.ModelProto):
        proto = model
    else:
        raise BadArgument(
            f"from_onnx: {type(model).__name__} is no model; expected a path, the bytes of a file or a ModelProto"
        )
    _check_texts(proto)
    opset = _opset(proto)
    if proto.functions:
        _check_functions(proto)
        proto = onnx.inliner.inline_local_functions(proto)
    return Model(proto, opset, folder)


def parsed(data: bytes, called: str) -> onnx.ModelProto:
    """Read a file's bytes; BadArgument where they are no whole model."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        where = damage(data, onnx.ModelProto.DESCRIPTOR) or f"{len(data)} bytes do not decode"
        raise BadArgument(f"from_onnx: {called} is not an ONNX model, or a part of one: {where}") from error
    if not (proto.ir_version and proto.HasField("graph") and proto.graph.output):
        raise BadArgument(
            f"from_onnx: {called} is not an ONNX model, or a part of one: {len(data)} bytes without a graph that has "
            "outputs"
        )
    return proto


def _opset(proto: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; BadArgument for a version that is not read."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    opset = versions.get("", versions.get("ai.onnx"))
    newest = onnx.defs.onnx_opset_version()
    if opset is None:
        raise BadArgument(
            f"from_onnx: the model imports no opset of ONNX; expected one from {OLDEST} to {newest}"
        )
    if opset < OLDEST:
        raise BadArgument(
            f"from_onnx: opset {opset}; {OLDEST} to {newest} are read. "
            f"onnx.version_converter.convert_version(model, {OLDEST}) converts"
        )
    if opset > newest or proto.ir_version > onnx.IR_VERSION:
        raise BadArgument(
            f"from_onnx: opset {opset} of IR version {proto.ir_version}; onnx {onnx.__version__}, which is installed, "
            f"knows opsets up to {newest} and IR versions up to {onnx.IR_VERSION}: install a newer one"
        )
    return int(opset)


def _check_texts(proto: onnx.ModelProto) -> None:
    """BadArgument for a name that is no text: protobuf gives bytes where a file has others than UTF-8."""
    graphs = [proto.graph]
    nodes = [*every_node(proto.graph.node)]
    for function in proto.functions:
        nodes += every_node(function.node)
        _check_text(
            f"function {function.name!r}", function.name, function.domain, *function.input, *function.output
        )
    for node in nodes:
        graphs += [graph for a in node.attribute for graph in (a.g, *a.graphs)]
        own = (node.name, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
        _check_text(f"node {node.name!r} of {node.op_type!r}", node.op_type, *own)
    for graph in graphs:
        named = (
            *graph.initializer,
            *graph.input,
            *graph.output,
            *(one.values for one in graph.sparse_initializer),
        )
        _check_text(f"graph {graph.name!r}", graph.name, *(one.name for one in named))
        for one in (*graph.input, *graph.output):
            _check_text(f"a size of {one.name!r}", *(dim.dim_param for dim in one.type.tensor_type.shape.dim))
    for entry in proto.opset_import:
        _check_text("an opset", entry.domain)


def _check_text(place: str, *texts: object) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise BadArgument(
                f"from_onnx: {place}: the name {text!r} is no text in UTF-8; the file may be damaged"
            )


def _check_functions(proto: onnx.ModelProto) -> None:
    """BadArgument for functions that call each other in a circle, or are too large when written out."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    counts: dict[tuple[str, str, str], int] = {}

    def count(nodes: Any, path: tuple[tuple[str, str, str], ...]) -> int:
        found = 0
        for node in every_node(nodes):
            called = (node.domain, node.op_type, node.overload)
            if called in path:
                names = " -> ".join(name for _, name, _ in (*path[path.index(called) :], called))
                raise BadArgument(f"from_onnx: the model's functions call each other in a circle: {names}")
            if called in functions and called not in counts:
                counts[called] = count(functions[called].node, (*path, called))
            found += counts.get(called, 1)
        return found

    total = count(proto.graph.node, ())
    if total > NODES:
        raise BadArgument(
            f"from_onnx: {total} nodes when the model's functions are written out; at most {NODES} are read"
        )


def every_node(nodes: Any) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from every_node(graph.node)


def repeated(names: Any) -> list[str]:
    """The names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1 and name]


# -- tensors -----------------------------------------------------------------------------------------------------------


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def inner(tensor: onnx.TensorProto) -> Array:
    """The elements of a tensor that the model itself holds."""
    if min(tensor.dims, default=0) < 0:
        raise BadArgument(f"from_onnx: tensor {tensor.name!r} has the shape {tuple(tensor.dims)}")
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise BadArgument(
            f"from_onnx: tensor {tensor.name!r} of shape {tuple(tensor.dims)} is damaged: {error}"
        ) from error
    return array


def external(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """The elements of a tensor that lie in a file beside the model, in the memory of the file."""
    entries: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location, called = entries.get("location", ""), f"tensor {tensor.name!r}"
    if folder is None:
        raise BadArgument(
            f"from_onnx: {called} lies in the file {location!r} beside the model: pass the model's path"
        )
    path = _inside(location, folder, called)
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (ValueError, KeyError, TypeError) as error:
        raise BadArgument(f"from_onnx: {called} in {location!r}: {error}") from error
    bytes_ = prod(tensor.dims) * dtype.itemsize
    offset, length = (
        _entry(entries, name, usual, called) for name, usual in (("offset", 0), ("length", bytes_))
    )
    size = path.stat().st_size
    if min((offset, length, *tensor.dims)) < 0 or length != bytes_ or offset + length > size:
        raise BadArgument(
            f"from_onnx: {called} of shape {tuple(tensor.dims)} needs {bytes_} bytes; the model says {length} from "
            f"{offset} on in {location!r}, which has {size}"
        )
    if not bytes_:
        return np.zeros(tuple(tensor.dims), dtype)
    mapped = np.memmap(path, np.uint8, "r", offset, (bytes_,))
    array: Array = np.asarray(mapped).view(dtype).reshape(tuple(tensor.dims))
    return array


def _entry(entries: Mapping[str, str], name: str, usual: int, called: str) -> int:
    """A number of bytes that a model says about a tensor's elements in a file."""
    try:
        return int(entries.get(name, usual))
    except ValueError as error:
        raise BadArgument(
            f"from_onnx: {called}: its {name} in the external data is {entries[name]!r}, expected a number of bytes"
        ) from error


def _inside(location: str, folder: Path, called: str) -> Path:
    """The regular file at a place that the model names; BadArgument where it is not inside the model's folder."""
    place = PurePosixPath(location)
    parts = (*place.parts, *PureWindowsPath(location).parts)
    if (
        not location
        or "\0" in location
        or place.is_absolute()
        or PureWindowsPath(location).drive
        or ".." in parts
    ):
        raise BadArgument(
            f"from_onnx: {called} names the file {location!r}; external data is read inside of the model's folder alone"
        )
    try:
        path = (folder / place).resolve(strict=True)
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        raise BadArgument(f"from_onnx: {called}: {location!r} cannot be read: {error.strerror}") from error
    if not path.is_relative_to(folder) or not regular:
        raise BadArgument(
            f"from_onnx: {called} names {location!r}, which is no regular file inside of the model's folder; "
            "links out of it are not followed"
        )
    return path
