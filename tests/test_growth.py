"""What a compile does grows with the program: questions are counted for ensembles of four times the members."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import islpy as isl
import numpy as np
import pytest
from llvmlite import ir
from numba.core.registry import cpu_target

import polyfuse as pf
from papers.pytorch_18157_ensemble.networks import Ensemble
from polyfuse import compiler, nn
from polyfuse.analysis import once as once_module
from polyfuse.analysis import validation
from polyfuse.codegen import generate
from polyfuse.codegen.cpu.parallel import InRegions
from polyfuse.codegen.generate import program
from polyfuse.codegen.lowering import grid_phases
from polyfuse.ir import Nest, Tensor, nest_data
from polyfuse.ir import check as checks
from polyfuse.ir import dependences as dependences_module
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.form import form_of, repeated
from polyfuse.ir.nest_text import body_text, statement
from polyfuse.ir.tree import parts, sequence
from polyfuse.machine import Machine
from polyfuse.nn import nest_writer
from polyfuse.rewrite import Composed, compose_views
from polyfuse.rewrite.batching import agenda as agendas
from polyfuse.rewrite.inline import inline
from polyfuse.rewrite.kept_order import turned_round
from polyfuse.rewrite.views import compose as view_steps
from polyfuse.rewrite.views import flow as view_flow
from polyfuse.runtime.cpu import native
from polyfuse.runtime.cpu.entry import _Entry, add_entry
from polyfuse.runtime.interface import ENTRY, ENTRY_ONCE, Interface
from polyfuse.schedule import Schedule
from polyfuse.sets import tuple_names, union_map, union_set
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost import equal_prices
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import Models
from polyfuse.strategy.fusion import alignments
from polyfuse.strategy.match import gemm
from polyfuse.strategy.passes import kernels as kernels_module
from polyfuse.strategy.rewrites import detach_output as detaching
from polyfuse.strategy.rewrites import fold_scales as folding
from polyfuse.strategy.rewrites.reductions import coalesce as coalescing

FEW, MANY = 4, 16

TWO = replace(Machine.preset("zen5"), units=2)

NEARLY = 1.2
"""Of a chain, the first has less than the others: growth may be that of 5 n - 3."""


@cache
def members(count: int) -> Nest:
    """Of two layers each, one by one."""
    return Ensemble(count, 2, 8, 4).nest()


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


@cache
def encoder(layers: int) -> Nest:
    """Attention over two heads, one layer after the other: each splits and joins its heads by views."""
    x = nn.input("x", (4, 6))
    for _ in range(layers):
        q, k, v = (heads(nn.linear(x, ones(6, 6))) for _ in range(3))
        joined = nn.transpose(nn.softmax(q @ nn.transpose(k, 1, 2), -1) @ v, 0, 1)
        x = nn.relu(x + nn.linear(nn.reshape(joined, (4, 6)), ones(6, 6)))
    return nn.lower(x)


def heads(x: nn.Value) -> nn.Value:
    return nn.transpose(nn.reshape(x, (4, 2, 3)), 0, 1)


@cache
def normalised(layers: int) -> Nest:
    """Convolutions with batch norms, one after the other."""
    x = nn.input("x", (1, 2, 4, 4))
    for _ in range(layers):
        y = nn.conv2d(x, ones(2, 2, 3, 3), padding=1)
        x = nn.relu(nn.batch_norm(y, ones(2), ones(2), ones(2), ones(2)))
    return nn.lower(x)


@cache
def pointwise(layers: int) -> Nest:
    """Convolutions of single pixels, one after the other."""
    x = nn.input("x", (1, 2, 4, 4))
    for _ in range(layers):
        x = nn.relu(nn.conv2d(x, ones(2, 2, 1, 1)))
    return nn.lower(x)


@cache
def region(count: int) -> pf.Schedule:
    """So many loops on cores in one region, each over what the one before has computed."""
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    steps = [
        pf.statement(f"{{ S{k}[i] : 0 <= i < 64 }}", f"{names[k + 1]}[i] = 2 * {names[k]}[i]")
        for k in range(count)
    ]
    roles = ["input", *["temporary"] * (count - 1), "output"]
    tensors = [pf.Tensor(name, (64,), "float32", role) for name, role in zip(names, roles, strict=True)]  # type: ignore[arg-type]
    s = pf.Schedule(pf.Nest.of(tensors, steps))
    for k in range(count):
        s = s.bind(f"S{k}", i="cores")
    return s.join("S0", f"S{count - 1}", loop="run")


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """How often a function is called from here on."""
    calls: Counter[str] = Counter()
    real: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def grows(ask: Callable[[int], int]) -> float:
    """How many times as much is asked for four times the members."""
    return ask(MANY) / ask(FEW)


def test_what_is_constant_is_found_once_a_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(monkeypatch, folding, "constant_tensors")
    folding.with_scales_folded(members(FEW))
    assert found["constant_tensors"] == 1
    folding.with_scales_folded(members(MANY))
    assert found["constant_tensors"] == 2
    folding.with_scales_folded(normalised(FEW))  # each fold says which tensors are constant behind it
    assert found["constant_tensors"] == 3


def test_a_product_asks_for_its_own_factors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    every = counted(monkeypatch, once_module, "once")
    asked = counted(monkeypatch, once_module, "_of_a_call")

    def ask(layers: int) -> int:
        asked.clear()
        _, said = coalescing.with_pixels_in_one_loop(pointwise(layers), TWO)
        assert said
        return asked["_of_a_call"] + 1

    assert grows(ask) <= MANY / FEW
    assert not every


def test_what_runs_once_is_found_without_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = counted(monkeypatch, once_module, "refusal")
    looked_up = counted(monkeypatch, Nest, "statement")

    def ask(count: int) -> int:
        looked_up.clear()
        nest = members(count)
        assert not any(once_module.once(nest, nest.order))
        return looked_up["statement"]

    assert grows(ask) <= MANY / FEW
    assert not rounds


def test_slices_of_a_stack_are_not_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(count: int) -> int:
        accesses = members(count).accesses
        met = dependences_module.meeting(accesses.writes, accesses.writes.reverse())
        return sum(1 for _ in met)

    assert grows(ask) <= MANY / FEW


def test_two_statements_in_a_row_are_in_order_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    x = nn.input("x", (4, 6))
    nest = nn.lower(nn.relu(nn.exp(nn.transpose(x) * 2)))
    asked, compare = [], isl.Map.lex_lt_map

    def compared(before: isl.Map, after: isl.Map) -> isl.Map:
        asked.append((tuple_names(before)[0], tuple_names(after)[0]))
        return compare(before, after)

    monkeypatch.setattr(isl.Map, "lex_lt_map", compared)
    assert nest.dependences().pairs
    assert all(one == other for one, other in asked)


def test_a_composed_view_is_proven_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = counted(monkeypatch, view_flow, "_origin")

    def ask(count: int) -> int:
        proven.clear()
        inputs = (nn.input(f"x{k}", (4, 6)) for k in range(count))
        nest = nn.lower(tuple(nn.relu(nn.transpose(nn.exp(x))) for x in inputs))
        assert len(compose_views(nest).composed) == count
        return proven["_origin"]

    assert grows(ask) <= MANY / FEW


def test_a_view_that_stays_is_tried_again_where_a_step_concerns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    through, placed = (counted(monkeypatch, view_steps, name) for name in ("through", "placed"))

    def wanted(_: Nest, found: Composed) -> str | None:
        return "a product reads it" if any(name.startswith("mac") for name in found.into) else None

    def ask(layers: int) -> int:
        through.clear()
        placed.clear()
        views = compose_views(encoder(layers), wanted)
        assert len(views.kept) >= layers
        assert len(views.composed) >= layers
        return through["through"] + placed["placed"]

    assert grows(ask) < NEARLY * MANY / FEW


def test_a_composed_view_leaves_other_dependences(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = counted(monkeypatch, isl.Map, "lex_lt_map")

    def ask(layers: int) -> int:
        nest = encoder(layers)
        nest.dependences()
        ordered.clear()
        compose_views(nest)
        return ordered["lex_lt_map"]

    assert grows(ask) < NEARLY * MANY / FEW


def test_a_composed_view_leaves_other_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = [counted(monkeypatch, nest_data, name) for name in ("read_tensors", "written_tensors")]

    def ask(layers: int) -> int:
        nest = encoder(layers)
        nest = replace(nest, name="again")  # without what other tests have asked
        for calls in grouped:
            calls.clear()
        compose_views(nest)
        return sum(calls.total() for calls in grouped)

    assert 0 < ask(FEW) <= 2 * len(encoder(FEW).statements)
    assert ask(MANY) <= 2 * len(encoder(MANY).statements)


def test_what_is_needed_is_asked_where_a_view_was(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, isl.Set, "coalesce")

    def ask(count: int) -> int:
        inputs = [nn.input(f"x{k}", (4, 6)) for k in range(count)]
        nest = nn.lower(tuple(nn.expand(nn.exp(nn.transpose(nn.relu(x))), (2, 6, 4)) for x in inputs))
        asked.clear()
        views = compose_views(nest)
        assert len(views.composed) == len(views.kept) == count
        return asked["coalesce"]

    assert grows(ask) < NEARLY * MANY / FEW


def test_a_folded_scale_leaves_other_dependences(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = counted(monkeypatch, isl.Map, "lex_lt_map")

    def ask(layers: int) -> int:
        nest = normalised(layers)
        nest.dependences()
        ordered.clear()
        folded, said = folding.with_scales_folded(nest)
        assert len(said) == layers
        folded.dependences()
        return ordered["lex_lt_map"]

    assert grows(ask) < NEARLY * MANY / FEW


def test_statements_are_compared_once_and_without_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    said, compared = (counted(monkeypatch, agendas, name) for name in ("body_text", "compatible"))
    nest = normalised(MANY)
    agendas.agenda(nest)
    assert not said
    assert compared["compatible"] <= len(nest.statements) ** 2 / 2


def test_sizes_of_tensors_are_no_question_to_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    many, few = members(MANY), members(FEW)  # the checks of a new nest ask for elements
    elements = counted(monkeypatch, Tensor, "elements")
    assert Counts(many).total_bytes > Counts(few).total_bytes > 0
    assert not elements


def test_no_flow_is_composed_to_find_outputs_to_detach(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = counted(monkeypatch, isl.Map, "apply_range")

    def ask(layers: int) -> int:
        nest = normalised(layers)
        nest.dependences()
        composed.clear()
        detaching.across(nest)
        return composed["apply_range"]

    assert ask(FEW) == ask(MANY) == 0


def test_an_entry_has_no_branch_for_each_pair_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = counted(monkeypatch, _Entry, "_need")

    def ask(count: int) -> int:
        branches.clear()
        net = pf.compile(members(count), target="cpu")
        assert len(net.constants) == 4 * count
        assert branches["_need"], "it was compiled, not loaded"
        return branches["_need"]

    assert grows(ask) == 1


def test_the_entry_that_runs_once_is_not_improved(monkeypatch: pytest.MonkeyPatch) -> None:
    improved: list[str] = []
    real = native._FunctionPasses.run

    def run(passes: Any, function: Any, builder: Any) -> Any:
        improved.append(function.name)
        return real(passes, function, builder)

    monkeypatch.setattr(native._FunctionPasses, "run", run)
    added = []
    monkeypatch.setattr(native, "add_entry", lambda *given: (added.append(given[2]), add_entry(*given)))
    nest = nn.lower(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256)), batch=32)
    net = pf.compile(nest, target="cpu", machine=TWO)
    assert added == [ENTRY, ENTRY_ONCE], "weights are packed once"
    assert ENTRY in improved
    assert ENTRY_ONCE not in improved
    assert net(ones(32, 256)).shape == (32, 256)


def test_a_statement_that_is_equal_but_for_names_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch, nest_writer, "statement")
    looked = counted(monkeypatch, checks, "_in_bounds")

    def ask(layers: int) -> tuple[int, int]:
        read.clear()
        looked.clear()
        nest = normalised.__wrapped__(layers)
        for s in nest.statements:
            assert str(statement(s.domain, body_text(s))) == str(s)
        return read["statement"], looked["_in_bounds"]

    assert ask(FEW) == ask(MANY)


def test_an_entry_is_as_long_as_its_arrays_are_many() -> None:
    def ask(count: int) -> int:
        weights, packed = (
            tuple(Tensor(f"{name}{k}", (8, 8), "float32", role) for k in range(4 * count))
            for name, role in (("w", "constant"), ("panels", "output"))
        )
        module = ir.Module()
        add_entry(cpu_target.target_context, module, "entry", Interface((), packed, weights, (), ()), ())
        return sum(len(block.instructions) for block in module.functions[0].blocks)

    assert grows(ask) <= MANY / FEW


def test_equal_parts_of_a_region_are_generated_and_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, grid_phases, "built")
    printed = counted(monkeypatch, InRegions, "_shares")

    def ask(count: int) -> int:
        made.clear()
        printed.clear()
        (code,) = program(region(count).nest, region(count).tree, "cpu").codes
        assert code.source.count("run(S_phase, ") == count
        return made["built"] + printed["_shares"]

    assert ask(FEW) == ask(MANY) == 2


def test_a_region_passes_each_array_as_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """By value an array of one axis is seven arguments."""
    arguments: list[int] = []
    real = ir.Function.__init__

    def made(function: Any, module: Any, kind: ir.FunctionType, name: str) -> None:
        arguments.append(len(kind.args))
        real(function, module, kind, name)

    monkeypatch.setattr(ir.Function, "__init__", made)

    net = pf.compile(region(MANY).nest, schedule=region(MANY), target="cpu")
    np.testing.assert_array_equal(net(np.ones(64, np.float32)), np.full(64, 2.0**MANY, np.float32))
    assert max(arguments) < 2 * MANY


def test_equal_parts_are_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dated, crossed = counted(monkeypatch, validation, "date_map"), counted(monkeypatch, Pairs, "inside")

    def ask(count: int) -> int:
        s = region(count)
        dated.clear()
        crossed.clear()
        validation.validate(s.source, s.nest, s.tree)
        assert crossed["inside"] >= count - 1, "what is between two parts is asked about"
        return dated["date_map"]

    assert ask(FEW) == ask(MANY) == 1


def test_parts_are_equal_up_to_names_alone() -> None:
    s = region(FEW)
    assert repeated(s.nest, s.tree) == tuple(frozenset({f"S{k}"}) for k in range(1, FEW))
    backwards = Schedule(s.source).reverse("S1", "i")
    assert repeated(backwards.nest, backwards.tree) == ({"S2"}, {"S3"})


def test_searches_for_one_plan_share_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels apart and in one region, and loops in time behind each other: nothing is searched or split again."""
    asked: list[tuple[object, ...]] = []
    kept: list[object] = []

    def noted(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def call(first: Any, *rest: Any) -> Any:
            asked.append((name, id(first), *rest[1:]))
            kept.append(first)
            return real(first, *rest)

        monkeypatch.setattr(owner, name, call)

    noted(alignments, "pieces")
    noted(kernels_module, "in_kernels")
    plan_for(nn.lower(nn.LSTM(16, 16, 2), batch=(4, 4)), TWO)
    plan_for(nn.lower(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)), batch=2), TWO)
    assert {name for name, *_ in asked} == {"pieces", "in_kernels"}
    assert len(asked) == len(set(asked))


