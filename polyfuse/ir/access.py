"""Accesses: the element of a tensor that a statement instance accesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl

from polyfuse.errors.budget import within
from polyfuse.sets import OUT, expression_text, merged_pieces

TEXT_OPERATIONS = 100_000
"""isl operations for a short text of a subscript; where they do not do, it is written as it is."""


@dataclass(frozen=True)
class Access:
    """A tensor and an isl map from statement instances to its elements, e.g. { mac[i, j, k] -> X[i, k] }.

    Attributes:
        tensor: The tensor's name.
        map: A single-valued map: an instance accesses one element. Its domain covers the statement's.
    """

    tensor: str
    map: isl.Map

    def subscripts(self) -> isl.PwMultiAff:
        """Return the element as a function of the instance."""
        return self._subscripts

    @cached_property
    def _subscripts(self) -> isl.PwMultiAff:
        return isl.PwMultiAff.from_map(self.map)

    def __getstate__(self) -> dict[str, Any]:
        """islpy's own pickle refuses a map that names an element's dimension like one of the instance's: as text."""
        return {"tensor": self.tensor, "map": str(self.map)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update({**state, "map": isl.Map(state["map"])})

    def __str__(self) -> str:
        """The access as a program would write it: "X[i, k]"."""
        parts, domain = self.subscripts(), self.map.domain()

        def text(value: isl.PwAff) -> str:
            short = within(domain.get_ctx(), TEXT_OPERATIONS, lambda: value.gist(domain), lambda: value)
            return expression_text(short)

        texts = [text(merged_pieces(parts.get_pw_aff(d))) for d in range(self.map.dim(OUT))]
        return f"{self.tensor}[{', '.join(texts)}]" if texts else self.tensor
