"""Each verb: the tree it makes, as golden text; what it refuses, with two instances; what it does not understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.errors.budget import at_most
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, sequence
from polyfuse.schedule import Schedule, fuse_verbs
from polyfuse.sets import dimension
from tests.support.programs import pair, product, sweep

Golden = Callable[[str, str], None]


def fused() -> Schedule:
    return Schedule(pair()).fuse("S", "R", at="j")


def chained(*steps: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Callable[[], Schedule]:
    def build() -> Schedule:
        s = Schedule(pair())
        for verb, args, options in steps:
            s = getattr(s, verb)(*args, **options)
        return s

    return build


FUSED = ("fuse", ("S", "R"), {"at": "j"})
SHARED_I = ("fuse", ("S", "R"), {"at": "i"})
START = chained()

TAKEN: list[tuple[str, Callable[[], Schedule], tuple[Any, ...], dict[str, Any]]] = [
    ("tile", START, ("S",), {"i": 2, "j": 2}),
    ("split", START, ("S", "j", 3), {}),
    ("interchange", START, ("S", "i", "j"), {}),
    ("reorder", chained(("split", ("S", "j", 2), {})), ("S", "j", "j_in", "i"), {}),
    ("skew", lambda: Schedule(sweep()), ("S", "i"), {"by": "t", "factor": 2}),
    ("skew_by_a_part", lambda: Schedule(sweep()), ("S", "i"), {"by": "t", "factor": 3, "per": 2}),
    ("shift", chained(FUSED), ("R", "j", 1), {}),
    ("reverse", chained(FUSED), ("S", "j"), {}),
    ("fuse", START, ("S", "R"), {"at": "i"}),
    ("fuse_shifted", START, ("S", "R"), {"at": "j", "shift": {"j": 2}}),
    ("fuse_by_dependence", lambda: Schedule(product()).tile("mac", i=4, j=4), ("mac", "act"), {"at": "j"}),
    ("distribute", chained(SHARED_I), ("R", "i"), {}),
    ("bind", chained(FUSED), ("S",), {"i": "block.x", "j": "thread.x"}),
    ("unroll", START, ("S", "j"), {}),
    ("vectorize", START, ("S", "j"), {}),
    ("promote", chained(FUSED), ("t", "S"), {"at": "j", "memory": "register"}),
    ("promote_copied", START, ("A", "S"), {"at": "i", "memory": "local"}),
]


@pytest.mark.parametrize(("case", "before", "args", "options"), TAKEN, ids=[t[0] for t in TAKEN])
def test_golden(
    golden: Golden, case: str, before: Callable[[], Schedule], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    start = before()
    verb = case.split("_")[0]
    done = getattr(start, verb)(*args, **options)
    text = f"{start}\n\n    ->  {done.steps[-1]}\n\n{done}"
    golden(f"schedule/{case}.txt", text)
    assert start.tree == before().tree, "a verb changes nothing but its result"


REFUSED: list[tuple[str, Callable[[], Schedule], tuple[Any, ...], dict[str, Any], str]] = [
    ("tile", lambda: Schedule(sweep()), ("S",), {"t": 2, "i": 2}, "flow"),
    ("interchange", lambda: Schedule(sweep()), ("S", "t", "i"), {}, "flow"),
    ("reorder", lambda: Schedule(sweep()), ("S", "i", "t"), {}, "flow"),
    ("shift", chained(FUSED), ("S", "j", 1), {}, "flow"),
    ("reverse", lambda: Schedule(sweep()), ("S", "t"), {}, "flow"),
    ("fuse", START, ("S", "R"), {"at": "j", "shift": {"j": -1}}, "flow"),
    ("distribute", lambda: Schedule(backwards()), ("S", "i"), {}, "flow"),
    ("move", START, ("S",), {"behind": "R"}, "flow"),
    ("bind", lambda: Schedule(product()), ("mac",), {"k": "cores"}, "reduction"),
    ("vectorize", lambda: Schedule(scan()), ("S", "i"), {}, "flow"),
    ("promote", START, ("t", "S"), {"at": "i"}, "flow"),
]  # fmt: skip


def backwards() -> Nest:
    """for i: { S[i] reads what R[i - 1] wrote; R[i] }: the two cannot be taken apart."""
    return nest_of("{ S[i] : 0 <= i < 4 }", "Q[i] = P[i]", "{ R[i] : 0 <= i < 4 }", "P[i + 1] = Q[i]")


def scan() -> Nest:
    return nest_of("{ S[i] : 0 <= i < 4 }", "P[i + 1] = P[i]")


def nest_of(*parts: str) -> Nest:
    """Statements sharing one loop i over vectors P and Q of five."""
    every = [statement(domain, body) for domain, body in zip(parts[::2], parts[1::2], strict=True)]
    dates = tuple((s.name, dimension(s.domain, 0)) for s in every)
    order = Loop("i", dates, sequence(tuple(Leaf(s.name) for s in every)))
    return Nest.of([Tensor(n, (5,), "float64", "inout") for n in "PQ"], every, order)


@pytest.mark.parametrize(("verb", "before", "args", "options", "kind"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refusal(
    golden: Golden,
    verb: str,
    before: Callable[[], Schedule],
    args: tuple[Any, ...],
    options: dict[str, Any],
    kind: str,
) -> None:
    start = before()
    with pytest.raises(IllegalSchedule) as caught:
        getattr(start, verb)(*args, **options)
    violation = caught.value.violation
    assert start.why_not(verb, *args, **options) == violation
    assert violation.kind == kind
    assert violation.statements == (violation.source.statement, violation.sink.statement)
    golden(f"schedule/refused_{verb}.txt", str(caught.value))


def test_threads_that_no_barrier_keeps_in_order_are_refused() -> None:
    s = Schedule(pair()).fuse("S", "R", at="i").bind("S", i="thread.y")
    s = s.reverse("R", "j").bind("S", j="thread.x").bind("R", j="thread.x")
    with pytest.raises(IllegalSchedule, match="no barrier lies between") as caught:
        s.synchronised()
    assert caught.value.violation.statements == ("S", "R")
    assert s.why_not("synchronised") == caught.value.violation


def test_a_guest_of_which_each_third_instance_is_read_joins_at_whole_dates() -> None:
    """Z[m] at t = floor((m - 1) / 3), where T[t] reads it; (m - 1) / 3 is no whole number for the others."""
    tensors = [Tensor("z", (7,), "float64", "output"), Tensor("y", (2,), "float64", "output")]
    every = [
        statement("{ Z[m] : 0 <= m < 7 }", "z[m] = 1.0"),
        statement("{ T[t] : 0 <= t < 2 }", "y[t] = 2 * z[3 * t + 1]"),
    ]
    fused = Schedule(Nest.of(tensors, every)).fuse("T", "Z", at="t")
    assert str(fused.loops("Z")[0].date("Z")) == "{ Z[m] -> [(floor((-1 + m)/3))] }"


def test_why_not_is_none_for_what_is_legal() -> None:
    s = Schedule(pair())
    assert s.why_not("fuse", "S", "R", at="j") is None
    with pytest.raises(InvalidSchedule, match="unknown verb 'fuze'"):
        s.why_not("fuze", "S", "R", at="j")


INVALID: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("tile", ("Z",), {"i": 2}, "unknown statement 'Z'; expected one of S, R"),
    ("tile", ("S",), {"k": 2}, "no loop 'k' around S; its loops are i, j"),
    ("tile", ("S",), {"i": 0}, "tile size 0, expected a positive integer"),
    ("tile", ("S",), {"i": 2.5}, "tile size 2.5, expected"),
    ("tile", ("S",), {"i": True}, "tile size True, expected"),
    ("tile", ("S",), {}, "name at least one loop"),
    ("split", ("S", "i", -1), {}, "tile size -1, expected"),
    ("interchange", ("S", "i", "i"), {}, "'i' is named twice"),
    ("reorder", ("S", "i", "j", "j"), {}, "name each of them once"),
    ("skew", ("S", "i"), {"by": "j"}, "j is not outside i"),
    ("skew", ("S", "j"), {"by": "i", "factor": 0.5}, "expected an integer, not 0.5"),
    ("skew", ("S", "j"), {"by": "i", "per": 0}, "per=0, expected at least 1"),
    ("shift", ("S", "j", "far"), {}, "expected an integer, not 'far'"),
    ("reverse", ("S", "k"), {}, "no loop 'k'"),
    ("fuse", ("S", "S"), {"at": "i"}, "'S' is named twice"),
    ("fuse", ("S", "Z"), {"at": "i"}, "unknown statement 'Z'"),
    ("fuse", ("S", "R"), {"at": "k"}, "no loop 'k' around S to fuse at"),
    ("fuse", ("S", "R"), {"at": "i", "shift": {"j": 1}}, "shift names j"),
    ("distribute", ("S", "i"), {}, "there is nothing to distribute"),
    ("move", ("S",), {"behind": "S"}, "move: 'S' is named twice"),
    ("move", ("S",), {"behind": "Z"}, "unknown statement 'Z'"),
    ("bind", ("S",), {"i": "moon"}, "unknown place 'moon'"),
    ("bind", (), {"i": "cores"}, "2 loops are named 'i'"),
    ("bind", ("S",), {"i": "cores", "j": "thread.x"}, "do not mix"),
    ("bind", ("S",), {"i": "thread.x", "j": "thread.x"}, "already bound to thread.x"),
    ("bind", ("S",), {"i": "thread.x", "j": "block.x"}, "i is bound to thread.x, and j lies in it"),
    ("join", ("S", "Z"), {"loop": "l"}, "unknown statement 'Z'"),
    ("join", ("R", "S"), {"loop": "l"}, "S runs in a kernel before that of R"),
    ("join", ("S",), {"loop": "i"}, "is called 'i'"),
    ("unroll", ("S", "k"), {}, "no loop 'k'"),
    ("vectorize", ("S", "i"), {}, "make i innermost first"),
    ("promote", ("t", "S"), {"at": "i", "memory": "disk"}, "unknown memory 'disk'"),
    ("promote", ("O", "S"), {"at": "i"}, "nothing inside i around S accesses O"),
    ("promote", ("O", "R"), {"at": "i"}, "visible to the caller"),
]


@pytest.mark.parametrize(("verb", "args", "options", "message"), INVALID)
def test_invalid(verb: str, args: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        getattr(Schedule(pair()), verb)(*args, **options)
    assert message in str(caught.value)


def test_invalid_on_loops_already_placed() -> None:
    s = fused().bind("S", i="block.x")
    for wrong, message in (
        (lambda: s.split("S", "i", 2), "tile it first, then bind"),
        (lambda: s.bind("S", i="block.y"), "already bound to block.x"),
        (lambda: s.unroll("S", "i"), "already bound to block.x"),
        (
            lambda: s.bind("S", j="thread.x").interchange("S", "i", "j"),
            "only sequential loops and loops over blocks may enclose a loop over blocks",
        ),
        (
            lambda: s.bind("S", j="thread.x").promote("A", "S", at="j", memory="shared"),
            "is promoted to shared memory for each iteration",
        ),
        (lambda: s.promote("t", "S", at="j").promote("t", "S", at="j"), "promoted already"),
        (lambda: s.promote("t", "S", at="i").distribute("S", "j").distribute("S", "i"), "distribute first"),
    ):
        with pytest.raises(InvalidSchedule, match=message):
            wrong()


def test_a_path_has_each_axis_once_whatever_fuse_brings_together() -> None:
    s = Schedule(pair()).bind("S", i="thread.x").bind("R", j="thread.x")
    with pytest.raises(InvalidSchedule, match="are both bound to thread"):
        s.fuse("S", "R", at="i")


def test_buffers_of_symbolic_size_are_refused() -> None:
    with pytest.raises(InvalidSchedule, match="no constant size"):
        Schedule(pair("N")).fuse("S", "R", at="i").promote("t", "S", at="i")


def test_loops_of_many_values_are_not_unrolled() -> None:
    with pytest.raises(InvalidSchedule, match="has 65 values"):
        Schedule(pair(65)).unroll("S", "i")
    with pytest.raises(InvalidSchedule, match="no constant number of values"):
        Schedule(pair("N")).unroll("S", "i")


def test_fuse_refuses_loops_that_what_says_where_it_belongs_is_not_in() -> None:
    """S2 reads what S1 makes and is in i alone: it says nothing of where in j S1 could be."""
    box = "0 <= i < 8 and 0 <= j < 8"
    nest = Nest.of(
        [
            Tensor("x", (8, 8), "float32", "input"),
            Tensor("y", (8,), "float32", "temporary"),
            Tensor("z", (8, 8), "float32", "output"),
            Tensor("u", (8,), "float32", "output"),
        ],
        [
            statement(f"{{ S0[i, j] : {box} }}", "z[i, j] = x[i, j] + 1.0"),
            statement("{ S1[i] : 0 <= i < 8 }", "y[i] = 2.0"),
            statement("{ S2[i] : 0 <= i < 8 }", "u[i] = y[i]"),
        ],
    )
    s = Schedule(nest).fuse("S0", "S2", at="i")
    with pytest.raises(InvalidSchedule, match="that would place it"):
        s.fuse("S0", "S1", at="j")
    assert [loop.name for loop in s.fuse("S0", "S1", at="i").loops("S1")] == ["i"]


def test_a_dependence_of_few_instances_places_no_statement() -> None:
    """U and W write one element for i = j alone; W belongs where T has made what it reads."""
    box = "0 <= i < 8 and 0 <= j < 8"
    nest = Nest.of(
        [
            Tensor("x", (8, 8), "float64", "input"),
            Tensor("t", (8, 8), "float64", "temporary"),
            Tensor("y", (8, 8), "float64", "output"),
        ],
        [
            statement(f"{{ T[i, j] : {box} and j >= i }}", "t[i, j] = 2.0 * x[i, j]"),
            statement(f"{{ U[i, j] : {box} and j >= i }}", "y[j, i] = t[i, j]"),
            statement(f"{{ W[i, j] : {box} and j >= i }}", "y[i, j] = t[i, j]"),
        ],
    )
    tiled = Schedule(nest).tile("T", i=4, j=4).fuse("T", "U", at="j").fuse("T", "W", at="j")
    assert [str(loop.date("W")) for loop in tiled.loops("W")][:2] == [
        "{ W[i, j] -> [(floor((i)/4))] }",
        "{ W[i, j] -> [(floor((j)/4))] }",
    ]


def test_what_nobody_reads_is_stored_inside_a_buffers_loop_too() -> None:
    tensors = [
        Tensor("A", (4,), "float64", "input"),
        Tensor("t", (4,), "float64", "temporary"),
        Tensor("O", (4,), "float64", "output"),
    ]
    lines = {"Z": "t[i] = 0", "S": "t[i] = A[i]", "R": "O[i] = t[i]"}
    nest = Nest.of(
        tensors, [statement(f"{{ {name}[i] : 0 <= i < 4 }}", line) for name, line in lines.items()]
    )
    s = Schedule(nest).fuse("S", "R", at="i")
    with pytest.raises(
        InvalidSchedule, match=r"promote: Z accesses t outside of loop .* at a loop around both, or do not"
    ):
        s.promote("t", "S", at="i")
    assert s.fuse("S", "Z", at="i").promote("t", "S", at="i").steps


def between() -> Schedule:
    """A; B; C, of which B reads what A makes, and C what both make."""
    tensors = [Tensor("x", (8,), "float64", "input"), Tensor("y", (8,), "float64", "output")]
    tensors += [Tensor(name, (8,), "float64", "temporary") for name in "ab"]
    lines = {"A": "a[i] = x[i]", "B": "b[i] = 2 * a[7 - i]", "C": "y[i] = a[i] + b[i]"}
    return Schedule(Nest.of(tensors, [statement(f"{{ {n}[i] : 0 <= i < 8 }}", t) for n, t in lines.items()]))


@pytest.mark.parametrize(("first", "second"), [("A", "C"), ("C", "A")])
def test_kernels_that_one_between_keeps_apart_are_refused_without_a_tree(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(IllegalSchedule) as refused:
            between().fuse(first, second, at="i")
        return str(refused.value)

    with monkeypatch.context() as patch:
        patch.setattr(fuse_verbs, "kept_apart", lambda *given: None)
        proven = refusal()
    monkeypatch.delattr(fuse_verbs, "fusions")
    assert refusal() == proven
    with pytest.raises(InvalidSchedule, match="no loop 'j'"):
        between().fuse(first, second, at="j")


def test_a_date_of_many_cases_inside_the_shared_loops_is_not_looked_for_to_the_end() -> None:
    """R's place in a tile of 14 columns, of windows of 32, has seven cases, and takes isl 210,000 operations."""
    tensors = [
        Tensor("x", (4, 4, 32, 64, 64), "float32", "input"),
        Tensor("t", (4, 4, 32, 64), "float32", "temporary"),
        Tensor("y", (256, 128), "float32", "output"),
    ]
    box = "0 <= i < 4 and 0 <= j < 4 and 0 <= m < 32 and 0 <= l < 64"
    nest = Nest.of(
        tensors,
        [
            statement(f"{{ Z[i, j, m, l] : {box} }}", "t[i, j, m, l] = 0"),
            statement(f"{{ S[i, j, m, l, k] : {box} and 0 <= k < 64 }}", "t[i, j, m, l] += x[i, j, m, l, k]"),
            statement(
                "{ R[i, j] : 0 <= i < 256 and 0 <= j < 128 }",
                "y[i, j] = t[i // 64, j // 32, j % 32, i % 64]",
            ),
        ],
    )
    tiled = Schedule(nest).tile("S", m=14, l=32)
    nest.dependences()
    with at_most(nest.context.get_ctx(), 120_000):  # 58,600 with a limit for each date, 239,000 without
        joined = tiled.fuse("S", "R", at="l")
    assert "m_in" not in [loop.name for loop in joined.loops("R")]


