"""Measured rates of CPU cores: arithmetic, memory bandwidth, and which measured core stands for another."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from polyfuse.machine.functions import FUNCTIONS, Functions


@dataclass(frozen=True)
class Exposed:
    """The parts of the time of a product's traffic that its multiply-adds do not hide (block_cost.py).

    Of `panels` of b, of `rows` of a, and of `sums` behind L2, which are loaded and stored once a block of steps; those
    of a block that is narrower than all columns are pieces of rows, which no prefetcher follows: `pieces` times as
    much. By default all that packed products of 1024 to 2048 lost on a Zen 4 core is put down to panels (6 to 9 %).
    """

    panels: float = 0.2
    rows: float = 0.2
    sums: float = 0.5
    pieces: float = 1.0


@dataclass(frozen=True)
class RowCosts:
    """Cycles that a loop over a row takes besides its vectors (strategy/cost/cpu_rows.py).

    `entering` it if it has more than one vector, `last` for each number behind its whole vectors, and `lanes` until the
    lanes of a sum along memory have become one number: shuffles and additions, one after the other. Fitted on a core of
    a Xeon to RMS norm of 77 x 333 (2.0 µs without, 2.3 with the first two, 2.6 to 3.3 measured), average pooling of 5 x
    5 in rows of 57 (100, 314, 230 to 280) and 16384 sums of 32 products whose factors were not packed (72 µs).

    Rows of `window` vectors hold so many instructions that a core does not look ahead to the next row: then `waits`
    more cycles go by until a sum is there. Of shorter rows a part of that.

    Beside register tiles, a number that is loaded or stored `apart` from its neighbours takes so many cycles: a tile of
    sums goes to rows of memory by whole vectors. A 9-tap convolution of 4 x 3 x 1000 to 32 channels took 37 µs, 29 of
    which are its multiply-adds (one Zen 5 core).

    A number of a cumulative sum takes `cumulated` cycles: its rows are turned to vectors across them and back. 256 x
    1000 took 63 to 81 µs (one core of a Xeon).
    """

    entering: float = 4.0
    last: float = 0.5
    lanes: float = 12.0
    waits: float = 0.0
    window: float = math.inf
    apart: float = 1.0
    cumulated: float = 0.9


@dataclass(frozen=True)
class Rates:
    """The memory bandwidth and the arithmetic efficiency of a core.

    `near` are bytes a cycle from L1, L2 and L3 to each core. `dram` is in bytes per second, of all cores together;
    `drawn_by` of them draw all of it. Reads alone get `reading` times as much from L1, L2 and L3, and a kernel that
    goes through a dozen rows at once `rows` times as much. What is read again is found in L3 if it fits a `share` of
    it: others use L3 too. `keeps` is from where on it pays to store past the caches even if the result is read next,
    where that is less than L3. Of what is more than a part `at_random` of L3, L3 keeps some, as if it replaced any line
    at a miss; 0: not measured, and it keeps nothing. It `foresees` rows where its own prefetchers keep up with them
    (CpuMachine).

    A core begins `multiply_adds` of whole vectors a cycle. A load costs `loading` of one beside which it runs, one of a
    number from a row of numbers that lie `apart` so many cycles, and one to all lanes, of which a tile's step has one a
    row, `broadcast` cycles where no multiply-add does it by itself. `functions` cost so many additions, and loops that
    are not register tiles reach `loops` of the peak. It begins instructions so far `ahead` of the oldest that is not
    done, so that short tiles run beside the one before; 0: not measured, and none does. `hertz` are the cycles a second
    that it ran at meanwhile, if that is known of its kind: a virtual machine's files have the least it may get.
    """

    near: tuple[float, float, float]
    dram: float
    drawn_by: int = 1
    reading: tuple[float, float, float] = (1.0, 1.0, 1.0)
    rows: tuple[float, float, float] = (1.0, 1.0, 1.0)
    loading: float = 0.05
    multiply_adds: int = 2
    loops: float = 0.5
    share: float = 1.0
    exposed: Exposed = Exposed()
    keeps: int | None = None
    foresees: bool = False
    hertz: float = 0.0
    functions: Functions = FUNCTIONS
    apart: float = 1.0
    broadcast: float = 0.0
    ahead: int = 0
    row: RowCosts = RowCosts()
    at_random: float = 0.0


ZEN = Rates((109.0, 61.0, 30.0), 38e9, rows=(1.0, 1.0, 0.7))
"""A desktop's core, an L3 beside it: 446, 249, 122 and 38 GB/s by one Zen 5 core at 4.1 GHz. Reads alone were not
measured. Loads: a tile's step of 16 x 1 vectors loads 17 times for 16 multiply-adds and ran at 87 % of a Zen 4 core's
peak, one of 8 x 2 loads 10 times and ran at 91 %, one of 4 x 4 at 92 % (all sides 2048). A dozen rows: Strassen's sums
of blocks went at 80 to 90 GB/s, 0.4 to 6 MB in L3, and at 28 to 40 from memory (one Zen 5 core). Loops: products of
width 512 at batch 64 ran at 139 of 262 GFLOP/s, of width 1024 at 113 (one Zen 5 core, numba 0.68)."""

ZEN5 = replace(
    ZEN,
    foresees=True,
    hertz=4.1e9,
    apart=0.2,
    ahead=448,
    row=RowCosts(entering=2.0, lanes=4.0, apart=0.5, cumulated=0.2),
    at_random=0.7,
    functions=Functions(
        division=(3.0, 3.0),
        sqrt=(4.0, 10.0),
        exp=(11.0, 17.0),
        log=(25.0, 29.0),
        tanh=(23.0, 31.0),
        erf=(34.0, 77.0),
        sin=(105.0, 480.0),
        cos=(107.0, 480.0),
        power=(117.0, 164.0),
        libm=(620.0, 380.0),
    ),
)
"""A Zen 5, AMD's family 26, as above. Its files say 2.6 GHz on a server that lends its cores, which reach 253 to 269
GFLOP/s of float32 multiply-adds, as 4.1 GHz do: by the former 1024 x 1024 x 1024 would take 14.7 ms, by the latter
9.3; it takes 8.3 to 9.0. Functions: as `Functions` says, the least of 4000 calls on 2048 numbers: of float32 0.08,
0.19, 0.17, 0.26, 0.8 and 0.89 ns for exp, log, tanh, erf, sin and pow, 4 to 5 for libm's, 0.024 and 0.03 for a
division and a root; an addition is 0.0076.

