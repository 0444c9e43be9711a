"""Mutations of proofs: which changes there are, that one is in place for all who use the module, and what is listed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.proof_mutants import changes, put_in_place
from benchmarks.proof_mutations import PROOFS, ROOT, Ran, apart, in_the_way, lines_of, reasons

SOURCE = '''
"""A module."""

KINDS = ("flow", "anti")


def legal(kind: str, first: int, second: int = 3) -> bool:
    """Return whether."""
    if kind in KINDS and first < second:
        raise ValueError(f"{first} not {second}")
    return any(k == kind for k in KINDS if k != "anti")


class Pairs:
    """Pairs."""

    size: int = 1

    def some(self, pairs, other):
        return pairs.intersect(other).is_empty()
'''


def test_every_change_of_a_small_module() -> None:
    assert [change.name for change in changes(SOURCE)] == [
        ": ('flow', 'anti') -> ('anti',)",
        ": ('flow', 'anti') -> ('flow',)",
        "legal: if kind in KINDS and first < second -> if True",
        "legal: if kind in KINDS and first < second -> if False",
        "legal: kind in KINDS and first < second -> kind in KINDS or first < second",
        "legal: kind in KINDS and first < second -> first < second",
        "legal: kind in KINDS and first < second -> kind in KINDS",
        "legal: kind in KINDS -> kind not in KINDS",
        "legal: first < second -> first <= second",
        "legal: raise ValueError(f'{first} not {second}') -> pass",
        "legal: any((k == kind for k in KINDS if k != 'anti')) -> all((k == kind for k in KINDS if k != 'anti'))",
        "legal: k == kind -> k != kind",
        "legal: for k in KINDS if k != 'anti' -> for k in KINDS",
        "legal: k != 'anti' -> k == 'anti'",
        "Pairs.some: pairs.intersect(other).is_empty() -> not pairs.intersect(other).is_empty()",
        "Pairs.some: pairs.intersect(other) -> pairs.union(other)",
        "Pairs.some: pairs.intersect(other) -> pairs",
    ]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The small module, imported."""
    file = tmp_path / "small.py"
    file.write_text(SOURCE)
    found = ModuleType("small")
    found.__file__ = str(file)
    exec(compile(SOURCE, str(file), "exec"), vars(found))
    monkeypatch.setitem(sys.modules, "small", found)
    return found


def test_a_function_is_changed_where_it_has_been_imported(module: ModuleType) -> None:
    elsewhere = module.legal
    with pytest.raises(ValueError, match="1 not 3"):
        elsewhere("flow", 1)
    change = next(c for c in changes(SOURCE) if c.text.endswith("-> pass"))
    assert put_in_place(change, Path(str(module.__file__)))
    assert elsewhere("flow", 1) is True


def test_a_constant_is_changed_where_it_has_been_imported(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ModuleType("other")
    vars(other)["KINDS"] = module.KINDS
    monkeypatch.setitem(sys.modules, "other", other)
    assert put_in_place(next(changes(SOURCE)), Path(str(module.__file__)))
    assert module.KINDS == vars(other)["KINDS"] == ("anti",)


def test_the_tests_of_a_line(module: ModuleType) -> None:
    with lines_of(str(module.__file__)) as lines:
        assert module.legal("output", 1) is False
    change = next(c for c in changes(SOURCE) if c.name.startswith("legal: first < second"))
    runs, slow, not_there = (
        Ran(0, 1.0, frozenset(lines)),
        Ran(1, 99.0, frozenset(lines)),
        Ran(2, 0.1, frozenset()),
    )
    assert in_the_way(change, [slow, runs, not_there]) == [runs]


def test_another_process_answers() -> None:
    assert apart(lambda: 6 * 7, 10) == 42
    assert apart(lambda: {}["gone"], 10) == "KeyError: 'gone'"
    assert apart(lambda: sys.modules["os"]._exit(3), 10) == "ended with 3"


@pytest.mark.parametrize("module", PROOFS)
def test_what_is_listed_as_equivalent_is_a_change_with_a_reason(module: str) -> None:
    assert all((ROOT / "tests" / name).exists() for name in PROOFS[module])
    possible = {change.name for change in changes((ROOT / module).read_text(encoding="utf-8"))}
    for change, reason in reasons(module).items():
        assert change in possible, f"{module} has no {change!r}"
        assert len(reason.split()) > 3
