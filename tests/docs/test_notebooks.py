"""The notebooks run from the first cell to the last, and are kept with the outputs of such a run."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NEEDED = {
    "resnet18": "torchvision",
    "torch_model": "torch",
    "training": "torch",
    "tuning_on_dask": "distributed",
}
PLACES = re.compile(r"/(?:home|root|tmp|work|Users)/")
PICTURES = {"jacobi_2d": 4, "reading_a_refusal": 3, "first_network": 2}
"""How many pictures a notebook shows at least; others one or none."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook: Any) -> int:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return sum("image/svg+xml" in output.get("data", {}) for output in outputs)


def refusals(notebook: Any) -> list[str]:
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output.text for output in outputs if "is refused: " in output.get("text", "")]


def test_the_tutorials_are_listed() -> None:
    text = (DOCS / "tutorials.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 10
    for path in NOTEBOOKS:
        assert f"](notebooks/{path.name})" in text
        assert f"\nnotebooks/{path.stem}\n" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_as_one_run_left_it(path: Path) -> None:
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not any(output.output_type == "error" for output in cell.outputs), cell.source
    assert pictures(notebook) >= PICTURES.get(path.stem, 0)
    assert not PLACES.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = NEEDED.get(path.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"it needs {needed}")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs = []
    # A busy machine's kernel sends what one cell prints in several parts, which are one output in a notebook.
    nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert pictures(notebook) >= PICTURES.get(path.stem, 0)
    kept = read(path)
    assert len(refusals(notebook)) == len(refusals(kept))
    assert all("instances: S" in text for text in refusals(notebook) if path.stem == "jacobi_2d")
