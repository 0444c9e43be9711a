"""Machine code: what a compile leaves behind in the process."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn

STATM = Path("/proc/self/statm")


def resident() -> float:
    """Megabytes of this process in memory."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096 / 1e6


def a_network(seed: int) -> None:
    layers = nn.Linear(24, 40, seed=seed), nn.ReLU(), nn.Linear(40, 40, seed=seed)
    schedule = pf.Schedule(pf.lower(nn.Sequential(*layers), batch=16)).bind("mac0", i="cores")
    net = pf.compile(schedule.nest, target="cpu", schedule=schedule)
    net(np.zeros((16, 24), np.float32))


@pytest.mark.skipif(not STATM.exists(), reason="what is resident is read from /proc")
def test_a_network_that_is_dropped_leaves_little() -> None:
    for seed in range(3):
        a_network(seed)
    before = resident()
    for seed in range(8):
        a_network(seed)
    assert (resident() - before) / 8 < 1.5  # 0.3 MB; numba's own libraries keep 5
