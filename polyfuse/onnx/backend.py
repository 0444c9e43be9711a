"""ONNX's interface of backends (`onnx.backend.base`), so that its tests and other programs run polyfuse.

    rep = polyfuse.onnx.backend.prepare(model)      reads the model
    outputs = rep.run([x, shape])                   compiles for these sizes, and for these numbers of `shape`

An input whose numbers decide about shapes, such as the second of Reshape, is a constant of what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.shape_inference
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from polyfuse.compiler import compile
from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.frontend.onnx.files import Model, read
from polyfuse.frontend.onnx.graph import type_name
from polyfuse.frontend.onnx.model import Imported, imported
from polyfuse.frontend.onnx.operators.registry import value_of
from polyfuse.ir import Nest
from polyfuse.nn.graph import Input, Value
from polyfuse.nn.lower import lower_values

Array = np.ndarray[Any, Any]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Runs a nest on arrays by the names of its inputs."""


class NotSupported(PolyfuseError):
    """A model that polyfuse cannot express; the message names the nodes."""


def compiled(nest: Nest) -> Run:
    """Return a function that runs a nest compiled for this CPU."""
    executable = compile(nest)

    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        found = executable(*(arrays[tensor.name] for tensor in nest.inputs))
        return found if isinstance(found, tuple) else (found,)

    return run


@dataclass(frozen=True)
class Specialised:
    """A model for certain sizes and constants: what runs it, and the outputs that are known without."""

    found: Imported
    run: Run | None

    def passed(self) -> Iterator[tuple[str, str, Value]]:
        """The inputs of a call: the nest's name, the model's name, the value."""
        for name, value in self.found.inputs.items():
            assert isinstance(value.source, Input), "the importer makes inputs of inputs"
            yield value.source.name, name, value


@dataclass
class Rep(BackendRep):
    """A model that was read; what is compiled is kept by sizes and known numbers."""

    model: Model
    make: Callable[[Nest], Run] = compiled
    kept: dict[Any, Specialised] = field(default_factory=dict)

    def run(self, inputs: Any, **_: Any) -> tuple[Array, ...]:
        """Run the model.

        Args:
            inputs: The arrays of the model's inputs, in their order or by their names.
            **_: Options of other backends, which are not used.

        Returns:
            The outputs, in the types that the model declares.

        Raises:
            BadArgument: if an array is missing, or its sizes do not fit the model.
            NotSupported: if the model has operators that polyfuse does not have.
        """
        arrays = self._named(inputs)
        made = self._specialised(arrays)
        results: Sequence[Array] = ()
        if made.run is not None:
            results = made.run({own: _passed(arrays[name], value) for own, name, value in made.passed()})
        left = iter(results)
        outputs = []
        for one in self.model.proto.graph.output:
            operand = made.found.outputs[one.name]
            array = np.asarray(next(left)) if isinstance(operand, Value) else operand
            outputs.append(array.astype(type_name(one.type.tensor_type.elem_type), copy=False))
        return tuple(outputs)

    def _named(self, inputs: Any) -> dict[str, Array]:
        held = {tensor.name for tensor in self.model.proto.graph.initializer}
        names = [one.name for one in self.model.proto.graph.input if one.name not in held]
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        if set(given) != set(names):
            raise BadArgument(
                f"the model's inputs are {', '.join(names)}; given {', '.join(given) or 'none'}"
            )
        return {name: np.asarray(given[name]) for name in names}

    def _specialised(self, arrays: Mapping[str, Array]) -> Specialised:
        known: dict[str, Array] = {}
        while True:
            key = (
                tuple((name, array.shape) for name, array in arrays.items()),
                tuple((name, array.tobytes()) for name, array in known.items()),
            )
            if key in self.kept:
                return self.kept[key]
            sizes = {name: array.shape for name, array in arrays.items() if name not in known}
            found = imported(self.model, sizes, known)
            wanted = {name: arrays[name] for name in found.unknown if name not in known}
            if not wanted:
                break
            known |= wanted
        if found.refused:
            raise NotSupported("\n".join(map(str, found.refused)))
        values = [value_of(one) for one in found.outputs.values() if isinstance(one, Value)]
        run = self.make(lower_values(values, "model", list(found.inputs.values()))) if values else None
        self.kept[key] = Specialised(found, run)
        return self.kept[key]


def _passed(array: Array, value: Value) -> Array:
    return np.asarray(array, value.dtype, order="C")


class Backend(OnnxBackend):
    """ONNX's interface: prepare, run_model, run_node, is_compatible, supports_device."""

    make: Callable[[Nest], Run] = staticmethod(compiled)
    """Makes what runs a nest; tests put the oracle in its place."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Rep:
        """Read a model; it is compiled when its sizes are known, at the first run with them.

        Args:
            model: The model.
            device: "CPU".
            **_: Options of other backends, which are not used.

        Returns:
            What runs the model.

        Raises:
            BadArgument: if the device is another, or the model cannot be read.
        """
        if not cls.supports_device(device):
            raise BadArgument(f"device {device!r}: models of ONNX run on 'CPU'")
        return Rep(read(model), cls.make)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Return whether all of a model's operators can be expressed, as far as its inputs' sizes are in the model.

        Args:
            model: The model.
            device: "CPU".
            **_: Options of other backends, which are not used.

        Returns:
            True if they can, or if sizes are missing; the first run says then.
        """
        if not cls.supports_device(device):
            return False
        try:
            found = imported(read(model), {}, {})
        except PolyfuseError:
            return False
        return not found.refused or bool(found.unknown)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any
    ) -> tuple[Array, ...]:
        """Read, compile and run a model.

        Args:
            model: The model.
            inputs: As for `Rep.run`.
            device: "CPU".
            **options: Options of other backends, which are not used.

        Returns:
            The outputs.
        """
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Array, ...]:
        """Run one operator.

        Args:
            node: The node.
            inputs: The arrays of its operands, in their order; None for one that is left out.
            device: "CPU".
            outputs_info: The element type and the shape of each output; found by ONNX's inference if it is None.
            **options: `opset_version`, and options of other backends, which are not used.

        Returns:
            The outputs.
        """
        version = options.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = {name: np.asarray(x) for name, x in zip(node.input, inputs, strict=True) if name}
        described = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in arrays.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", described, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model)
        else:
            for one, (dtype, shape) in zip(model.graph.output, outputs_info, strict=True):
                number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                one.CopyFrom(onnx.helper.make_tensor_value_info(one.name, number, shape))
        return cls.prepare(model, device, **options).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device is the CPU.

        Args:
            device: "CPU", or such as "CUDA:0".

        Returns:
            True for the CPU.
        """
        return bool(device.split(":")[0].upper() == "CPU")


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device
