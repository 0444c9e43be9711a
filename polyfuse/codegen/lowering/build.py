"""From a schedule's tree to loop trees: isl generates the loops, marks carry what isl does not know.

    schedule tree (one part per kernel)  --isl AST generation-->  for / if / mark / user nodes  -->  LoopTree

Each of our loops becomes an isl mark named after it, so that a generated `for` (or its absence, when it has one value)
is known by the loop it came from. Barriers are statements of their own; full tiles that are apart are copies.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from polyfuse.analysis.doacross import waiting_in
from polyfuse.analysis.producer_consumer import in_own_warps
from polyfuse.analysis.storage import LANE, THREADS, Geometry, buffers_of, geometry
from polyfuse.codegen.looptree.gather_rows import chosen, is_chosen
from polyfuse.codegen.looptree.guards import elsewhere, guarded, same
from polyfuse.codegen.looptree.hardware_axes import (
    AXES,
    LANES,
    Bounds,
    axes_of,
    axis_name,
    axis_of,
    bounds_of,
)
from polyfuse.codegen.looptree.index import beside, binary, is_number, plus, to_python
from polyfuse.codegen.looptree.leading_reference import depends_on, leading
from polyfuse.codegen.looptree.naming import Namer, base, line_of, tensors_of
from polyfuse.codegen.looptree.nodes import (
    ARRIVALS,
    Allocate,
    Barrier,
    Block,
    ByRole,
    Element,
    For,
    Guard,
    Kernel,
    Node,
    Store,
    block,
    touched,
    variables,
)
from polyfuse.codegen.looptree.operations import Operation
from polyfuse.codegen.looptree.product import from_next_step
from polyfuse.codegen.lowering.async_copy_groups import in_flight
from polyfuse.codegen.lowering.barrier_statements import Barriers, with_barrier_statements
from polyfuse.codegen.lowering.bounds_inference import bounded
from polyfuse.codegen.lowering.doacross_waits import awaiting, in_order, notes
from polyfuse.codegen.lowering.dynamic_loops import heavier_last
from polyfuse.codegen.lowering.partition_loops import Copies, full_steps, in_one_piece, with_full_tiles
from polyfuse.codegen.lowering.section_statements import over_sections, section, sections, with_sections
from polyfuse.codegen.lowering.thread_private import allocated_once, per_core
from polyfuse.codegen.lowering.warp_roles import by_roles
from polyfuse.codegen.lowering.warp_shuffle_reduce import over_lanes
from polyfuse.codegen.lowering.whole_iterations import with_whole_values
from polyfuse.ir.access import Access
from polyfuse.ir.gather import parts_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import ON_CORES, Loop, Tree, loops, loops_around, statements, to_isl
from polyfuse.sets import OUT, called_back, constant, dimension, merged_pieces

Prover = Callable[[Nest, Tree, Mapping[str, Geometry], frozenset[str]], Mapping[str, Operation]]
"""Finds the device operations among a kernel's statements, by name; the last argument: the copies that are waited for.
"""


@dataclass(frozen=True)
class Targets:
    """The facts about targets that lowering needs, so that it imports none of them.

    `called`: names that mean something in emitted source, so that no array and no loop of a kernel is called so.
    `operations` proves which statements are device operations.
    """

    called: frozenset[str]
    operations: Prover


def built(nest: Nest, part: Tree, targets: Targets, bounds: Bounds | None = None) -> Kernel:
    """One part of a tree's outermost sequence, which one launch runs, as a loop tree; with a launch's `bounds`, if it
    runs more than this.
    """
    return _Builder(nest, part, targets, bounds).kernel()


def namer_of(nest: Nest, targets: Targets) -> Namer:
    """The source of fresh names for a kernel."""
    return Namer((*map(axis_name, AXES), ARRIVALS, *targets.called, *nest.params))


@dataclass(frozen=True)
class _Leaf:
    """A statement of isl's AST, in terms of isl's iterators."""

    statement: Statement
    target: tuple[isl.AstExpr, ...]
    reads: tuple[tuple[isl.AstExpr, ...], ...]
    indices: Mapping[str, isl.AstExpr]
    places: Mapping[str, isl.AstExpr]


@dataclass(frozen=True)
class _Here:
    """The state of the walk over the AST: names for isl's iterators, the loop to come, axes already mapped."""

    names: Mapping[str, ast.expr]
    loop: Loop | None = None
    mapped: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()
    around: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """The variable and the step of each of our loops that became one."""
    section: str | None = None
    """The variable of the loop whose parts are to come, each at one value."""


