"""The table of torch's models: a model by parts, and what its row says."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch_models.__main__ import table  # noqa: E402  # needs torch
from benchmarks.torch_models.cases import case  # noqa: E402
from benchmarks.torch_models.coverage import coverage  # noqa: E402


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
