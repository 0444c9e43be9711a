"""Products whose factors are read in steps, backward or through other shapes: staged by what they are, on all cores."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.machine import Machine
from polyfuse.nn import Value
from polyfuse.strategy.cuda.gemm.schedule import product_of
from polyfuse.strategy.match.gemm import moves_by_one, products_of
from polyfuse.strategy.match.operand_rows import by_steps, in_vectors
from polyfuse.strategy.pipeline import plan_for
from tests.support.on_tensor_cores import assert_exact, in_planned_registers

pytest.importorskip("numba.cuda")

ROWS, STEPS, COLUMNS = 70, 64, 72

READ: dict[str, Callable[[Any], Value]] = {
    "rows backward": lambda dt: nn.flip(nn.input("x", (ROWS, STEPS), dt), 0),
    "steps backward": lambda dt: nn.flip(nn.input("x", (ROWS, STEPS), dt), 1),
    "every second row": lambda dt: nn.input("x", (2 * ROWS, STEPS), dt)[::2],
    "every third step": lambda dt: nn.input("x", (ROWS, 3 * STEPS), dt)[:, ::3],
    "steps as an image": lambda dt: nn.reshape(nn.input("x", (ROWS, 4, 2, 8), dt), (ROWS, STEPS)),
    "rows as an image": lambda dt: nn.reshape(nn.input("x", (7, 10, STEPS), dt), (ROWS, STEPS)),
    "steps in odd parts": lambda dt: nn.reshape(
        nn.permute(nn.input("x", (ROWS, 8, 8), dt), (0, 2, 1)), (ROWS, STEPS)
    ),
}
CORES = [
    ("float32", "ieee", "h200"),
    ("float64", "ieee", "a100"),
    ("float32", "tf32", "a100"),
    ("float32", "bf16", "h200"),
    ("bfloat16", "bf16", "h200"),
    ("float16", "f16", "a100"),
    ("bfloat16", "ieee", "a100"),
]


def product(read: str, dtype: Any, turned: bool = False) -> pf.Nest:
    """max(x @ y, 0), or max(y @ x.T, 0), where x is read in some other way."""
    x = READ[read](dtype)
    if turned:
        return nn.lower(nn.relu(nn.matmul(nn.input("y", (COLUMNS, STEPS), dtype), nn.transpose(x))))
    return nn.lower(nn.relu(nn.matmul(x, nn.input("y", (STEPS, COLUMNS), dtype))))


def in_tiles(nest: pf.Nest, machine: str, math: Any) -> pf.Executable:
    """The plan with tiles of results, whether the model finds them the faster form at these sizes or not."""
    model = replace(Machine.preset(machine), math=math)
    schedule = plan_for(nest, model, force={"register tiles": True}).schedule
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine=machine, device="lockstep")


FEW = ("rows backward", "steps as an image", "every third step")
"""Neighbours, neighbours of another shape, none: enough for forms that differ in what is done with them."""

EVERY = [
    *((read, *CORES[n], False) for n in (0, 1, 4) for read in READ),
    *((read, *CORES[n], False) for n in (2, 3, 5, 6) for read in FEW),
    *((read, *CORES[n], True) for n in (0, 4) for read in FEW),
]


@pytest.mark.parametrize(("read", "dtype", "math", "machine", "turned"), EVERY)
def test_in_lock_step_it_is_exact(read: str, dtype: Any, math: Any, machine: str, turned: bool) -> None:
    nest = product(read, dtype, turned)
    net = in_tiles(nest, machine, math)
    assert len(net.program.launches) == 1, "what is read otherwise is no copy"
    assert_exact(net, nest)


@pytest.mark.parametrize(
    ("read", "wide", "steps"),
    [
        ("rows backward", True, True),
        ("steps backward", False, False),
        ("every second row", True, True),
        ("every third step", False, False),
        ("steps as an image", True, True),
        ("rows as an image", True, True),
        ("steps in odd parts", False, False),
    ],
)
def test_which_elements_are_neighbours(read: str, wide: bool, steps: bool) -> None:
    """By their positions in memory: those of a reshaped tensor are still in rows, of a flipped one backward."""
    nest = plan_for(product(read, "float32"), Machine.preset("h200")).schedule.source
    (name,) = (s.name for s in nest.statements if s.op == "+=")
    found = product_of(nest, name)
    assert found is not None
    assert in_vectors(nest, found, found.left, 4) == wide
    assert by_steps(nest, found, found.left) == steps
    assert not moves_by_one(found.left.access, 3)
    assert moves_by_one(found.right.access, 3)
    assert found.left.axes == {0: 0, 2: 1}
    assert all(p.left.name != found.left.name for p in products_of(nest, name))


def test_machine_code_of_a_flattened_image() -> None:
    """A linear layer behind an image: tiles copied 16 bytes at a time, as of a matrix."""
    pytest.importorskip("cuda.core")
    x, y = nn.input("x", (512, 8, 8, 8)), nn.input("y", (512, 512))
    nest = nn.lower(nn.relu(nn.matmul(nn.reshape(x, (512, 512)), y)))
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert "copy_ahead(4" in net.program.source
    for capability in ((8, 0), (9, 0)):
        in_planned_registers(net, capability)


def test_what_boxes_cannot_copy_takes_the_next_form() -> None:
    x, y = nn.input("x", (512, 8, 8, 8), "bfloat16"), nn.input("y", (512, 512), "bfloat16")
    net = pf.compile(
        nn.lower(nn.relu(nn.matmul(nn.reshape(x, (512, 512)), y))),
        target="cuda",
        machine="h200",
        device="none",
        math="bf16",
    )
    assert "no factor of mac0 is copied in boxes: bind: one instruction cannot run loop" in str(net.explain())
    assert "by tensor cores on bf16 factors, 64 steps" in str(net.explain())
