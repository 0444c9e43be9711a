"""Layouts of tiles in a GPU's shared memory: spread lines, core matrices and swizzled lines."""

from polyfuse.layouts.core_matrix import CoreMatrixLayout
from polyfuse.layouts.smem import SmemLayout
from polyfuse.layouts.swizzle import SwizzledLayout

__all__ = ["CoreMatrixLayout", "Layout", "SmemLayout", "SwizzledLayout"]

Layout = SmemLayout | CoreMatrixLayout | SwizzledLayout
"""The layout of a shared buffer's panels."""