Asking for the next rows, ms with and without: layer norm of 256 x 1024 0.055 and 0.027, of 4096 x 1024 1.03 and
0.85, of 16384 x 256 0.93 and 0.68, of 16384 x 1024 3.9 and 4.2; RMS norm of 16384 x 1024 5.2 and 4.2; softmax of
4096 x 1024 0.93 and 0.98, of 16384 x 1024 4.9 and 6.6, of 32768 x 512 8.1 and 6.7. Numbers that lie apart: a
depthwise 7 x 7 convolution with stride 2 took 90 µs, with 1 cycle a number 424 are expected. Ahead: AMD's manual; tiles
of 2 x 32 sums of 8 products with a bias take 26 cycles, 52 one after the other.

Rows: with 2 cycles to enter one, 4 for its lanes, half a cycle for a number stored apart and 0.2 for one of a
cumulative sum 119 of 132 kernels of layers are expected within 1.5 x (docs/dev/measurements/2026-11-30-zen5.md), 99
of 126 with the Xeon's: average pooling of 5 x 5 took 150 µs, the cumulative sum of 256 x 1000 25, attention over 64
tokens 41.

L3: sums of one array, again and again, ran at 100 GB/s up to 20 MiB, at 80, 64, 58, 54, 50, 46 and 43 with 24, 28, 32,
40, 48, 64 and 96; by `missing` and 100 and 42 GB/s for L3 and memory they would at 85, 66, 58, 50, 47, 44 and 42."""

ZEN4 = Rates(
    (64.0, 61.0, 26.0),
    44e9,
    drawn_by=2,
    rows=(1.0, 1.0, 0.9),
    loading=0.025,
    multiply_adds=1,
    loops=0.75,
    share=0.5,
    exposed=Exposed(panels=0.02, rows=0.5, sums=1.3, pieces=1.8),
    foresees=True,
    hertz=3.7e9,
)
"""A Zen 4, AMD's family 25 with AVX-512, whose vectors of 64 bytes are halves one after the other: 118 GFLOP/s of
float32 multiply-adds at 3.7 GHz, one a cycle. By each of two cores of a server that lends them, GB/s of a copy, of
scaling in place and of reading alone: L1 235, 236 and 206, L2 115, 233 and 117, L3 97, 180 and 99 up to 8 MiB. L2's
rate is that of scaling: with the copy's, jacobi-2d of 1300 x 1300 had tiles of 8 steps for 16 (56 ms for 46). Of its 32
MiB of L3 copies of 16 MiB in all still got 69 GB/s, 24 47, 32 35 and 256 20 to 26: with all of L3 to count on,
PolyBench's gemver of 2000 x 2000 would store its sum (2.5 ms for 2.1). Two cores get twice one's of memory: 41 copied,
62 past the caches, 67 scaled. A dozen rows: 87 of 96 GB/s in L3.