def test_a_kernel_is_counted_once_for_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, equal_prices, "kernel_of")
    models, nest = Models(), region(FEW).source
    for units in (1, 2):
        model = models.of(nest, replace(TWO, units=units))
        assert all(model.cost(part).total > 0 for part in parts(nest.order))
    assert made["kernel_of"] == 1


def test_a_statement_is_looked_at_as_a_product_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch, gemm, "_in_tiles")
    nest = Ensemble(FEW, 2, 8, 4).nest()
    for _ in range(2):
        found = [s.name for s in nest.statements if gemm.products_of(nest, s.name)]
        assert asked["_in_tiles"] == len(found) > 0


def test_an_inlined_statement_leaves_other_dependences(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = counted(monkeypatch, isl.Map, "lex_lt_map")
    monkeypatch.setattr(Nest, "check", lambda nest, touched=None: None)

    def ask(count: int) -> int:
        nest = region(count).source
        nest.dependences()
        ordered.clear()
        assert len(inline(nest, "S0").nest.dependences().pairs) == count - 2
        return ordered["lex_lt_map"]

    assert ask(FEW) == ask(MANY)


def test_only_statements_that_depend_on_each_other_are_compared_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = counted(monkeypatch, isl.UnionMap, "lex_lt_union_map")

    def ask(count: int) -> int:
        nest = region(count).source
        spaces = (d.get_space().map_from_set() for d in nest.domains.values())
        same = union_map(isl.Map.identity(space) for space in spaces)
        nest.dependences()
        compared.clear()
        assert turned_round(nest, nest, same.intersect_domain(union_set(nest.domains.values()))) is None
        return compared["lex_lt_union_map"]

    assert ask(FEW) == FEW - 1, (
        "of all statements it would be one relation, of as many parts as there are pairs"
    )


def test_garbage_is_collected_behind_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[bool] = []
    real = compiler.decided

    def decided(*arguments: Any) -> Any:
        collected.append(gc.isenabled())
        return real(*arguments)

    monkeypatch.setattr(compiler, "decided", decided)
    pf.compile(region(2).source, target="cpu")
    with pytest.raises(pf.BadArgument):
        pf.compile(region(2).source, target="cpu", budget=-1)
    assert collected == [False]
    assert gc.isenabled()


def test_a_statement_is_written_without_names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all kernels that a search puts it into."""
    nest = region.__wrapped__(FEW).source
    modules = map(import_module, ("polyfuse.ir.statement", "polyfuse.ir.tree"))
    written = [counted(monkeypatch, module, "numbered") for module in modules]
    first, second, *_ = parts(nest.order)
    both = sequence((first, second))
    apart = [form_of(nest, part) for part in (first, second)]
    asked = sum(calls.total() for calls in written)
    assert len(form_of(nest, both).text) > max(len(form.text) for form in apart)
    assert sum(calls.total() for calls in written) == asked > 0


def test_equal_kernels_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = counted(monkeypatch, generate, "_printed")

    def ask(count: int) -> int:
        printed.clear()
        nest = region(count).source
        made = generate.program(nest, nest.order, "cpu")
        assert len(made.launches) == count
        return printed["_printed"]

    assert ask(FEW) == ask(MANY) <= 3, "the first reads an input, the last writes an output"
