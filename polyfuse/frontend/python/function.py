"""`@pf.nest`: a plain Python function of loops, read from its source, as a nest.

Array expressions have become statements on elements before (numpy/lowering.py).

    function  ::= def name(parameter: "type", …): statement*
    statement ::= for index in range(…): statement*
                | if cond: statement* [else: statement*]            cond may ask for data (conditions.py)
                | target = value | target += value | -= *= /=
                | assert cond                      on sizes, at the top: an assumption that a call checks
                | pass | a docstring
                | name = np.zeros(…)               a local array (arrays.py)
                | return value | return value, …   at the end
    target    ::= scalar | A[aff, …] | A[aff]…[aff]

`aff` and `cond` are in affine.py, `value` in body.py, types in parameters.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NoReturn

import islpy as isl

from polyfuse.errors import BadArgument, InvalidNest, NotAffine, in_source
from polyfuse.errors.proving import proving
from polyfuse.frontend.python.affine import Affine, instances
from polyfuse.frontend.python.aliases import Aliases, assigned_in
from polyfuse.frontend.python.arrays import local_array
from polyfuse.frontend.python.assignment import (
    Assigned,
    assignment,
    copy_of,
    joined,
    kept_test,
    target_of,
    whole_value,
)
from polyfuse.frontend.python.assumptions import with_bounds
from polyfuse.frontend.python.conditions import (
    Predicate,
    chosen,
    divided,
    needs_variable,
    one_assignment,
    own_variables,
)
from polyfuse.frontend.python.examples import annotated, annotations_of, annotations_of_defaults
from polyfuse.frontend.python.numpy.lowering import lowered
from polyfuse.frontend.python.parameters import base_context, defaults, names_in_sizes, names_of, not_negative
from polyfuse.frontend.python.places import (
    Named,
    at_places,
    data_bounded,
    is_given_place,
    named_places,
    placed_reads,
    with_read,
)
from polyfuse.frontend.python.reference import reference
from polyfuse.frontend.python.scope import Branch, Place, Range, Scope, place, range_of
from polyfuse.frontend.python.source import source_of
from polyfuse.frontend.python.types import local_types
from polyfuse.ir import Nest, Statement, Tensor
from polyfuse.ir.tensor import Limit
from polyfuse.ir.tree import Leaf, Loop, Tree, restrict, sequence, statements

INSIDE = "subscripts inside for all sizes; an assert on sizes at the top leaves some out"
CUT = "; a slice is cut short at the array's end only if it ends behind it for all sizes"
SLICE = re.compile(r"\[[^\]]*:")
"""A slice in a line of source."""

ALLOWED = "for … in range(…), if, assignments, assert on sizes at the top, return as the last line"
PIECES = "pf.program leaves other statements to Python, and compiles the pieces inside of them"


@dataclass(frozen=True, repr=False)
class PythonNest(Nest):
    """A nest read from a Python function, which stays callable as `python` and then infers the sizes.

    `elements` is the function on elements that array expressions became, as Python prints it; `notes` say which
    assignments of arrays go through a temporary, and why.
    """

    python: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    elements: str = field(default="", compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __copy__(self) -> PythonNest:
        """Itself: nothing in it changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PythonNest:
        """Itself, with its function, which a pickled nest leaves behind."""
        return self

    def __call__(self, *args: Any, **named: Any) -> NoReturn:
        """Refuse a call: the nest is not compiled, and would silently run at Python's speed."""
        raise BadArgument(
            f"{self.name} is a nest, nothing is compiled yet: pf.compile({self.name})(…) runs it, "
            f"{self.name}.python(…) is the Python function itself"
        )