Loads: tiles of 128 steps, panels in L1, ran at 100 % of the peak with 8 x 2 and 4 x 4 vectors, 99 with 6 x 4 and 12 x
2, 96 with 16 x 1. Loops: nine or ten multiplications and additions for a number from L1 or L2 ran at 71 to 91 GFLOP/s,
sums of products at up to 111.

Exposed, by what products took with blocks by hand, % of the multiply-adds in the same turns more than these: 2048 x
2048 x 2048 in tiles of 6 x 64, blocks of 688 x 128 and 512 x 256 (steps, columns; 344 KiB and 512 in L2) 6.1 and 6.3,
of 344, 512 and 688 steps with all columns (2.8 to 5.6 MB in L3) 2.9, 3.3 and 2.2; 800 x 1200 x 900 456 x 256 9.1, 304,
456 and 900 with all columns 6.3, 5.0, 3.8; 900 x 1100 x 1200 600 x 192 9.3, 400 and 600 with all 6.1, 5.0; by this 5.8
to 7.5 and 4 to 6.5. So panels cost next to nothing as far as L3 gives them in time (tiles of 2 x 64, which need 32
bytes a cycle, took 1.26 of the time of 6 x 64 at 1024), and most of the rest are pieces of sums. With three quarters
of L3, 2048 x 2048 x 2048 of float64 had tiles of 3 x 32 and blocks of 11 MB, which took 1.05 of 4 x 32 and 8 MB.

Asking for the next rows, ms with and without, an L3 of 32 MiB: softmax of 4096 x 1024 1.87 and 1.46, of 8192 x 512 2.17
and 1.45, of 1024 x 1024 and 16384 x 1024 the same, layer norm of 4096 x 1024 1.64 and 1.32, of 16384 x 256 1.26 and
0.96, sums of tanh the same. Stores past the caches: scaling an array and then summing the result goes at 0.6 of the
speed for 8 MiB, 0.88 for 16, 1.14 for 32, so that a result that fits into L3 is kept there, as on the others."""

ZEN3 = replace(
    ZEN4,
    near=(64.0, 52.0, 20.0),
    dram=38e9,
    multiply_adds=2,
    loops=0.5,
    exposed=Exposed(panels=0.5, rows=0.5, sums=1.0, pieces=1.8),
    hertz=3.2e9,
    apart=0.4,
    broadcast=1.0,
    row=RowCosts(last=1.5, waits=28.0, window=32.0),
    functions=Functions(
        division=(5.0, 5.0),
        sqrt=(9.0, 13.0),
        exp=(16.0, 29.0),
        log=(38.0, 52.0),
        tanh=(32.0, 50.0),
        erf=(50.0, 126.0),
        sin=(125.0, 242.0),
        cos=(125.0, 242.0),
        power=(142.0, 197.0),
        libm=(865.0, 432.0),
    ),
)
"""A Zen 3, AMD's family 25 without AVX-512. Its files say 2.45 GHz; dependent additions ran at 3.22, and multiply-adds
of 32 bytes at 103 GFLOP/s of float32, two a cycle. GB/s of one of two cores of a server that lends them, copied, scaled
in place and read alone: 207, 207 and 197 from L1, 101, 173 and 103 from L2, 56 to 71, 120 to 134 and 67 to 80 from L3,
17 to 20, 32 to 42 and 15 to 22 from DRAM; two cores at once copied 35 and scaled 68. L2's rate is that of scaling, and
what was not measured is a Zen 4's. Functions: as `Functions` says, the least of 4000 calls; of float32 exp, tanh, erf
and sin layers of 333 x 777, less what adding 1 took: 0.29, 0.57, 0.89 and 2.3 ns. A function of a function takes what
both take, where four vectors run side by side (intrinsics/interleave.py): 1.2 ns for tanh of sigmoid, 2.1 without.

Numbers that lie apart: depthwise 7 x 7 convolutions with stride 2 took 224 to 258 µs, with 1 cycle a number 561 are
expected, with 0.4 261. Rows: 77 sums of squares of 64 to 512 numbers took 45 cycles a row more than their vectors, of
which 12 and 4 are priced for short ones; 50 rows of 37 numbers, five behind whole vectors, took 39 cycles.

