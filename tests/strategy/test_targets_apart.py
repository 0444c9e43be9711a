"""A plan for one target takes no step in the other target's part of the strategy."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import polyfuse as pf
import polyfuse.strategy
from polyfuse import nn
from polyfuse.strategy import plan_for

STRATEGY = Path(polyfuse.strategy.__file__).parent


def network() -> pf.Nest:
    x = nn.input("x", (4, 16))
    return nn.lower(nn.softmax(nn.relu(x @ nn.input("w", (16, 8)))))


def attention() -> pf.Nest:
    q, k, v = (nn.input(name, (32, 16)) for name in "qkv")
    return nn.lower(nn.softmax(q @ nn.transpose(k)) @ v)


def entered(nest: pf.Nest, machine: str) -> dict[str, set[str]]:
    """The functions of each target's folder that are called for a plan, as file and name."""
    found: dict[str, set[str]] = {"cpu": set(), "cuda": set()}

    def seen(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and STRATEGY in path.parents:
            target = path.relative_to(STRATEGY).parts[0]
            found.get(target, set()).add(f"{path.stem}.{frame.f_code.co_name}")

    sys.setprofile(seen)
    try:
        plan_for(nest, pf.Machine.preset(machine))
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("nest", [network, attention])
@pytest.mark.parametrize(("machine", "own", "other"), [("zen5", "cpu", "cuda"), ("h200", "cuda", "cpu")])
def test_a_plan_stays_in_its_targets_folder(nest: object, machine: str, own: str, other: str) -> None:
    calls = entered(nest(), machine)  # type: ignore[operator]
    assert calls[own], "the probe sees calls"
    assert not calls[other]
