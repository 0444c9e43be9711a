"""Random programs of loops: products, reductions, stencils, scans, in time or not, of one type or several.

Small whole numbers, cut to 9 after each statement, so that results are exact in any legal order and in any type. What
`compile` makes of them by itself, as machine code and in lock-step, is what the oracle says; and so is what random
verbs make of them, or of the strategy's schedule, unless they are refused.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.rewrite import expand
from polyfuse.strategy import plan_for
from tests.support.examples import examples
from tests.support.verbs import Call, calls, placements

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48)
TYPES = ("f32", "f64", "i32", "i64", "f16", "bf16")
NAMES = {
    **{"f32": "np.float32", "f64": "np.float64", "i32": "np.int32", "i64": "np.int64"},
    **{"f16": "np.float16", "bf16": "bfloat16"},
}
MOST = 100_000
"""Instances of a statement, if no less is asked for."""

_files = itertools.count()


class Program:
    """The source of a function of loops, and the arrays in it: x… are given, y… changed too, v… local."""

    def __init__(self, random: Random, most: int = MOST) -> None:
        self.random, self.most = random, most
        self.sizes = {d: random.choice(SIZES) for d in "ijkl"}
        self.types = random.choice([("f32",), ("f32",), ("f64",), ("i32",), ("i64",), TYPES])
        self.dims: dict[str, str] = {}
        self.type_of: dict[str, str] = {}
        times = random.choice([0, 0, 0, 2, 3])
        lines = [line for _ in range(random.randint(1, 4)) for line in self.statement()]
        if not self.named("y"):
            lines += self.elementwise("i", "y")
        if times:
            lines = [f"for t in range({times}):", *indented(lines)]
        local = [f"{n} = np.zeros({self.shape(n)}, {NAMES[self.type_of[n]]})" for n in self.named("v")]
        given = [
            f'{n}: "{self.type_of[n]}{list(self.shape(n))}"' for n in (*self.named("x"), *self.named("y"))
        ]
        head = ["import numpy as np", "from ml_dtypes import bfloat16", "", ""]
        self.source = "\n".join([*head, f"def program({', '.join(given)}):", *indented([*local, *lines]), ""])

    def named(self, role: str) -> list[str]:
        """The arrays of a role: "x", "y" or "v"."""
        return [name for name in self.dims if name.startswith(role)]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.sizes[d] for d in self.dims[name])

    def new(self, role: str, dims: str, types: tuple[str, ...]) -> str:
        name = f"{role}{len(self.dims)}"
        self.dims[name], self.type_of[name] = dims, self.random.choice(types)
        return name

    def target(self, dims: str, sums: bool = False) -> str:
        """An array with these dimensions in some order, which nothing or something else was stored to."""
        types = ("f32", "f64") if sums and len(self.types) > 1 else self.types
        alike = [n for n, own in self.dims.items() if n[0] != "x" and sorted(own) == sorted(dims)]
        known = [n for n in alike if self.type_of[n] in types]
        if known and self.random.random() < 0.4:
            return self.random.choice(known)
        return self.new(self.random.choice("yv"), "".join(self.shuffled(dims)), types)

    def shuffled(self, dims: str) -> list[str]:
        return self.random.sample(list(dims), len(dims))

    def element(self, name: str, moved: str = "", by: str = "") -> str:
        return f"{name}[{', '.join(d + by if d == moved else d for d in self.dims[name])}]"

    def operand(self, dims: str, but: str, moved: str = "") -> str:
        """An element of an array that has some of the dimensions."""
        known = [n for n, own in self.dims.items() if set(own) <= set(dims) and n != but]
        if not known or self.random.random() < 0.4:
            count = self.random.randint(1, min(3, len(dims)))
            known = [self.new("x", "".join(self.shuffled(dims)[:count]), self.types)]
        return self.element(self.random.choice(known), moved, self.random.choice([" - 1", " + 1", ""]))

    def value(self, dims: str, but: str, moved: str = "", depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.3:
            return self.operand(dims, but, moved)
        a, b, c, d = (self.value(dims, but, moved, depth - 1) for _ in range(4))
        forms = (
            f"({a} + {b})",
            f"({a} - {b})",
            f"(3 * {a})",
            f"abs({a})",
            f"max({a}, {b})",
            f"min({a}, {b})",
            f"({c} if {a} < {b} else {d})",
        )
        return self.random.choice(forms)

    def loops(self, dims: list[str], lines: list[str], bounds: dict[str, str] | None = None) -> list[str]:
        for d in reversed(dims):
            lines = [f"for {d} in range({(bounds or {}).get(d, self.sizes[d])}):", *indented(lines)]
        return lines

    def chosen(self, most: int) -> str:
        """Dimensions of a statement of not too many instances."""
        dims = "".join(self.shuffled("ijkl"))[: self.random.randint(1, most)]
        while prod(self.sizes[d] for d in dims) > self.most:
            dims = dims[:-1]
        return dims

    def statement(self) -> list[str]:
        dims = self.chosen(3)
        made = self.random.choice(
            [self.elementwise, self.stencil, self.scan, self.product, self.product, self.reduction]
        )
        return made(dims)

    def elementwise(self, dims: str, role: str = "") -> list[str]:
        target = self.new(role, dims, self.types) if role else self.target(dims)
        return self.loops(self.shuffled(dims), [f"{self.element(target)} = {cut(self.value(dims, ''))}"])

    def stencil(self, dims: str) -> list[str]:
        along = dims[0]
        if self.sizes[along] < 3:
            return self.elementwise(dims)
        target = self.target(dims)
        line = f"{self.element(target)} = {cut(self.value(dims, self.random.choice(['', target]), along))}"
        return self.loops(self.shuffled(dims), [line], {along: f"1, {self.sizes[along] - 1}"})

    def scan(self, dims: str) -> list[str]:
        along, target = dims[0], self.target(dims)
        if self.sizes[along] < 2:
            return self.elementwise(dims)
        value = f"{self.element(target, along, ' - 1')} + {self.value(dims, target, depth=1)}"
        return self.loops(
            list(dims), [f"{self.element(target)} = {cut(value)}"], {along: f"1, {self.sizes[along]}"}
        )

    def reduction(self, dims: str) -> list[str]:
        step, rest = dims[0], dims[1:]
        target = self.target(rest or step, sums=True)
        y, value = self.element(target), self.value(dims, target, depth=1)
        form = self.random.choice([f"{y} += {value}", f"{y} = max({y}, {value})", f"{y} = min({y}, {value})"])
        return [*self.loops(self.shuffled(dims), [form]), *self.kept_small(target)]

    def product(self, dims: str) -> list[str]:
        steps = [d for d in "ijkl" if d not in dims][:1]
        if prod(self.sizes[d] for d in (*dims, *steps)) > self.most:
            return self.elementwise(dims)
        target = self.target(dims, sums=True)
        half = max(1, len(dims) // 2)
        a, b = (self.factor([*part, *steps], target) for part in (dims[:half], dims[half:]))
        start = f"{self.element(target)} = {self.random.choice([0, 0, 1])}"
        line = f"{self.element(target)} += {a} * {b}"
        triangle = (
            {steps[0]: f"min({dims[0]} + 1, {self.sizes[steps[0]]})"} if self.random.random() < 0.2 else None
        )
        order = [*dims, *steps] if triangle else self.shuffled("".join([*dims, *steps]))
        return [
            *self.loops(list(dims), [start]),
            *self.loops(order, [line], triangle),
            *self.kept_small(target),
        ]

    def factor(self, dims: list[str], but: str) -> str:
        known = [n for n, own in self.dims.items() if sorted(own) == sorted(dims) and n != but]
        if not known or self.random.random() < 0.5:
            known = [self.new("x", "".join(self.shuffled("".join(dims))), self.types)]
        return self.element(self.random.choice(known))

    def kept_small(self, target: str) -> list[str]:
        element = self.element(target)
        return self.loops(list(self.dims[target]), [f"{element} = {cut(element)}"])


def cut(value: str) -> str:
    return f"max(min({value}, 9), -9)"


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def loaded(source: str, folder: Path) -> pf.Nest:
    """The program's nest: from a file of its own, as source is read."""
    path = folder / f"program{next(_files)}.py"
    path.write_text(source, encoding="utf-8")
    module = ModuleType(path.stem)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return pf.nest(module.program)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@settings(
    max_examples=examples(10),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller seed is no smaller program
)
@given(seed=st.integers(0, 2**32), units=st.sampled_from([1, 2]))
@example(
    seed=285067804, units=1
)  # parts of a step of 33 × 8 and 32 × 32 threads, which are no block together
def test_random_programs(folder: Path, seed: int, units: int) -> None:
    program = Program(Random(seed))
    nest = loaded(program.source, folder)
    for target in ("cpu", "cuda"):
        net = pf.compile(nest, **options(target, units))
        check(net, nest, seed, f"{target}\n{program.source}")
    event("in time" if "for t in" in program.source else "once")


