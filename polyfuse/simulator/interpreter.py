"""The interpreter of the lock-step run: one team of threads walks the statements of a kernel together."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP, waits
from polyfuse.codegen.cuda.kernel_grammar import (
    SHUFFLE,
    KernelSource,
    UnsupportedKernel,
    callee,
    constant,
    coordinate,
    subscripts,
)
from polyfuse.codegen.cuda.tensor_maps import MappedArray
from polyfuse.codegen.looptree.body_source import PRELUDE
from polyfuse.simulator import values
from polyfuse.simulator.agents import Handover
from polyfuse.simulator.device_ops import perform
from polyfuse.simulator.grid import Integers
from polyfuse.simulator.races import (
    BarrierError,
    Memory,
    Team,
    declared,
    flatten,
    poison,
    report,
)
from polyfuse.simulator.threads import Asked, Begun, Bulk
from polyfuse.simulator.values import Value

TOP_BIT = 1 << 31
"""The bit of a grid barrier's counter that flips when all blocks have arrived."""


class Active:
    """The threads that execute: all of them (`mask` and `at` None), or those where `mask` holds, numbered in
    `at`.
    """

    def __init__(self, size: int, mask: npt.NDArray[np.bool_] | None = None) -> None:
        self.mask = mask
        self.at = None if mask is None else np.flatnonzero(mask)
        self.count = size if self.at is None else len(self.at)

    def pick(self, value: Any) -> Any:
        """A value's entries for the active threads; one number stays one number."""
        return value if self.at is None or np.ndim(value) == 0 else value[self.at]

    def among(self, mask: npt.NDArray[np.bool_]) -> Active:
        """Other threads."""
        return Active(len(mask), mask)

    def where(self, condition: npt.NDArray[np.bool_]) -> Active:
        """The threads among these for which a condition over all threads holds."""
        mask = condition if self.mask is None else self.mask & condition
        narrowed = Active(len(mask), mask)
        return self if narrowed.count == self.count else narrowed


