"""Walk a graph of ATen nodes and make its values: every node that cannot be expressed is reported, not the first.

    graph ::= placeholder* node* output        as torch.fx prints it; only these attributes of a node are read

Nothing here imports torch.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from polyfuse.errors import PolyfuseError
from polyfuse.frontend.importers import Failed, Missing, Refusal, Unsupported, required
from polyfuse.frontend.torch.aten import ATEN, OF_KNOWN
from polyfuse.frontend.torch.aten.registry import (
    MASKS,
    NotAffine,
    ReadSize,
    Result,
    Truths,
    number_of,
    size_of,
    type_name,
)
from polyfuse.frontend.torch.merged import RESHAPES, Merged, on_rows, reshaped
from polyfuse.nn import cast
from polyfuse.nn.graph import Value, input


class Node(Protocol):
    """A node of a graph, as torch.fx has it."""

    name: str
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """A tensor that depends on no input and no weight, as the graph's own library has it.

    Attributes:
        tensor: The tensor.
        array: Its elements.
        value: The input that passes it, where each call does.
    """

    tensor: Any
    array: np.ndarray[Any, Any]
    value: Value | None = None


KNOWN = "polyfuse_known"
"""Under this key, a node's meta data has the integers or truth values that it stands for in each call."""

ASSERTIONS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")
"""Operators that check what an export has assumed: of a nest's inputs, each call checks shapes and types itself."""

Fold = Callable[[Node, tuple[Any, ...], Mapping[str, Any]], Known | None]
"""Computes a node whose operands are all known; None if it does not."""


@dataclass(frozen=True)
class Imported:
    """The values of a graph's outputs, and the nodes that were refused; the values are complete if none was."""

    outputs: tuple[Any, ...]
    refused: tuple[Refusal, ...]


def import_nodes(
    nodes: Iterable[Node], given: Mapping[str, Any], fold: Fold | None = None, sizes: ReadSize = size_of
) -> Imported:
    """Make the values of a graph's outputs.

    Args:
        nodes: The graph's nodes in their order.
        given: A value, a `Known` tensor or a number for each placeholder, by its name.
        fold: Computes nodes that depend on nothing that a call passes.
        sizes: Reads sizes.

    Returns:
        The outputs, and every node that cannot be expressed. A node that reads the result of another that was refused
        is judged with a stand-in for it.
    """
    done: dict[str, Any] = dict(given)
    refused: list[Refusal] = []
    outputs: tuple[Any, ...] = ()
    for node in nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            found = mapped(node.args[0], done)
            outputs = tuple(found) if isinstance(found, list) else (found,)
            continue
        try:
            args, kwargs = mapped(node.args, done), mapped(dict(node.kwargs), done)
            done[node.name] = value_of(node, args, kwargs, fold, sizes)
        except Unsupported as unsupported:
            refused.append(refusal(node, str(unsupported)))
            done[node.name] = stand_in(node, sizes)
    return Imported(outputs, tuple(refused))


def refusal_of(node: Node) -> Refusal | None:
    """Return why a node cannot be expressed whatever its operands are, or None; of symbolic sizes, in numbers.

    Args:
        node: The node; its operands' meta values stand in for them.

    Returns:
        The refusal; None if the node can be imported.
    """
    try:
        value_of(node, meant(node.args), meant(dict(node.kwargs)), None, number_of)
    except Unsupported as unsupported:
        return refusal(node, str(unsupported))
    return None


def missing_of(node: Node) -> dict[int, str]:
    """Return which of a node's several results are not computed, and why.

    Args:
        node: A node that can be imported.

    Returns:
        Reasons by the result's number.
    """
    made = value_of(node, meant(node.args), meant(dict(node.kwargs)), None, number_of)
    every = made if isinstance(made, tuple) else ()
    return {at: part.reason for at, part in enumerate(every) if isinstance(part, Missing)}


def value_of(node: Node, args: Any, kwargs: Any, fold: Fold | None, sizes: ReadSize) -> Any:
    """The value of one node on values; Unsupported if there is none."""
    if str(node.target) in ASSERTIONS:
        return Failed()
    meta = node.meta.get("val")
    if meta is not None and not hasattr(meta, "shape") and not isinstance(meta, list | tuple):
        return number_in(meta, sizes)
    if node.op != "call_function":
        raise Unsupported(f"a {node.op} of {node.target}; expected a graph of ATen operators")
    if node.target is operator.getitem:
        return _picked(args)
    if fold is not None and (known := fold(node, args, kwargs)) is not None:
        return known
    if any(isinstance(part, Failed) for part in _leaves((args, kwargs))):
        return Failed()
    name = str(node.target)
    importer = ATEN.get(name)
    if importer is None:
        raise Unsupported("there is no importer for this operator")
    given, options = (_arrays(one, name in OF_KNOWN) for one in (args, kwargs))
    if name in MASKS:
        given, options = _with_truths(node, given, options, *MASKS[name])
    if name in RESHAPES or any(isinstance(one, Merged) for one in _leaves((given, options))):
        return _of_rows(name, meta, given, options, sizes)
    result = Result.of(meta, sizes)
    try:
        inspect.signature(importer).bind(result, *given, **options)
    except TypeError as error:
        raise Unsupported(f"its arguments are not those of ATen's core schema: {error}") from error
    try:
        made = importer(result, *given, **options)
    except Unsupported:
        raise
    except PolyfuseError as error:
        raise Unsupported(str(error)) from error
    return _checked(made, meta, sizes)


