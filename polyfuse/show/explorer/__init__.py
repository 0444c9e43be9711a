"""The explorer: a compiled nest as data, and as one page of linked views."""

from polyfuse.show.explorer.data import KernelShown, explored
from polyfuse.show.explorer.page import Explorer

__all__ = ["Explorer", "KernelShown", "explored"]
