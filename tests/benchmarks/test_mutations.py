"""The seeded faults: their lines are still there, their tests too, and a fault is found, its absence as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutations import FAULTS, ROOT, Fault, caught_by


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}-{FAULTS.index(fault)}")
def test_a_fault_can_be_put_into_the_tree(fault: Fault) -> None:
    text = (ROOT / "polyfuse" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1
    compile(text.replace(fault.right, fault.wrong), fault.file, "exec")
    assert all((ROOT / "tests" / name).exists() for name in fault.tests)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package of one function, and a test of it."""
    (tmp_path / "polyfuse").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "polyfuse" / "__init__.py").touch()
    (tmp_path / "polyfuse" / "one.py").write_text("def one() -> int:\n    return 1\n")
    (tmp_path / "tests" / "test_one.py").write_text(
        "from polyfuse.one import one\n\n\ndef test_one():\n    assert one() > 0\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\npythonpath = ['.']\nmarkers = ['nightly']\n"
    )
    return tmp_path


@pytest.mark.parametrize(("wrong", "by"), [("return 0", "test_one.py::test_one"), ("return 2", None)])
def test_a_fault_is_caught_by_a_test_that_fails(tree: Path, wrong: str, by: str | None) -> None:
    assert caught_by(Fault("one.py", "return 1", wrong, ("test_one.py",)), tree, nightly=False) == by
    assert "return 1" in (tree / "polyfuse" / "one.py").read_text(), "the fault is taken out again"


def test_a_fault_whose_line_is_gone_is_an_error(tree: Path) -> None:
    with pytest.raises(ValueError, match="0 times 'return 3', not once"):
        caught_by(Fault("one.py", "return 3", "return 4", ("test_one.py",)), tree, nightly=False)
