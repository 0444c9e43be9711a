"""Tiles that a border cuts short without branches: the oracle's results, and passes that copies can be spread in."""

# ruff: noqa: F821

import ast
from collections.abc import Iterator

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.codegen.cuda.rewrites.zero_fill import with_filled_tiles
from polyfuse.codegen.cuda.rewrites.zero_filled_copies import with_padded_copies
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Axis,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    PaddedCopy,
    Store,
    below,
    block,
)
from polyfuse.codegen.looptree.operations import Lines, TileProduct, VectorCopy
from polyfuse.ir.scalar import Read, number
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.runtime.samples import roundings


@pf.nest
def product(x: "f32[M, K]", w: "f32[K, N]", y: "f32[M, N]"):
    for i in range(M):
        for j in range(N):
            y[i, j] = 0
            for k in range(K):
                y[i, j] += x[i, k] * w[k, j]


def compiled(sides: tuple[int, int, int], device: str) -> pf.Executable:
    sizes = dict(zip("MNK", sides, strict=True))
    return pf.compile(product, target="cuda", machine="h200", device=device, sizes=sizes)


def under_conditions(source: str) -> Iterator[str]:
    """What is called under conditions of a block's number in the loop over most tiles."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For)]
    (most,) = (loop for loop in loops if ast.unparse(loop.iter) == "range(0, 9)")
    for node in ast.walk(most):
        if isinstance(node, ast.If) and any(name in ast.unparse(node.test) for name in ("bx", "by")):
            calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
            yield from (each.id for each in calls if isinstance(each, ast.Name))


SIDES = [(132, 140, 192), (131, 141, 192), (300, 41, 196), (65, 130, 202)]
"""Rows, columns, steps: neighbours in whole vectors and one by one, tiles cut along each, steps in the last two."""

RUNS = [*((sides, "lockstep") for sides in SIDES), ((20, 36, 192), "simulator"), ((19, 37, 192), "simulator")]


@pytest.mark.parametrize(("sides", "device"), RUNS, ids=str)
def test_they_are_what_the_oracle_says(sides: tuple[int, int, int], device: str) -> None:
    net, nest = compiled(sides, device), product.with_sizes(dict(zip("MNK", sides, strict=True)))
    assert "pad_ahead(" in net.source
    assert not {"tile_fma", "copy_ahead"} & {*under_conditions(net.source)}
    inputs = cases.draw(nest, np.random.default_rng(3))
    expected = pf.interpret(nest, {name: value.copy() for name, value in inputs.items()})
    y = np.full(sides[:2], np.nan, np.float32)
    net(inputs["x"], inputs["w"], y)
    assert roundings(expected, {"y": y}) <= cases.TOLERANCE


@pytest.mark.parametrize("sides", [(3000, 3000, 3000), (2047, 2047, 2047)], ids=["3000", "2047"])
def test_machine_code_of_a_pass_is_as_of_whole_tiles(sides: tuple[int, int, int]) -> None:
    pytest.importorskip("cuda.core")
    (cubin,) = build_kernels(compiled(sides, "none").program, (9, 0)).values()
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    loop = main_loop(cubin)
    assert loop.count("BRA") == 1, "nothing jumps over copies or products"
    assert loop.count("FFMA") >= 0.86 * len(loop)


# -- one store, in a kernel of 4 threads and some blocks ---------------------------------------------------------------


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def copy(place: str, ahead: bool = True, count: int = 1) -> Store:
    read = Element("x", (expression("4 * bx + tx"),), "float32")
    target = Element("x_shared", (expression(place),), "float32")
    return Store("load_x", target, "=", Read("read0"), (read,), operation=VectorCopy(count, 1, ahead))


def loop(variable: str, high: str, body: Node, bind: str | None = None) -> For:
    return For(variable, ast.Constant(0), expression(high), 1, bind, body)


def multiplied(rows: str = "8") -> For:
    """A tile that a thread multiplies into its own results."""
    sums = Element("y_sum", (expression("8 * r + c"),), "float32")
    factors = tuple(Element("x_shared", (expression(f"{each} + 8 * tx"),), "float32") for each in "rc")
    lines = Lines(0, 64, 1, 0, 4, 4)
    store = Store("mac", sums, "+=", Read("read0"), factors, operation=TileProduct(8, 8, 16, lines, lines))
    return loop("n", "16", loop("r", rows, loop("c", "8", store)), "microkernel")


def stored() -> Store:
    """A result of a thread's, on its way to memory."""
    sums = Element("y_sum", (expression("8 * i"),), "float32")
    return Store("store", Element("y", (expression("tx"),), "float32"), "=", Read("read0"), (sums,))


