"""Recurrent cells, for one step and for whole sequences: the loop over time is part of the nest.

    z[t, b, :] = bias                               what a sum begins with
    z[t, b, :] += x[t, b, :] @ w.T                  one product over all times, for all gates
    for t:  z[t, b, :] += h[t, b, :] @ u.T          the step's product, for all gates
            h[t + 1, b, :] = …  of z[t, b, :]       the gates, element by element

    operand ::= x  w  u  [b  bu]  [h0  [c0]]        w (gates * H, D), u (gates * H, H): stacked as in torch

h[0] is the state before the first step. A cell alone is the same without t: its state is an operand, and the next
one is its value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import Operation
from polyfuse.nn.sizes import Shape, Size, number, numbers

CELL = "c"
"""The name of an LSTM's second state among the further results of the operation."""


@dataclass(frozen=True)
class Step:
    """One step as statements see it: what is written for the row `b` and the hidden unit `k`.

    `times` is the dimension of time with its extent, or nothing in a cell alone. `old` and `new` give a state's element
    before and after the step, `gate` one of those stacked in a product's last axis.
    """

    to: Emitter
    number: int
    times: dict[str, Size]
    b: tuple[str, Size]
    k: tuple[str, int]

    @property
    def domain(self) -> dict[str, Size]:
        """Every time, row and hidden unit."""
        return {**self.times, self.b[0]: self.b[1], self.k[0]: self.k[1]}

    def gate(self, tensor: Tensor, gate: int) -> str:
        """A gate's element among those stacked in the last axis."""
        return element(tensor, [*self.times, self.b[0], self.stacked(gate)])

    def stacked(self, gate: int) -> str:
        """The subscript of a gate's element: H * gate + k."""
        return f"{self.k[0]} + {gate * self.k[1]}" if gate else self.k[0]

    def old(self, state: Tensor) -> str:
        """A state before this step."""
        return element(state, [*self.times, self.b[0], self.k[0]])

    def new(self, state: Tensor) -> str:
        """A state after this step."""
        return element(state, [*(f"{t} + 1" for t in self.times), self.b[0], self.k[0]])

    def assign(self, stem: str, text: str) -> None:
        """A statement over every element of the state."""
        self.to.assign(f"{stem}{self.number}", self.domain, text)


def sigmoid(text: str) -> str:
    """The logistic function of a text.

    >>> sigmoid("z0[i]")
    '1.0 / (1.0 + exp(-z0[i]))'
    """
    return f"1.0 / (1.0 + exp(-{text}))"


@dataclass(frozen=True)
class Cell:
    """One step of a kind of recurrent layer."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The function's name, for messages."""

    @property
    @abstractmethod
    def gates(self) -> int:
        """The number of gates stacked in the weights."""

    @property
    def states(self) -> int:
        """The number of states: h, and an LSTM's c."""
        return 1

    @property
    def apart(self) -> bool:
        """True if the gates need the products with x and with h separately, not their sum."""
        return False

    @property
    def first(self) -> int:
        """How many gates the product with h gives: all, or those that the others wait for."""
        return self.gates

    @property
    @abstractmethod
    def stems(self) -> tuple[str, ...]:
        """The names of the gates' statements without their number."""

    @abstractmethod
    def gated(
        self,
        step: Step,
        products: Sequence[Tensor],
        olds: Sequence[Tensor],
        news: Sequence[Tensor],
        u: Tensor,
        inner: Tensor | None,
    ) -> None:
        """The statements from the products to the new states.

        `u` are the state's weights, and `inner` is the bias of a product with h that is apart.
        """


@dataclass(frozen=True)
class RNN(Cell):
    """h' = tanh(z) or max(z, 0). Elman, Finding Structure in Time (1990)."""

    nonlinearity: Literal["tanh", "relu"] = "tanh"

    @property
    def name(self) -> str:
        """The function's name."""
        return "rnn"

    @property
    def gates(self) -> int:
        """One: the value itself."""
        return 1

    @property
    def stems(self) -> tuple[str, ...]:
        """The new state."""
        return ("hidden",)

    def gated(
        self,
        step: Step,
        products: Sequence[Tensor],
        olds: Sequence[Tensor],
        news: Sequence[Tensor],
        u: Tensor,
        inner: Tensor | None,
    ) -> None:
        """`hidden`."""
        z = step.gate(products[0], 0)
        value = f"tanh({z})" if self.nonlinearity == "tanh" else f"max({z}, 0)"
        step.assign("hidden", f"{step.new(news[0])} = {value}")


@dataclass(frozen=True)
class LSTM(Cell):
    """c' = f * c + i * g, h' = o * tanh(c'): gates i, f, g, o. Gers et al., Learning to Forget (2000)."""

    @property
    def name(self) -> str:
        """The function's name."""
        return "lstm"

    @property
    def gates(self) -> int:
        """i, f, g, o."""
        return 4

    @property
    def states(self) -> int:
        """h and c."""
        return 2

    @property
    def stems(self) -> tuple[str, ...]:
        """Both new states."""
        return ("cell", "hidden")

    def gated(
        self,
        step: Step,
        products: Sequence[Tensor],
        olds: Sequence[Tensor],
        news: Sequence[Tensor],
        u: Tensor,
        inner: Tensor | None,
    ) -> None:
        """`cell` and `hidden`."""
        i, f, g, o = (step.gate(products[0], gate) for gate in range(4))
        (_, c), (h_new, c_new) = olds, news
        step.assign("cell", f"{step.new(c_new)} = {sigmoid(f)} * {step.old(c)} + {sigmoid(i)} * tanh({g})")
        step.assign("hidden", f"{step.new(h_new)} = {sigmoid(o)} * tanh({step.new(c_new)})")


@dataclass(frozen=True)
class GRU(Cell):
    """h' = n + z * (h - n): gates r, z, n. Cho et al., Learning Phrase Representations (2014).

    reset_after:        n = tanh(of x + r * of h)       torch's and cuDNN's form
    not reset_after:    n = tanh(of x + of r * h)       the paper's: n's product waits for r
    """

    reset_after: bool = True

    @property
    def name(self) -> str:
        """The function's name."""
        return "gru"

    @property
    def gates(self) -> int:
        """r, z, n."""
        return 3

    @property
    def apart(self) -> bool:
        """Where r multiplies what h gives to n, it does not multiply what x gives."""
        return self.reset_after

    @property
    def first(self) -> int:
        """All; or r and z, and n's product is of r * h."""
        return 3 if self.reset_after else 2

    @property
    def stems(self) -> tuple[str, ...]:
        """The candidate, and the new state."""
        return (*(() if self.reset_after else ("reset", "stepreset")), "candidate", "hidden")

    def gated(
        self,
        step: Step,
        products: Sequence[Tensor],
        olds: Sequence[Tensor],
        news: Sequence[Tensor],
        u: Tensor,
        inner: Tensor | None,
    ) -> None:
        """`candidate` and `hidden`; in the paper's form `reset` and `stepreset` before: r * h, and n's product."""
        n = step.to.temporary("n", step.number, tuple(step.domain.values()), products[0].dtype)
        here = element(n, step.domain)
        if self.reset_after:
            z = self._after(step, products, here, inner)
        else:
            z = self._before(step, products[0], olds[0], u, here)
        # n + z * (h - n): z once
        step.assign("hidden", f"{step.new(news[0])} = {here} + {z} * ({step.old(olds[0])} - {here})")

    def _after(self, step: Step, products: Sequence[Tensor], here: str, inner: Tensor | None) -> str:
        """Assign the candidate, whose product with h is r's to multiply. Return z as text."""
        given, own = products

        def of_h(gate: int) -> str:
            value = step.gate(own, gate)
            return value if inner is None else f"({value} + {element(inner, [step.stacked(gate)])})"

        r, z = (sigmoid(f"({step.gate(given, gate)} + {of_h(gate)})") for gate in range(2))
        step.assign("candidate", f"{here} = tanh({step.gate(given, 2)} + {r} * {of_h(2)})")
        return z

    def _before(self, step: Step, given: Tensor, h: Tensor, u: Tensor, here: str) -> str:
        """Add the product of r * h to n's sum, and assign the candidate. Return z as text."""
        r, z = (sigmoid(step.gate(given, gate)) for gate in range(2))
        reset = step.to.temporary("rh", step.number, tuple(step.domain.values()), given.dtype)
        step.assign("reset", f"{element(reset, step.domain)} = {r} * {step.old(h)}")
        *outside, unit, other = step.to.dims(len(step.domain) + 1)
        every = {**dict(zip(outside, list(step.domain.values())[:-1], strict=True)), unit: step.k[1]}
        sums = element(given, [*outside, f"{unit} + {2 * step.k[1]}"])
        factor = f"{element(reset, [*outside, other])} * {element(u, [f'{unit} + {2 * step.k[1]}', other])}"
        step.to.assign(f"stepreset{step.number}", {**every, other: step.k[1]}, f"{sums} += {factor}")
        step.assign("candidate", f"{here} = tanh({step.gate(given, 2)})")
        return z


@dataclass(frozen=True)
class Recurrence(Operation):
    """A cell over a sequence (T, B, D), whose value is the states h (T + 1, B, H); or one step of it: (B, D) -> (B, H).

    `initial` says whether the states before the first step are operands; else they are 0.
    """

    cell: Cell
    sequence: bool
    bias: bool
    initial: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """The product with x; then the state before the first step, and the step."""
        start = ("start", "startcell") if self.cell.states == 2 else ("start",)
        return ("biases", "first", "mac", *start, "stepzero", "step", *self.cell.stems)

    @property
    def result(self) -> str:
        """The state."""
        return "h"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """Weights and biases are the layer's parameters."""
        return ("c", "w", "u", *(("b", "bu") if self.bias else ()), "c", "c")

    @property
    def reduces(self) -> bool:
        """Its steps go on from the states, which stay in float32 between them."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(T, B, D) -> (T + 1, B, H); (B, D) -> (B, H)."""
        name = self.cell.name if self.sequence else f"{self.cell.name}_cell"
        x, (w, u) = shapes[0], (numbers(f"{name}: a weight's shape", shape) for shape in shapes[1:3])
        axes = "(times, batch, features)" if self.sequence else "(batch, features)"
        if len(x) != 2 + self.sequence:
            raise BadArgument(f"{name}: the input has shape {x}, expected {axes}")
        if len(w) != 2 or len(u) != 2 or w[0] != u[0] or u[0] != self.cell.gates * u[1]:
            raise BadArgument(
                f"{name}: the weights have shapes {w} for the input and {u} for the state, expected "
                f"({self.cell.gates} * hidden, features) and ({self.cell.gates} * hidden, hidden)"
            )
        if x[-1] != w[1]:
            raise BadArgument(
                f"{name}: the input {x} does not fit the weight {w}: expected {x[:-1]} + ({w[1]},)"
            )
        state = (x[-2], u[1])
        after = 5 if self.bias else 3
        for given in shapes[3:after]:
            if given != (w[0],):
                raise BadArgument(f"{name}: a bias has shape {given}, expected {(w[0],)}")
        for given in shapes[after:]:
            if given != state:
                raise BadArgument(
                    f"{name}: an initial state has shape {given}, expected (batch, hidden) = {state}"
                )
        return (x[0] + 1, *state) if self.sequence else state

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The product with x, the state before the first step, and the steps."""
        x, w, u = operands[:3]
        biases, states = (operands[3:5], operands[5:]) if self.bias else ((), operands[3:])
        inner = biases[1] if biases and self.cell.apart else None
        z = self._given(to, n, x, w, self._biases(to, n, biases))
        rows, hidden = extents(out)[-2], number(f"{self.cell.name}: hidden", extents(out)[-1])
        news = [out, *(to.temporary(CELL, n, extents(out), out.dtype) for _ in range(self.cell.states - 1))]
        olds = self._before(to, n, states, news) if self.sequence else list(states)
        if self.cell.states == 2:
            to.further[out.name, CELL] = news[1]
        every = to.dims(out.rank)
        times = {every[0]: extents(z)[0]} if self.sequence else {}
        step = Step(to, n, times, (every[-2], rows), (every[-1], hidden))
        with to.together(every[0]) if self.sequence else nullcontext():
            products = [z, self._product(step, u, olds[0], z)]
            self.cell.gated(step, products, olds, news, u, inner)

    def _biases(self, to: Emitter, n: int, biases: Sequence[Tensor]) -> Tensor | None:
        """The bias of the product with x: both biases where the products are added."""
        if not biases or self.cell.apart:
            return biases[0] if biases else None
        total = to.temporary("bs", n, extents(biases[0]), biases[0].dtype)
        (i,) = to.dims(1)
        text = " + ".join(element(bias, [i]) for bias in biases)
        to.assign(f"biases{n}", {i: extents(total)[0]}, f"{element(total, [i])} = {text}")
        return total

    def _given(self, to: Emitter, n: int, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        """Emit the input's contribution to the gates over the whole sequence: bias + x @ w.T.

        The bias is where the sum begins, not what is added to it, so that the step's product adds to the same numbers.
        """
        *every, m, k = to.dims(x.rank + 1)
        domain = dict(zip((*every, m), (*extents(x)[:-1], extents(w)[0]), strict=True))
        z = to.temporary("z", n, tuple(domain.values()), x.dtype)
        product = f"{element(x, [*every, k])} * {element(w, [m, k])}"
        first = "0.0" if bias is None else element(bias, [m])
        to.assign(f"first{n}", domain, f"{element(z, domain)} = {first}")
        to.assign(f"mac{n}", {**domain, k: extents(w)[1]}, f"{element(z, domain)} += {product}")
        return z

    def _before(self, to: Emitter, n: int, given: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
        """h[0], and an LSTM's c[0]: what was given, or 0."""
        b, k = to.dims(2)
        for position, (stem, state) in enumerate(zip(("start", "startcell"), states, strict=False)):
            value = element(given[position], [b, k]) if given else "0.0"
            domain = dict(zip((b, k), extents(state)[1:], strict=True))
            to.assign(f"{stem}{n}", domain, f"{element(state, ['0', b, k])} = {value}")
        return list(states)

    def _product(self, step: Step, u: Tensor, h: Tensor, z: Tensor) -> Tensor:
        """Emit the state's contribution to the gates, added to the input's or separate from it."""
        to, n = step.to, step.number
        *here, m, k = to.dims(z.rank + 1)
        stacked = self.cell.first * step.k[1]
        every = dict(zip((*here, m), (*extents(z)[:-1], stacked), strict=True))
        target = to.temporary("q", n, extents(z), z.dtype) if self.cell.apart else z
        if self.cell.apart:
            to.assign(f"stepzero{n}", every, f"{element(target, every)} = 0.0")
        text = f"{element(target, every)} += {element(h, [*here, k])} * {element(u, [m, k])}"
        to.assign(f"step{n}", {**every, k: extents(u)[1]}, text)
        return target
