"""Convolutions in register tiles on a GPU: the oracle's results, zeros beyond borders, lean machine code; refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.validation import validate
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.codegen.looptree.half_types import WIDENED
from polyfuse.errors import InvalidSchedule, ValidationFailure
from polyfuse.ir import Nest, Statement, Tensor, statement
from polyfuse.ir.number_types import HALVES
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.simulator.numba_simulator import simulate
from polyfuse.strategy.pipeline import plan_for
from tests.support.banks import assert_no_waits


def convolution(
    image: tuple[int, ...],
    filters: int,
    window: tuple[int, ...] = (3, 3),
    layout: str = "NCHW",
    dtype: str = "float32",
    groups: int = 1,
    **options: object,
) -> Nest:
    """A convolution with whole weights, bias and ReLU."""
    rng = np.random.default_rng(1)
    channels = image[-1 if layout == "NHWC" else 1]
    w = rng.integers(-3, 4, (filters, channels // groups, *window)).astype(dtype)
    b = rng.integers(-3, 4, filters).astype(dtype)
    x = nn.input("x", image, dtype)
    return nn.lower(nn.relu(nn.conv2d(x, w, b, layout=layout, groups=groups, **options)))  # type: ignore[arg-type]


CASES = {
    "padded": partial(convolution, (2, 5, 9, 11), 8, padding=1),
    "strides, dilation, two tiles of channels": partial(
        convolution, (1, 20, 13, 19), 12, stride=2, dilation=(1, 2)
    ),
    "channels last, results beyond the image": partial(
        convolution, (2, 9, 11, 17), 20, layout="NHWC", padding=((2, 0), (0, 3))
    ),
    "1 x 1": partial(convolution, (2, 18, 6, 8), 16, (1, 1)),
}
every_case = pytest.mark.parametrize("name", CASES)
every_dtype = pytest.mark.parametrize("dtype", ["float32", *HALVES])


IN_GROUPS = {
    "in groups": partial(convolution, (2, 8, 5, 9), 16, padding=1, groups=2),
    "in groups, channels last": partial(convolution, (1, 9, 10, 9), 18, layout="NHWC", groups=3, stride=2),
}


@cache
def program(name: str, dtype: str = "float32") -> pf.Executable:
    """The plan with register tiles, whether the model finds them the faster form at these sizes or not."""
    nest, machine = {**CASES, **IN_GROUPS}[name](dtype=dtype), Machine.preset("h200")
    schedule = plan_for(nest, machine, force={"register tiles": True}).schedule
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_dtype
@every_case
def test_in_lock_step_it_is_what_the_oracle_says(name: str, dtype: str) -> None:
    net, nest = program(name, dtype), CASES[name](dtype=dtype)
    assert "tile_fma(" in net.source
    x = np.random.default_rng(2).integers(-3, 4, nest.tensor("x").shape).astype(dtype)
    np.testing.assert_array_equal(net(x=x), pf.interpret(nest, {"x": x})["out"])


@pytest.mark.parametrize("name", IN_GROUPS)
def test_convolutions_in_groups_are_tiles_with_what_follows_them(name: str) -> None:
    net, nest = program(name), IN_GROUPS[name]()
    assert len([launch for launch in net.kernels if not launch.once]) == 1, "bias and ReLU stay in registers"
    assert "tile_fma(" in net.source
    x = np.random.default_rng(2).integers(-3, 4, nest.tensor("x").shape).astype(np.float32)
    np.testing.assert_array_equal(net(x=x), pf.interpret(nest, {"x": x})["out"])
    planned = {code.name: code.registers for code in net.program.codes}
    for name_, cubin in build_kernels(net.program, (9, 0)).items():
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert cubin.registers <= (planned.get(name_) or cubin.registers)


@pytest.mark.parametrize(
    ("layout", "dtype", "window", "stride"),
    [("NCHW", "float32", 3, 1), ("NHWC", "bfloat16", 3, 2), ("NCHW", "float32", 5, 1)],
)
def test_depthwise_convolutions_have_several_results_a_thread(
    layout: str, dtype: str, window: int, stride: int
) -> None:
    image = (2, 3, 9, 11) if layout == "NCHW" else (2, 9, 11, 3)
    nest = convolution(image, 3, (window, window), layout, dtype, groups=3, padding=1, stride=stride)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", force={"rows of windows": True})
    assert len(net.kernels) == 1
    assert "neighbouring results a thread, each pixel loaded once" in net.explain()
    x = np.random.default_rng(2).integers(-3, 4, nest.tensor("x").shape).astype(dtype)
    np.testing.assert_array_equal(net(x=x), pf.interpret(nest, {"x": x})["out"])
    (cubin,) = build_kernels(net.program, (9, 0)).values()
    assert not {"LDL", "STL"} & set(opcodes(cubin)), "pixels stay in registers"


@every_case
def test_halves_are_float32_numbers_in_shared_memory_and_no_store_waits_for_a_bank(name: str) -> None:
    net = program(name, "bfloat16")
    held = {t.name: t.dtype for t in net.schedule.nest.tensors if t.name.endswith("_shared")}
    assert held == dict.fromkeys(held, "float32")
    assert len(held) == 2
    assert_no_waits(net.schedule.nest, net.program.launches[-1])


@pytest.mark.parametrize("dtype", HALVES)
def test_every_bit_of_a_half_arrives(dtype: str) -> None:
    """Normal numbers: sums in one order, so the oracle's but for the last bits of float32 before they are rounded."""
    net, nest = program("padded", dtype), CASES["padded"](dtype=dtype)
    x = np.random.default_rng(2).standard_normal(nest.tensor("x").shape).astype(dtype)
    wanted = pf.interpret(nest, {"x": x})["out"].astype("float32")
    assert (net(x=x).astype("float32") == wanted).mean() > 0.99
    assert f"pad_{WIDENED[dtype]}(1, x_shared, " in net.source