def changed(*parts: Node) -> tuple[Node, ...]:
    """What becomes of nodes in a loop that runs often, in a kernel of 4 threads and 3 blocks."""
    shared, own = (
        Allocate(name, (64,), "float32", memory)
        for name, memory in (("x_shared", "shared"), ("y_sum", "local"))
    )
    axes = Axis("thread.x", ast.Constant(4)), Axis("block.x", ast.Constant(3))
    kernel = Kernel("k", (), (), {}, (), axes, block((shared, own, loop("q", "9", block(parts)))))
    body = with_filled_tiles(kernel).body
    assert isinstance(body, Block)
    often = body.parts[2]
    assert isinstance(often, For)
    assert isinstance(often.body, Block)
    return often.body.parts


def around(node: Node) -> Node:
    """What becomes of a node beside a product."""
    return changed(node, multiplied())[0]


def under(condition: str, node: Node) -> Guard:
    return Guard(expression(condition), node)


def text(node: Node) -> str:
    """A node in a line: expressions are compared as written."""
    match node:
        case For(variable, _, high, body=body):
            return f"for {variable} < {ast.unparse(high)}: {text(body)}"
        case Guard(condition, body):
            return f"if {ast.unparse(condition)}: {text(body)}"
        case Store():
            return node.statement
    raise NotImplementedError(type(node))


@pytest.mark.parametrize(
    ("product", "reader"),
    [
        (under("tx < 9 - 4 * bx", multiplied()), under("tx < 9 - 4 * bx", stored())),
        (under("tx < 9 - 4 * bx", multiplied()), under("bx < 3", under("tx < 7 - 4 * bx", stored()))),
        (
            multiplied("min(8, 70 - 32 * bx - 8 * tx)"),
            loop("i", "min(8, 70 - 32 * bx - 8 * tx)", stored(), "unroll"),
        ),
        (multiplied("min(8, 70 - 32 * bx - 8 * tx)"), under("4 * tx < 35 - 16 * bx", stored())),
    ],
    ids=["the same condition", "a narrower one", "a tile that is cut short", "said in other units"],
)
def test_all_threads_multiply_where_nobody_reads_what_some_do(product: Node, reader: Node) -> None:
    bare, _ = changed(product, reader)
    assert text(bare) == text(multiplied())


@pytest.mark.parametrize(
    ("product", "reader"),
    [
        (under("tx < 9 - 4 * bx", multiplied()), stored()),
        (under("tx < 9 - 4 * bx", multiplied()), under("tx < 10 - 4 * bx", stored())),
        (loop("m", "2", under("tx + m < 9 - 4 * bx", multiplied())), under("tx < 9 - 4 * bx", stored())),
        (under("tx < 3 - 4 * bx", multiplied()), under("tx < 3 - 4 * bx", stored())),
        (loop("m", "2 - bx", under("tx < 9 - 4 * bx", multiplied())), under("tx < 9 - 4 * bx", stored())),
        (under("tx < 9 - 4 * bx", multiplied()), under("tx < 9 - 4 * bx", under("0 < bx", stored()))),
    ],
    ids=[
        "others read",
        "one more reads",
        "some steps are missing",
        "the first block does not pass",
        "blocks have other steps",
        "another block does more",
    ],
)
def test_a_product_stays_under_its_guard(product: Node, reader: Node) -> None:
    assert [*map(text, changed(product, reader))] == [text(product), text(reader)]