class _Builder:
    def __init__(self, nest: Nest, part: Tree, targets: Targets, bounds: Bounds | None) -> None:
        self.nest, self.part, self.targets = nest, part, targets
        self.names = statements(part)
        self.geometry = {b.tensor: geometry(nest, part, loop, b) for loop, b in buffers_of(part)}
        self.bounds = bounds_of(nest, part) if bounds is None else bounds
        self.namer = namer_of(nest, targets)
        self.arrays: dict[str, Tensor] = {}
        for tensor in tensors_of(nest, self.names):
            inner = self.namer(tensor.name)
            if tensor.name not in self.geometry:
                self.arrays.setdefault(inner, tensor)
        self.own = in_own_warps(part)
        on_gpu = any(bind in THREADS for bind in self.bounds)
        self.in_flight = in_flight(nest, part) if on_gpu else ()
        ahead = frozenset(name for each in self.in_flight for name in each.copies)
        for_tensor_cores = any(loop.math != "ieee" for loop in loops(part))
        self.operations = (
            targets.operations(nest, part, self.geometry, ahead) if on_gpu or for_tensor_cores else {}
        )
        self.barriers = Barriers()
        self.copies = Copies()
        self.ends: dict[
            str, isl.Set
        ] = {}  # statements that keep a core's values whole: nothing is printed for them
        self.leaves: dict[str, _Leaf] = {}
        self.loops: dict[str, Loop] = {}
        self.turns: set[int] = set()  # the loops directly inside one that runs as a pipeline
        self.waiting = waiting_in(nest, part)
        self.sections: dict[str, int] = {}  # the marks of parts that are at one value of a loop on cores
        self.elsewhere: dict[str, isl.UnionSet] = {}
        self.full: list[isl.AstExpr | None] = []

    def kernel(self) -> Kernel:
        """Generate the loops and read them back as a loop tree."""
        domains = {name: self.nest.domains[name] for name in self.names}
        if self.own:
            (copies, others), self.barriers = by_roles(self.part, domains)
            body: Node = ByRole(self._generated(copies, domains), self._generated(others, domains))
        else:
            tree, self.barriers = with_barrier_statements(with_sections(self.part), domains)
            body = self._generated(tree, domains)
        per_core = {b.tensor for x in loops(self.part) if x.bind in ON_CORES for _, b in buffers_of(x)}
        body = block((*self._allocations(set(self.geometry) - per_core), body))
        return Kernel(
            name="_".join(dict.fromkeys(base(name) for name in self.names)),
            statements=self.names,
            text=tuple(line_of(self.nest, self.nest.statement(name), self.namer) for name in self.names),
            arrays=self.arrays,
            sizes=self.nest.params,
            axes=axes_of(self.bounds),
            body=body,
        )

    def _generated(self, tree: Tree, domains: Mapping[str, isl.Set]) -> Node:
        """A tree's loops as isl makes them."""
        domains = {**domains, **self.barriers.domains}
        tree = in_one_piece(tree, frozenset(self.operations))
        tree, self.copies = with_full_tiles(tree, domains, self.barriers.domains)
        domains |= self.copies.domains
        before = loops(tree)
        tree, self.ends = with_whole_values(tree, domains)
        for old, new in zip(before, loops(tree), strict=True):
            if id(old) in self.copies.elsewhere:
                self.copies.elsewhere[id(new)] = self.copies.elsewhere[id(old)]
        full = full_steps(tree, domains, self.operations)
        schedule = to_isl(tree, domains | self.ends, self._marks(tree), full)
        # a loop on an axis runs where its date says, in all of its statements: isl must not count its steps instead;
        # nor in a pipeline, whose loops wait for each other's dates
        context = self.nest.context.get_ctx()
        context.set_ast_build_scale_strides(0 if self.bounds or self.turns else 1)
        try:
            with called_back() as kept:
                build = isl.AstBuild.from_context(self.nest.context)
                build, at_domain = build.set_at_each_domain(kept(self._at_domain, None))
                build, after_mark = build.set_after_each_mark(kept(self._after_mark, None))
                generated = build.node_from_schedule(schedule)
                del at_domain, after_mark  # isl called them until here
        finally:
            context.set_ast_build_scale_strides(1)
        return self._node(generated, _Here({}))

    # -- what isl is told ----------------------------------------------------------------------------------------

    def _marks(self, tree: Tree) -> dict[int, tuple[str, ...]]:
        """A mark for every loop."""
        marks: dict[int, tuple[str, ...]] = {}
        for number, loop in enumerate(loops(tree)):
            self.loops[f"loop{number}"] = loop
            found = sections(loop)
            if loop.bind == "pipeline":
                self.turns |= {id(part) for part in found.values()} or {id(loop.body)}
            marks[id(loop)] = (*marks.get(id(loop), ()), f"loop{number}")
            for value, part in found.items():
                marks[id(part)] = (f"loop{number}is{value}",)
                self.sections[f"loop{number}is{value}"] = value
            if id(loop) in self.copies.elsewhere:
                self.elsewhere[f"loop{number}"] = self.copies.elsewhere[id(loop)]
        return marks

    def _after_mark(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        """Called by isl at each mark: where a loop leaves full tiles to a copy, note which these are."""
        name = node.mark_get_id().get_name()
        if name not in self.elsewhere:
            return node
        full = build.get_schedule().intersect_domain(self.elsewhere[name]).range()
        self.full.append(None if full.is_empty() else build.expr_from_set(isl.Set.from_union_set(full)))
        return node.set_annotation(isl.Id(str(len(self.full) - 1)))

    def _at_domain(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        """Called by isl at each statement: note its subscripts in terms of the loops generated so far."""
        name = node.user_get_expr().get_op_arg(0).get_id().get_name()
        if name in self.barriers.domains or name in self.ends:
            return node.set_annotation(isl.Id(name))
        name = self.copies.originals.get(name, name)
        s = self.nest.statement(name)
        instances = isl.Map.from_union_map(build.get_schedule()).reverse()
        instance = isl.PwMultiAff.from_map(instances.set_tuple_id(OUT, s.domain.get_tuple_id()))

        def text(value: isl.PwAff) -> isl.AstExpr:
            return build.expr_from_pw_aff(merged_pieces(value.pullback_pw_multi_aff(instance)))

        symbols = {symbol.name for symbol in s.body.free_symbols}
        bound = {axis: x.date(name) for x in loops_around(self.part, name) if (axis := axis_of(x))}
        leaf = _Leaf(
            s,
            tuple(text(value) for value in self._subscripts(name, s.write)),
            tuple(tuple(text(value) for value in self._subscripts(name, a)) for a in s.reads),
            {d: text(dimension(s.domain, p)) for p, d in enumerate(s.dims) if d in symbols},
            {bind: text(date) for bind, date in bound.items()},
        )
        key = f"leaf{len(self.leaves)}"
        self.leaves[key] = leaf
        return node.set_annotation(isl.Id(key))

    def _subscripts(self, name: str, access: Access) -> list[isl.PwAff]:
        """The element an instance touches: in the tensor, or counted from the corner of its buffer."""
        held = self.geometry.get(access.tensor)
        if held is None:
            element = access.subscripts()
            return [element.get_pw_aff(d) for d in range(access.map.dim(OUT))]
        cell = held.cell(name, access)
        kept = [value for value, extent in zip(cell, held.shape, strict=True) if extent != 1]
        return kept if kept or held.buffer.memory != "shared" else [constant(self.nest.domains[name], 0)]

    # -- what isl answers ----------------------------------------------------------------------------------------

    def _node(self, node: isl.AstNode, here: _Here) -> Node:
        kind = node.get_type()
        if kind == isl.ast_node_type.mark:
            return self._marked(node, here)
        if kind == isl.ast_node_type.for_:
            return self._for(node, here)
        if kind == isl.ast_node_type.if_:
            return self._if(node, here)
        if kind == isl.ast_node_type.block:
            return block(allocated_once(tuple(self._node(part, here) for part in in_order(node))))
        return self._user(node, here)

    def _turn(self, node: isl.AstNode, here: _Here) -> Node:
        """A step in a pipeline: the parts that wait for nothing, if it begins with such, and then those that do."""
        parts = in_order(node)
        leaves = ([self.leaves[key] for key in notes(part) if key in self.leaves] for part in parts)
        waits = [any(leaf.statement.name in self.waiting for leaf in own) for own in leaves]
        return awaiting([self._node(part, here) for part in parts], waits)

    def _marked(self, node: isl.AstNode, here: _Here) -> Node:
        name, inner = node.mark_get_id().get_name(), node.mark_get_node()
        if name in self.sections:
            body = self._node(inner, replace(here, section=None))
            return body if here.section is None else section(here.section, self.sections[name], body)
        loop = self.loops[name]
        apart = sections(loop) if inner.get_type() != isl.ast_node_type.for_ else {}
        body = self._in_sections(loop, inner, here) if apart else self._node(inner, replace(here, loop=loop))
        on_gpu = loop.math != "ieee" or bool(self.bounds)
        if loop.bind == "microkernel" and inner.get_type() != isl.ast_node_type.for_:
            # isl makes no loop of one step; on a GPU the tile is one operation like the others
            one = For(loop.name, ast.Constant(0), ast.Constant(1), 1, loop.bind, body)
            body = one if on_gpu else from_next_step(body)
        if loop.bind in ON_CORES:
            # every core has its own buffers; isl leaves out a loop of one value, and may make several loops of one
            body = per_core(body, self._allocations({b.tensor for _, b in buffers_of(loop)}))
        if name not in self.elsewhere:
            return body
        full = self.full[int(node.get_annotation().get_name())]
        return body if full is None else elsewhere(to_python(full, here.names), body)

    def _in_sections(self, loop: Loop, node: isl.AstNode, here: _Here) -> Node:
        """The loop over parts of its own form each, of which isl has made no loop."""
        variable = self._variable(loop.name, here)
        inner = replace(here, loop=None, variables=(*here.variables, variable), section=variable)
        return over_sections(loop, variable, self._node(node, inner))

    def _if(self, node: isl.AstNode, here: _Here) -> Node:
        condition = to_python(node.if_get_cond(), here.names)
        otherwise = self._node(node.if_get_else(), here) if node.if_has_else() else None
        inside = self._node(node.if_get_then(), here)
        return inside if inside == Block(()) and otherwise is None else Guard(condition, inside, otherwise)

    def _for(self, node: isl.AstNode, here: _Here) -> Node:
        loop = here.loop
        iterator = node.for_get_iterator().get_id().get_name()
        low, high = to_python(node.for_get_init(), here.names), self._high(node, here)
        if loop is not None and (axis := axis_of(loop)) is not None:
            body = self._mapped(node, here, axis, iterator, low, high)
            return body if loop.bind != LANE else self._combined(loop, body, here)
        if loop is not None and loop.bind == "unroll" and self.bounds:
            low, high = bounded(self.nest, loop, low, high)
        variable = self._variable(loop.name if loop is not None else iterator, here)
        step = int(node.for_get_inc().get_val().to_python())
        around = {**here.around, loop.name: (variable, step)} if loop is not None else here.around
        names = {**here.names, iterator: ast.Name(variable)}
        inner = _Here(names, None, here.mapped, (*here.variables, variable), around)
        if loop is None:
            return For(variable, low, high, step, None, self._node(node.for_get_body(), inner))
        bind = "turn" if id(loop) in self.turns else loop.bind
        body = (self._turn if bind == "turn" else self._node)(node.for_get_body(), inner)
        streams = tuple(self.namer(tensor) for tensor in loop.streams if tensor not in self.geometry)
        ahead = tuple(self._ahead(loop, body, here))
        backwards = bind == "dynamic" and heavier_last(self.nest, self.copies.domains, loop)
        return For(variable, low, high, step, bind, body, ahead, streams, backwards)

    def _ahead(self, loop: Loop, body: Node, here: _Here) -> Iterator[tuple[Element, bool]]:
        """The elements that a loop prefetches: of arrays, one or more values of an outer loop later.

        A loop of one value became none: there is no next one, nor is there where an element is said without the loop's
        variable, under `j == 0`. Nor does a loop on vector lanes with others inside ask for what these go through: that
        is for the innermost one.
        """
        inside = set() if loop.bind == "microkernel" else variables(body)
        for fetch in loop.fetches:
            array = self.namer(fetch.tensor)
            if fetch.loop not in here.around or fetch.tensor in self.geometry:
                continue
            variable, step = here.around[fetch.loop]
            reads, written = touched(body, array)
            moving = (e for e in reads or written if depends_on(e, {variable}))
            known = tuple(e for e in moving if not (is_chosen(e) or depends_on(e, inside)))
            zero = ast.Constant(0)
            for element in leading(known, For(variable, zero, zero, fetch.by * step, None, Block(()))):
                yield element, not reads

    def _high(self, node: isl.AstNode, here: _Here) -> ast.expr:
        condition = node.for_get_cond()
        bound = to_python(condition.get_op_arg(1), here.names)
        return plus(bound, 1) if condition.get_op_type() == isl.ast_expr_op_type.le else bound

    def _mapped(
        self, node: isl.AstNode, here: _Here, bind: str, iterator: str, low: ast.expr, high: ast.expr
    ) -> Node:
        """A loop over a hardware axis: no loop, only a guard where the axis is longer than it."""
        start, _ = self.bounds[bind]
        value = self._axis_value(bind)
        inner = _Here({**here.names, iterator: value}, None, here.mapped | {bind}, here.variables)
        body = self._node(node.for_get_body(), inner)
        checks: list[ast.expr] = []
        if not same(low, start):
            checks.append(ast.Compare(low, [ast.LtE()], [value]))
        end = binary(ast.Add(), self._extent(bind), start)
        if not same(high, end):
            known = end.value if isinstance(end, ast.Constant) else None
            most = beside(high, "min", known) if isinstance(known, int) else high
            checks.append(ast.Compare(value, [ast.Lt()], [most]))
        step = int(node.for_get_inc().get_val().to_python())
        if step != 1:
            offset = binary(ast.Mod(), binary(ast.Sub(), value, low), ast.Constant(step))
            checks.append(ast.Compare(offset, [ast.Eq()], [ast.Constant(0)]))
        return guarded(checks, body)

    def _combined(self, loop: Loop, body: Node, here: _Here) -> Node:
        """The body that lanes run, and the reduction that combines their results."""
        dtype = self.nest.tensor(self.nest.statement(statements(loop)[0]).write.tensor).dtype
        partial = Element(self._variable("partial", here), (), dtype)
        return over_lanes(body, partial, axis_name(LANES), self._lanes())

    def _lanes(self) -> int:
        """The number of threads that share a reduction: all along the axis of lanes."""
        _, most = self.bounds[LANES]
        assert isinstance(most, ast.Constant), "a number of lanes"
        assert isinstance(most.value, int), "a number of lanes"
        return most.value

    def _user(self, node: isl.AstNode, here: _Here) -> Node:
        key = node.get_annotation().get_name()
        if key in self.barriers.domains:
            return self._barrier(key)
        if key in self.ends:
            return Block(())
        leaf = self.leaves[key]
        s = leaf.statement

        def element(access: Access, subscripts: tuple[isl.AstExpr, ...]) -> Element:
            values = tuple(to_python(value, here.names) for value in subscripts)
            tensor = self.nest.tensor(access.tensor)
            if tensor.gather is None:
                return Element(self.namer(tensor.name), values, tensor.dtype)
            table, index = parts_of(self.nest, tensor)
            row = chosen(self.namer(index.name), values[: index.rank])
            return Element(self.namer(table.name), (row, *values[index.rank :]), tensor.dtype)

        indices = {d: to_python(value, here.names) for d, value in leaf.indices.items()}
        store = Store(
            base(s.name),
            element(s.write, leaf.target),
            s.op,
            s.body,
            tuple(element(access, values) for access, values in zip(s.reads, leaf.reads, strict=True)),
            indices,
            self.operations.get(s.name),
        )
        checks: list[ast.expr] = []
        for bind in self.bounds:
            alone = s.name in self.own and bind in THREADS
            if alone or bind in here.mapped or is_number(self._extent(bind), 1):
                continue
            only = to_python(leaf.places[bind], here.names) if bind in leaf.places else ast.Constant(0)
            checks.append(ast.Compare(self._axis_value(bind), [ast.Eq()], [only]))
        return guarded(checks, store)

    def _barrier(self, name: str) -> Node:
        """The barrier of that name: one that ends a loop's iterations waits for what they have asked for."""
        if name in self.barriers.handed:
            return self.barriers.handed[name]
        loop = self.barriers.ends.get(name)
        still_open = next((each.open for each in self.in_flight if each.loop is loop), None)
        return Barrier(still_open, grid=name in self.barriers.grid)

    # -- names, axes, buffers ------------------------------------------------------------------------------------

    def _variable(self, wanted: str, here: _Here) -> str:
        taken = {*here.variables, *self.arrays, *(self.namer(t) for t in self.geometry), *self.nest.params}
        taken |= {ARRIVALS, *self.targets.called, *(axis_name(bind) for bind in self.bounds)}
        name, n = base(wanted), 2
        while name in taken:
            name, n = f"{base(wanted)}_{n}", n + 1
        return name

    def _extent(self, bind: str) -> ast.expr:
        low, high = self.bounds[bind]
        return binary(ast.Sub(), high, low)

    def _axis_value(self, bind: str) -> ast.expr:
        return binary(ast.Add(), ast.Name(axis_name(bind)), self.bounds[bind][0])

    def _allocations(self, tensors: set[str]) -> tuple[Allocate, ...]:
        """The allocations of these tensors' buffers, outside the loops that refill them."""
        found = []
        for name, g in self.geometry.items():
            if name not in tensors:
                continue
            shape = tuple(extent for extent in g.shape if extent != 1)
            if not shape and g.buffer.memory == "shared":
                shape = (1,)  # a scalar variable would be each thread's own
            found.append(Allocate(self.namer(name), shape, self.nest.tensor(name).dtype, g.buffer.memory))
        return tuple(found)
