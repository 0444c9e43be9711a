"""Keys: whatever changes what a compile makes changes its key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import islpy as isl
import numba
import numpy as np
import pytest
import sympy

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.ir.scalar import Maximum, div, number, read
from polyfuse.runtime import compile_key as keys
from polyfuse.runtime.compile_key import digest, key_parts, nest_text

MACHINE = pf.Machine.preset("zen5")


def nest() -> pf.Nest:
    return cases.dense(6, 9, 4, batch=5)


def key(
    of: pf.Nest, schedule: pf.Schedule | None = None, machine: pf.Machine = MACHINE, fuse: bool = True
) -> str:
    return digest(key_parts(of, schedule, machine, {"fuse": fuse}))


def with_tensor(old: pf.Nest, **changes: object) -> pf.Nest:
    return replace(old, tensors=(replace(old.tensors[0], **changes), *old.tensors[1:]))


def with_statement(old: pf.Nest, **changes: object) -> pf.Nest:
    return replace(old, statements=(replace(old.statements[0], **changes), *old.statements[1:]))


def other_access(old: pf.Nest) -> pf.Nest:
    first = old.statements[0]
    other = isl.Map(f"{{ {first.name}[i, j] -> {first.write.tensor}[j, i] }}").intersect_domain(first.domain)
    return with_statement(old, write=replace(first.write, map=other))


CHANGES: dict[str, Callable[[pf.Nest], pf.Nest]] = {
    "name": lambda n: replace(n, name="other"),
    "context": lambda n: replace(n, context=isl.Set("[N] -> { : N > 3 }")),
    "a tensor's name": lambda n: with_tensor(n, name="other"),
    "a tensor's shape": lambda n: with_tensor(n, shape=(5, 7)),
    "a tensor's dtype": lambda n: with_tensor(n, dtype="float64"),
    "a tensor's role": lambda n: with_tensor(n, role="inout"),
    "a domain": lambda n: with_statement(n, domain=n.statements[0].domain.subtract(one_instance(n))),
    "an access": other_access,
    "an operator": lambda n: with_statement(n, op="+="),
    "a body": lambda n: with_statement(n, body=number(0.25)),
    "the order of tensors": lambda n: replace(n, tensors=n.tensors[::-1]),
    "the order of statements": lambda n: replace(n, order=pf.Schedule(n).fuse("zero0", "mac0", at="j").tree),
}


def one_instance(of: pf.Nest) -> isl.Set:
    return isl.Set(f"{{ {of.statements[0].name}[0, 0] }}")


@pytest.mark.parametrize("change", CHANGES)
def test_every_part_of_a_nest_counts(change: str) -> None:
    old = nest()
    assert nest_text(CHANGES[change](old)) != nest_text(old)
    assert key(CHANGES[change](old)) != key(old)


def test_bodies_over_the_same_reads_are_told_apart() -> None:
    first, product, *others = nest().statements
    a, b = read(0), read(1)
    bodies = [a + b, a * b, Maximum(a, b), div(a, b), sympy.Pow(a, b, evaluate=False)]
    changed = [(first, replace(product, body=body), *others) for body in bodies]
    assert len({nest_text(replace(nest(), statements=statements)) for statements in changed}) == len(bodies)


def test_the_values_of_constants_do_not_count() -> None:
    old = nest()
    new = old.with_constants({name: np.zeros_like(a) for name, a in old.constants.items()})
    assert key(new) == key(old)


def test_a_nest_lowered_again_has_the_same_key() -> None:
    assert key(nest()) == key(nest())


def test_schedule_strategy_and_machine_count() -> None:
    old = nest()
    by_hand = pf.Schedule(old)
    tiled = by_hand.tile("mac0", i=2, j=3)
    others = [
        key(old),
        key(old, fuse=False),
        key(old, by_hand),
        key(old, tiled),
        key(old, by_hand.tile("mac0", i=3, j=3)),
        key(old, tiled.fuse("bias0", "relu0", at="j")),
        key(old, machine=replace(MACHINE, vector_bytes=32)),
        key(old, machine=replace(MACHINE, units=1)),
    ]
    assert len(set(others)) == len(others)
    assert key(old, pf.Schedule(nest()).tile("mac0", i=2, j=3)) == key(old, tiled)


def test_a_schedule_of_another_nest_is_another_key() -> None:
    other = pf.Schedule(cases.dense(6, 9, batch=5))
    assert key(nest(), other) != key(nest(), pf.Schedule(nest()))


@pytest.mark.parametrize("part", ["host_text", "versions_text", "settings_text", "source_digest"])
def test_what_compiles_counts(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = key(nest())
    monkeypatch.setattr(keys, part, lambda: "other")
    assert key(nest()) != old


def test_numbas_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    old = key(nest())
    monkeypatch.setattr(numba.config, "OPT", 1)
    assert key(nest()) != old


def test_every_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = keys.metadata.version
    found = {keys.versions_text()}
    for package in keys.PACKAGES:
        keys.versions_text.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(keys.metadata, "version", lambda name, p=package: "0" if name == p else real(name))
            found.add(keys.versions_text())
    keys.versions_text.cache_clear()
    assert len(found) == 1 + len(keys.PACKAGES)


def test_every_source_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "PACKAGE", tmp_path)
    found = []
    for text in ("a = 1", "a = 2"):
        (tmp_path / "inner").mkdir(exist_ok=True)
        (tmp_path / "inner" / "module.py").write_text(text)
        found.append(keys.source_digest.__wrapped__())
    (tmp_path / "inner" / "module.py").rename(tmp_path / "inner" / "other.py")
    found.append(keys.source_digest.__wrapped__())
    assert len(set(found)) == 3


def test_a_new_option_of_compile_has_to_be_thought_of() -> None:
    """An option decides what is compiled: it has to be in the key, or reach it through nest, machine or target."""
    in_key = {
        "nest",
        "schedule",
        "fuse",
        "machine",
        "device",
        "tune",
        "fast_matmul",
        "accuracy",
        "fold",
        "force",
        "budget",
    }
    # Sizes and what an example tells are the nest's, target and math the machine's.
    through_others = {"sizes", "example", "target", "math"}
    assert set(inspect.signature(pf.compile).parameters) == in_key | through_others


def test_layers_that_differ_in_a_number_differ() -> None:
    slopes = (0.1, 0.10000000000000002)
    assert len({key(cases.pointwise(nn.LeakyReLU(slope), 2, 3)) for slope in slopes}) == 2
