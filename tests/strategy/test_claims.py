"""Claims: the statements whose kernels are decided before the search, and whose sums under a maximum some are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import polyfuse as pf
from polyfuse import nn
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cpu.row_sweep import RowPass, Rows


@dataclass(frozen=True)
class Named:
    """Stands for a kernel of attention, of which claims ask the names alone."""

    names: tuple[str, ...]


def claims() -> Claims:
    return Claims(pf.lower(nn.Linear(3, 4), batch=2))


def test_statements_of_row_passes_and_of_sums_under_maxima_are_claimed() -> None:
    rows = RowPass((Rows("mac0", "i", "j"),), 4, first="bias0")
    kernel = cast(Any, (Named(("max0", "sum0")), None))
    found = replace(claims(), passes=(rows,), one_pass=(kernel,))
    assert found.statements == {"mac0", "bias0", "max0", "sum0"}


def test_statements_of_two_kernels_are_of_no_kernel_under_a_maximum() -> None:
    kernel = cast(Any, (Named(("max0", "sum0")), None))
    found = replace(claims(), one_pass=(kernel,))
    assert found.under_maximum(("sum0",)) == kernel
    assert found.under_maximum(("sum0", "mac0")) is None
