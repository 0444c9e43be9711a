"""The cache: what another process loads is what was compiled; whatever is wrong with it costs time and nothing else."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import compiler, nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.artifact import Compiled
from polyfuse.runtime.cpu.native import machine_code
from polyfuse.runtime.interface import Phases
from polyfuse.runtime.store import cache
from polyfuse.runtime.store.cache import store_here
from polyfuse.runtime.store.files import OWN
from polyfuse.runtime.store.store import Store
from polyfuse.schedule import Schedule

RUNTIME = Path(cache.__file__).parent.parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test."""
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    return tmp_path


def nest(seed: int = 0) -> pf.Nest:
    layers = (nn.Linear(6, 9, seed=seed), nn.ReLU(), nn.Linear(9, 4, seed=seed + 1))
    return pf.lower(nn.Sequential(*layers), batch=5)


def rows() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)


def note(net: pf.Executable, **sizes: int) -> str:
    return net.report(sizes).cache


def entries(place: Path) -> list[Path]:
    return sorted((place / OWN / "compiled").iterdir())


def test_the_second_compile_loads_what_the_first_kept(place: Path) -> None:
    first = pf.compile(nest(), target="cpu")
    assert note(first).startswith("kept as ")
    second = pf.compile(nest(), target="cpu")
    assert note(second) == f"loaded from {entries(place)[0].name[:12]}…"
    np.testing.assert_array_equal(second(rows()), first(rows()))
    assert second.explain() == first.explain()
    assert second.source == first.source
    assert [str(kernel) for kernel in second.kernels] == [str(kernel) for kernel in first.kernels]
    assert second.memory_plan() == first.memory_plan()
    assert list(second.report().compile_seconds) == ["cache", "loading"]
    assert f"cache             {note(second)}" in str(second.report())


def test_a_schedule_is_decided_again_only_when_asked_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pf.compile(nest(), target="cpu")
    decisions: list[pf.Nest] = []
    plan = compiler.plan_for
    monkeypatch.setattr(compiler, "plan_for", lambda n, *a, **k: decisions.append(n) or plan(n, *a, **k))
    second = pf.compile(nest(), target="cpu")
    second(rows()), second.explain(), str(second.report())
    assert decisions == []
    assert isinstance(second.schedule, Schedule)
    assert second.schedule.trace() == first.schedule.trace()
    assert isinstance(second.compiled, Compiled)
    assert len(decisions) == 1
    assert second.compiled.program.source == second.source


SMALL = tuple(case for case in cases.CASES if case.small)


@pytest.mark.parametrize(
    ("case", "fuse"),
    [*((case, True) for case in SMALL), *((case, False) for case in SMALL[::3])],
    ids=lambda what: what.name if isinstance(what, cases.Case) else "fused" if what else "unfused",
)
def test_every_case_compiled_and_loaded_is_what_the_oracle_says(
    case: cases.Case, fuse: bool, place: Path
) -> None:
    nest = case.nest()
    first = pf.compile(nest, target="cpu", fuse=fuse)
    second = pf.compile(case.nest(), target="cpu", fuse=fuse)
    assert note(second).startswith("loaded"), note(first)
    names = [tensor.name for tensor in nest.with_role("output")]
    for net in (first, second):
        inputs, outputs = cases.draw(nest, np.random.default_rng(3)), cases.poisoned(nest)
        net(**inputs, out=outputs)
        assert cases.error(nest, inputs, dict(zip(names, outputs, strict=True))) <= cases.TOLERANCE


def test_a_region_of_several_kernels_holds_no_address_of_its_process(place: Path) -> None:
    first, second = (
        pf.compile(cases.dense(*[512] * 9, batch=4), target="cpu", machine="zen5") for _ in range(2)
    )
    assert "first_share(" in first.source
    assert note(second).startswith("loaded"), note(first)
    given = np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32)
    np.testing.assert_array_equal(first(given), second(given))


def test_other_weights_use_the_same_machine_code(place: Path) -> None:
    pf.compile(nest(0), target="cpu")
    other = pf.compile(nest(7), target="cpu")
    assert note(other).startswith("loaded")
    np.testing.assert_allclose(other(rows()), pf.interpret(nest(7), [rows()])["out"], rtol=1e-5, atol=1e-6)


def test_symbolic_sizes(place: Path) -> None:
    step = pf.statement("[N] -> { step[i] : 0 <= i < N }", "t[i] = a[i] + b[i]")
    last = pf.statement("[N] -> { last[i] : 0 <= i < N }", "c[i] = t[N - 1 - i] * a[i]")
    roles = {"a": "input", "b": "input", "t": "temporary", "c": "output"}
    tensors = [pf.Tensor(name, ("N",), "float64", role) for name, role in roles.items()]  # type: ignore[arg-type]
    for _ in range(2):
        net = pf.compile(pf.Nest.of(tensors, [step, last], context="[N] -> { : N >= 0 }"), target="cpu")
        for size in (0, 1, 9):
            a, b = np.arange(size) + 1.0, np.arange(size) ** 2.0
            np.testing.assert_array_equal(net(a, b), (a + b)[::-1] * a)
    assert note(net, N=3).startswith("loaded")


def test_a_schedule_made_by_hand(place: Path) -> None:
    made = [pf.Schedule(n).tile("mac0", i=2, j=3).fuse("bias0", "relu0", at="j") for n in (nest(), nest())]
    first, second = (pf.compile(s.source, target="cpu", schedule=s) for s in made)
    assert note(second).startswith("loaded")
    assert second.schedule.trace() == first.schedule.trace()
    np.testing.assert_array_equal(second(rows()), first(rows()))


