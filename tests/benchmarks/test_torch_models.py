"""The table of torch's models: a model by parts, and what its row says."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch_models.__main__ import summary, table  # noqa: E402  # needs torch
from benchmarks.torch_models.cases import case  # noqa: E402
from benchmarks.torch_models.coverage import coverage  # noqa: E402
from benchmarks.torch_models.measured import none  # noqa: E402


def test_what_polyfuse_would_compute_of_a_model() -> None:
    """Of the bags and the pairs of DLRM: the pairs are chosen by a buffer of integers, which is an input."""
    found = coverage(case("dlrm", 64))
    assert [operator for operator, _ in found.left] == ["aten.index.Tensor"]
    assert found.known == 8
    assert not found.failed
    assert found.share == 1.0
    assert found.flops == 2 * 16 * (13 * 64 + 64 * 32 + 9 * 32 * 9 + 68 * 64 + 64)


def test_the_case_of_a_name_is_the_same_again() -> None:
    first, second = (case("vae", 16) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.args, second.args, strict=True))
    with torch.no_grad():
        assert torch.equal(first.model(*first.args)[0], second.model(*second.args)[0])


def test_torch_alone_takes_some_time() -> None:
    ((side, milliseconds),) = next(iter(none("vae", 16, None, ["eager"]))).items()
    assert side == "torch alone ms"
    assert 0 < milliseconds < 100


def test_a_row_says_what_is_wrong() -> None:
    right = {
        "model": "a",
        "error": 3e-4,
        "error of torch": 1e-4,
        "share": 0.95,
        "left": [[2, "aten.x", "no"]],
    }
    wrong = {"model": "b", "layers": 1, "error": 1e-3, "error of torch": 1e-4, "in eager": ["no plan"]}
    _, _, first, second, third = table([right, wrong, {"model": "c", "failed": "stopped"}])
    assert "| 2 |" in first
    assert "| 95.0 |" in first
    assert "WRONG" not in first
    assert second.startswith("| b, 1 layers |")
    assert second.endswith("| WRONG; 1 regions run in eager |")
    assert third.endswith("| stopped |")


def test_both_ways_into_polyfuse_are_compared_with_the_fastest_other_side() -> None:
    row = {"model": "a", "error": 0.0, "error of torch": 0.0, "ms": 2.0, "exported ms": 1.0}
    row |= {"eager ms": 4.0, "onnxruntime ms": 1.5}
    *_, line = table([row])
    assert "| 2 |  | 1 | 4 |  | 1.5 | 0.75 | 1.50 |" in line
    assert summary([row]) == (
        "1 of 1 right; by torch.compile 0 of 1 at least 1, geometric mean 0.75, worst 0.75; "
        "exported 1 of 1 at least 1, geometric mean 1.50, worst 1.50"
    )
