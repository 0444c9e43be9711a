"""Operators on numbers have the types that numba's own rules give them, on both targets, and are asked for once."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import pytest
from numba.core import errors, types
from numba.core.target_extension import target_override

from polyfuse.codegen.operator_types import registry_for

KINDS = (
    types.int64,
    types.int32,
    types.uint32,
    types.float32,
    types.float64,
    types.boolean,
    types.literal(3),
)
UNARY = (operator.neg, operator.invert, operator.not_)


def context_of(target: str) -> tuple[Any, Any]:
    """(a target's typing context, its module of templates)."""
    if target == "cpu":
        from numba.core.registry import cpu_target
        from numba.core.typing import templates

        return cpu_target.typing_context, templates
    descriptor = pytest.importorskip("numba.cuda.descriptor")
    from numba.cuda.typing import templates as cuda_templates

    return descriptor.cuda_target.typing_context, cuda_templates


def said(function: types.Function, context: Any, kinds: tuple[types.Type, ...]) -> str:
    try:
        return str(function.get_call_type(context, kinds, {}))
    except (errors.TypingError, errors.UnsupportedError):
        return "none"


@pytest.fixture(params=["cpu", "cuda"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    with target_override(request.param):
        yield request.param


def test_each_operator_has_the_type_that_other_rules_give_it(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, templates = context_of(target)
    context.refresh()
    compared = 0
    for each, ours in registry_for(target, templates).globals:
        (rule,) = ours.templates
        installed = context.resolve_value_type(each).templates
        others = types.Function([one for one in installed if one.__qualname__ != rule.__qualname__])
        both = types.Function([*others.templates, rule])
        monkeypatch.setattr(context, "resolve_value_type", lambda _, found=both: found)
        for kinds in itertools.product(KINDS, repeat=1 if each in UNARY else 2):
            expected = said(others, context, kinds)
            assert said(both, context, kinds) == expected, (each, kinds)
            compared += expected != "none"
        monkeypatch.undo()
    assert compared > 700


def test_the_rules_are_asked_once_for_the_same_numbers(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context, templates = context_of(target)
    asked: list[tuple[types.Type, ...]] = []

    class Counted(templates.AbstractTemplate):  # type: ignore[misc, name-defined]
        key = operator.mul

        def generic(self, args: tuple[types.Type, ...], kws: Any) -> Any:
            asked.append(args)
            return templates.signature(types.float64, *args)

    (mul,) = (typ for each, typ in registry_for(target, templates).globals if each is operator.mul)
    both = types.Function([Counted, *mul.templates])
    monkeypatch.setattr(context, "resolve_value_type", lambda _: both)
    pair = (types.int64, types.float32)
    assert [said(both, context, pair) for _ in range(3)] == ["(int64, float32) -> float64"] * 3
    assert asked == [pair]


def test_what_is_no_number_is_left_to_other_rules() -> None:
    context, templates = context_of("cpu")
    for each, typ in registry_for("cpu", templates).globals:
        (rule,) = typ.templates
        pair = types.UniTuple(types.int64, 2)
        assert rule(context).generic((pair, pair), {}) is None, each
        assert rule(context).generic((types.int64,), {"other": types.int64}) is None, each