@settings(
    max_examples=examples(25),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.reuse, Phase.generate],
)
@given(
    data=st.data(),
    seed=st.integers(0, 2**32),
    target=st.sampled_from(["cpu", "cuda"]),
    units=st.sampled_from([1, 2]),
)
def test_random_verbs_on_random_programs(
    folder: Path, data: st.DataObject, seed: int, target: str, units: int
) -> None:
    program = Program(Random(seed), most=MOST // 10)
    schedule = scheduled(data, loaded(program.source, folder), target, units)
    try:
        net = pf.compile(schedule.source, schedule=schedule, **options(target, units))
    except (IllegalSchedule, InvalidSchedule) as refused:  # no barrier helps, or no thread is there
        event(f"refused when compiled: {type(refused).__name__}")
        return
    check(net, schedule.source, seed, f"{target}\n{program.source}\n{schedule.trace()}")


def scheduled(data: st.DataObject, nest: pf.Nest, target: str, units: int) -> pf.Schedule:
    """The order as written, or what the strategy makes of it, after one to six random verbs, on a GPU after binds."""
    schedule = pf.Schedule(nest)
    if data.draw(st.booleans(), label="by the strategy"):
        machine = options(target, units)["machine"]
        schedule = plan_for(expand(nest).nest, machine).schedule
    elif target == "cuda":
        for call in data.draw(placements(schedule)):
            schedule = tried(schedule, call)
    for _ in range(data.draw(st.integers(1, 6), label="verbs")):
        schedule = tried(schedule, data.draw(calls(schedule, target)))
    return schedule


def tried(schedule: pf.Schedule, call: Call) -> pf.Schedule:
    """The schedule after a verb, or as it was if the verb is refused."""
    try:
        done = call.on(schedule)
    except (IllegalSchedule, InvalidSchedule):
        event(f"refused {call.verb}")
        return schedule
    event(f"accepted {call.verb}")
    return done


def options(target: str, units: int) -> dict[str, Any]:
    """Where a program is compiled for: so many cores, or a stand-in for a GPU."""
    if target == "cuda":
        return {"target": target, "machine": pf.Machine.preset("h200"), "device": "lockstep"}
    return {"target": target, "machine": replace(pf.Machine.preset("zen5"), units=units)}


def check(net: pf.Executable, nest: pf.Nest, seed: int, how: str) -> None:
    """A call leaves in each array what the oracle does."""
    rng = np.random.default_rng(seed)
    arrays = {
        tensor.name: rng.integers(-2, 3, tensor.shape).astype(tensor.dtype)
        for tensor in nest.tensors
        if tensor.role in ("input", "inout")
    }
    expected = pf.interpret(nest, {name: array.copy() for name, array in arrays.items()})
    net(*arrays.values())
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, f"{name} on {how}")
