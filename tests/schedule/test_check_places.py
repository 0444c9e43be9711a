"""What a verb has made is checked in the kernels that it has changed, and nowhere else."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse.analysis import hardware_bindings


def chain(count: int) -> pf.Schedule:
    """So many statements, each of what the one before has computed."""
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    steps = [
        pf.statement(f"{{ S{k}[i] : 0 <= i < 8 }}", f"{names[k + 1]}[i] = 2 * {names[k]}[i]")
        for k in range(count)
    ]
    roles = ["input", *["temporary"] * (count - 1), "output"]
    tensors = [pf.Tensor(name, (8,), "float32", role) for name, role in zip(names, roles, strict=True)]  # type: ignore[arg-type]
    return pf.Schedule(pf.Nest.of(tensors, steps))


@pytest.mark.parametrize("count", [4, 16])
def test_only_what_a_verb_has_changed_is_checked(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, asked = chain(count), list[object]()
    real = hardware_bindings._faults

    def faults(tree: object, around: object) -> object:
        asked.append(tree)
        return real(tree, around)  # type: ignore[arg-type]

    monkeypatch.setattr(hardware_bindings, "_faults", faults)
    schedule.bind("S1", i="cores")
    assert len(asked) == 2, "the loop and the statement inside"
