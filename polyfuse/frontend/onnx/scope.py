"""Which operand a name of a graph stands for, and which node made it."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from typing import Any

import onnx


@dataclass
class Scope:
    """The operands of one graph by their names, those of the graphs around it, and the nodes that made them."""

    operands: ChainMap[str, Any]
    makers: ChainMap[str, onnx.NodeProto] = field(default_factory=ChainMap)

    def inner(self) -> Scope:
        """A scope inside of this one, for a branch: it sees all names, and adds its own."""
        return Scope(self.operands.new_child(), self.makers.new_child())
