"""The nests and schedules the tests of polyfuse.show look at."""

from __future__ import annotations

import polyfuse as pf


def jacobi() -> pf.Nest:
    """A time loop over a line, all sizes symbolic."""
    update = pf.statement(
        "[T, N] -> { S[t, i] : 0 <= t < T and 1 <= i < N - 1 }",
        "A[t + 1, i] = 0.5 * (A[t, i - 1] + A[t, i + 1])",
    )
    line = pf.Tensor("A", ("T + 1", "N"), "float64", "inout")
    return pf.Nest.of([line], [update], context="[T, N] -> { : 1 <= T and 3 <= N }", name="jacobi")


def wavefronts() -> pf.Schedule:
    """Jacobi in skewed tiles of 2 × 4."""
    return pf.Schedule(jacobi()).skew("S", "i", by="t").tile("S", t=2, i=4)


def blur() -> pf.Nest:
    """Two stages on a line."""
    first = pf.statement("{ blur[i] : 0 <= i < 6 }", "b[i] = a[i] + a[i + 1]")
    second = pf.statement("{ edge[i] : 0 <= i < 5 }", "c[i] = b[i + 1] - b[i]")
    sizes = (("a", 7, "input"), ("b", 6, "temporary"), ("c", 5, "output"))
    return pf.Nest.of(
        [pf.Tensor(n, (s,), "float32", role) for n, s, role in sizes], [first, second], name="blur"
    )


def dense() -> pf.Nest:
    """Linear and ReLU."""
    return pf.lower(pf.nn.Sequential(pf.nn.Linear(8, 6), pf.nn.ReLU()), batch=4)


def fused() -> pf.Schedule:
    """The dense layer in one loop nest, over cores, without arrays between."""
    s = pf.Schedule(dense())
    s = s.fuse("mac0", "zero0", at="j").fuse("mac0", "bias0", at="j").fuse("bias0", "relu0", at="j")
    return s.promote("y0", "mac0", at="j").bind("mac0", i="cores")


def threads() -> pf.Schedule:
    """A product on blocks and threads, a tile of x in shared memory, with the barriers that takes."""
    s = pf.Schedule(pf.lower(pf.nn.Linear(8, 8, bias=False), batch=8)).tile("mac0", i=4, j=4, k=4)
    s = s.fuse("mac0", "zero0", at="j").bind("mac0", i="block.y", j="block.x")
    for name in ("zero0", "mac0"):
        s = s.bind(name, i_in="thread.y", j_in="thread.x")
    s = s.promote("x", "mac0", at="k", memory="shared")
    return s.bind("load_x", load_x_0="thread.y", load_x_1="thread.x").synchronised()


def blur_rows() -> pf.Schedule:
    """Two stages over rows, the second one step of i behind the first, in tiles of three steps."""
    copy = pf.statement("{ S[t, i] : 0 <= t < 3 and 0 <= i < 6 }", "b[t, i] = 2 * a[t, i]")
    back = pf.statement("{ R[t, i] : 0 <= t < 3 and 0 <= i < 6 }", "c[t, i] = b[t, i] + 1")
    roles = (("a", "input"), ("b", "temporary"), ("c", "output"))
    nest = pf.Nest.of([pf.Tensor(n, (3, 6), "float32", role) for n, role in roles], [copy, back], name="rows")
    return pf.Schedule(nest).fuse("S", "R", at="i", shift={"i": 1}).split("S", "i", 3)
