"""A process that is forked from one whose threads have run kernels computes the same, and nobody waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

LAYERS = [
    pytest.param(
        "omp", marks=pytest.mark.skipif(not find_spec("numba.np.ufunc.omppool"), reason="no OpenMP")
    ),
    "workqueue",
]

HEAD = """
import json, multiprocessing, os, threading
import numpy as np
import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cpu.parallel_calls import is_forked

def net(*widths):
    made = pf.compile(cases.dense(*widths, batch=32), target="cpu", machine="zen5")
    assert any(code.parallel for code in made.program.codes)
    return made

def x(width):
    return np.random.default_rng(0).standard_normal((32, width)).astype(np.float32)

def in_child(function):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, json.dumps(function()).encode())
        os._exit(0)
    os.close(writes)
    said = b"".join(iter(lambda: os.read(reads, 4096), b""))
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(said)
"""

CALLS = """
first, many = net(256, 256), net(*[256] * 5)
assert "first_share(" in many.source
right = [each(x(256)) for each in (first, many)]
again = first.capture(x(256))

def errors():
    out = np.empty_like(right[0])
    found = first(x(256)), many(x(256)), again(), first(x(256), out=out)
    return [float(np.abs(one - other).max()) for one, other in zip(found, (*right, right[0], right[0]))]

def in_thread():
    said = []
    thread = threading.Thread(target=lambda: said.extend(errors()))
    thread.start()
    thread.join()
    return said

def while_another_thread_calls(times=20):
    stopped = threading.Event()
    def calls():
        while not stopped.is_set():
            first(x(256))
    thread = threading.Thread(target=calls)
    thread.start()
    found = [error for _ in range(times) for error in in_child(errors)]
    stopped.set()
    thread.join()
    return found

def work(number):
    return max(errors())

with multiprocessing.get_context("fork").Pool(2) as pool:
    pooled = pool.map_async(work, range(4)).get(60)
print(json.dumps({
    "child": in_child(errors), "thread": in_child(in_thread), "grandchild": in_child(lambda: in_child(errors)),
    "compiled there": in_child(lambda: [float(np.abs(net(256, 256)(x(256)) - right[0]).max())]),
    "meanwhile": while_another_thread_calls(),
    "pool": pooled, "parent": errors(), "forked": [is_forked(), in_child(is_forked)],
}))
"""

FIRST_THERE = """
print(json.dumps({"forked": in_child(lambda: [is_forked(), net(256, 256)(x(256)).shape[0], is_forked()])}))
"""


def run(program: str, layer: str) -> dict[str, Any]:
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, env=environment, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_a_forked_process_computes_the_same(layer: str) -> None:
    found = run(CALLS, layer)
    assert found.pop("forked") == [False, layer == "omp"]
    assert {name: len(errors) for name, errors in found.items()} == {
        "child": 4, "thread": 4, "grandchild": 4, "compiled there": 1, "meanwhile": 80, "pool": 4, "parent": 4,
    }  # fmt: skip
    assert max(max(errors) for errors in found.values()) < 1e-4


@pytest.mark.parametrize("layer", LAYERS)
def test_one_that_is_forked_before_any_kernel_starts_its_own_threads(layer: str) -> None:
    assert run(FIRST_THERE, layer) == {"forked": [False, 32, False]}