@proving("reading a Python function")
def nest(
    function: Callable[..., Any],
    *,
    types: Mapping[str, str] | None = None,
    example: Sequence[Any] | Mapping[str, Any] | None = None,
) -> PythonNest:
    """Read the nest of a Python function of affine loops and NumPy's array expressions.

    Arrays that the function writes have role inout, other array parameters role input; scalar parameters are tensors
    without dimensions; local variables are temporaries. The original order is the source's. Numbers from outside of the
    function are read once, when it is decorated. A subscript that is negative in every iteration counts from the end.
    What is affine in no sizes, but for the shapes of the example, as a flattened matrix, is read for these alone.

    Args:
        function: The function; arrays and sizes are declared by the parameters' annotations.
        types: Annotations by parameter, in the place of those in the source: {"x": "f64[N]"}.
        example: Arguments of a call, from which types and shapes are taken where `types` has none.

    Returns:
        The nest, which also has the function as `python`.

    Raises:
        NotAffine: if the function is not an affine program; the message has file, line and column.
        NoSource: if the function's source cannot be read.
        InvalidNest: if a subscript may be out of bounds, or a variable is read before it is written; with an instance.
    """
    if not isinstance(function, FunctionType):
        raise BadArgument(f"pf.nest reads a Python function, not {function!r}")
    before, behind = annotations_of_defaults(function), types or {}
    if example is None:
        return _read(function, {**before, **behind})
    try:
        return _read(function, {**before, **annotations_of(function, example), **behind})
    except NotAffine as error:
        shapes = annotations_of(function, example, symbolic=False)
        try:
            made = _read(function, {**before, **shapes, **behind})
        except NotAffine:
            raise error from None
        note = f"read for the shapes of the example alone: {str(error).splitlines()[0]}"
        return replace(made, notes=(*made.notes, note))


def _read(function: FunctionType, annotations: Mapping[str, str]) -> PythonNest:
    reader = _Reader(function, annotations)
    first = reader.own_copies()
    order = reader.block(reader.source.tree.body, ())
    return reader.finished(sequence((*first, order)) if order is not None else None)


