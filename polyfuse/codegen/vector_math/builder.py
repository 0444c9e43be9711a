"""Values with operators for building LLVM code: formulas read as formulas, one instruction an operator.

    fma(x, x, 1.0) / y   ->   %1 = call float @llvm.fma.f32(float %x, float %x, float 1.0)
                              %2 = fdiv float %1, %y

Everything is a scalar without branches and without tables in memory, which is what LLVM's loop vectoriser can widen.
Nothing is contracted or reordered afterwards: where a product and a sum are one step, the formula says fma.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils

ALONE = ("arcp",)
"""Flags of a sum or product. numba gives instructions without flags its own, of which `contract` would fuse a product
with a sum; `arcp` speaks of divisions alone, so that here it says nothing but keeps the others away."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: the bits of a number, and those of its fraction."""

    bits: int
    fraction: int
    scales: bool = field(default=False, compare=False)
    """True if the machine multiplies vectors by any power of two in one instruction, as AVX-512 does."""

    @property
    def kind(self) -> ir.Type:
        """LLVM's type."""
        return ir.FloatType() if self.bits == 32 else ir.DoubleType()

    @property
    def bias(self) -> int:
        """The bias of a stored exponent."""
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def smallest_normal(self) -> float:
        """2 ** -126, 2 ** -1022."""
        return 2.0 ** (1 - self.bias)

    @property
    def rounder(self) -> float:
        """1.5 * 2 ** fraction: adding it rounds to an integer, which then stands in the sum's last bits."""
        return 1.5 * 2.0**self.fraction


SINGLE, DOUBLE = Format(32, 23), Format(64, 52)


class Whole:
    """An integer as wide as a format's numbers."""

    def __init__(self, builder: ir.IRBuilder, format: Format, value: Any) -> None:
        self.builder, self.format, self.value = builder, format, value

    def __add__(self, other: Whole | int) -> Whole:
        return self._whole(self.builder.add(self.value, self._value(other)))

    def __sub__(self, other: Whole | int) -> Whole:
        return self._whole(self.builder.sub(self.value, self._value(other)))

    def __and__(self, other: int) -> Whole:
        return self._whole(self.builder.and_(self.value, self._value(other)))

    def __lshift__(self, places: int) -> Whole:
        return self._whole(self.builder.shl(self.value, self._value(places)))

    def __rshift__(self, places: int) -> Whole:
        """Rounded down, for negative ones too."""
        return self._whole(self.builder.ashr(self.value, self._value(places)))

    def is_zero(self) -> Condition:
        """True if it is zero."""
        return Condition(self.builder, self.builder.icmp_signed("==", self.value, self._value(0)))

    def as_bits(self) -> Real:
        """The number with these bits."""
        return Real(self.builder, self.format, self.builder.bitcast(self.value, self.format.kind))

    def as_real(self) -> Real:
        """The number equal to a small integer: 1.5 * 2 ** fraction plus it, read from bits, less 1.5 * 2 ** fraction.

        A conversion would do, but AVX2 has none for 64 bits.
        """
        start = ir.Constant(self.format.kind, self.format.rounder)
        rounder = Real(self.builder, self.format, start)
        return (self + rounder.bits()).as_bits() - rounder

    def power_of_two(self) -> Real:
        """2.0 ** self, for the exponents of normal numbers."""
        return ((self + self.format.bias) << self.format.fraction).as_bits()

    def _value(self, other: Whole | int) -> Any:
        return other.value if isinstance(other, Whole) else ir.Constant(ir.IntType(self.format.bits), other)

    def _whole(self, value: Any) -> Whole:
        return Whole(self.builder, self.format, value)


