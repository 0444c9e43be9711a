"""What a function raises that isl calls back is raised where isl was called, Ctrl-C's KeyboardInterrupt above all."""

from __future__ import annotations

import ast
import inspect
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.generate import program
from polyfuse.codegen.lowering import build
from polyfuse.sets import called_back

DOMAIN = isl.UnionSet("{ A[i] : 0 <= i < 3; B[] }")
TREE = isl.Schedule('{ domain: "{ A[i] : 0 <= i < 3 }", child: { schedule: "[{ A[i] -> [i] }]" } }')

Called = Callable[..., Any]


def over_sets(function: Called) -> None:
    with called_back() as kept:
        DOMAIN.foreach_set(kept(lambda one: function(), None))


def at_statements(function: Called) -> None:
    with called_back() as kept:
        made, held = isl.AstBuild.from_context(isl.Set("{ : }")).set_at_each_domain(
            kept(lambda node, build: (function(), node)[1], None)
        )
        made.node_from_schedule(TREE)
        del held


def down_an_ast(function: Called) -> None:
    node = isl.AstBuild.from_context(isl.Set("{ : }")).node_from_schedule(TREE)
    with called_back() as kept:
        node.foreach_descendant_top_down(kept(lambda inner: (function(), True)[1], False))


WAYS = [over_sets, at_statements, down_an_ast]


@pytest.fixture(autouse=True)
def python_handles_ctrl_c() -> Iterator[None]:
    """As in a shell: a process that starts in the background ignores the signal, and Python leaves that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("way", WAYS)
def test_an_exception_arrives_as_it_is_and_nothing_is_called_after_it(way: Callable[[Called], None]) -> None:
    calls: list[str] = []

    def fails() -> None:
        calls.append("")
        raise ValueError("mine")

    for _ in range(20):  # what is freed twice ends the process sooner or later
        calls.clear()
        with pytest.raises(ValueError, match="mine"):
            way(fails)
        assert len(calls) == 1


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_is_a_keyboard_interrupt(way: Callable[[Called], None]) -> None:
    before = signal.getsignal(signal.SIGINT)
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            way(interrupted)
        assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_that_raises_nothing_changes_nothing(way: Callable[[Called], None]) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        way(interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(seen) == {signal.SIGINT}


def test_errors_of_isl_stay_its_own() -> None:
    with pytest.raises(isl.Error, match="syntax error"), called_back():
        isl.Set("{ A[i")


def test_in_other_threads_signals_are_left_alone() -> None:
    said: list[str] = []

    def called() -> None:
        over_sets(lambda: said.append(threading.current_thread().name))

    thread = threading.Thread(target=called, name="other")
    thread.start()
    thread.join()
    assert said == ["other"] * 2


def net() -> pf.Nest:
    return pf.lower(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), batch=4)


def test_ctrl_c_while_a_nest_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build._Builder._at_domain

    def at_domain(self: Any, node: Any, build: Any) -> Any:
        interrupted()
        return whole(self, node, build)

    expected = pf.compile(net(), target="cpu").source
    monkeypatch.setattr(build._Builder, "_at_domain", at_domain)
    with pytest.raises(KeyboardInterrupt):
        pf.compile(net(), target="cpu")
    monkeypatch.undo()
    assert pf.compile(net(), target="cpu").source == expected


# Python ignores what is raised while a weak dictionary lets go of a key, and numba has some
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_time_of_a_lowering() -> None:
    s = pf.Schedule(net())
    before, ended = signal.signal(signal.SIGALRM, signal.default_int_handler), []
    try:
        for turn in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 * (turn + 1))
                program(s.nest, s.tree, "cpu")
                signal.setitimer(signal.ITIMER_REAL, 0)
                ended.append("done")
            except KeyboardInterrupt:
                ended.append("interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(ended) == 60
    assert "interrupted" in ended


STUBS = Path(inspect.getfile(isl)).with_name("_isl.pyi")


def test_isl_is_given_no_function_that_could_raise() -> None:
    stubs = re.sub(r"\s+", " ", STUBS.read_text(encoding="utf-8"))
    taking = set(re.findall(r"def (\w+)\(self[^()]*: (?:collections\.abc\.)?Callable", stubs))
    assert {"foreach_set", "foreach_point", "set_at_each_domain", "foreach_descendant_top_down"} <= taking
    found = []
    for path in sorted(Path(pf.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            name, given = call.func.attr, call.args[0]
            if name in taking and (name.startswith(("foreach", "every", "set_")) or name.endswith("_up")):
                found.append((path.name, name, ast.unparse(given)))
    assert len(found) >= 8
    wrong = [one for one in found if not re.fullmatch(r"\w+\.append|kept\(.*\)", one[2])]
    assert wrong == []