def test_a_copy_brings_zeros_where_its_guards_do_not_hold() -> None:
    filled = around(Guard(expression("tx < 9 - 4 * bx"), Guard(expression("bx < 3"), copy("tx"))))
    assert isinstance(filled, Store)
    assert isinstance(filled.operation, PaddedCopy)
    assert ast.unparse(filled.operation.here) == "tx < 9 - 4 * bx and bx < 3"
    assert filled.operation.copy == VectorCopy(1, 1, ahead=True)


def test_a_place_that_is_the_same_in_all_blocks_may_be_said_by_their_numbers() -> None:
    filled = around(Guard(expression("tx < 9 - 4 * bx"), copy("8 * bx + tx - 2 * (4 * bx)")))
    assert isinstance(filled, Store)


@pytest.mark.parametrize(
    ("condition", "stored"),
    [
        ("tx < 3 - 4 * bx", copy("tx")),  # not all threads of the first block have a place of their own
        ("tx < n - 4 * bx", copy("tx")),  # it is not known whether they have
        ("tx < 9 - 4 * bx", copy("4 * bx + tx")),  # another block's threads have other places
        ("tx < 9 - 4 * bx", copy("tx", ahead=False)),  # a thread waits for it, and may as well jump
    ],
)
def test_others_stay_under_their_guards(condition: str, stored: Store) -> None:
    guard = Guard(expression(condition), stored)
    assert around(guard) == guard


def test_copies_beside_others_that_move_stay_under_their_guards() -> None:
    """What is in another place in each block may lie where this one would bring zeros."""
    guard = under("tx < 9 - 4 * bx", copy("tx"))
    assert text(changed(guard, copy("32 - bx + tx"), multiplied())[0]) == text(guard)


def test_a_name_for_what_a_block_has_is_a_blocks() -> None:
    """let n = 2 * bx: for m < n: …"""
    guard = under("tx < 9 - 4 * bx", copy("tx"))
    steps = loop("m", "n", multiplied())
    assert text(changed(guard, Let("n", expression("2 * bx")), steps)[0]) == text(guard)
    assert isinstance(changed(guard, Let("n", expression("2 * tx")), steps)[0], Store)


def test_a_vectors_condition_is_all_elements_or_stays() -> None:
    def neighbours(condition: str) -> Node:
        return loop("l", "4", under(condition, copy("4 * tx + l", count=4)), "vector")

    filled = around(neighbours("tx < 9 - 4 * bx"))
    assert isinstance(filled, For)
    assert isinstance(filled.body, Store)
    each = neighbours("4 * tx + l < 64 - 16 * bx")
    assert around(each) == each


def test_a_thread_that_stores_to_a_buffer_waits_for_its_copies_there() -> None:
    """Nothing orders a copy that goes on by itself behind a store of the same thread to the same buffer."""
    zero = Store("fill", Element("x_shared", (expression("tx + 4"),), "float32"), "=", number(0.0), ())
    arrays = Allocate("x_shared", (64,), "float32", "shared")
    axes = Axis("thread.x", ast.Constant(4)), Axis("block.x", ast.Constant(3))
    alone = Kernel("k", (), (), {}, (), axes, block((arrays, copy("tx"))))
    beside = Kernel("k", (), (), {}, (), axes, block((arrays, copy("tx"), zero)))

    def ahead(kernel: Kernel) -> bool:
        (moved,) = (
            part for part in below(kernel.body) if isinstance(part, Store) and part.statement == "load_x"
        )
        assert isinstance(moved.operation, VectorCopy)
        return moved.operation.ahead

    assert ahead(with_padded_copies(alone))
    assert not ahead(with_padded_copies(beside))
