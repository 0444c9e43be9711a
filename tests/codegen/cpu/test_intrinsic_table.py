"""The names that emitted CPU source imports: one table, one module that has them all, one import statement."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import intrinsics, nn
from polyfuse.codegen.cpu.intrinsic_table import COLUMNS, FACADE, INTRINSICS, header


def test_the_module_has_what_the_table_lists() -> None:
    assert intrinsics.__name__ == FACADE
    assert sorted(INTRINSICS) == sorted(intrinsics.__all__)
    assert all(hasattr(intrinsics, name) for name in INTRINSICS)


def imported(source: str) -> list[ast.ImportFrom]:
    """The statements that import something of polyfuse."""
    statements = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    return [node for node in statements if str(node.module).startswith("polyfuse")]


@pytest.mark.parametrize("layers", [(nn.Linear(64, 64, seed=0), nn.ReLU()), (nn.Softmax(),)], ids=len)
def test_emitted_source_names_nothing_that_it_does_not_import(layers: tuple[Any, ...]) -> None:
    net = pf.compile(pf.lower(nn.Sequential(*layers), batch=64, features=(64,)), target="cpu")
    (statement,) = imported(net.source)
    assert statement.module == FACADE
    space: dict[str, Any] = {}
    exec(net.source, space)
    tree = ast.parse(net.source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    local = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert {name.id for name in names} <= local | set(space) | set(vars(builtins))


def test_names_that_only_contain_an_intrinsics_are_not_imported() -> None:
    assert imported(header("tile_macs(x)\nrerun(x)\nlarger = 1\n")) == []
    (statement,) = imported(header("@Part\ndef k(x):\n    y = smaller(larger(x, 1), 2)\n"))
    assert [alias.name for alias in statement.names] == ["Part", "larger", "smaller"]


def test_long_imports_have_several_lines() -> None:
    text = header("".join(f"{name}()\n" for name in INTRINSICS))
    (statement,) = imported(text)
    assert sorted(alias.name for alias in statement.names) == sorted(INTRINSICS)
    assert max(map(len, text.splitlines())) <= COLUMNS + 1
