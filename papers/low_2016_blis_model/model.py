"""The analytical model: micro-tile from latency, kc from L1, mc from L2, nc from L3.

    for jc (nc):  for pc (kc):  pack B_c [kc, nc]            in L3
      for ic (mc):              pack A_c [mc, kc]            in L2
        for jr (nr):  for ir (mr):                           B_r [kc, nr] stays in L1, A_r [mr, kc] goes through it
          C [mr, nr] += A_r B_r                              in registers

A cache of W ways keeps the panel that is used again if the others take the ways that are left: one for C, as many as
its lines need for what goes by.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt


@dataclass(frozen=True)
class Cache:
    """Sets, ways, and bytes of a line."""

    sets: int
    ways: int
    line: int = 64

    @property
    def way(self) -> int:
        """The bytes of one way."""
        return self.sets * self.line


@dataclass(frozen=True)
class Cpu:
    """A core: bytes of a vector, cycles until a multiply-add's sum can be added to, multiply-adds a cycle, caches."""

    vector_bytes: int
    latency: int
    units: int
    l1: Cache
    l2: Cache
    l3: Cache | None = None


@dataclass(frozen=True)
class Blocks:
    """The parameters of the loops above; 0 where they are unknown."""

    mr: int
    nr: int
    kc: int
    mc: int
    nc: int = 0


def tile(cpu: Cpu, itemsize: int) -> tuple[int, int]:
    """The smallest tile whose sums hide the latency of a multiply-add; whole vectors along its longer side.

    >>> tile(Cpu(32, 8, 1, Cache(64, 8), Cache(512, 8)), 8)
    (8, 4)
    """
    lanes = cpu.vector_bytes // itemsize
    sums = lanes * cpu.latency * cpu.units
    long = ceil(sqrt(sums) / lanes) * lanes
    return long, ceil(sums / long)


def blocks(cpu: Cpu, itemsize: int, mr: int, nr: int) -> Blocks:
    """The cache parameters for a tile.

    >>> blocks(Cpu(32, 8, 1, Cache(64, 8), Cache(512, 8)), 8, 8, 4)
    Blocks(mr=8, nr=4, kc=256, mc=96, nc=0)
    """
    of_a = max(1, floor((cpu.l1.ways - 1) / (1 + nr / mr)))
    kc = of_a * cpu.l1.way // (mr * itemsize)
    of_b = ceil(nr * kc * itemsize / cpu.l2.way)
    mc = (cpu.l2.ways - 1 - of_b) * cpu.l2.way // (kc * itemsize)
    nc = 0
    if cpu.l3 is not None:
        of_a = ceil(mc * kc * itemsize / cpu.l3.way)
        nc = (cpu.l3.ways - 1 - of_a) * cpu.l3.way // (kc * itemsize)
    return Blocks(mr, nr, kc, mc, nc)