def test_pixels_and_filters_are_asked_for_ahead_and_those_beyond_the_border_are_zeros() -> None:
    source = program("padded").source
    assert "pad_ahead(1, x_shared, " in source
    assert "copy_ahead(4, w_panels_shared, " in source
    assert "pad_ahead(" not in program("1 x 1").source


def correlation() -> Nest:
    """y[q, f] += x[q + s - 1] * w[s, f] in an image of 6."""
    s = statement(
        "{ mac[q, f, s] : 0 <= q < 6 and 0 <= f < 4 and 0 <= s < 3 and 0 <= q + s - 1 < 6 }",
        "y[q, f] += x[q + s - 1] * w[s, f]",
    )
    tensors = [Tensor("x", (6,), "float32", "input"), Tensor("w", (3, 4), "float32", "input")]
    return Nest.of([*tensors, Tensor("y", (6, 4), "float32", "inout")], [s])


def padded() -> pf.Schedule:
    return pf.Schedule(correlation()).promote("x[-1 + q + s]", "mac", at="q", axes=("s",), padded=True)


def test_a_padded_value_has_zeros_where_there_were_no_instances() -> None:
    s = padded()
    assert s.nest.domains["mac"].is_equal(
        isl.Set("{ mac[q, f, s] : 0 <= q < 6 and 0 <= f < 4 and 0 <= s < 3 }")
    )
    assert "clear_x: x_local[q, e0] = 0.0" in str(s)
    assert "load_x: x_local[q, e0] = x[-1 + q + e0]" in str(s)
    assert s.trace().endswith("axes=('s',), padded=True)")
    validate(s.source, s.nest, s.tree)
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.integers(-3, 4, t.shape).astype("float32") for t in s.source.inputs}
    wanted = pf.interpret(s.source, arrays)["y"]
    pf.compile(s.source, target="cpu", schedule=s)(**arrays)
    np.testing.assert_array_equal(arrays["y"], wanted)


def other(s: pf.Schedule, name: str, changed: Statement) -> Nest:
    """The nest of a schedule with another statement of that name."""
    statements = tuple(changed if each.name == name else each for each in s.nest.statements)
    return s.nest.rewritten(s.nest.tensors, statements, s.nest.order, frozenset(("x_local",)))


def test_instances_that_the_source_lacks_have_to_add_zeros() -> None:
    s = padded()
    cleared = s.nest.statement("clear_x")
    ones = other(s, "clear_x", statement(str(cleared.domain), "x_local[q, e0] = 1.0"))
    with pytest.raises(ValidationFailure, match="two statements write one buffer"):
        validate(s.source, ones, s.tree)
    fewer = other(
        s, "clear_x", replace(cleared, domain=cleared.domain.subtract(isl.Set("{ clear_x[0, 0] }")))
    )
    with pytest.raises(
        ValidationFailure, match="instances that the source lacks, and they are no products with zero"
    ):
        validate(s.source, fewer, s.tree)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"at": "q", "axes": ("t",)}, "axes are different dimensions of mac, q, f, s"),
        ({"at": "q", "axes": ("f",)}, "is not known from its axes f and the loops around"),
        ({"at": "f", "axes": ("f",), "padded": True}, "cannot be padded"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidSchedule, match=why):
        pf.Schedule(correlation()).promote("x[-1 + q + s]", "mac", **options)  # type: ignore[arg-type]