class Real:
    """A floating-point number."""

    def __init__(self, builder: ir.IRBuilder, format: Format, value: Any) -> None:
        self.builder, self.format, self.value = builder, format, value

    def like(self, number: float) -> Real:
        """A literal in its format."""
        return self._real(self._value(number))

    def __add__(self, other: Real | float) -> Real:
        return self._real(self.builder.fadd(self.value, self._value(other), flags=ALONE))

    def __sub__(self, other: Real | float) -> Real:
        return self._real(self.builder.fsub(self.value, self._value(other), flags=ALONE))

    def __mul__(self, other: Real | float) -> Real:
        return self._real(self.builder.fmul(self.value, self._value(other), flags=ALONE))

    def __truediv__(self, other: Real | float) -> Real:
        return self._real(self.builder.fdiv(self.value, self._value(other)))

    def times_two_to(self, k: Whole) -> Real:
        """self * 2 ** k, rounded once: without `scales` in two factors, whose exponents are those of normal numbers."""
        if not self.format.scales:
            half = k >> 1
            return self * half.power_of_two() * (k - half).power_of_two()
        word = ir.IntType(32)
        exponent = k.value if self.format.bits == 32 else self.builder.trunc(k.value, word)
        name, kind = f"llvm.ldexp.f{self.format.bits}.i32", self.format.kind
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, [kind, word]), name
        )
        return self._real(self.builder.call(function, [self.value, exponent]))

    def __neg__(self) -> Real:
        return self._real(self.builder.fneg(self.value))

    def __abs__(self) -> Real:
        return self._call("fabs")

    def __lt__(self, other: Real | float) -> Condition:
        return self._compare("<", other)

    def __gt__(self, other: Real | float) -> Condition:
        return self._compare(">", other)

    def equals(self, other: Real | float) -> Condition:
        """True if they are equal numbers."""
        return self._compare("==", other)

    def is_nan(self) -> Condition:
        """True if it is NaN."""
        return Condition(self.builder, self.builder.fcmp_unordered("uno", self.value, self.value))

    def at_most(self, limit: float) -> Real:
        """The smaller of self and a limit; NaN stays."""
        return (self > limit).choose(limit, self)

    def at_least(self, limit: float) -> Real:
        """The larger of self and a limit; NaN stays."""
        return (self < limit).choose(limit, self)

    def with_sign_of(self, other: Real) -> Real:
        """Its magnitude with another's sign."""
        return self._call("copysign", other)

    def truncated(self) -> Real:
        """Without its fraction."""
        return self._call("trunc")

    def rounded(self) -> Real:
        """The nearest integer, of two the even one."""
        return self._call("rint")

    def rounded_down(self) -> Real:
        """The largest whole number that is not above it."""
        return self._call("floor")

    def rounded_up(self) -> Real:
        """The smallest whole number that is not below it."""
        return self._call("ceil")

    def remainder(self, other: Real) -> Real:
        """What is left of it beside a multiple of another number, with its own sign, exact: C's fmod."""
        return self._real(self.builder.frem(self.value, other.value))

    def by_libm(self, name: str) -> Real:
        """A function of the C library, by a call for each number."""
        return self._call(name)

    def bits(self) -> Whole:
        """Its bits as an integer."""
        bits = self.builder.bitcast(self.value, ir.IntType(self.format.bits))
        return Whole(self.builder, self.format, bits)

    def to(self, format: Format) -> Real:
        """The number in another format."""
        if format == self.format:
            return self
        convert = self.builder.fpext if format.bits > self.format.bits else self.builder.fptrunc
        return Real(self.builder, format, convert(self.value, format.kind))

    def fma(self, factor: Real | float, term: Real | float) -> Real:
        """`self * factor + term`, rounded once."""
        return self._call("fma", factor, term)

    def polynomial(self, coefficients: tuple[float, ...]) -> Real:
        """c[0] + c[1] * self + …, by Horner's rule."""
        *lower, highest = coefficients
        return reduce(lambda total, c: total.fma(self, c), reversed(lower), self.like(highest))

    def _compare(self, operator: str, other: Real | float) -> Condition:
        return Condition(self.builder, self.builder.fcmp_ordered(operator, self.value, self._value(other)))

    def _call(self, name: str, *others: Real | float) -> Real:
        kind, values = self.format.kind, [self.value, *map(self._value, others)]
        function = self.builder.module.declare_intrinsic(
            f"llvm.{name}", [kind], ir.FunctionType(kind, [kind] * len(values))
        )
        return self._real(self.builder.call(function, values))

    def _value(self, other: Real | float) -> Any:
        return other.value if isinstance(other, Real) else ir.Constant(self.format.kind, other)

    def _real(self, value: Any) -> Real:
        return Real(self.builder, self.format, value)


class Condition:
    """A truth value; & and | ask both sides."""

    def __init__(self, builder: ir.IRBuilder, value: Any) -> None:
        self.builder, self.value = builder, value

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.builder, self.builder.or_(self.value, other.value))

    def __xor__(self, other: Condition) -> Condition:
        return Condition(self.builder, self.builder.xor(self.value, other.value))

    def __invert__(self) -> Condition:
        return Condition(self.builder, self.builder.not_(self.value))

    def choose(self, yes: Real | float, no: Real) -> Real:
        """`yes` where it holds, else `no`; both are computed."""
        return no._real(self.builder.select(self.value, no._value(yes), no.value))

    def choose_whole(self, yes: Whole, no: Whole) -> Whole:
        """`choose` for integers."""
        return no._whole(self.builder.select(self.value, yes.value, no.value))
