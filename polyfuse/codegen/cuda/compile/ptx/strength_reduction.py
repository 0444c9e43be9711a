"""Strength reduction in PTX: keep and advance the addresses that a loop computes from its counter.

      mov.u64 %rd9, 0;                  mov.u64 %rd9, 0;
    $L:                                 mov.u64 %along0_0, 0;      and 32768 * %rd9 + 4 * %rd3 + %rd7 on top of it
      shl.b64 %rd1, %rd9, 13;         $L:
      add.s64 %rd2, %rd1, %rd3;         add.s64 %rd5, %along0_0, 0;
      shl.b64 %rd4, %rd2, 2;      ->    ld.global.f32 %f1, [%rd5];
      add.s64 %rd5, %rd7, %rd4;         …
      ld.global.f32 %f1, [%rd5];        add.s64 %rd9, %rd9, 1;
      …                                 add.s64 %along0_0, %along0_0, 32768;
      add.s64 %rd9, %rd9, 1;            @%p1 bra $L;
      @%p1 bra $L;

What is kept is a sum (linear_forms.py). It is right at the label, where what the loop leaves alone is known and
the counter begins, and stays right: in each pass it goes on in the line behind the counter's. So each address that is
the same sum, up to a number, is what is kept and that number, wherever it stands. LLVM does so where it finds addresses
to be sums, which it hides from itself by `or` for additions without carries, and by loops that it counts twice. Of
1167 instructions of a pass over 16 steps of 8 x 8 results of float16 factors 10 go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from polyfuse.codegen.cuda.compile.ptx.linear_forms import Sum, Sums, sums_in
from polyfuse.codegen.cuda.compile.ptx.ptx_loops import Lines, Loop, each_loop

LEAST = 3
"""Instructions from the counter to an address from which on it is kept: to advance it takes two, of 32 bits each."""

_READ = re.compile(r"%rd\d+")


def running_addresses(ptx: str) -> str:
    """PTX of a kernel whose loops of multiply-adds advance the addresses that follow from their counters."""
    numbers = count()

    def changed(lines: Lines, loop: Loop) -> Lines:
        return _running(sums_in(lines, loop), f"%along{next(numbers)}")

    return each_loop(ptx, changed)


def _running(sums: Sums, prefix: str) -> Lines:
    """The lines with what is kept, under names that begin so."""
    lines, (first, last) = sums.lines, sums.loop
    before: Lines = []
    instead = {number: [lines[number]] for number in range(first, last + 1)}
    for number, addresses in enumerate(_alike(sums)):
        kept, base = f"{prefix}_{number}", sums.of[addresses[0]]
        before += _computed(kept, base)
        for register in addresses:
            apart = _signed(sums.of[register].number - base.number)
            instead[sums.where[register]] = [f"\tadd.s64 \t{register}, {kept}, {apart};"]
        for counter, (line, step) in sums.counters.items():
            if counter in base.of:
                advance = _signed(base.of[counter] * step)
                instead[line].append(f"\tadd.s64 \t{kept}, {kept}, {advance};")
    inside = [line for number in range(first, last + 1) for line in instead[number]]
    return [*lines[:first], *before, *inside, *lines[last + 1 :]]


def _alike(sums: Sums) -> Iterable[list[str]]:
    """The addresses that are worth being kept, those that differ by a number together."""
    first, last = sums.loop
    running = {register: sums.where[register] for register in sums.of if sums.runs(register)}
    others = set(range(first, last + 1)).difference(running.values())
    read = {register for number in others for register in _READ.findall(sums.lines[number])}
    alike: dict[frozenset[tuple[str, int]], list[str]] = {}
    for register in running:
        if register in read:
            alike.setdefault(frozenset(sums.of[register].of.items()), []).append(register)
    return [one for one in alike.values() if max(sums.steps[register] for register in one) >= LEAST]


def _computed(kept: str, base: Sum) -> Lines:
    """The lines before the loop that compute the kept register."""
    lines = [f"\t.reg .b64 \t{kept};", f"\tmov.u64 \t{kept}, {_signed(base.number)};"]
    return lines + [
        f"\tmad.lo.s64 \t{kept}, {r}, {_signed(factor)}, {kept};" for r, factor in base.of.items()
    ]


def _signed(number: int) -> int:
    """A number modulo 2**64, as PTX writes it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
