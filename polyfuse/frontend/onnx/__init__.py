"""ONNX models as nests. Only the functions that need the package onnx import it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import Nest

if TYPE_CHECKING:
    import onnx


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    *,
    constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
    name: str | None = None,
) -> Nest:
    """Return the nest of an ONNX model of opset 13 or later.

    Initialisers of floating point are constants under their names in the model, with "_" for what an identifier cannot
    have. They lie in the memory of the file where it is external data; an executable's `replace_constants` takes
    others. What depends on no input and no such initialiser is computed now. Inputs and outputs have the element types
    of the model. Nothing that the model contains is executed.

    Args:
        model: A file's path, its bytes, or a loaded model. External data is read for a path alone, from regular files
            inside the model's folder.
        sizes: Numbers for the model's symbolic sizes, by their names: {"batch": 8}. Those without a number are sizes of
            the nest, which each call's arrays give. For an input with sizes that have no names, all its sizes:
            {"x": (8, 3)}.
        constants: Values of inputs that are known now: a shape, axes, repeats. They are no inputs of the nest.
        name: The nest's name; the graph's by default.

    Returns:
        The nest. Its inputs have the model's names; its outputs are out, or out0, out1, ….

    Raises:
        BadArgument: if onnx is not installed, the file is damaged, of another opset or reads data elsewhere, a size has
            neither a number nor a name, or operators are not supported; all of these are named, with node and opset.
    """
    try:
        import onnx  # noqa: F401  # asked for here first, so that the message can say what to install
    except ImportError as error:
        raise BadArgument(
            'from_onnx needs onnx, which is not installed: pip install "polyfuse[onnx]"'
        ) from error
    from polyfuse.frontend.onnx.model import nest_of

    return nest_of(model, sizes or {}, constants or {}, name)


__all__ = ["from_onnx"]
