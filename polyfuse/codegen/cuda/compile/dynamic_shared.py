"""Dynamic shared memory: PTX whose arrays are parts of the memory that the launch requests.

    .shared .align 16 .b8 a[40000];        .extern .shared .align 16 .b8 of_launch[];
    .shared .align 8 .b8 b[16384];    ->
    mov.u64 %rd1, b;                       mov.u64 %rd1, of_launch+40000;
    ld.shared.f32 %f1, [b+64];             ld.shared.f32 %f1, [of_launch+40064];

A kernel's source declares its arrays either way, so that lock-step and the simulator need not know. CUDA C++
Programming Guide, "Shared Memory" of compute capability 8.x: more than 48 KiB per block is dynamic, and the kernel's
attribute says so before it is launched (driver.py).
"""

from __future__ import annotations

import re

STATIC_LIMIT = 48 * 1024
"""Bytes that a kernel may declare."""

OF_LAUNCH = "of_launch"
ALIGNMENT = 16
"""The minimum alignment of an array."""

_DECLARED = re.compile(r"^(?:\.visible )?\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\];\n", re.MULTILINE)


def declared_shared(ptx: str) -> dict[str, int]:
    r"""The shared arrays that PTX declares, with their bytes.

    >>> declared_shared(".visible .shared .align 16 .b8 a[40];\n")
    {'a': 40}
    """
    return {name: int(size) for _, name, size in _DECLARED.findall(ptx)}


def with_dynamic_shared(ptx: str) -> tuple[str, int]:
    r"""PTX whose arrays fit into what may be declared as it is; else the arrays in dynamic memory, and its bytes.

    >>> small = ".shared .align 4 .b8 a[40];\n"
    >>> with_dynamic_shared(small) == (small, 0)
    True
    >>> large = small + ".shared .align 16 .b8 b[60000];\nmov.u64 %rd1, b;\nld.shared.f32 %f1, [b+64];\n"
    >>> print(*with_dynamic_shared(large))
    .extern .shared .align 16 .b8 of_launch[];
    mov.u64 %rd1, of_launch+48;
    ld.shared.f32 %f1, [of_launch+112];
     60048
    """
    sizes = declared_shared(ptx)
    if sum(sizes.values()) <= STATIC_LIMIT:
        return ptx, 0
    first = ptx.index(next(found[0] for found in _DECLARED.finditer(ptx)))
    alignments = {name: max(ALIGNMENT, int(least)) for least, name, _ in _DECLARED.findall(ptx)}
    places, end = dict[str, int](), 0
    for name in sorted(sizes, key=lambda name: -alignments[name]):
        end = places[name] = -(-end // alignments[name]) * alignments[name]
        end += -(-sizes[name] // ALIGNMENT) * ALIGNMENT

    def moved(use: re.Match[str]) -> str:
        at = places[use[1]] + int(use[2] or 0)
        return f"{OF_LAUNCH}+{at}" if at else OF_LAUNCH

    declaration = f".extern .shared .align {max(alignments.values())} .b8 {OF_LAUNCH}[];\n"
    ptx = ptx[:first] + declaration + _DECLARED.sub("", ptx[first:])
    return re.sub(rf"\b({'|'.join(map(re.escape, sizes))})\b(?:\+(\d+))?", moved, ptx), end
