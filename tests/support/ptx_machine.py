"""A machine for PTX that follows integers alone: which memory one thread touches, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from zlib import crc32

_LABEL = re.compile(r"(\$\w+):")
_GUARDED = re.compile(r"\s*(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*?);")
_PLACE = re.compile(r"\[([%\w]+)(?:\+(-?\d+))?\]")
_KIND = re.compile(r".*\.([usb])(\d+)$")
_WORD = 1 << 64

Instruction = tuple[bool, str, str, str]
"""Whether the guard is turned, its register or nothing, the operation, and its operands."""


def touched(ptx: str, special: Mapping[str, int], most: int = 400_000) -> list[tuple[str, ...]]:
    """Each access of a function's thread: the operation and the addresses, until it returns."""
    return list(_Machine(ptx, special).run(most))


class _Machine:
    def __init__(self, ptx: str, special: Mapping[str, int]) -> None:
        lines = ptx.splitlines()
        self.labels = {match[1]: n for n, line in enumerate(lines) if (match := _LABEL.match(line))}
        self.code = [self._instruction(line) for line in lines]
        self.registers = dict(special)

    @staticmethod
    def _instruction(line: str) -> Instruction | None:
        text = line.strip()
        if text.startswith((".", "//", "{", "}", ")")) or text.endswith(("(", ":")):
            return None
        match = _GUARDED.match(line)
        return match and (match[1] == "!", match[2] or "", match[3], match[4])

    def run(self, most: int) -> Iterator[tuple[str, ...]]:
        number = 0
        for _ in range(most):
            if number >= len(self.code):
                return
            instruction, number = self.code[number], number + 1
            if instruction is None:
                continue
            turned, guard, operation, operands = instruction
            if guard and bool(self._value(guard)) == turned:
                continue
            if operation in ("bra", "bra.uni"):
                number = self.labels[operands]
            elif operation == "ret":
                return
            elif places := _PLACE.findall(operands):
                yield operation, *(hex((self._value(r) + int(by or 0)) % _WORD) for r, by in places)
                self._given(operands.split(" ")[0].rstrip(","), crc32(repr(places[-1]).encode()))
            else:
                self._compute(operation, operands)
        raise AssertionError("the thread does not come to an end")

    def _value(self, operand: str) -> int:
        if re.fullmatch(r"-?\d+", operand):
            return int(operand)
        return self.registers.get(operand, crc32(operand.encode()))

    def _given(self, register: str, value: int) -> None:
        if register.startswith("%"):
            self.registers[register] = value

    def _compute(self, operation: str, operands: str) -> None:
        kind = _KIND.match(operation)
        if kind is None or "{" in operands or operation.startswith("cvt.rn"):
            first = operands.split("}" if operands.startswith("{") else ",")[0]
            for register in first.split(","):
                self._given(register.strip(" {"), 0)  # of floats, or of halves
            return
        result, *others = [operand.strip() for operand in operands.split(",")]
        signed, bits = kind[1] == "s", int(kind[2])
        values = [_cut(self._value(operand), bits, signed) for operand in others]
        parts = operation.split(".")
        name = ".".join(parts[:2]) if parts[0] in ("mul", "mad", "setp") else parts[0]
        found = values[0] * values[1] >> bits if name == "mul.hi" else _OPERATIONS[name](*values)
        wide = name == "mul.wide"
        whole = int(re.sub(r"\D", "", parts[1])) if parts[0] == "cvt" else 2 * bits if wide else bits
        self._given(result, _cut(found, whole, False))


def _cut(value: int, bits: int, signed: bool) -> int:
    """A number's lowest bits, as the type reads them."""
    low = value % (1 << bits)
    return low - (1 << bits) if signed and low >> (bits - 1) else low


def _bytes(a: int, b: int, which: int) -> int:
    """prmt: for each byte of a result, which of the eight of two numbers it is; with bit 3 its sign's bits."""
    held = (a % (1 << 32) | b << 32).to_bytes(12, "little")[:8]
    chosen = [(held[which >> 4 * n & 7], which >> 4 * n & 8) for n in range(4)]
    return int.from_bytes(bytes(255 * (byte >> 7) if sign else byte for byte, sign in chosen), "little")


def _pairs(a: int, b: int, more: int) -> int:
    """dp2a.lo.u32.u32: a's two halves by b's two lower bytes, and more."""
    return (a & 0xFFFF) * (b & 0xFF) + (a >> 16) * (b >> 8 & 0xFF) + more


_OPERATIONS: Mapping[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvta": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "not": lambda a: ~a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
    "min": min,
    "max": max,
    "mul.lo": lambda a, b: a * b,
    "mul.wide": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: a * b + c,
    "bfe": lambda a, at, count: (a >> at) & ((1 << count) - 1),
    "bfi": lambda a, b, at, count: (b & ~(((1 << count) - 1) << at)) | ((a & ((1 << count) - 1)) << at),
    "prmt": _bytes,
    "dp2a": _pairs,
    "selp": lambda a, b, p: a if p else b,
    "setp.eq": lambda a, b: a == b,
    "setp.ne": lambda a, b: a != b,
    "setp.lt": lambda a, b: a < b,
    "setp.le": lambda a, b: a <= b,
    "setp.gt": lambda a, b: a > b,
    "setp.ge": lambda a, b: a >= b,
}
