"""The nest of a torch module, which knows what torch calls its constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import Nest

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, repr=False)
class TorchNest(Nest):
    """A nest read from a torch module.

    Attributes:
        weights: The constants' names by torch's names of parameters and buffers: "0.weight" is "_0_weight". Tied
            weights have one constant. An empty name is that of a tensor which no result depends on.
        folded: Tensors that the nest was made with, such as integer buffers, by torch's names: no call can change them.
    """

    weights: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    folded: Mapping[str, Array] = field(default_factory=dict, compare=False, repr=False)

    def arrays_of(self, state: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        """Return the constants for a module's state, as an executable's `replace_constants` takes them.

        net.replace_constants(nest.arrays_of(model.state_dict())) is to a compiled net what
        model.load_state_dict(state) is to a module.

        Args:
            state: Tensors by torch's names; all that the module's own `state_dict` has.

        Returns:
            Arrays by constant name, in the same memory where they lie on the CPU.

        Raises:
            BadArgument: if a name is missing or unknown, tied weights differ, or a tensor that the nest was made with
                has other values.
        """
        from polyfuse.frontend.torch.arrays import array_of

        expected = {*self.weights, *self.folded}
        missing, unknown = sorted(expected - set(state)), sorted(set(state) - expected)
        if missing or unknown:
            parts = [f"it has no {', '.join(missing)}"] if missing else []
            parts += [f"{self.name} has no {', '.join(unknown)}"] if unknown else []
            raise BadArgument(f"arrays_of: the state is of another module: {'; '.join(parts)}")
        for name, array in self.folded.items():
            if not np.array_equal(array_of(state[name]), array):
                raise BadArgument(
                    f"arrays_of: {name} has other values than those that {self.name} was made with, and is not a "
                    "constant of it: make the nest again with from_torch"
                )
        found: dict[str, Array] = {}
        of: dict[str, str] = {}
        for name, constant in self.weights.items():
            if not constant:
                continue
            array = array_of(state[name])
            if constant in found and not np.array_equal(found[constant], array, equal_nan=True):
                raise BadArgument(
                    f"arrays_of: {of[constant]} and {name} are one tensor in {self.name}, and differ in the state"
                )
            found[constant], of[constant] = array, name
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What a nest has, and the names."""
        return {**super().__getstate__(), "weights": dict(self.weights), "folded": dict(self.folded)}
