"""The table of PolyBench's gradients: what is right, what is refused, and what a line says."""

import numpy as np

from benchmarks.gradients import checked, difference, line, summary


def test_rows_say_what_is_right_and_why_not() -> None:
    right, refused = checked("atax"), checked("floyd-warshall")
    assert right["result"] == "right"
    assert right["error"] < 1e-8
    assert refused["result"] == "refused"
    assert "has no input of floating-point numbers" in refused["why"]
    rows = [{"kernel": "atax", "ratio": 3.0, **right}, {"kernel": "floyd-warshall", **refused}]
    assert line(rows[0]).startswith("atax            right    error")
    assert "3.00 times forward" in line(rows[0])
    assert summary(rows) == "1 of 2 right; 3.00 times forward over 1"


def test_rows_beside_others() -> None:
    row = {"kernel": "gemm", "result": "right", "ratio": 2.2, "jax_ratio": 2.6, "jax_error": 4e-15}
    assert line(row).endswith("2.20 times forward JAX 2.60 x, differs by 4e-15")
    assert summary([row]) == "1 of 1 right; 2.20 times forward over 1; JAX takes 2.60 times as long over 1"
    both = {**row, "enzyme_ratio": 4.0, "enzyme_error": 1e-15}
    assert line(both).endswith("JAX 2.60 x, differs by 4e-15, Enzyme 4.00 x, differs by 1e-15")
    assert summary([both]).endswith("; Enzyme takes 4.00 times as long over 1")
    ours = {"a": np.array([1.0, 2.0])}
    assert difference(ours, {"a": np.array([1.0, 4.0]), "not asked": np.zeros(3)}) == 0.5
