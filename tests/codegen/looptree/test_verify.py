"""The verifier of loop trees finds what each of its rules forbids, and nothing in what lowering and passes make."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cuda import passes
from polyfuse.codegen.cuda.passes import CUDA_PASSES, Pass, rewritten
from polyfuse.codegen.generate import kernels
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Await,
    AwaitBefore,
    Axis,
    Barrier,
    Block,
    ByRole,
    Element,
    For,
    Guard,
    Handover,
    Kernel,
    Lanes,
    Let,
    NextSlot,
    Node,
    Store,
)
from polyfuse.codegen.looptree.verify import MalformedLoopTree, faults, verify
from polyfuse.ir.scalar import Read
from polyfuse.ir.tensor import Tensor


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def element(text: str) -> Element:
    """An element of float32 numbers: "x[i, j]", or a variable."""
    match expression(text):
        case ast.Subscript(value=ast.Name(id=array), slice=ast.Tuple(elts=values)):
            return Element(array, tuple(values), "float32")
        case ast.Subscript(value=ast.Name(id=array), slice=value):
            return Element(array, (value,), "float32")
    return Element(text, (), "float32")


def store(target: str, *reads: str) -> Store:
    return Store("S", element(target), "=", Read("read0"), tuple(map(element, reads)))


def loop(variable: str, high: str, body: Node, step: int = 1, bind: str | None = None) -> For:
    return For(variable, ast.Constant(0), expression(high), step, bind, body)


def guard(condition: str, body: Node) -> Guard:
    return Guard(expression(condition), body)


def lanes(threads: int, body: Node) -> Lanes:
    return Lanes(Element("p", (), "float32"), body, store("y[0]", "p"), threads)


def kernel(body: Node) -> Kernel:
    """A kernel of x[N, 8] and y[N], whose blocks have 64 threads on tx."""
    arrays = {"x": Tensor("x", ("N", 8), "float32", "input"), "y": Tensor("y", ("N",), "float32", "output")}
    axes = (Axis("block.x", expression("N")), Axis("thread.x", ast.Constant(64)))
    return Kernel("k", ("S",), (), arrays, ("N",), axes, body)


LEGAL: dict[str, Node] = {
    "loops": loop("i", "N", loop("j", "8", store("y[i]", "x[i, j]"))),
    "one variable twice, side by side": Block(
        (loop("i", "N", store("y[i]", "x[i, 0]")), loop("i", "N", store("y[i]", "x[i, 1]")))
    ),
    "a buffer": Block((Allocate("b", (8,), "float32", "register"), loop("j", "8", store("b[j]", "x[bx, j]")))),
    "an index with a name": loop(
        "i", "N", Block((Let("row", expression("min(i, N - 1)")), store("y[row]", "x[row, 0]")))
    ),
    "a buffer for each value": Block(
        (Allocate("b", (), "float32", "register"), loop("i", "N", Allocate("b", (), "float32", "register")))
    ),
    "rows that a microkernel asks for": replace(
        loop("k", "8", loop("r", "4", store("y[r]", "x[r, k]")), bind="microkernel"),
        ahead=((element("x[r + 4, k]"), False),),
    ),
    "a barrier for all": loop("i", "N", guard("bx < N", Barrier())),
    "lanes": guard("bx < N", lanes(64, store("p", "x[bx, tx]"))),
    "a row of lanes under a thread's guard": guard("tx < 32", lanes(32, store("p", "x[bx, tx]"))),
    "roles": ByRole(Block((Handover(2, "await_free"), NextSlot())), Block((Handover(2, "await_full"), AwaitBefore()))),
    "a step that waits": loop("i", "N", loop("j", "8", Block((Await(), store("y[i]", "x[i, j]"))), bind="turn")),
}  # fmt: skip
WRONG: dict[str, tuple[Node, str]] = {
    "a name of nothing": (store("y[i]", "x[0, 0]"), "i in i is not defined before"),
    "a name behind its loop": (
        Block((loop("i", "N", store("y[i]", "x[i, 0]")), store("y[i]", "x[0, 0]"))),
        "i in i is not defined",
    ),
    "a name in a bound": (loop("i", "M", store("y[i]", "x[i, 0]")), "M in M is not defined before"),
    "a name in a condition": (guard("k < 3", store("y[0]", "x[0, 0]")), "k in k < 3 is not defined before"),
    "a loop inside its own": (
        loop("i", "N", loop("i", "8", store("y[i]", "x[i, 0]"))),
        "i is defined again in for i / for i",
    ),
    "a loop called as an axis": (loop("tx", "N", store("y[tx]", "x[tx, 0]")), "tx is defined again"),
    "a step backwards": (loop("i", "N", store("y[i]", "x[i, 0]"), step=-1), "loop i has step -1"),
    "rows that a loop asks for by one inside": (
        replace(loop("k", "8", loop("r", "4", store("y[r]", "x[r, k]"))), ahead=((element("x[r, k]"), False),)),
        "r in r is not defined before in for k / what is asked for ahead",
    ),
    "an array of nothing": (store("z[0]", "x[0, 0]"), r"z\[0\] is of no array"),
    "a buffer behind its use": (
        Block((store("b[0]", "x[0, 0]"), Allocate("b", (8,), "float32", "register"))),
        r"b\[0\] is of no array",
    ),
    "too few subscripts": (store("y[0]", "x[0]"), r"x\[0\] has 1 of 2 subscripts"),
    "too few reads": (store("y[0]"), "S reads read0, and has 0 elements"),
    "a barrier for some": (guard("tx < 32", Barrier()), "where some threads do not come: if tx < 32"),
    "a barrier in some threads' loop": (loop("i", "tx", Barrier()), "do not come: for i"),
    "a barrier for some by another name": (
        Block((Let("half", expression("tx // 32")), guard("half < 1", Barrier()))),
        "do not come: if half < 1",
    ),
    "warps of some rows": (guard("tx < 32", lanes(64, store("p", "x[bx, tx]"))), "the warps of a row meet where"),
    "the wrong side of a slot": (ByRole(Handover(2, "hand_back"), Block(())), "hand_back is not what this side"),
    "a slot of nobody": (NextSlot(), "NextSlot stands where there are no slots"),
    "a wait in no step": (Await(), "an Await stands in no step of a pipeline"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_nothing_is_wrong_with(name: str) -> None:
    assert list(faults(kernel(LEGAL[name]))) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_found(name: str) -> None:
    body, says = WRONG[name]
    with pytest.raises(MalformedLoopTree, match=f"kernel k after a pass: .*{says}"):
        verify("a pass", kernel(body))


def renamed(made: Kernel) -> Kernel:
    """A pass with a mistake: the body's outermost loop or allocation is lost."""
    return replace(made, body=made.body.parts[-1] if isinstance(made.body, Block) else made.body.body)  # type: ignore[union-attr]


def test_the_pass_with_the_mistake_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = pf.lower(nn.Linear(64, 64), batch=64)
    made = next(each for each in kernels(nest, pf.Schedule(nest).tree) if "mac" in each.name)
    assert rewritten(made, verify) == rewritten(made)
    wrong = (*CUDA_PASSES[:3], Pass("mistake", renamed), *CUDA_PASSES[3:])
    monkeypatch.setattr(passes, "CUDA_PASSES", wrong)
    with pytest.raises(MalformedLoopTree, match="after mistake: "):
        rewritten(made, verify)


def test_passes_are_seen_in_order() -> None:
    seen: list[str] = []
    note: Callable[[str, Kernel], None] = lambda name, _: seen.append(name)  # noqa: E731
    rewritten(kernel(LEGAL["loops"]), note)
    assert seen == ["lowering", *(each.name for each in CUDA_PASSES)]
    assert len(set(seen)) == len(seen)
