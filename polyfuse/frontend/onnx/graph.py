"""Walk a model's graph and make its values: every node that cannot be expressed is reported, not the first.

    operand ::= Value | array, which is known | Failed, of a node that was refused | None, left out

A node whose operands are arrays is computed. A node without an importer that ONNX defines by others is written out.
"""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper

from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.frontend.importers import Failed, Missing, Refusal, Unsupported, free_name
from polyfuse.frontend.onnx.files import Model, every_node, repeated
from polyfuse.frontend.onnx.folding import folded
from polyfuse.frontend.onnx.loops import written_out
from polyfuse.frontend.onnx.operators import ONNX, Node, Unknown
from polyfuse.frontend.onnx.operators.registry import is_symbolic
from polyfuse.frontend.onnx.scope import Scope
from polyfuse.frontend.onnx.symbolic import computed
from polyfuse.nn import constant
from polyfuse.nn.graph import FLOATS, Constant, Input, Value

Array = np.ndarray[Any, Any]


@dataclass
class Walk:
    """The state of an import: what was refused, and on which inputs operators need to know numbers."""

    model: Model
    opset: int
    refused: list[Refusal] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)
    places: dict[int, tuple[Scope, str]] = field(default_factory=dict)
    count: int = 0

    def nodes(self, nodes: Iterable[onnx.NodeProto], scope: Scope, place: str = "") -> None:
        """Make the values of nodes, in their order."""
        for node in nodes:
            self.count += 1
            label = node.name or f"node {self.count}"
            made = self._results(node, scope, label, place)
            for name, operand in zip(node.output, made, strict=False):
                if name:
                    self.define(scope, name, operand)
                    scope.makers[name] = node

    def define(self, scope: Scope, name: str, operand: Any) -> None:
        """Give an operand its name."""
        scope.operands[name] = operand
        if isinstance(operand, Value):
            self.places.setdefault(id(operand), (scope, name))

    def _results(self, node: onnx.NodeProto, scope: Scope, label: str, place: str) -> Sequence[Any]:
        try:
            return self._made(node, scope, label)
        except Unsupported as unsupported:
            reason = str(unsupported)
            if isinstance(unsupported, Unknown):
                self.unknown.update(dict.fromkeys(unsupported.inputs))
        except PolyfuseError as error:
            reason = str(error)
        domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
        self.refused.append(Refusal(label, f"{domain}{node.op_type} of opset {self.opset}", reason, place))
        return [Failed()] * len(node.output)

    def _made(self, node: onnx.NodeProto, scope: Scope, label: str) -> Sequence[Any]:
        operands = [_operand(scope, name) for name in node.input]
        if node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"an operator of the domain {node.domain!r}; those of ONNX itself are read")
        if node.op_type == "If":
            return self._branch(node, operands[0], scope, label)
        if node.op_type in ("Scan", "Loop"):
            if any(isinstance(operand, Failed) for operand in operands):
                return [Failed()] * len(node.output)
            return written_out(self, node, operands, scope, label)
        importer = ONNX.get(node.op_type)
        if importer is None and not (self._is_function(node) or node.op_type in KNOWN):
            raise Unsupported("there is no importer for this operator")
        if any(isinstance(operand, Failed) for operand in operands):
            return [Failed()] * len(node.output)
        if all(operand is None or isinstance(operand, np.ndarray) for operand in operands):
            sizes = any(map(is_symbolic, operands))
            found = computed(node, operands) if sizes else folded(node, self.opset, operands)
            if found is not None:
                return found
        if importer is None:
            if not self._is_function(node):
                raise Unsupported("it is computed where its operands are known; here they depend on inputs")
            return self._written_out(node, operands, label)
        return self._imported(importer, node, operands)

    def told(self, node: onnx.NodeProto) -> Node:
        """What an importer is told of its node."""
        return Node(node.op_type, self.opset, len(node.output), self.known)

    def _imported(
        self, importer: Callable[..., Any], node: onnx.NodeProto, operands: list[Any]
    ) -> Sequence[Any]:
        attributes = {a.name: self._attribute(a) for a in node.attribute}
        told = self.told(node)
        while operands and operands[-1] is None:
            operands = operands[:-1]
        try:
            inspect.signature(importer).bind(told, *operands, **attributes)
        except TypeError as error:
            raise Unsupported(f"its operands or attributes are not those of the operator: {error}") from error
        made = importer(told, *operands, **attributes)
        every = made if isinstance(made, tuple) else (made,)
        reasons = [one.reason if isinstance(one, Missing) else None for one in every]
        reasons += ["it is not computed"] * (len(node.output) - len(every))
        for place, (name, reason) in enumerate(zip(node.output, reasons, strict=False)):
            if name and reason is not None:
                raise Unsupported(f"result {place}: {reason}")
        return every

    def _attribute(self, attribute: onnx.AttributeProto) -> Any:
        """An attribute's value: texts as str, tensors as arrays, element types by their names."""
        if attribute.ref_attr_name:
            raise Unsupported(
                f"attribute {attribute.name} refers to {attribute.ref_attr_name!r} outside of a function"
            )
        if attribute.type == onnx.AttributeProto.TENSOR:
            return self.model.array(attribute.t)
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name in ("to", "dtype") and isinstance(value, int):
            return type_name(value)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [text.decode("utf-8", "replace") for text in value]
        return value

    # -- graphs inside of nodes ----------------------------------------------------------------------------------------

    def _branch(self, node: onnx.NodeProto, condition: Any, scope: Scope, label: str) -> Sequence[Any]:
        """The branch of an If whose condition is known."""
        if isinstance(condition, Failed):
            return [condition] * len(node.output)
        wanted = "then_branch" if self.told(node).numbers(condition, "condition").any() else "else_branch"
        graph = next((a.g for a in node.attribute if a.name == wanted), None)
        if graph is None or len(graph.output) != len(node.output):
            raise Unsupported(f"has no {wanted} with {len(node.output)} results")
        inner = scope.inner()
        self.initialisers(graph, inner, set())
        self.nodes(graph.node, inner, label)
        return [_operand(inner, one.name) for one in graph.output]

    def _is_function(self, node: onnx.NodeProto) -> bool:
        schema = schema_of(node.op_type, self.opset)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def _written_out(self, node: onnx.NodeProto, operands: Sequence[Any], label: str) -> Sequence[Any]:
        """An operator by the nodes that ONNX defines it by."""
        types = [_type_of(operand) for operand in operands]
        function = function_of(node, self.opset, types)
        versions = {entry.domain: entry.version for entry in function.opset_import}
        inner = Scope(ChainMap({}))
        for name, operand in zip(function.input, (*operands, *[None] * len(function.input)), strict=False):
            inner.operands[name] = operand
        attributes = {a.name: a for a in node.attribute}
        schema = schema_of(node.op_type, self.opset)
        defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        bound = [_bound(one, {**defaults, **attributes}) for one in function.node]
        before, refused = self.opset, len(self.refused)
        self.opset = versions.get("", self.opset)
        try:
            self.nodes(bound, inner, label)
        finally:
            self.opset = before
        if len(self.refused) > refused:
            return [Failed()] * len(node.output)
        wanted = zip(function.output, node.output, strict=False)
        return [_operand(inner, name) if called else None for name, called in wanted]

    def initialisers(self, graph: onnx.GraphProto, scope: Scope, taken: set[str]) -> None:
        """Define a graph's initialisers: those of floating point are constants with names, others are known arrays."""
        if graph.sparse_initializer:
            names = ", ".join(repr(one.values.name) for one in graph.sparse_initializer)
            self.refused.append(
                Refusal(names, "sparse initialiser", "sparse tensors are not read: store them dense")
            )
            for one in graph.sparse_initializer:
                scope.operands[one.values.name] = Failed()
        for tensor in graph.initializer:
            operand: Any
            try:
                array = self.model.array(tensor)
                known = array.dtype.name not in FLOATS
                operand = array if known else constant(array, free_name(tensor.name, taken))
                if known and array.dtype.kind not in "biu":
                    raise Unsupported(f"element type {type_name(tensor.data_type)}")
            except Unsupported as unsupported:
                self.refused.append(Refusal(tensor.name, "initialiser", str(unsupported)))
                operand = Failed()
            self.define(scope, tensor.name, operand)

    # -- numbers that are known ----------------------------------------------------------------------------------------

    def known(self, value: Value) -> Array | tuple[str, ...]:
        """A value's numbers where they depend on no input, else the names of these inputs."""
        if isinstance(value.source, Constant):
            return value.source.array
        if isinstance(value.source, Input):
            return (value.source.name,)
        scope, name = self.places.get(id(value), (None, ""))
        unknown = inputs_of(value)
        if unknown or scope is None:
            return unknown or ("?",)
        return self._computed(scope, name)

    def _computed(self, scope: Scope, name: str) -> Array:
        """Compute a value that depends on constants alone, its operands first."""
        done: dict[str, Array | None] = {"": None}
        stack = [name]
        while stack:
            top = stack[-1]
            operand = scope.operands.get(top)
            if top in done:
                stack.pop()
                continue
            if isinstance(operand, np.ndarray):
                done[top] = operand
                continue
            if isinstance(operand, Value) and isinstance(operand.source, Constant):
                done[top] = operand.source.array
                continue
            node = scope.makers.get(top)
            if node is None:
                raise Unsupported(f"reads {top!r}, whose numbers are not known")
            missing = [one for one in node.input if one not in done]
            if missing:
                stack.extend(missing)
                continue
            results = folded(node, self.opset, [done[one] for one in node.input])
            if results is None:
                raise Unsupported(f"reads {top!r}, whose numbers cannot be computed when the model is read")
            done.update(zip(node.output, results, strict=False))
        found = done[name]
        assert found is not None, "the name of a value is not empty"
        return found


