"""Options of the backend: each wrong value is refused with what would do, and no region falls back because of it."""

from functools import partial

import numba
import pytest

import polyfuse as pf

torch = pytest.importorskip("torch")

from polyfuse.torch import backend  # noqa: E402  # needs torch
from polyfuse.torch.options import Options  # noqa: E402
from polyfuse.torch.record import Record  # noqa: E402


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"math": "fp8"}, "unknown math 'fp8'; expected one of ieee"),
        ({"math": "bf16"}, "math='bf16' is for a GPU's tensor cores"),
        ({"threads": 0}, "threads is 0, expected 1 to"),
        ({"threads": 4096}, "threads is 4096, expected 1 to"),
        ({"threads": 1.0}, "threads is 1.0, expected 1 to"),
        ({"threads": 1, "target": "cuda"}, "they are a CPU's: the target is a GPU"),
        ({"threads": 1, "machine": "h200"}, "they are a CPU's: the target is a GPU"),
        ({"fast_matmul": "fast"}, "unknown algorithm 'fast'; expected one of strassen"),
        ({"budget": -1}, "expected a positive number of seconds"),
        ({"target": "tpu"}, "unknown target 'tpu'"),
        ({"device": "gpu"}, "device='gpu' is for CUDA kernels"),
        ({"machine": "cray"}, "unknown machine 'cray'"),
        ({"force": {"speed": True}}, "no pass is called 'speed'"),
        ({"fallback": "later"}, "fallback is 'later', expected one of 'eager', 'inductor', 'error'"),
        ({"freeze": 1}, "freeze is 1, expected True, False or 'unchecked'"),
        ({"speed": 3}, "there is no speed; expected target"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_compiled(options, message) -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    with pytest.raises(pf.PolyfuseError, match=message):
        backend(graph, [torch.ones(2)], options=options)


def test_one_thread_plans_and_runs_on_one(monkeypatch) -> None:
    used = []
    x, record, before = torch.randn(300, 300), Record(), numba.get_num_threads()
    torch._dynamo.reset()
    fast = torch.compile(
        lambda x: torch.relu(x) @ x, backend=partial(backend, record=record), options={"threads": 1}
    )
    assert torch.allclose(fast(x), torch.relu(x) @ x, rtol=1e-4, atol=1e-3)
    monkeypatch.setattr(numba, "set_num_threads", used.append)
    fast(x)
    assert used == [1, before]
    (made,) = record.graphs[0].regions[0].compiled
    assert made.compiled.machine.units == 1
    assert (
        Options.of({"threads": 1, "machine": "zen5"}).compile["machine"].name
        == pf.Machine.preset("zen5").name
    )