class Machine:
    """One team's run through a kernel: its private scalars, its memories, the threads active now."""

    def __init__(
        self,
        kernel: KernelSource,
        team: Team,
        pointers: dict[str, Memory],
        scalars: dict[str, Value],
        counts_waits: bool = False,
        maps: dict[str, MappedArray] | None = None,
    ) -> None:
        self.kernel = kernel
        self.team = team
        self.grid = team.grid
        self.memories = pointers | {a.name: declared(a, team) for a in kernel.arrays}
        self.scalars = dict(scalars)
        self.active = Active(team.size)
        self.coordinates = _coordinates(team)
        self.lane = np.arange(team.size)
        self.counts_waits = counts_waits
        self.groups: list[list[Asked]] = [[]]
        self.unshown: set[str] = set()
        self.begun: list[Begun] = []
        self.bulk = Bulk(maps or {})
        self.handover: Handover | None = None
        self.agent = self.rank = 0
        self.everyone = self.active
        self.statements = self.loads = self.stores = self.waits = 0

    # -- statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Executes statements for the active threads. Raises what `lockstep.run` says."""
        for statement in statements:
            try:
                self._statement(statement)
            except TypeError as error:
                raise UnsupportedKernel(f"{error} at {self.kernel.line(statement.lineno)}") from error

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                self._assign(name, self.value(node.value), node)
            case ast.Assign(targets=[ast.Subscript() as target]):
                self.store(target, self._indices(target), self.value(node.value))
            case ast.AugAssign(target=ast.Name(id=name)):
                self._assign(
                    name, values.arithmetic(node.op, self.scalars[name], self.value(node.value)), node
                )
            case ast.AugAssign(target=ast.Subscript() as target):
                at = self._indices(target)
                self.store(
                    target, at, values.arithmetic(node.op, self.load(target, at), self.value(node.value))
                )
            case ast.For():
                self._loop(node)
            case ast.If():
                self._branch(node)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=arguments)):
                perform(self, name, node, arguments)
            case ast.Expr():
                self.team.synchronise(self.active.mask, self.kernel.line(node.lineno))

    def _under(self, active: Active, body: Sequence[ast.stmt]) -> None:
        if active.count == 0:
            return
        outer, self.active = self.active, active
        self.block(body)
        self.active = outer

    def _branch(self, node: ast.If) -> None:
        test = values.truth(self.value(node.test))
        if isinstance(test, np.ndarray):
            self._under(self.active.where(test), node.body)
            if node.orelse:
                self._under(self.active.where(~test), node.orelse)
        else:
            self.block(node.body if test else node.orelse)

    def _loop(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        bounds = [self.value(b) for b in node.iter.args]
        start = np.int64(0) if len(bounds) == 1 else bounds[0]
        stop = bounds[min(1, len(bounds) - 1)]
        step: Any = bounds[2] if len(bounds) == 3 else np.int64(1)
        if np.ndim(step) or step == 0 or any(b.dtype.kind != "i" for b in bounds):
            raise TypeError(
                "a range whose bounds are not integers, or whose step is 0 or differs between threads"
            )
        name = node.target.id
        if not isinstance(start, np.ndarray) and not isinstance(stop, np.ndarray):
            for number in range(int(start), int(stop), int(step)):
                self.scalars[name] = np.int64(number)
                self.block(node.body)
            return
        at: Any = start
        while True:
            inside = self.active.where(np.asarray(at < stop if step > 0 else at > stop))
            if inside.count == 0:
                return
            self.scalars[name] = at
            self._under(inside, node.body)
            at = at + step

    def _assign(self, name: str, value: Value, node: ast.stmt) -> None:
        self.statements += self.active.count
        old = None if PRELUDE.fullmatch(name) else self.scalars.get(name)
        if old is not None and old.dtype != value.dtype:
            raise TypeError(f"{name!r} changes type from {old.dtype} to {value.dtype}")
        if self.active.mask is not None:
            unset = poison(value.dtype.name) if old is None else old
            value = np.where(self.active.mask, value, unset)
        self.scalars[name] = value

    # -- memory

    def _indices(self, node: ast.Subscript) -> list[Any]:
        found = [self.value(index) for index in subscripts(node)]
        if any(index.dtype.kind != "i" for index in found):
            raise TypeError("a subscript that is not an integer")
        return found

    def locate(self, node: ast.Subscript, indices: list[Any]) -> tuple[Memory, Integers]:
        """A subscript's array, and where the active threads' elements lie in its data."""
        assert isinstance(node.value, ast.Name)
        memory = self.memories.get(node.value.id)
        if memory is None:
            raise TypeError(f"a subscript of {node.value.id!r}, which is no array")
        picked = [self.active.pick(index) for index in indices]
        threads = self.active.pick(self.team.thread)
        flat = flatten(memory, picked, threads, self.kernel, node.lineno, self.grid)
        if memory.space == "local":
            return memory, flat * self.team.size + self.active.pick(self.lane)
        if memory.space == "shared":
            return memory, flat + self.active.pick(self.team.block) * memory.size
        return memory, flat

    def unravelled(self, node: ast.Subscript, position: Any) -> list[Any]:
        """The subscripts of the elements at row-major positions of an array; the first one may lie out of bounds."""
        assert isinstance(node.value, ast.Name)
        memory, found = self.memories[node.value.id], list[Any]()
        for extent in memory.shape[:0:-1]:
            position, inner = np.divmod(position, extent)
            found.append(inner)
        return [position, *reversed(found)]

    def itemsize(self, node: ast.Subscript) -> int:
        """Bytes of an array's element."""
        assert isinstance(node.value, ast.Name)
        return int(self.memories[node.value.id].data.dtype.itemsize)

    def zeros(self, node: ast.Subscript) -> Value:
        """A zero of an array's type."""
        assert isinstance(node.value, ast.Name)
        return np.zeros((), self.memories[node.value.id].data.dtype)[()]

    def on_way(self, node: ast.Subscript, indices: list[Any], comes: bool) -> None:
        """Say of elements of a shared array whether a box is to come there."""
        memory, at = self.locate(node, indices)
        known = self.bulk.on_way.setdefault(memory.name, np.zeros(len(memory.data), np.bool_))
        known[at] = comes

    def load(self, node: ast.Subscript, indices: list[Any], nbytes: int | None = None) -> Value:
        """Load for the active threads; as a part of accesses of `nbytes` each, if that is given."""
        memory, at = self.locate(node, indices)
        if memory.name in self.bulk.on_way and self.bulk.on_way[memory.name][at].any():
            raise TypeError(f"{memory.name} is read before the copies to it have been waited for")
        if self.handover is not None and memory.space == "shared":
            self.handover.read(self.agent, memory, at)
        self._banks(memory, at, nbytes)
        if memory.space == "global":
            self.loads += self.active.count
        if memory.ledger is not None:
            at = np.broadcast_to(at, self.active.count)
            self._check(memory, at, node, wrote=False)
        got: Value = memory.data[at]
        if self.active.at is None or np.ndim(got) == 0:
            return got
        spread = np.full(self.team.size, poison(got.dtype.name))
        spread[self.active.at] = got
        return spread

    def store(self, node: ast.Subscript, indices: list[Any], value: Value, nbytes: int | None = None) -> None:
        """Store for the active threads; as a part of accesses of `nbytes` each, if that is given.

        0 stands for what a counted access does later.
        """
        self.statements += self.active.count
        memory, at = self.locate(node, indices)
        at = np.broadcast_to(at, self.active.count)
        self._banks(memory, at, nbytes)
        if memory.space == "global":
            self.stores += self.active.count
        if memory.space == "shared":
            self.unshown.add(memory.name)
            if self.handover is not None:
                self.handover.written(memory)
        if memory.ledger is not None:
            self._check(memory, at, node, wrote=True)
        memory.data[at] = self.active.pick(value)

    def together(self, node: ast.stmt, count: int = WARP) -> None:
        """Raises BarrierError if only some of `count` threads, a warp or several, are here."""
        self.team.together(self.active.mask, self.kernel.line(node.lineno), count)

    def meet(self, node: ast.stmt, counter: str) -> None:
        """Raises BarrierError if a thread of some block is not here, or the counter was never zeroed.

        It ends with its top bit changed and the others as they were, as on a GPU.
        """
        line = self.kernel.line(node.lineno)
        self.team.synchronise_grid(self.active.mask, line)
        held = self.memories[counter].data
        if held.dtype != np.int32 or int(held[0]) & TOP_BIT - 1:
            raise BarrierError(f"{counter!r} is no 32-bit counter that began at zero at {line}")
        held[:1] = (int(held[0]) & TOP_BIT) - TOP_BIT

    def _banks(self, memory: Memory, at: Integers, nbytes: int | None) -> None:
        """Count the turns that this access waits for banks; a part of a wider one counts where that begins."""
        if not self.counts_waits or memory.space != "shared" or nbytes == 0:
            return
        itemsize = memory.data.dtype.itemsize
        width = nbytes or itemsize
        per_block = -(-self.grid.per_block // WARP) * WARP
        lanes = np.full((len(self.team.epoch), per_block), -1, np.int64)
        threads = np.asarray(self.active.pick(self.team.thread)) - self.team.thread[0]
        block, inside = np.divmod(threads, self.grid.per_block)
        lanes[block, inside] = np.broadcast_to(at, len(threads)) % memory.size * itemsize
        if (lanes[lanes >= 0] % width == 0).all():
            self.waits += waits(lanes.reshape(-1, WARP), width)

    def _check(self, memory: Memory, at: Integers, node: ast.Subscript, wrote: bool) -> None:
        assert memory.ledger is not None
        stamp = self.active.pick(self.team.stamp) | node.lineno
        since = self.active.pick(self.team.since)
        access = memory.ledger.write if wrote else memory.ledger.read
        conflict = access(at + memory.offset, stamp, since, self.team.met)
        if conflict is not None:
            thread = int(self.active.pick(self.team.thread)[conflict.position])
            flat = int(at[conflict.position]) % memory.size
            raise report(conflict, memory, flat, thread, wrote, node.lineno, self.kernel, self.grid)

    # -- expressions

    def value(self, node: ast.expr) -> Value:
        """An expression's value for all threads; one number where they agree."""
        return self._VALUE[type(node)](self, node)

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool):
            return np.bool_(node.value)
        if isinstance(node.value, int):
            return np.int64(node.value) if node.value < 2**63 else np.uint64(node.value)
        return np.float64(node.value)  # type: ignore[arg-type]

    def _name(self, node: ast.Name) -> Value:
        value = self.scalars.get(node.id)
        if value is None:
            self._undefined(node)
        return value

    def _undefined(self, node: ast.Name) -> NoReturn:
        raise TypeError(f"{node.id!r} has no value or is an array without subscript")

    def _attribute(self, node: ast.Attribute) -> Value:
        which = coordinate(node)
        if which is not None:
            return self.coordinates[which]
        name = constant(node)
        assert name is not None
        return np.float64(getattr(math, name))

    def _subscript(self, node: ast.Subscript) -> Value:
        return self.load(node, self._indices(node))

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow) and self.active.mask is not None:
            right = np.where(self.active.mask, right, 0)  # a thread that is idle may hold a negative power
        return values.arithmetic(node.op, left, right)

    def _unary(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return np.logical_not(values.truth(operand))
        return values.negated(operand)

    def _compare(self, node: ast.Compare) -> Value:
        return values.compared(node.ops[0], self.value(node.left), self.value(node.comparators[0]))

    def _call(self, node: ast.Call) -> Value:
        function = callee(node.func, len(node.args))
        assert function is not None
        if function == SHUFFLE:
            return self._exchanged(node)
        if function == "lanes_of":
            return self.value(node.args[0])
        return values.call(function, [self.value(argument) for argument in node.args])

    def _exchanged(self, node: ast.Call) -> Value:
        """Each thread's value from the lane whose number differs in the bits of the last argument."""
        mask, value, bits = (self.value(argument) for argument in node.args)
        count = WARP if np.ndim(mask) == 0 and int(mask) == -1 else mask
        if np.ndim(count) or WARP % int(count) or np.ndim(bits) or not 0 < int(bits) < int(count):
            raise TypeError(
                "a shuffle of anything but all lanes or a row's, or by a number of bits that is none"
            )
        self.team.together(self.active.mask, self.kernel.line(node.lineno), int(count))
        return value if np.ndim(value) == 0 else np.asarray(value)[self.lane ^ int(bits)]

    def _boolean(self, node: ast.BoolOp) -> Value:
        """Threads that the left side has decided do not evaluate the right one: it may guard a subscript."""
        conjunction = isinstance(node.op, ast.And)
        result = values.truth(self.value(node.values[0]))
        for operand in node.values[1:]:
            undecided = result if conjunction else np.logical_not(result)
            if not isinstance(result, np.ndarray):
                result = values.truth(self.value(operand)) if undecided else result
                continue
            right = self._value_where(np.asarray(undecided), operand)
            if right is not None:
                result = result & values.truth(right) if conjunction else result | values.truth(right)
        return result

    def _choice(self, node: ast.IfExp) -> Value:
        test = values.truth(self.value(node.test))
        if not isinstance(test, np.ndarray):
            return self.value(node.body if test else node.orelse)
        taken, other = self._value_where(test, node.body), self._value_where(~test, node.orelse)
        if taken is None or other is None:
            chosen = other if taken is None else taken
            assert chosen is not None
            return chosen
        return np.where(test, taken, other)

    def _value_where(self, condition: npt.NDArray[np.bool_], node: ast.expr) -> Value | None:
        """The value for the active threads for which the condition holds; None if there are none."""
        narrowed = self.active.where(condition)
        if narrowed.count == 0:
            return None
        outer, self.active = self.active, narrowed
        result = self.value(node)
        self.active = outer
        return result

    _VALUE: ClassVar[dict[type[ast.expr], Callable[[Machine, Any], Value]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.Subscript: _subscript,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.Compare: _compare,
        ast.Call: _call,
        ast.BoolOp: _boolean,
        ast.IfExp: _choice,
    }


def _coordinates(team: Team) -> dict[tuple[str, str], Value]:
    """("threadIdx", "x") and the like, for all threads of a team."""
    found: dict[tuple[str, str], Value] = {}
    block, inside = np.divmod(team.thread, team.grid.per_block)
    for which, size, number, extent in (
        ("threadIdx", "blockDim", inside, team.grid.threads),
        ("blockIdx", "gridDim", block, team.grid.blocks),
    ):
        stride = 1
        for axis, length in zip("xyz", extent, strict=True):
            found[which, axis] = number // stride % length if length > 1 else np.int64(0)
            found[size, axis] = np.int64(length)
            stride *= length
    return found
