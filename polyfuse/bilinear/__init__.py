"""Bilinear algorithms for matrix products: tables of integers, each proven to multiply when it is made."""

from polyfuse.bilinear.algorithm import Algorithm, algorithm, classical, kronecker
from polyfuse.bilinear.error import error_bound, error_growth
from polyfuse.bilinear.known import KNOWN, laderman, named, strassen, strassen2, winograd, winograd2
from polyfuse.bilinear.table_files import load
from polyfuse.bilinear.table_text import from_text, to_text

__all__ = [
    "KNOWN",
    "Algorithm",
    "algorithm",
    "classical",
    "error_bound",
    "error_growth",
    "from_text",
    "kronecker",
    "laderman",
    "load",
    "named",
    "strassen",
    "strassen2",
    "to_text",
    "winograd",
    "winograd2",
]
