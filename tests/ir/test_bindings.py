"""What a loop is bound to: strings to a user, places of a CPU or of a GPU to the compiler."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse import Binding, nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.bindings import ON_CORES


def test_a_binding_is_the_string_that_a_user_writes() -> None:
    assert Binding("block.x") is Binding.BLOCK_X
    assert Binding.BLOCK_X == "block.x"
    assert f"{Binding.BLOCK_X} {Binding.BLOCK_X!r}" == "block.x 'block.x'"
    assert "bulk.warp" in {Binding.BULK_WARP}


def test_every_binding_is_of_one_kind_of_machine_or_of_both() -> None:
    of_both = {Binding.VECTOR, Binding.UNROLL, Binding.MICROKERNEL}
    of_gpus = {place for place in Binding if place.on_gpu}
    assert of_gpus | {*ON_CORES} | of_both == {*Binding}
    assert not of_gpus & ({*ON_CORES} | of_both)
    assert {Binding.LANE, Binding.BULK, Binding.THREAD_Z, Binding.CLUSTER_X} <= of_gpus


def test_a_printed_schedule_has_strings_whichever_was_given() -> None:
    nest = nn.lower(nn.relu(nn.input("x", (8, 64))))
    start = pf.Schedule(nest)
    name, loop = nest.statements[0].name, start.loops(nest.statements[0].name)[0].name
    named, written = (start.bind(name, **{loop: place}) for place in (Binding.BLOCK_X, "block.x"))
    assert named.trace() == written.trace()
    assert f"{loop}='block.x'" in named.trace()
    assert named.loops(name)[0].bind is written.loops(name)[0].bind is Binding.BLOCK_X


def test_a_cpu_has_no_lanes_of_a_warp() -> None:
    nest = nn.lower(nn.sum(nn.input("x", (8, 64)), axis=1))
    name = next(s.name for s in nest.statements if s.is_reduction)
    s = pf.Schedule(nest)
    outer = s.loops(name)[-1].name
    s = s.split(name, outer, 32)
    s = s.bind(name, **{s.loops(name)[-1].name: "lane"})
    with pytest.raises(InvalidSchedule, match="bound to lane, which target cpu does not have"):
        pf.compile(nest, schedule=s, target="cpu")
