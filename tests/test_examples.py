"""The examples run, and do what they say."""

import ast
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ROOT = EXAMPLES.parent

FOUND = {
    "loops_and_a_refusal": "bind('S0', p='cores') is refused: it would break the reduction dependence S0[0, 0, 0, 0]",
    "another_tile": "split('mac0', 'j', 16) -> split('mac0', 'j', 8)",
    "save_and_load_elsewhere": "the schedule was given by hand",
    "predicted_and_measured": "time / auto",
    "cuda_and_ptx": ".visible .entry zero_mac_bias_relu",
    "own_activation": "softplus0\n",
    "slowest_kernel": "% of the call",
    "paper": "fused: 1 kernel",
    "tuned_on_dask": "2 trials in ",
    "bound": "least traffic through 16 KiB",
    "explorer": "<Explorer of sequential: 7 statements",
}
"""What each of the newcomer's tasks finds."""

NEEDED = {"cuda_and_ptx": "numba.cuda", "tuned_on_dask": "distributed", "paper": "matplotlib"}
MOST_LINES = 10


def test_digits_are_learned() -> None:
    accuracy = runpy.run_path(str(EXAMPLES / "digits.py"))["main"](12)
    assert accuracy > 0.9


def newcomers_tasks() -> dict[str, ast.FunctionDef]:
    tree = ast.parse((EXAMPLES / "newcomer.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name != "main"]
    return {node.name: node for node in functions}


def test_a_newcomers_tasks_take_ten_lines() -> None:
    tasks = newcomers_tasks()
    assert tasks.keys() == FOUND.keys()
    for name, node in tasks.items():
        written = {line for each in node.body[1:] for line in lines_of(each)}
        assert len(written) <= MOST_LINES, name
        assert ast.get_docstring(node, clean=True).endswith(").")


def lines_of(node: ast.stmt) -> set[int]:
    """The lines of a statement that hold code; a decorator is one of them."""
    nodes = [each for each in ast.walk(node) if hasattr(each, "lineno")]
    return {line for each in nodes for line in (each.lineno, each.end_lineno)}


@pytest.mark.parametrize("task", FOUND)
def test_a_newcomer_finds_the_answer(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if task in NEEDED:
        pytest.importorskip(NEEDED[task])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    main = runpy.run_path(str(EXAMPLES / "newcomer.py"))["main"]
    main([task])
    assert FOUND[task] in capsys.readouterr().out