KNOWN = frozenset({"Compress", "Det"} | {"GatherND", "NonZero", "ScatterND", "TopK", "Unique"})
"""Operators without an importer that are computed where their operands are known."""


def _operand(scope: Scope, name: str) -> Any:
    """The operand of a name; BadArgument for one that no earlier node makes."""
    if not name:
        return None
    if name not in scope.operands:
        raise BadArgument(
            f"reads {name!r}, which is no input, no initialiser and no result of an earlier node"
        )
    return scope.operands[name]


def inputs_of(value: Value) -> tuple[str, ...]:
    """Return the names of the inputs on which a value depends."""
    seen, stack, found = {id(value)}, [value], dict[str, None]()
    while stack:
        one = stack.pop()
        if isinstance(one.source, Input):
            found[one.source.name] = None
        for operand in one.operands:
            if id(operand) not in seen:
                seen.add(id(operand))
                stack.append(operand)
    return tuple(found)


def type_name(number: int) -> str:
    """The name of an element type: "float32" of ONNX's 1."""
    try:
        return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).name)
    except KeyError:
        return f"type {number}"


def schema_of(operator: str, opset: int) -> Any:
    """The definition of one of ONNX's operators in an opset; None if it has none."""
    try:
        return onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return None


def function_of(node: onnx.NodeProto, opset: int, types: Sequence[bytes]) -> onnx.FunctionProto:
    """The nodes by which ONNX defines an operator for operands of these types; Unsupported where there are none."""
    schema, function = schema_of(node.op_type, opset), onnx.FunctionProto()
    if schema.has_function:
        function.ParseFromString(schema.function_body.SerializeToString())
        return function
    text = schema.get_context_dependent_function(node.SerializeToString(), list(types))
    if not text:
        raise Unsupported("there is no importer for this operator, and ONNX has no nodes for it")
    function.ParseFromString(text)
    return function


