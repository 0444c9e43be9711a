"""Reverse mode: the nest's statements, and after them their adjoints in reversed order.

    S[i]: T[w(i)]  = f(R[r(i)], …)     ->     S_to_R[i]: R_bar[r(i)] += T_bar[w(i)] * df/dR      for each read of S
                                              S_reset[i]: T_bar[w(i)] = 0                        if T had a value before
    S[i]: T[w(i)] += f(R[r(i)], …)     ->     S_to_R[i]: R_bar[r(i)] += T_bar[w(i)] * df/dR

The theorem (Griewank & Walther, Evaluating Derivatives, section 3). An instance is a map of memory to memory; its
adjoint applies the transpose of its Jacobian to the adjoint memory. The transpose of a composition is that of its
parts in reversed order. Updates of one adjoint element by += are a declared reduction, and so may run in any
order wherever nothing reads the element in between, which `Dependences` says for the result as for any nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.ir import Nest, Statement
from polyfuse.ir.given import nest_given
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import number, read
from polyfuse.ir.tree import Tree, parts, sequence
from polyfuse.ir.whole import whole
from polyfuse.rewrite.gradient.activity import (
    Names,
    active,
    chosen_inputs,
    chosen_outputs,
)
from polyfuse.rewrite.gradient.adjoint_statements import AdjointStatements
from polyfuse.rewrite.gradient.adjoint_tensors import ZERO, AdjointTensors
from polyfuse.rewrite.gradient.apart import in_own_loops, with_products_apart
from polyfuse.rewrite.gradient.assembly import assembled
from polyfuse.rewrite.gradient.checkpoints import (
    Checkpoints,
    Cut,
    Replay,
    Segments,
    cut,
    order_without_number,
    without_number,
)
from polyfuse.rewrite.gradient.copies import on_copies
from polyfuse.rewrite.gradient.draft import Draft, element
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.rewrite.gradient.recompute import Passes, numbers_alone, recomputed
from polyfuse.rewrite.gradient.shares import with_explicit
from polyfuse.rewrite.gradient.stored import Stored, with_copies
from polyfuse.rewrite.gradient.table_rows import remarks_on_tables, rows_of_tables

Unreached = Literal["zero", "error"]
"""What becomes of the gradient of a tensor that the outputs do not depend on."""


@dataclass(frozen=True)
class Reversed:
    """The result of `reverse`.

    Attributes:
        nest: The nest of values and gradients.
        gradients: The output that holds the gradient, by the tensor that it is for.
        cotangents: The input that holds the cotangent, by the output that it is for; empty for `grad`.
        values: The output that holds the value, by the nest's output; empty unless asked for.
        stored: Arrays that keep a value which the nest overwrites, with the statement that reads it.
        zero: The tensors whose gradient is 0 because no derivative reaches the outputs.
        forward: The statements of the forward pass.
        cut: The time loop that runs in segments; None without checkpoints.
        remarks: For each statement with a derivative, how its adjoints find the elements that they add to: by owners,
            in reversed order, or row by row of a table.
    """

    nest: Nest
    gradients: Mapping[str, str]
    cotangents: Mapping[str, str]
    values: Mapping[str, str]
    stored: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    forward: frozenset[str] = frozenset()
    cut: Cut | None = None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{output}: cotangent {name}" for output, name in self.cotangents.items()]
        lines += [f"{tensor}: gradient {name}" for tensor, name in self.gradients.items()]
        lines += [f"{tensor}: zero, as no derivative reaches the outputs" for tensor in self.zero]
        return "\n".join([*lines, *self.stored])


def reverse_scalar(
    nest: Nest,
    wrt: Names = None,
    *,
    values: bool = False,
    unreached: Unreached = "zero",
    checkpoints: Checkpoints | None = None,
) -> Reversed:
    """`reverse` of an output of one element with the cotangent 1; arguments and errors are those of `pf.grad`."""
    outputs = chosen_outputs("grad", nest_given("grad", nest), None)
    tensors = [nest.tensor(name) for name in outputs]
    if len(tensors) != 1 or any(size != 1 for size in tensors[0].shape):
        found = ", ".join(map(str, tensors)) or "none"
        raise BadArgument(
            f"grad: expected one output of one element, given {found}: reduce it to a sum or a mean, or use "
            "pf.vjp, which takes a cotangent"
        )
    return reverse(
        nest, wrt, outputs, values=values, seeded=True, unreached=unreached, checkpoints=checkpoints
    )


@proving("the rewrite reverse")
def reverse(
    nest: Nest,
    wrt: Names = None,
    outputs: Names = None,
    *,
    values: bool = False,
    seeded: bool = False,
    unreached: Unreached = "zero",
    further: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
) -> Reversed:
    """Return what `pf.vjp` does, with names of cotangents and gradients, stored values and zero gradients.

    Args:
        nest: The nest.
        wrt: As for `pf.vjp`.
        outputs: As for `pf.vjp`.
        values: As for `pf.vjp`.
        seeded: True takes 1 for the cotangents.
        unreached: As for `pf.vjp`.
        further: Outputs that are returned after the values and not differentiated.
        checkpoints: As for `pf.vjp`.

    Returns:
        The nest and its names.

    Raises:
        BadArgument: as for `pf.vjp`.
        IllegalRewrite: as for `pf.vjp`.
    """
    call = "grad" if seeded else "vjp"
    nest_given(call, nest)
    by, of = chosen_inputs(call, nest, wrt), chosen_outputs(call, nest, outputs)
    if unreached not in get_args(Unreached):
        raise BadArgument(f"{call}: unreached is {unreached!r}, expected 'zero' or 'error'")
    if checkpoints not in (None, "auto") and whole(f"{call}: checkpoints", checkpoints) < 1:
        raise BadArgument(
            f"{call}: checkpoints={checkpoints}, expected the number of segments of a time loop, or 'auto'"
        )
    reversal = _Reversal(nest, by, of, (*(of if values else ()), *further), seeded)
    found = reversal.done()
    if checkpoints is not None:
        segments = cut(call, reversal.whole, reversal.stored, checkpoints)
        found = _Reversal(nest, by, of, (*(of if values else ()), *further), seeded, segments).done()
    if unreached == "error" and found.zero:
        raise BadArgument(
            f"{call}: no derivative connects {', '.join(found.zero)} with {', '.join(of)}: leave "
            f"{'it' if len(found.zero) == 1 else 'them'} out of wrt, or take unreached='zero'"
        )
    return found


class _Reversal:
    """One reversal.

    Attributes:
        nest: The nest to reverse, on copies of its inouts.
        last: The tensor with the last value of each output.
        adjoints: The adjoint tensors.
        statements: The adjoint statements as they are made.
    """

    def __init__(
        self,
        given: Nest,
        wrt: tuple[str, ...],
        outputs: tuple[str, ...],
        values: tuple[str, ...],
        seeded: bool,
        segments: Segments | None = None,
    ) -> None:
        copied, self.last = on_copies(given)
        self.whole = segments.whole if segments else with_explicit(in_own_loops(with_products_apart(copied)))
        self.nest = segments.one if segments else self.whole
        self.wrt, self.outputs, self.values, self.seeded = wrt, outputs, values, seeded
        self.draft = Draft(self.whole)
        self.replay = Replay(segments, self.draft) if segments else None
        self.lives = segments.lives if segments else Lifetimes(self.whole)
        self.stored = Stored(self.nest, self.draft, self.lives, segments.number if segments else None)
        reached = active(self.nest, wrt, [self.last[name] for name in outputs])
        self.adjoints = AdjointTensors(self.nest, self.draft, self.lives, wrt, reached, self._is_cut)
        self.statements = AdjointStatements(self.nest, self.draft, self.lives, self.stored, self.adjoints)

    def done(self) -> Reversed:
        """Write the adjoints, then keep the statements that they need."""
        cotangents, backward = self._cotangents()
        self.adjoints.made()
        for position, part in reversed(list(enumerate(parts(self.nest.order)))):
            backward += self.adjoints.zeros(position)
            tree = self.statements.of(part, ())
            adjoints = [*([tree] if tree is not None else []), *self.statements.sunk]
            self.statements.sunk = []
            if self._is_cut(position) and adjoints:
                assert self.replay is not None, "the loop is cut"
                adjoints = [self.replay.backward(self.stored.copies, adjoints)]
            backward += adjoints
        backward += [*self.adjoints.zeros(-1), *rows_of_tables(self.nest, self.draft, self.adjoints)]
        gradients, ends = self._gradients()
        return self._assembled(cotangents, gradients, (*backward, *ends))

    def _is_cut(self, position: int) -> bool:
        """True if a part of the nest's order is a loop that runs in segments."""
        return self.replay is not None and self.replay.segments.loop.part == position

    def _cotangents(self) -> tuple[dict[str, str], list[Tree]]:
        """An input for each output's cotangent, and copies of those that the backward pass changes."""
        named: dict[str, str] = {}
        begin: list[Tree] = []
        for output in self.outputs:
            tensor = self.nest.tensor(self.last[output])
            domain = self.draft.elements(tensor)
            if not self.seeded:
                named[output] = self.draft.tensor(f"{output}_bar", tensor.shape, tensor.dtype, "input").name
            if tensor.name not in self.adjoints.active:
                continue
            read_again = any(a.tensor == tensor.name for s in self.nest.statements for a in s.reads)
            changed = read_again or not self.lives.settled(tensor.name)
            if self.seeded or changed or tensor.is_half:
                bar = self.draft.tensor(f"{output}_sum", tensor.shape, computed_in(tensor.dtype), "temporary")
                source = [] if self.seeded else [element(domain, named[output])]
                body = number(1.0) if self.seeded else read(0)
                begin.append(
                    self.draft.alone(f"begin_{output}", domain, element(domain, bar.name), "=", source, body)
                )
                self.adjoints.bars[tensor.name] = bar.name
            else:
                self.adjoints.bars[tensor.name] = named[output]
        return named, begin

    def _gradients(self) -> tuple[dict[str, str], list[Tree]]:
        """An output for each gradient that is not an adjoint itself: 0 for what is inactive, and halves rounded."""
        named: dict[str, str] = {}
        end: list[Tree] = []
        for name in self.wrt:
            tensor = self.nest.tensor(name)
            bar = self.adjoints.bars.get(name)
            if bar is not None and self.draft.tensors[bar].role == "output":
                named[name] = bar
                continue
            made = self.draft.tensor(f"{name}_grad", tensor.shape, tensor.dtype, "output")
            named[name] = made.name
            domain = self.draft.elements(tensor)
            source, body = ([], ZERO) if bar is None else ([self.adjoints.of(element(domain, name))], read(0))
            end.append(self.draft.alone(f"end_{name}", domain, element(domain, made.name), "=", source, body))
        return named, end

    def _assembled(
        self, cotangents: Mapping[str, str], gradients: Mapping[str, str], backward: Sequence[Tree]
    ) -> Reversed:
        """The statements that are needed, and their tensors in the order of a call."""
        wanted = {name: self.last[name] for name in self.values}
        forward_tree = self._forward()
        made = assembled(
            self.whole,
            {**{s.name: s for s in self.whole.statements}, **self._statements()},
            self.draft.tensors,
            sequence((forward_tree, *self._outside(backward))),
            list(cotangents.values()),
            [*wanted.values(), *gradients.values()],
            f"{self.nest.name}_{'grad' if self.seeded else 'vjp'}",
        )
        zero = tuple(name for name in self.wrt if name not in self.adjoints.bars)
        forward = frozenset(forward_tree.names) & frozenset(s.name for s in made.statements)
        passes = Passes(made, forward)
        made = recomputed(passes, numbers_alone(passes))
        stored = (*self.stored.texts, *(self.replay.texts if self.replay else ()))
        cut = self.replay.cut(self.stored) if self.replay else None
        remarks = (*self.statements.remarks, *remarks_on_tables(self.nest, self.adjoints))
        return Reversed(made, gradients, cotangents, wanted, stored, zero, forward, cut, remarks)

    def _forward(self) -> Tree:
        """The forward pass: statements with the copies that they need, and a loop in segments with its checkpoints."""
        found = [
            self.replay.forward()
            if self.replay is not None and self._is_cut(position)
            else with_copies(part, self.stored.copies)
            for position, part in enumerate(parts(self.whole.order))
        ]
        return sequence(tuple(found))

    def _outside(self, trees: Sequence[Tree]) -> list[Tree]:
        """The parts of the backward pass, those outside of a loop in segments without the number of a segment."""
        if self.replay is None:
            return list(trees)
        number = self.replay.segments.number
        return [order_without_number(tree, number) for tree in trees]

    def _statements(self) -> dict[str, Statement]:
        """The statements that were made, those outside of a loop in segments without the number of a segment."""
        if self.replay is None:
            return self.draft.statements
        number = self.replay.segments.number
        return {name: without_number(s, number) for name, s in self.draft.statements.items()}