def test_a_window_keeps_its_steps_in_the_tile_that_makes_what_it_reads() -> None:
    """In a loop over the numbers that it reads its results would come piece by piece."""
    nest = Nest.of(
        [
            Tensor("x", (16,), "float32", "input"),
            Tensor("w", (2, 2), "float32", "input"),
            Tensor("t", (16,), "float32", "temporary"),
            Tensor("y", (3, 3), "float32", "inout"),
        ],
        [
            statement("{ S[p] : 0 <= p < 16 }", "t[p] = 2 * x[p]"),
            statement(
                "{ R[k, l, m, n] : 0 <= k < 3 and 0 <= l < 3 and 0 <= m < 2 and 0 <= n < 2 }",
                "y[k, l] += w[m, n] * t[4 * (k + m) + l + n]",
            ),
        ],
    )
    joined = Schedule(nest).split("S", "p", 16).fuse("S", "R", at="p")
    assert [loop.name for loop in joined.loops("R")] == ["p", "k", "l", "m", "n"]


def test_what_follows_in_a_tile_keeps_the_loop_over_its_row() -> None:
    """{ R[k, l] -> [4k + l] } tells both dimensions, so that one loop over a row of 16 serves both statements."""
    nest = Nest.of(
        [
            Tensor("x", (16,), "float32", "input"),
            Tensor("t", (16,), "float32", "temporary"),
            Tensor("y", (4, 4), "float32", "output"),
        ],
        [
            statement("{ S[p] : 0 <= p < 16 }", "t[p] = 2 * x[p]"),
            statement("{ R[k, l] : 0 <= k < 4 and 0 <= l < 4 }", "y[k, l] = t[4 * k + l]"),
        ],
    )
    joined = Schedule(nest).split("S", "p", 16).fuse("S", "R", at="p")
    assert [loop.name for loop in joined.loops("R")] == ["p", "p_in"]
