"""Models of torch as nests. Only the functions that need torch import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyfuse.errors import BadArgument
from polyfuse.frontend.torch.torch_nest import TorchNest

if TYPE_CHECKING:
    import torch


def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> TorchNest:
    """Return the nest of a torch module, by torch.export.

    Parameters and buffers are constants under their torch names with "_" for ".": 0.weight is _0_weight and
    layers.0.weight layers_0_weight. They lie in the same memory as the module's. An executable takes others by
    `replace_constants`, and those of a `state_dict` by net.replace_constants(nest.arrays_of(model.state_dict())).
    Truth values are float32, 1 and 0, among the inputs and the outputs.

    Args:
        module: A module in the mode that is wanted (`module.eval()`), or an exported program.
        example_inputs: Tensors of the shapes and types that the nest takes; None for an exported program.
        dynamic_shapes: As for `torch.export.export`: which sizes are symbolic. One with a name, `Dim("batch")`, has it
            in the nest; others are called as torch calls them, "s0".
        example_kwargs: The same by name.
        name: The nest's name; the module's class by default.

    Returns:
        The nest, which knows torch's names of its constants. Its inputs have the names of the arguments of `forward`;
        its outputs are out, or out0, out1, ….

    Raises:
        BadArgument: if torch is not installed, the arguments do not fit, or operators are not supported; all are named.
    """
    try:
        import torch  # noqa: F401  # asked for here first, so that the message can say what to install
    except ImportError as error:
        raise BadArgument(
            'from_torch needs torch, which is not installed: pip install "polyfuse[torch]"'
        ) from error
    from polyfuse.frontend.torch.exported import nest_of

    return nest_of(module, example_inputs, dynamic_shapes, example_kwargs, name)


__all__ = ["TorchNest", "from_torch"]