Broadcasts: tiles of 128 and 512 steps, panels in L1, reach % of the peak with rows x vectors 6 x 2 96 and 100, 4 x 2 97
and 92, 8 x 1 82 and 81, 10 x 1 55, 12 x 1 63, 14 x 1 67; whole products in tiles of 8 x 1, 10 x 1 and 13 x 1 42 to 53,
which is one row a cycle. Exposed: products of 768, 1024, 1536 and 2048 in the blocks that these give reach 96, 94, 92
and 85 GFLOP/s, with panels 0.2 96, 85, 92 and 94, with rows 1.0 93, 93, 89 and 82; NumPy 94, 94, 95 and 95."""

MESH = Rates(
    (120.0, 34.0, 8.0),
    240e9,
    drawn_by=20,
    reading=(1.0, 1.6, 1.0),
    rows=(1.0, 1.0, 0.45),
    loading=0.5,
    keeps=32 << 20,
    hertz=3.7e9,
    apart=0.3,
    functions=Functions(
        division=(13.0, 26.0),
        sqrt=(18.0, 42.0),
        exp=(18.0, 27.0),
        log=(38.0, 47.0),
        tanh=(40.0, 57.0),
        erf=(48.0, 124.0),
        sin=(170.0, 385.0),
        cos=(170.0, 385.0),
        power=(149.0, 200.0),
        libm=(1000.0, 460.0),
    ),
)
"""A server's core, an L3 behind a mesh of many, memory for all of them. Its files say 2.6 GHz; independent
multiply-adds ran at 3.72 to 3.75 GHz (238 to 240 GFLOP/s of float32), in three of four earlier runs at 3.2 to 3.7, in
one at 2.6. GB/s at 3.7 GHz, copied, scaled in place and y += a x: 473, 396 and 507 from L1, 77 to 102, 119 and 131 to
160 from L2, 29, 48 to 55 and 43 from L3, 13, 24 and 22 from DRAM. How many cores exhaust that memory is a guess.
Loads: tiles of 128 steps, panels in L1, ran at 64 % of the peak with 25 x 1 vectors (26 loads for 25 multiply-adds),
80 with 10 x 2, 84 with 5 x 4, 87 with 6 x 4. Stores past the caches, one core scaling an array and then summing the
result, ms with ordinary stores and past the caches: 2.4 and 3.3 for 16 MiB, 5.5 and 5.3 for 32, 12.2 and 9.4 for 64,
of an L3 of 480 MiB that others share. A dozen rows: Strassen's sums of blocks went at 14 GB/s for matrices of 1024 x
1024 and at 11 for 4096 x 4096. Functions, each number in L1 (y[j] += f(0.731 x[j]) less y[j] += 0.731 x[j], the least
of 180 calls): 0.11, 0.16, 0.15 to 0.16, 0.33, 0.33 to 0.39, 0.42 to 0.49, 1.5, 1.5 and 1.25 ns for division, sqrt, exp,
log, tanh, erf, sin, cos and pow of float32, 7 to 13 for libm's; an addition is 0.0084 at 3.7 GHz. Numbers that lie
apart: depthwise 7 x 7 convolutions with stride 2 (48 channels, 37 x 37) took 131 to 187 µs, with 1 cycle a number 486
are expected, with 0.3 184."""

MESH_AT_BASE = replace(MESH, near=(120.0, 39.0, 12.0), hertz=2.6e9, functions=FUNCTIONS, apart=1.0)
"""The same at 2.6 GHz, by each of two cores, alone or together: 312 GB/s from L1; copied and scaled in place 97 and 107
from L2, 26 and 36 from L3; 12 from DRAM; 160 read from L2."""


def rates_of(vendor: str, vector_bytes: int, l2: int, family: str = "") -> Rates:
    """The rates of the measured machine that is most like this one: Intel's servers since Skylake have AVX-512, an L2
    of 1 MiB or more, and a mesh; of AMD's family 25, Zen 3 and 4, only the latter has AVX-512. Taken from what does not
    change from run to run, so that plans do not either.

    >>> rates_of("GenuineIntel", 64, 2 << 20) is MESH, rates_of("AuthenticAMD", 64, 1 << 20, "26") is ZEN5
    (True, True)
    """
    if vendor == "GenuineIntel" and vector_bytes == 64 and l2 >= 1 << 20:
        return MESH
    if vendor == "AuthenticAMD" and vector_bytes == 64:
        return {"25": ZEN4, "26": ZEN5}.get(family, ZEN)
    if vendor == "AuthenticAMD" and vector_bytes == 32 and family == "25":
        return ZEN3
    return ZEN
