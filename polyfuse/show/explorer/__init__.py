"""The explorer: a compiled nest as data, and as one page of linked views."""

from polyfuse.show.explorer.data import Instruction, KernelShown, explored
from polyfuse.show.explorer.page import Explorer

__all__ = ["Explorer", "Instruction", "KernelShown", "explored"]