def test_what_other_factors_are_promoted_for_already_is_not_padded() -> None:
    s = pf.Schedule(correlation()).promote("w", "mac", at="q")
    with pytest.raises(InvalidSchedule, match="w_local is promoted for mac already: pad first"):
        s.promote("x[-1 + q + s]", "mac", at="q", axes=("s",), padded=True)


def filled_up(stages: int) -> pf.Schedule:
    """Six pixels in two panels of four, each of a block: the second is filled up with zeros."""
    s = pf.Schedule(correlation()).reorder("mac", "s", "q", "f").split("mac", "q", 4)
    s = s.reorder("mac", "q", "s", "q_in", "f").bind("mac", q="block.x", q_in="thread.x")
    s = s.promote(
        "x[-1 + q + s]",
        "mac",
        at="s",
        memory="shared",
        panel=(0, 4),
        layout=pf.SmemLayout(4, 4, 0, 1, 0),
        axes=("q",),
        padded=True,
        stages=stages,
    ).bind("load_x", load_x_0="thread.x")
    for copy in ("clear_x", "load_x") if stages > 1 else ():
        s = s.shift(copy, "s", 1 - stages)
    return s.synchronised()


@pytest.mark.parametrize(("stages", "call"), [(1, "copy_padded("), (2, "pad_ahead(")])
def test_panels_are_filled_up_with_zeros(stages: int, call: str) -> None:
    s = filled_up(stages)
    net = pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")
    assert call in net.source
    assert f"x_shared = cuda.shared.array(({4 * stages},)" in net.source, (
        "what nobody reads has no stage of its own"
    )
    assert s.nest.domains["clear_x"].dim_max_val(2).to_python() == 7
    rng = np.random.default_rng(0)
    arrays = {t.name: rng.integers(-3, 4, t.shape).astype("float32") for t in s.source.inputs}
    wanted = pf.interpret(s.source, arrays)["y"]
    (launch,) = net.program.launches
    simulated = {name: array.copy().reshape(-1) for name, array in arrays.items()}
    simulate(launch.source, launch.name, *launch.extents({}), [simulated[t] for t in launch.tensors])
    np.testing.assert_array_equal(simulated["y"].reshape(wanted.shape), wanted)
    net(**arrays)
    np.testing.assert_array_equal(arrays["y"], wanted)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("preset", ["a100", "h200"])
@pytest.mark.parametrize("dtype", HALVES)
def test_machine_code_of_halves_is_multiply_adds_too(dtype: str, preset: str, layout: str) -> None:
    """Small tiles have registers for what is on its way, too."""
    pytest.importorskip("cuda.core")
    image = (32, 64, 56, 56) if layout == "NCHW" else (32, 56, 56, 64)
    nest = convolution(image, 64, layout=layout, padding=1, dtype=dtype)
    net = pf.compile(nest, target="cuda", machine=preset, device="none")
    code = net.program.codes[-1]
    assert code.registers is not None
    alone = replace(net.program, launches=net.program.launches[-1:])
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(alone, capability).values()
        assert cubin.registers <= code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL"))]
        loop = main_loop(cubin)
        assert loop.count("FFMA") >= 0.87 * len(loop)
        assert {"LDS.128", "LDG.E.U16", "STS.128"} <= set(loop)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_machine_code_is_multiply_adds_in_planned_registers(layout: str) -> None:
    pytest.importorskip("cuda.core")
    image = (32, 64, 56, 56) if layout == "NCHW" else (32, 56, 56, 64)
    nest = convolution(image, 64, layout=layout, padding=1)
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    _, code = net.program.codes
    (cubin,) = build_kernels(replace(net.program, launches=net.program.launches[-1:]), (9, 0)).values()
    assert code.registers is not None
    assert cubin.registers <= code.registers
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL"))]
    loop = main_loop(cubin)
    assert loop.count("FFMA") >= 0.89 * len(loop), "pixels are copied one by one"
    assert {"LDS.128", "LDGSTS.E", "LDGSTS.E.BYPASS.128"} <= set(loop)
    assert "LDG.E" not in loop, "a pixel is waited for"
    assert "mac0 in register tiles: blocks of" in str(net.explain())
