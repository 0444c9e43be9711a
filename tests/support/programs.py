"""Small nests by hand, and finished schedules of them, for the tests of schedules, validation and code."""

from __future__ import annotations

from polyfuse import lower, nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Tree, replace_node
from polyfuse.schedule import Schedule


def pair(size: int | str = 4) -> Nest:
    """S: t = 2 A, then R: O = t + 1, elementwise."""
    params, context = ("[N] -> ", "[N] -> { : N >= 1 }") if size == "N" else ("", "{ : }")
    box = f"0 <= i < {size} and 0 <= j < {size}"
    tensors = [
        Tensor("A", (size, size), "float64", "input"),
        Tensor("t", (size, size), "float64", "temporary"),
        Tensor("O", (size, size), "float64", "output"),
    ]
    every = [
        statement(f"{params}{{ S[i, j] : {box} }}", "t[i, j] = 2 * A[i, j]"),
        statement(f"{params}{{ R[i, j] : {box} }}", "O[i, j] = t[i, j] + 1"),
    ]
    return Nest.of(tensors, every, context=context, name="pair")


def sweep() -> Nest:
    """S[t, i]: P[t + 1, i + 1] = P[t, i + 2] - P[t, i], a stencil in time t over space i."""
    tensors = [Tensor("P", (5, 8), "float64", "inout")]
    text = "P[t + 1, i + 1] = P[t, i + 2] - P[t, i]"
    return Nest.of(tensors, [statement("{ S[t, i] : 0 <= t < 4 and 0 <= i < 6 }", text)], name="sweep")


def product(size: int = 8) -> Nest:
    """zero, mac, act: O = max(X W, 0)."""
    square = (size, size)
    tensors = [
        Tensor("X", square, "float64", "input"),
        Tensor("W", square, "float64", "input"),
        Tensor("y", square, "float64", "temporary"),
        Tensor("O", square, "float64", "output"),
    ]
    box = f"0 <= i < {size} and 0 <= j < {size}"
    every = [
        statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0"),
        statement(f"{{ mac[i, j, k] : {box} and 0 <= k < {size} }}", "y[i, j] += X[i, k] * W[k, j]"),
        statement(f"{{ act[i, j] : {box} }}", "O[i, j] = max(y[i, j], 0)"),
    ]
    return Nest.of(tensors, every, name="product")


def on_cpu(size: int = 8) -> Schedule:
    """The product in row tiles over cores, everything fused, a row of y kept in a buffer."""
    s = Schedule(product(size)).split("mac", "i", 4)
    s = s.fuse("mac", "zero", at="i").fuse("mac", "act", at="i")
    return s.bind("mac", i="cores").promote("y", "mac", at="i", memory="local")


def on_cuda(size: int = 8, tile: int = 4) -> Schedule:
    """The product in square tiles over blocks and threads, X and W copied to shared memory, barriers placed."""
    s = Schedule(product(size)).tile("mac", i=tile, j=tile, k=tile)
    s = s.fuse("mac", "zero", at="j").fuse("mac", "act", at="j").bind("mac", i="block.y", j="block.x")
    for name in ("zero", "mac", "act"):
        s = s.bind(name, i_in="thread.y", j_in="thread.x")
    s = s.promote("y", "mac", at="j", memory="register")
    s = s.promote("X", "mac", at="k", memory="shared").promote("W", "mac", at="k", memory="shared")
    for name in ("load_X", "load_W"):
        s = s.bind(name, **{f"{name}_0": "thread.y", f"{name}_1": "thread.x"})
    return s.synchronised()


def with_node(tree: Tree, old: Tree, new: Tree) -> Tree:
    """`replace_node`, which must have found something to replace."""
    changed = replace_node(tree, old, new)
    assert changed is not tree, "the node is not in the tree"
    return changed


def triangle(size: int = 6) -> Nest:
    """y = L x for a lower triangular L, without its upper half being touched."""
    tensors = [
        Tensor("L", (size, size), "float64", "input"),
        Tensor("x", (size,), "float64", "input"),
        Tensor("y", (size,), "float64", "output"),
    ]
    every = [
        statement(f"{{ zero[i] : 0 <= i < {size} }}", "y[i] = 0"),
        statement(f"{{ mac[i, j] : 0 <= i < {size} and 0 <= j <= i }}", "y[i] += L[i, j] * x[j]"),
    ]
    return Nest.of(tensors, every, name="triangle")


def softmax(rows: int = 6, columns: int = 10) -> Nest:
    """A stable softmax of each row."""
    return lower(nn.softmax(nn.input("x", (rows, columns), "float64")))


def softmax_by_rows(rows: int = 6, columns: int = 10) -> Schedule:
    """All of a row's statements in one loop over rows, its maximum, its sum and the inverse in registers."""
    s = Schedule(softmax(rows, columns))
    first, *others = [x.name for x in s.nest.statements]
    for name in others:
        s = s.fuse(first, name, at="i")
    s = s.promote("m0", first, at="i", memory="register")
    for tensor in ("s0", "r0"):
        s = s.promote(tensor, first, at="i", memory="register")
    return s.promote("e0", first, at="i", memory="local")