@dataclass
class _Reader:
    """Walks one function; keeps the statements found so far, with the dates of the loops around each.

    `aliases` are the variables whose value is known at this point of the walk, `unstored` those whose values cannot
    be stored, with the reason; `results` are the variables and arrays that are returned, `tests` the variables that
    keep a test. `limits` are the extents that numbers of arrays have to be below, as they name places.
    """

    function: FunctionType
    annotations: Mapping[str, str] = field(default_factory=dict)
    found: list[Assigned] = field(default_factory=list)
    dates: dict[str, tuple[isl.PwAff, ...]] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=Aliases)
    unstored: dict[str, NotAffine] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    tests: set[str] = field(default_factory=set)
    limits: dict[str, dict[int | str, None]] = field(default_factory=dict)
    written_at: dict[str, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lowered = lowered(annotated(source_of(self.function), self.annotations))
        self.source = self.lowered.source
        self.names = replace(names_of(self.source), placed=self.lowered.placed)
        self.integers = names_in_sizes(self.source) & self.names.locals
        self.defaults = defaults(self.names)
        self.context = base_context(self.names, tuple(self.names.tensors.values()))

    def own_copies(self) -> tuple[Leaf, ...]:
        """alpha_local = alpha, for every parameter that is assigned: the caller never sees that."""
        made = []
        for tensor in self.names.tensors.values():
            if tensor.name in self.names.locals:
                here = place(self.names, (), self._free_name("S"))
                made.append(self._keep(here, copy_of(here, tensor.name), self.source.tree))
        return tuple(made)

    def block(self, body: list[ast.stmt], scope: Scope) -> Tree | None:
        """The order of some statements; None if nothing is left of them."""
        parts = tuple(part for node in body for part in [self.statement(node, scope)] if part is not None)
        return sequence(parts) if parts else None

    def statement(self, node: ast.stmt, scope: Scope) -> Tree | None:
        """The order of one Python statement. NotAffine if it is none that can be read."""
        match node:
            case ast.For():
                return self.loop(node, scope)
            case ast.If():
                return self.branches(node, scope)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name in self.names.made:
                return self.array(node, name, call, scope)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                return self.assign(node, scope)
            case ast.Assert() if not scope:
                self.assume(node)
                return None
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return None
            case ast.Return() if node is self.source.tree.body[-1]:
                return self.give_back(node)
            case ast.Return():
                self.source.refuse(node, "a return before the end", "a return as the last line")
        what = f"`{ast.unparse(node).splitlines()[0]}` is not a statement of an affine program"
        if isinstance(node, ast.Expr):
            what = f"the value of {ast.unparse(node)} is not kept, and it changes no array that is known here"
        ends_by_data = isinstance(node, ast.While | ast.Try)
        self.source.refuse(node, what, f"{ALLOWED}; {PIECES}" if ends_by_data else ALLOWED)

    def loop(self, node: ast.For, scope: Scope) -> Tree | None:
        """for i in range(…): body."""
        node = ast.copy_location(
            ast.For(node.target, self.aliases.written_out(node.iter), node.body, node.orelse), node
        )
        bounded = data_bounded(self.names, node)
        tests: tuple[Predicate, ...] = ()
        if bounded is not None:
            own = own_variables(node.body, self.source.tree, self.names.locals)
            tests = tuple(Predicate(test, True, own) for test in bounded.tests)
            for chooser in bounded.choosers:
                self.limits.setdefault(chooser, {})[bounded.below] = None
        around = range_of(self.names, node) if bounded is None else bounded.loop
        if any(isinstance(part, Range) and part.variable == around.variable for part in scope):
            self.source.refuse(
                node.target, f"{around.variable} is the variable of a loop around this one", "another"
            )
        place(self.names, (*scope, around), None)  # bounds are refused even where nothing is in the loop
        depth = sum(isinstance(part, Range) for part in scope)
        outside = self.aliases = self.aliases.without(assigned_in(node.body))
        body = self.block(node.body, (*scope, around, *tests))
        self.aliases = outside
        if body is None:
            return None
        return Loop(
            around.variable, tuple((name, self.dates[name][depth]) for name in statements(body)), body
        )

    def branches(self, node: ast.If, scope: Scope) -> Tree | None:
        """if test: body else: orelse. Every instance is in one of the two, so they can stand one after the other."""
        test = self.aliases.written_out(node.test)
        node = ast.copy_location(ast.If(test, node.body, node.orelse), node)
        is_condition = place(self.names, scope, None).affine.is_condition
        parts: list[Tree | None] = []
        yes: Branch | Predicate
        no: Branch | Predicate
        if is_condition(test):
            yes, no = Branch(test, True), Branch(test, False)
        elif (made := divided(node, is_condition)) is not None:
            return self.branches(made, scope)
        elif (one := self.choice(node)) is not None:
            return self.assign(one, scope)
        else:
            kept, yes, no = self.predicates(node, scope)
            parts.append(kept)
        before, changed = self.aliases, assigned_in((*node.body, *node.orelse))
        parts.append(self.block(node.body, (*scope, yes)))
        then, self.aliases = self.aliases, before
        parts.append(self.block(node.orelse, (*scope, no)))
        if isinstance(yes, Branch):
            self.aliases = before.after_branches(test, then, self.aliases, changed)
        else:
            self.aliases = before.without(changed)
        left = tuple(part for part in parts if part is not None)
        return sequence(left) if left else None

    def choice(self, node: ast.If) -> ast.Assign | ast.AugAssign | None:
        """An `if` on data as one assignment, where its test would have to be kept for two of them; else None.

        A branch that reads at a place named by data does so only where it is taken.
        """
        one = one_assignment(node) if needs_variable(node) else None
        if one is None or placed_reads(self.names, one, target_of(self.names, one)):
            return None
        return one

    def predicates(self, node: ast.If, scope: Scope) -> tuple[Tree | None, Predicate, Predicate]:
        """(what keeps the test in a variable, if that is needed; the two branches) of an `if` on data."""
        own = [own_variables(body, self.source.tree, self.names.locals) for body in (node.body, node.orelse)]
        test: ast.expr | str = node.test
        kept: Tree | None = None
        if needs_variable(node):
            test = self._free_name("test")
            here = place(self.names, scope, self._free_name("S"))
            made = kept_test(here, test, node.test)
            self.tests.add(test)
            kept = (
                None
                if here.domain.intersect_params(self.context).is_empty()
                else self._keep(here, made, node.test)
            )
        return kept, Predicate(test, True, own[0]), Predicate(test, False, own[1])

    def assign(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, scope: Scope) -> Tree | None:
        """target op value: a statement; nothing if no instance can ever run."""
        node = self.aliases.written_out(node)
        target = target_of(self.names, node)
        if not (isinstance(target, ast.Name) and target.id in self.integers):
            return self.store(node, scope)
        value = whole_value(self.names, node, ast.copy_location(ast.Name(target.id, ast.Load()), target))
        value = self.aliases.written_out(value)
        known = place(self.names, scope, None).affine.is_value(value) or is_given_place(self.names, value)
        try:
            # by another name, so that a variable that is only stood for leaves no gap in S0, S1, …
            made = self.store(node, scope, f"set_{target.id}")
        except NotAffine as error:
            if not known:
                raise
            made = None
            self.unstored.setdefault(target.id, error)
        without = self.aliases.without([target.id])
        self.aliases = without.having(target.id, value) if known else without
        return made

    def store(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, scope: Scope, stem: str = "S"
    ) -> Tree | None:
        """The statement of an assignment without variables that stand for their value."""
        target = target_of(self.names, node)
        reads = placed_reads(self.names, node, target)
        if reads and not any(isinstance(part, Predicate) for part in scope):
            return self.read_at_places(node, scope, stem, reads)
        named = named_places(self.names, target, self._index)
        if named is not None:
            return self.stored_at_places(node, scope, target, *named)
        here = place(self.names, scope, self._free_name(stem))
        choice = chosen(node, here.affine.is_condition)
        if choice is not None:
            return self.branches(choice, scope)
        made = assignment(self.names, here, node, self.context)
        if here.domain.intersect_params(self.context).is_empty():
            return None
        return self._keep(here, made, node)

    def stored_at_places(
        self,
        node: ast.Assign | ast.AugAssign | ast.AnnAssign,
        scope: Scope,
        target: ast.expr,
        element: ast.Subscript,
        places: tuple[Named, ...],
    ) -> Tree | None:
        """h[idx[i]] op value: a loop over all places around it, in which data say which one is meant."""
        depth = sum(isinstance(part, Range) for part in scope)
        for one in places:
            self.limits.setdefault(one.chooser, {})[one.below] = None
            scope = (*scope, one.loop, one.test)
        made = self.store(at_places(node, target, element), scope)
        for k, one in reversed(list(enumerate(places, depth))):
            if made is not None:
                dates = tuple((name, self.dates[name][k]) for name in statements(made))
                made = Loop(one.loop.variable, dates, made)
        return made

    def read_at_places(
        self,
        node: ast.Assign | ast.AugAssign | ast.AnnAssign,
        scope: Scope,
        stem: str,
        reads: Sequence[ast.Subscript],
    ) -> Tree | None:
        """x = t[j, idx[i]]: a sum over all places, of which data say which one is taken, and then the assignment."""
        parts: list[Tree | None] = []
        for part in reads:
            variable = self._free_name("at_place")
            self.names = replace(self.names, locals=self.names.locals | {variable})
            stored = ast.copy_location(ast.Name(variable, ast.Store()), part)
            named = named_places(self.names, part, self._index)
            assert named is not None, "a subscript is from data"
            begin = ast.copy_location(ast.Assign([stored], ast.copy_location(ast.Constant(0), part)), node)
            added = ast.copy_location(ast.AugAssign(stored, ast.Add(), part), node)
            parts += [self.store(begin, scope), self.stored_at_places(added, scope, part, *named)]
            node = with_read(node, part, variable)
        parts.append(self.store(node, scope, stem))
        left = tuple(one for one in parts if one is not None)
        return sequence(left) if left else None

    def _index(self) -> str:
        """The name of a new loop's index."""
        name = "place"
        while self.names.rank(name) is not None or any(
            name in own for own in (self.names.sizes, self.names.indices, self.names.made, self.names.locals)
        ):
            name += "_"
        self.names = replace(self.names, indices=self.names.indices | {name})
        return name

    def array(self, node: ast.Assign, name: str, call: ast.Call, scope: Scope) -> Tree | None:
        """name = np.zeros(…): a temporary, and the loops that fill it."""
        made = local_array(self.names, name, self.aliases.written_out(call), self.context)
        known = self.names.arrays.get(name, made.tensor)
        if known != made.tensor:
            self.source.refuse(
                node,
                f"{name} is made again as {made.tensor}, it was {known}",
                "another name for another array",
            )
        shapes = {**self.names.shapes, name: made.extents}
        self.names = replace(self.names, arrays={**self.names.arrays, name: known}, shapes=shapes)
        self.context = not_negative(self.names, self.context, made.extents)
        filling = made.filling(node)
        return None if filling is None else self.statement(filling, scope)

    def give_back(self, node: ast.Return) -> Tree | None:
        """return value, …: variables and arrays are results as they are, other values are stored in one."""
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            return None
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        parts = []
        for value in values:
            name = value.id if isinstance(value, ast.Name) else ""
            if name in self.names.tensors and self.names.tensors[name].rank:
                self.source.refuse(
                    value,
                    f"{name} is the caller's array",
                    "values, variables and arrays that are made here; what is given is changed in place",
                )
            own = name in self.names.arrays or name in self.names.locals - set(self.names.tensors)
            if not own or name in self.results or name in self.aliases.known:
                name = self._free_name("result")
                self.names = replace(self.names, locals=self.names.locals | {name})
                store = ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), value)], value)
                parts.append(self.assign(ast.copy_location(store, value), ()))
            self.results.append(name)
        left = tuple(part for part in parts if part is not None)
        return sequence(left) if left else None

    def assume(self, node: ast.Assert) -> None:
        """assert cond: the context is limited to sizes for which it holds."""
        holds = Affine(self.names, instances(None, self.names.sizes, ())).condition(node.test)
        self.context = self.context.intersect(holds.params())

    def finished(self, order: Tree | None) -> PythonNest:
        """The nest of everything read."""
        self.found = joined(self.needed(), self.context)
        order = order and restrict(order, frozenset(made.statement.name for made in self.found))
        if order is None:
            raise InvalidNest(f"{self.function.__name__} computes nothing: none of its statements ever runs")
        found = tuple(made.statement for made in self.found)
        tensors = self.tensors(found)
        context = with_bounds(self.context, found, {t.name: t for t in tensors})
        name, python = self.function.__name__, reference(self.names)
        text = (str(self.lowered), self.lowered.notes)
        made = PythonNest(tensors, found, order, context, {}, name, self.defaults, python, *text)
        try:
            made.check()  # results are temporaries until here: what is returned has been written
        except InvalidNest as error:
            raise self._in_source(error) from error
        own = {t.name: t for t in tensors if t.name in self.results}
        rest = tuple(t for t in tensors if t.name not in own)
        return replace(made, tensors=(*rest, *(replace(own[name], role="output") for name in self.results)))

    def _in_source(self, error: InvalidNest) -> InvalidNest:
        """The error with the line that the statement is read from, and what may help."""
        node = self.written_at.get(error.statement or "")
        if node is None:
            return error
        file, line, column, text = self.source.place(node)
        message = in_source(str(error), file, line, column, text)
        if "out of bounds" in message:
            message += f"\nwould work: {INSIDE}{CUT if SLICE.search(text) else ''}"
        return InvalidNest(message, error.statement)

    def needed(self) -> list[Assigned]:
        """The statements without those of integers and tests that nobody reads.

        NotAffine where a variable that only stands for its value is read where that value is not known.
        """
        while True:
            read = {tensor for made in self.found for a in made.statement.reads for tensor in [a.tensor]}
            for name in self.unstored:
                if name in read:
                    raise self.unstored[name]
            idle = (self.integers | self.tests) - read - set(self.results)
            left = [made for made in self.found if made.statement.write.tensor not in idle]
            if len(left) == len(self.found):
                return left
            self.found = left

    def tensors(self, found: tuple[Statement, ...]) -> tuple[Tensor, ...]:
        """Parameters in order, those that are written with role inout; then local arrays and variables."""
        written = {s.write.tensor for s in found}
        given = [replace(t, role="inout") if t.name in written else t for t in self.names.tensors.values()]
        given += self.names.arrays.values()
        read = {access.tensor for s in found for access in s.reads}
        given += (tensor for tensor in self.names.gathered.values() if tensor.name in read)
        given = [self._limited(t) for t in given]
        given = [replace(t, pairs=True) if t.name in self.lowered.pairs else t for t in given]
        types = local_types(self.found, {t.name: t.dtype for t in given})
        return (*given, *(Tensor(name, (), dtype, "temporary") for name, dtype in types.items()))

    def _limited(self, tensor: Tensor) -> Tensor:
        limits = self.limits.get(tensor.name)
        return tensor if limits is None else replace(tensor, below=tuple(map(Limit, limits)))

    def _free_name(self, stem: str) -> str:
        names = {name for made in self.found for name in (made.statement.name, made.statement.write.tensor)}
        taken = names | self.names.made | set(self.names.sizes)
        name = f"{stem}{sum(name.startswith(stem) for name in names)}"
        while self.names.rank(name) is not None or name in taken:
            name = f"{name}_"
        return name

    def _keep(self, here: Place, made: Assigned, node: ast.AST) -> Leaf:
        self.found.append(made)
        self.written_at[made.statement.name] = node
        self.dates[made.statement.name] = here.dates
        return Leaf(made.statement.name)
