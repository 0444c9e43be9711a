"""The list of PTX passes: what may cost registers comes last, and is apart from what may not."""

from __future__ import annotations

import pytest

from polyfuse.codegen.cuda.compile.ptx import ptx_passes
from polyfuse.codegen.cuda.compile.ptx.ptx_passes import PTX_PASSES, PtxPass, rewritten_ptx


def test_what_may_spill_comes_last() -> None:
    assert [each.may_spill for each in PTX_PASSES] == sorted(each.may_spill for each in PTX_PASSES)


def test_passes_run_in_order_and_those_that_may_spill_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tuple(
        PtxPass(each.name, lambda ptx, n=each.name: f"{ptx} {n}", each.may_spill) for each in PTX_PASSES
    )
    monkeypatch.setattr(ptx_passes, "PTX_PASSES", noted)
    assert rewritten_ptx("ptx") == (
        "ptx licm strength_reduction",
        "ptx licm strength_reduction interleave_copies",
    )
