"""A condition that the conditions and loops around decide is not printed, nor is the branch that never runs."""

from __future__ import annotations

from polyfuse.codegen.cpu.printer import CpuEmitter
from polyfuse.codegen.looptree.nodes import Guard, Node
from tests.codegen.looptree.test_verify import expression, guard, kernel, loop, store


def printed(body: Node) -> str:
    """The lines behind the docstring."""
    return CpuEmitter(kernel(body)).source().split('"""')[-1]


def test_the_other_branch_of_a_condition_that_is_asked_again_is_left_out() -> None:
    inside = Guard(expression("i <= 2"), store("y[i]", "x[0, 0]"), store("y[i]", "x[1, 0]"))
    text = printed(loop("i", "4", Guard(expression("i <= 2"), store("y[i]", "x[2, 0]"), inside)))
    assert text.count("if") == 1
    assert [f"x[{n}, 0]" in text for n in range(3)] == [False, True, True]


def test_a_condition_that_holds_for_all_values_of_a_loop_is_left_out() -> None:
    assert "if" not in printed(loop("i", "4", guard("i <= 3", store("y[i]", "x[i, 0]"))))
    assert "x" not in printed(loop("i", "4", guard("i > 3", store("y[i]", "x[i, 0]"))))
    assert "if i <= 2:" in printed(loop("i", "4", guard("i <= 2", store("y[i]", "x[i, 0]"))))


def test_a_condition_on_sizes_or_data_stays() -> None:
    assert "if i < n:" in printed(loop("i", "4", guard("i < n", store("y[i]", "x[i, 0]"))))
    assert "if x[i] < 3:" in printed(loop("i", "4", guard("x[i] < 3", store("y[i]", "x[i, 0]"))))


def test_an_else_of_which_nothing_is_left_is_left_out() -> None:
    never = guard("i <= 1", store("y[i]", "x[0, 0]"))
    text = printed(loop("i", "4", Guard(expression("i <= 1"), store("y[i]", "x[1, 0]"), never)))
    assert "else" not in text
    assert "x[0, 0]" not in text
