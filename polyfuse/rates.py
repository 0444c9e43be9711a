"""What memory gives to a CPU's core, as it was measured on some, and which of these another one is taken for."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rates:
    """What memory gives to a core, read and write together.

    `near` are bytes a cycle from L1, L2 and L3 to each core. `dram` is in bytes per second, of all cores together;
    `drawn_by` of them draw all of it. Reads alone get `reading` times as much from L1, L2 and L3, and a kernel that
    goes through a dozen rows at once `rows` times as much. A load costs `loading` of a multiply-add beside which it
    runs. `keeps` is from where on it pays to store past the caches even if the result is read next, where that is less
    than L3. It `foresees` rows where its own prefetchers keep up with them (Machine). `hertz` are the cycles a second
    that a core ran at meanwhile, where that is known of its kind: a virtual machine's files have the least it may get.
    """

    near: tuple[float, float, float]
    dram: float
    drawn_by: int = 1
    reading: tuple[float, float, float] = (1.0, 1.0, 1.0)
    rows: tuple[float, float, float] = (1.0, 1.0, 1.0)
    loading: float = 0.05
    keeps: int | None = None
    foresees: bool = False
    hertz: float = 0.0


ZEN = Rates((109.0, 61.0, 30.0), 38e9, rows=(1.0, 1.0, 0.7))
"""A desktop's core, an L3 beside it: 446, 249, 122 and 38 GB/s by one Zen 5 core at 4.1 GHz. Reads alone were not
measured. Loads: a tile's step of 16 x 1 vectors loads 17 times for 16 multiply-adds and ran at 87 % of a Zen 4 core's
peak, one of 8 x 2 loads 10 times and ran at 91 %, one of 4 x 4 at 92 % (all sides 2048). A dozen rows: Strassen's sums
of blocks went at 80 to 90 GB/s, 0.4 to 6 MB in L3, and at 28 to 40 from memory (one Zen 5 core)."""

ZEN5 = replace(ZEN, hertz=4.1e9)
"""A Zen 5, AMD's family 26, as above. Its files say 2.6 GHz on a server that lends its cores, which reach 253 to 269
GFLOP/s of float32 multiply-adds, as 4.1 GHz do: by the former 1024 x 1024 x 1024 would take 14.7 ms, by the latter 9.3;
it takes 8.3 to 9.0."""

ZEN4 = replace(ZEN, foresees=True, hertz=3.7e9)
"""A Zen 4, AMD's family 25 with AVX-512: rates as a Zen 5's, since they were not measured, but asking for the next rows
was. ms with and without, one core at 3.7 GHz, an L3 of 32 MiB: softmax of 4096 x 1024 1.87 and 1.46, of 8192 x 512 2.17
and 1.45, of 1024 x 1024 and 16384 x 1024 the same, layer norm of 4096 x 1024 1.64 and 1.32, of 16384 x 256 1.26 and
0.96, sums of tanh the same. Stores past the caches: scaling an array and then summing the result goes at 0.6 of the
speed for 8 MiB, 0.88 for 16, 1.14 for 32, so that a result that fits into L3 is kept there, as on the others."""

MESH = Rates(
    (120.0, 39.0, 12.0),
    240e9,
    drawn_by=20,
    reading=(1.0, 1.6, 1.0),
    rows=(1.0, 1.0, 0.45),
    loading=0.5,
    keeps=32 << 20,
)
"""A server's core, an L3 behind a mesh of many, memory for all of them. By each of two Xeon cores at 2.6 GHz, alone or
together: 312 GB/s from L1; copied and scaled in place 97 and 107 from L2, 26 and 36 from L3; 12 from DRAM; 160 read
from L2. How many cores exhaust that memory is a guess. Loads: tiles of 128 steps, panels in L1, ran at 64 % of the peak
with 25 x 1 vectors (26 loads for 25 multiply-adds), 80 with 10 x 2, 84 with 5 x 4, 87 with 6 x 4. Stores past the
caches, one core scaling an array and then summing the result, ms with ordinary stores and past the caches: 2.4 and 3.3
for 16 MiB, 5.5 and 5.3 for 32, 12.2 and 9.4 for 64, of an L3 of 480 MiB that others share. A dozen rows:
Strassen's sums of blocks went at 14 GB/s for matrices of 1024 x 1024 and at 11 for 4096 x 4096."""


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
    return ZEN
