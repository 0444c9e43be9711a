"""The ensemble: as a nest with its members one by one, as executables for each member, and by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.peers.workloads import ensemble_arrays
from polyfuse import nn

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Ensemble:
    """`members` of `layers` × (Linear(width) + ReLU) at `batch`; `odd`: the last one has tanh in its second layer."""

    members: int
    layers: int
    width: int
    batch: int
    odd: bool = False

    @property
    def name(self) -> str:
        return f"{self.members} of {self.layers} × {self.width}, batch {self.batch}"

    @property
    def sizes(self) -> dict[str, int]:
        """The columns of a row of results that say which network it is."""
        return {"members": self.members, "layers": self.layers, "width": self.width, "batch": self.batch}

    def arrays(self) -> dict[str, Array]:
        """x [members, batch, width]; w0 b0, …: a matrix and a row for each member."""
        return ensemble_arrays(self.members, self.layers, self.width, self.batch)

    def nest(self) -> pf.Nest:
        """The members one by one, their results stacked."""
        arrays = self.arrays()
        x = nn.input("x", arrays["x"].shape)
        return pf.lower(nn.stack([self._member(x[k], k, arrays) for k in range(self.members)]))

    def _member(self, h: nn.Value, k: int, arrays: Mapping[str, Array]) -> nn.Value:
        for n in range(self.layers):
            h = nn.linear(h, arrays[f"w{n}"][k], arrays[f"b{n}"][k, 0])
            h = nn.tanh(h) if self.odd and (k, n) == (self.members - 1, 1) else nn.relu(h)
        return h

    def apart(self, options: Mapping[str, Any]) -> Callable[[Array], Array]:
        """An executable for each member."""
        arrays = self.arrays()
        nets = []
        for k in range(self.members):
            x = nn.input("x", (self.batch, self.width))
            nets.append(pf.compile(pf.lower(self._member(x, k, arrays)), **options))

        def call(x: Array) -> Array:
            return np.stack([net(part) for net, part in zip(nets, x, strict=True)])

        return call

    def numpy(self, dtype: str = "float32") -> Callable[[Array], Array]:
        """Stacked by hand."""
        arrays = {name: array.astype(dtype) for name, array in self.arrays().items()}

        def call(x: Array) -> Array:
            for n in range(self.layers):
                h = np.matmul(x, arrays[f"w{n}"]) + arrays[f"b{n}"]
                x = np.maximum(h, 0)
                if self.odd and n == 1:
                    x[-1] = np.tanh(h[-1])
            return x

        return call
