"""The table of PolyBench's gradients: what is right, what is refused, and what a line says."""

from benchmarks.gradients import checked, line, summary


def test_rows_say_what_is_right_and_why_not() -> None:
    right, refused = checked("atax"), checked("floyd-warshall")
    assert right["result"] == "right"
    assert right["error"] < 1e-8
    assert refused["result"] == "refused"
    assert "nothing to differentiate" in refused["why"]
    rows = [{"kernel": "atax", "ratio": 3.0, **right}, {"kernel": "floyd-warshall", **refused}]
    assert line(rows[0]).startswith("atax            right    error")
    assert "3.00 times forward" in line(rows[0])
    assert summary(rows) == "1 of 2 right; 3.00 times forward over 1"
