"""More shared memory than a kernel may declare: the oracle's results, machine code that fits, a refusal with names."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.runtime.cuda.runner import build_kernels


def by_hand(features: int) -> pf.Schedule:
    """y = x w for 3 rows: all of w in a block's shared memory, copied by its threads."""
    nest = nn.lower(nn.Linear(features, 128, bias=False), batch=3)
    schedule = pf.Schedule(nest).bind("zero0", i="block.x", j="thread.x")
    schedule = schedule.bind("mac0", i="block.x", j="thread.x").promote("w0", "mac0", at="i", memory="shared")
    copy = next(s.name for s in schedule.nest.statements if s.name.startswith("load"))
    return schedule.bind(copy, **{schedule.loops(copy)[-1].name: "thread.x"})


def test_in_lock_step_and_as_machine_code() -> None:
    schedule = by_hand(100)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="rtx4090", device="lockstep")
    x = np.random.default_rng(3).standard_normal((3, 100), np.float32)
    assert np.abs(net(x) - pf.interpret(schedule.source, [x])["out"]).max() < 1e-4
    pytest.importorskip("cuda.core")
    cubin = max(build_kernels(net.program, (8, 9)).values(), key=lambda c: c.shared_bytes)
    assert cubin.shared_bytes == cubin.dynamic_bytes == 100 * 128 * 4
    assert ".extern .shared" in cubin.ptx
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)


def test_more_than_the_device_has_names_the_arrays_and_their_bytes() -> None:
    schedule = by_hand(200)  # 100 KiB, of which the system keeps one
    with pytest.raises(
        InvalidSchedule, match=r"102400 bytes .* rtx4090 gives one 101376: \w+ 102400 \(.*float32\)"
    ):
        pf.compile(schedule.source, schedule=schedule, target="cuda", machine="rtx4090", device="none")
    pf.compile(schedule.source, schedule=schedule, target="cuda", machine="a100", device="none")
