"""Which cases run daily, by their CPU time and the lines they cover."""

from __future__ import annotations

from benchmarks.nightly_cases import HEAD, WHOLE, Measured, as_text, chosen
from tests.support.nightly import is_listed, listed

CASES = (
    Measured("a::short", 0.1, frozenset({1})),
    Measured("a::one[x]", 0.9, frozenset({1, 2})),
    Measured("a::one[y]", 0.8, frozenset({1})),
    Measured("a::one[z]", 6.0, frozenset({1, 2, 3})),
    Measured("a::two[x]", 5.0, frozenset({3})),
    Measured("a::two[y]", 4.0, frozenset({1, 3})),
    Measured("a::three", 2.0, frozenset({1, 2})),
)


def test_daily_are_short_cases_the_shortest_of_a_function_and_those_alone_on_a_line() -> None:
    daily = chosen(CASES, short=0.2, dear=1.0)
    assert daily == {"a::short", "a::one[y]", "a::one[x]", "a::two[y]"}
    lines = [
        frozenset().union(*(x.lines for x in some)) for some in (CASES, [x for x in CASES if x.case in daily])
    ]
    assert lines[0] == lines[1]


def test_all_of_a_newcomers_tasks_are_daily() -> None:
    dear = tuple(Measured(f"{WHOLE[0]}[{task}]", 9.0, frozenset({1})) for task in ("paper", "bound"))
    assert chosen((*CASES, *dear), short=0.2, dear=1.0) >= {each.case for each in dear}


def test_the_list_names_what_is_left_out_and_nothing_else() -> None:
    names = [each.case for each in CASES]
    for daily in ({"a::short", "a::one[y]"}, set(names), set[str]()):
        text = as_text(names, daily)
        assert text.startswith(HEAD)
        assert [name for name in names if not is_listed(name, listed(text))] == [
            n for n in names if n in daily
        ]


def test_a_function_that_is_left_out_whole_is_listed_without_cases() -> None:
    text = as_text(["a::one[x]", "a::one[y]", "a::two[x]", "a::two[y]"], {"a::one[x]"})
    assert text.removeprefix(HEAD) == "a::one\n    y\na::two\n"