def _of_rows(name: str, meta: Any, args: Any, kwargs: Any, sizes: ReadSize) -> Any:
    """The value of an operator whose operand or result may have a number of rows that is not affine."""
    try:
        if name in RESHAPES:
            return reshaped(
                required(args[0], "the tensor") if not isinstance(args[0], Merged) else args[0], meta, sizes
            )
        return on_rows(name, meta, args, kwargs, sizes)
    except Unsupported:
        raise
    except PolyfuseError as error:
        raise Unsupported(str(error)) from error


def _checked(made: Any, meta: Any, sizes: ReadSize) -> Any:
    """What an importer made, of the type that was meant; Unsupported where its shape is another."""
    pairs = zip(made, meta, strict=False) if isinstance(made, tuple) else [(made, meta)]
    there = ((one, said) for one, said in pairs if not isinstance(one, Missing) and hasattr(said, "shape"))
    first, said = next(there, (None, None))
    if first is None:
        return made
    result = Result.of(said, sizes)
    if first.shape != result.shape:
        raise Unsupported(f"its result has the shape {first.shape}, and torch says {result.shape}")
    if isinstance(made, tuple) or result.dtype == "bool" or first.dtype == result.element:
        return made
    return cast(first, result.element)


def _with_truths(
    node: Node, given: list[Any], options: dict[str, Any], place: int, called: str
) -> tuple[list[Any], dict[str, Any]]:
    """An operator's arguments, with a mask of truth values as `Truths`."""
    mask = node.args[place] if place < len(node.args) else node.kwargs.get(called)
    value = given[place] if place < len(given) else options.get(called)
    if mask is None or isinstance(value, Merged) or type_name(mask.meta["val"].dtype) != "bool":
        return given, options
    if place < len(given):
        return [*given[:place], Truths(value), *given[place + 1 :]], options
    return given, options | {called: Truths(value)}


def _picked(args: Any) -> Any:
    every, index = args
    if isinstance(every, Failed):
        return every
    if isinstance(every, Known):
        raise Unsupported("an element of a known tensor")
    if not isinstance(every, tuple) or isinstance(every[index], Missing):
        reason = every[index].reason if isinstance(every, tuple) else "there is one result"
        raise Unsupported(f"result {index}: {reason}")
    return every[index]


def refusal(node: Node, reason: str) -> Refusal:
    """The refusal of a node, with the module that it comes from where torch recorded one."""
    stack = node.meta.get("nn_module_stack") or {}
    place = next((str(path) for path, *_ in reversed(list(stack.values())) if path), "")
    return Refusal(
        node.name, str(node.target), reason, place.removeprefix("L['self'].").removeprefix("L['self']")
    )


def number_in(meta: Any, sizes: ReadSize) -> Any:
    """A number that a graph computes of sizes."""
    try:
        return sizes(meta)
    except Unsupported:
        return NotAffine(str(meta))


def stand_in(node: Node, sizes: ReadSize) -> Any:
    """A value of a node's shape and type in place of its own; `Failed` where a value has no such type."""
    meta = node.meta.get("val")
    if (known := node.meta.get(KNOWN)) is not None:
        return replace(known, value=_stand_in(meta, sizes))
    if isinstance(meta, list | tuple):
        return tuple(_stand_in(one, sizes) for one in meta)
    return _stand_in(meta, sizes)


def _stand_in(meta: Any, sizes: ReadSize) -> Any:
    if meta is None or isinstance(meta, str):
        return Failed()
    if not hasattr(meta, "shape"):
        return number_in(meta, sizes)
    try:
        result = Result.of(meta, sizes)
        return input("x", result.shape, result.element)
    except Unsupported:
        return Failed()


def mapped(tree: Any, done: Mapping[str, Any]) -> Any:
    """Arguments with values in place of nodes."""
    return _over(tree, lambda node: done[node.name])


def meant(tree: Any) -> Any:
    """Arguments with stand-ins in place of nodes, in numbers."""
    return _over(tree, lambda node: stand_in(node, number_of))


def _over(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(tree, list | tuple):
        return [_over(part, leaf) for part in tree]
    if isinstance(tree, dict):
        return {key: _over(part, leaf) for key, part in tree.items()}
    if isinstance(tree, slice):
        return slice(*(_over(part, leaf) for part in (tree.start, tree.stop, tree.step)))
    return leaf(tree) if hasattr(tree, "op") and hasattr(tree, "meta") else tree


def _arrays(tree: Any, all_known: bool) -> Any:
    """Arguments with arrays in place of known tensors, or with the inputs that pass them unless arrays are wanted."""
    if isinstance(tree, list | tuple):
        return [_arrays(part, all_known) for part in tree]
    if isinstance(tree, dict):
        return {key: _arrays(part, all_known) for key, part in tree.items()}
    if not isinstance(tree, Known):
        return tree
    return tree.array if all_known or tree.value is None else tree.value


def _leaves(tree: Any) -> Iterable[Any]:
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree
