"""Dropout with random numbers that are a function of a seed and an element's number.

    key        = mixed(seed + STEP * (draw + 1))                              64-bit numbers without sign
    kept[i, j] = mixed(key + STEP * (i * J + j + 1)) >> 33 >= p * 2**31
    y[i, j]    = x[i, j] * (1 / (1 - p) where kept[i, j], else 0)

`mixed` is the finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014)
without its last step, which leaves the upper 31 bits as they are. Nothing is drawn in an order: an element has the same
number on any machine, for any number of threads, and whenever it is computed again, as in a backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.ir.number_types import is_real
from polyfuse.nn.graph import Value, check_value
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import Operation
from polyfuse.nn.sizes import Shape

STEP = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: the increment of SplitMix64."""

BITS = 31
"""A probability is a multiple of 2**-31."""


@dataclass(frozen=True)
class Dropout(Operation):
    """Drop elements with probability p, and scale the others; the operands are the value and the seed."""

    p: float
    draw: int

    @property
    def stems(self) -> tuple[str, ...]:
        """key: a number of the seed and the draw; kept: which elements stay; drop: the value."""
        return ("key", "kept", "drop")

    @property
    def result(self) -> str:
        """A pointwise result."""
        return "a"

    @property
    def integers(self) -> bool:
        """The seed is one."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The value's shape."""
        return shapes[0]

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """The key, which elements are kept, and these divided by the probability of being kept."""
        x, seed = operands
        names, sizes = to.dims(x.rank), extents(x)
        key = to.temporary("key", n, (), "uint64")
        kept = to.temporary("kept", n, sizes, "bool")
        start = STEP * (self.draw + 1) % 2**64
        to.assign(f"key{n}", {}, f"{element(key, ())} = {_mixed(f'(uint64({element(seed, ())}) + {start})')}")
        number = "0"
        for name, size in zip(names, sizes, strict=True):
            number = f"(uint64({name}) + uint64({size}) * {number})" if number != "0" else f"uint64({name})"
        if not names:
            number = "uint64(0)"
        bits = f"({_mixed(f'({element(key, ())} + {STEP} * ({number} + 1))')} >> {64 - BITS})"
        domain = dict(zip(names, sizes, strict=True))
        most = round(self.p * 2**BITS)
        to.assign(f"kept{n}", domain, f"{element(kept, names)} = bool({bits} >= {most})")
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        factor = f"where({element(kept, names)} == 0, 0.0, {scale!r})"
        to.assign(f"drop{n}", domain, f"{element(out, names)} = {element(x, names)} * {factor}")


def _mixed(z: str) -> str:
    """The finalizer of SplitMix64, but for its last step."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = f"(({z} ^ ({z} >> {shift})) * {factor})"
    return z


def dropout(x: Value, p: float, seed: Value, draw: int = 0) -> Value:
    """Drop elements with probability p, and divide the others by 1 - p. Srivastava et al., Dropout (2014).

    Statements key, kept, drop; tensors key, kept, a. Which elements stay is a function of seed, draw and their place.

    Args:
        x: The value.
        p: The probability, from 0 to 1; it counts as a multiple of 2**-31.
        seed: One number of int64, such as `nn.input("seed", (), "int64")`.
        draw: Values that are dropped by one seed have different draws, or the same elements stay.

    Returns:
        The value, of the shape of x.

    Raises:
        BadArgument: if p is no probability, the seed is no number of int64, or x no value of floating-point numbers.
    """
    check_value("dropout", x)
    check_value("dropout", seed)
    if not 0 <= p <= 1:
        raise BadArgument(f"dropout: p={p}, expected a probability from 0 to 1")
    if seed.shape != () or seed.dtype != "int64":
        raise BadArgument(
            f"dropout: the seed is {seed!r}, expected one number: nn.input('seed', (), 'int64')"
        )
    if not is_real(x.dtype):
        raise BadArgument(
            f"dropout: {x!r} is not of floating-point numbers; nn.cast(value, 'float32') converts"
        )
    return Value(Dropout(p, draw), (x, seed), x.shape, x.dtype)
