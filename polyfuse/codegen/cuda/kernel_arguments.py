"""The types of a GPU kernel's arguments in its signature.

    float32*          the address of float32 elements
    const float32*    of some that the kernel only reads
    int64             a number

Where a kernel only reads nobody writes while it runs: a call refuses arrays that overlap, and temporaries that are used
in one kernel have memory of their own.
"""

from __future__ import annotations

CONST = "const "


def pointee(kind: str) -> str:
    """The type of an argument, or of what it points to.

    >>> [pointee(kind) for kind in ("int64", "float32*", "const float32*")]
    ['int64', 'float32', 'float32']
    """
    return kind.removeprefix(CONST).removesuffix("*")
