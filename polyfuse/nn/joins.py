"""Concatenations that begin alike: each takes the longest earlier one in place of its first parts.

    a | b;  a | b | c;  a | b | c | d        ->        v0 = a | b;  v1 = v0 | c;  v2 = v1 | d

Layer k of a densely connected block reads the parts of all layers before it, so that a block of n layers has n² / 2
parts. So written it has n, and what is read lies in one tensor, of which each concatenation is the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polyfuse.nn.graph import Value
from polyfuse.nn.shape.operations import Join


@dataclass(frozen=True)
class Joins:
    """The concatenations so far, by axis and parts."""

    made: dict[tuple[int, tuple[int, ...]], Value] = field(default_factory=dict)

    def shortened(self, value: Value) -> Value:
        """Return a concatenation with an earlier one as its first part, where one begins alike; other values as is.

        Args:
            value: A value whose operands are emitted.

        Returns:
            The same elements.
        """
        join = value.source
        if not isinstance(join, Join) or join.kind != "concat":
            return value
        parts = tuple(map(id, value.operands))
        lengths = range(len(parts) - 1, 1, -1)
        known = ((n, self.made.get((join.axis, parts[:n]))) for n in lengths)
        length, first = next(((n, found) for n, found in known if found is not None), (0, None))
        self.made.setdefault((join.axis, parts), value)
        if first is None:
            return value
        rest = value.operands[length:]
        return replace(value, source=replace(join, parts=1 + len(rest)), operands=(first, *rest))