def test_no_cache_and_another_size_of_it(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE_MIB", "3")
    store = store_here()
    assert store is not None
    assert store.limit == 3 * 2**20
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    assert store_here() is None
    net = pf.compile(nest(), target="cpu")
    assert note(net) == "off, as POLYFUSE_CACHE says"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("damage", ["magic", "header", "body", "cut", "empty"])
def test_a_damaged_entry_is_discarded_and_made_again(damage: str, place: Path) -> None:
    expected = pf.compile(nest(), target="cpu")(rows())
    (path,) = entries(place)
    content = bytearray(path.read_bytes())
    if damage in ("cut", "empty"):
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    else:
        content[{"magic": 3, "header": 90, "body": -200}[damage]] ^= 1
        path.write_bytes(content)
    net = pf.compile(nest(), target="cpu")
    assert note(net).startswith("an entry was discarded: it")
    assert "; kept as " in note(net)
    np.testing.assert_array_equal(net(rows()), expected)
    assert note(pf.compile(nest(), target="cpu")).startswith("loaded")


def test_machine_code_for_another_process_is_discarded(place: Path) -> None:
    pf.compile(nest(), target="cpu")
    (path,) = entries(place)
    store, key = Store(place / OWN), path.stem
    entry = store.read(key)
    assert entry is not None
    store.write(key, {**entry.header, "needs": ["no_such_symbol"]}, entry.body)
    net = pf.compile(nest(), target="cpu")
    assert "it needs no_such_symbol, which this process does not have" in note(net)
    assert net(rows()).shape == (5, 4)


def without_one(value: Any) -> Iterator[Any]:
    """JSON without one of its fields, for every field of it."""
    if isinstance(value, dict):
        for name, part in value.items():
            rest = {other: each for other, each in value.items() if other != name}
            yield rest
            yield from ({**rest, name: each} for each in without_one(part))
    if isinstance(value, list):
        for position, part in enumerate(value):
            yield from ([*value[:position], each, *value[position + 1 :]] for each in without_one(part))


def test_an_entry_that_lacks_a_field_is_discarded(place: Path) -> None:
    net = pf.compile(nest(), target="cpu")
    store, key = Store(place / OWN), entries(place)[0].stem
    entry = store.read(key)
    assert entry is not None
    lacking = [header for header in without_one(dict(entry.header)) if "key" in header]
    assert len(lacking) > 30
    for header in lacking:
        store.write(key, header, entry.body)
        found = cache.recall(key)
        assert found.kept is None
        assert found.note.startswith("an entry was discarded: a"), found.note
        assert store.read(key) is None
    store.write(key, {"kernels": 1}, entry.body)
    again = pf.compile(nest(), target="cpu")
    assert "an entry was discarded: a field is missing or wrong (KeyError: " in note(again)
    np.testing.assert_array_equal(again(rows()), net(rows()))


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path / "file"))
    net = pf.compile(nest(), target="cpu")
    assert note(net).startswith("not kept: ")
    assert net(rows()).shape == (5, 4)


def test_what_another_process_could_not_use_is_not_kept(place: Path) -> None:
    product = pf.compile(nest(), target="cpu").compiled.product
    code = machine_code(product.program, Phases.of(nest(), product.program, product.memory))
    others = replace(code, tensors=(*code.tensors, "packed")), replace(code, keepable=False)
    notes = [cache.keep("key", nest(), product, other) for other in others]
    assert notes == [
        "not kept: the kernels read constants that the compile made",
        "not kept: the machine code holds addresses of this process",
    ]
    assert [path.stem for path in entries(place)] != ["key"]


SECOND = """
import json, sys
loaded = []
sys.addaudithook(lambda event, args: loaded.append(event) if event.startswith("pickle") else None)
import numpy as np
import polyfuse as pf
from polyfuse import nn
pf.compile, pf.lower
layers = [m for n in range(3) for m in (nn.Linear(200, 200, seed=n), nn.ReLU())]
nest = pf.lower(nn.Sequential(*layers), batch=128)
loaded.clear()
net = pf.compile(nest, target="cpu", machine="zen5")
x = np.random.default_rng(0).standard_normal((128, 200)).astype(np.float32)
unpickled = sorted(set(loaded))
error = float(np.abs(net(x) - pf.interpret(nest, [x])["out"]).max())
print(json.dumps({"note": net.report().cache, "error": error, "unpickled": unpickled,
    "parallel": any(code.parallel for code in net.program.codes)}))
"""


def run_process() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SECOND], check=True, capture_output=True, text=True, env=os.environ
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_second_process_loads_it_and_unpickles_nothing(place: Path) -> None:
    first, second = run_process(), run_process()
    assert first["note"].startswith("kept")
    assert second["note"].startswith("loaded")
    assert second["unpickled"] == []
    assert second["parallel"]
    assert max(first["error"], second["error"]) < 1e-4


ON_THE_WAY = (
    *("store/cache", "store/store", "store/record", "store/files"),
    *("compile_key", "cpu/native", "cuda/cubins"),
)


@pytest.mark.parametrize("module", ON_THE_WAY)
def test_nothing_on_the_way_imports_a_way_to_unpickle(module: str) -> None:
    tree = ast.parse((RUNTIME / f"{module}.py").read_text())
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