def _type_of(operand: Any) -> bytes:
    """An operand's type and shape, as ONNX has it."""
    if operand is None:
        return b""
    name = operand.dtype if isinstance(operand, Value) else operand.dtype.name
    name = "int64" if is_symbolic(operand) else name
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name))
    made: bytes = onnx.helper.make_tensor_type_proto(number, operand.shape).SerializeToString()
    return made


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function with the caller's attributes in place of references to them."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    for inside in every_node([made]):
        kept = []
        for attribute in inside.attribute:
            if not attribute.ref_attr_name:
                kept.append(attribute)
            elif attribute.ref_attr_name in attributes:
                one = onnx.AttributeProto()
                one.CopyFrom(attributes[attribute.ref_attr_name])
                one.name = attribute.name
                kept.append(one)
        del inside.attribute[:]
        inside.attribute.extend(kept)
    return made


def check_order(graph: onnx.GraphProto) -> None:
    """BadArgument for nodes in a circle, or in an order in which one reads what a later one makes."""
    again = repeated(
        [*(one.name for one in graph.input), *(name for node in graph.node for name in node.output)]
    )
    if again:
        raise BadArgument(f"from_onnx: {again[0]!r} is made twice in the graph {graph.name!r}")
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    waiting = {
        index: {makers[name] for one in every_node([node]) for name in one.input if name in makers} - {index}
        | {index for name in node.input if makers.get(name) == index}
        for index, node in enumerate(graph.node)
    }
    late = [index for index, before in waiting.items() if any(one >= index for one in before)]
    if not late:
        return
    reached = circle(waiting)
    if reached:
        names = " -> ".join(graph.node[index].name or graph.node[index].op_type for index in reached)
        raise BadArgument(
            f"from_onnx: nodes of the graph {graph.name!r} read each other in a circle: {names}"
        )
    node = graph.node[late[0]]
    raise BadArgument(
        f"from_onnx: node {node.name or node.op_type!r} of the graph {graph.name!r} reads what a later node makes; "
        "the nodes have to be in order"
    )


def circle(before: Mapping[int, set[int]]) -> list[int]:
    """Return some numbers that wait for each other in a circle, or none.

    >>> circle({0: {1}, 1: {2}, 2: {1}})
    [1, 2, 1]

    Args:
        before: For each number those that it waits for.

    Returns:
        The circle, its first number also at its end.
    """
    left = {index: set(each) for index, each in before.items()}
    while free := [index for index, each in left.items() if not each & left.keys()]:
        for index in free:
            del left[index]
    if not left:
        return []
    path = [next(iter(left))]
    while True:
        following = next(iter(left[path[-1]] & left.keys()))
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
