"""Random verbs for a schedule, with arguments drawn from what the schedule has."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from polyfuse.ir.tree import Loop, Sequence, loops_around, statements, walk
from polyfuse.schedule import Schedule

AXES = ("block.x", "block.y", "cluster.x", "thread.x", "thread.y")


class Call(NamedTuple):
    """A verb and its arguments."""

    verb: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def on(self, schedule: Schedule) -> Schedule:
        """The schedule after this verb."""
        done: Schedule = getattr(schedule, self.verb)(*self.args, **self.options)
        return done


SIZES = st.integers(1, 4)
COMMON = (
    "tile",
    "split",
    "collapse",
    "separate",
    "interchange",
    "reorder",
    "skew",
    "shift",
    "reverse",
    "fuse",
    "fuse",
    "fuse",
    "sections",
    "distribute",
    "move",
    "affine",
    "microkernel",
)
VERBS = {
    "cpu": (
        *COMMON,
        "bind",
        "bind",
        "unroll",
        "vectorize",
        "promote",
        "promote",
        "pack",
        "prefetch",
        "stream",
    ),
    "cuda": (
        *COMMON,
        "bind",
        "bind",
        "bind",
        "bind",
        "bind",
        "unroll",
        "promote",
        "promote",
        "promote",
        "pack",
    ),
}


@st.composite
def calls(draw: st.DrawFn, schedule: Schedule, target: str) -> Call:
    """A verb that the schedule can be asked for; whether it is legal is for the schedule to say."""
    everything = statements(schedule.tree)
    wanted = draw(st.sampled_from(VERBS[target]))
    if wanted == "fuse" and len(everything) > 1:
        return draw(fusions(schedule))
    if wanted == "sections" and len(everything) > 1:
        pair = draw(st.permutations(everything))[:2]
        return Call("sections", tuple(pair), {"loop": draw(st.sampled_from(("part", "other")))})
    if wanted == "move" and len(everything) > 1:
        statement, behind = draw(st.permutations(everything))[:2]
        return Call("move", (statement,), {"behind": behind})
    if wanted == "distribute":
        return draw(distributions(schedule))
    if wanted == "affine":
        return draw(dates(schedule))
    statement = draw(st.sampled_from(everything))
    around = loops_around(schedule.tree, statement)
    if not around:
        return Call("bind", (statement,), {"i": "cores"})
    return draw(on_loops(schedule, target, wanted, statement, around))


@st.composite
def on_loops(
    draw: st.DrawFn, schedule: Schedule, target: str, wanted: str, statement: str, around: tuple[Loop, ...]
) -> Call:
    """A verb on the loops around one statement."""
    names = [loop.name for loop in around]
    free = [loop.name for loop in around if loop.bind is None] or names
    loop = draw(st.sampled_from(free))
    chain = draw(neighbours(names))
    match wanted:
        case "tile":
            return Call("tile", (statement,), {name: draw(SIZES) for name in chain})
        case "separate":
            return Call("separate", (statement, draw(st.sampled_from(names))), {})
        case "collapse" if len(names) > 1:
            width = draw(st.sampled_from([None, None, 8, 16]))
            return Call("collapse", (statement, *names[-2:]), {} if width is None else {"width": width})
        case "interchange" if len(names) > 1:
            return Call("interchange", (statement, *draw(st.permutations(chain))[:2]), {})
        case "reorder":
            return Call("reorder", (statement, *draw(st.permutations(chain))), {})
        case "skew" if len(names) > 1:
            inner = draw(st.integers(1, len(names) - 1))
            by = names[draw(st.integers(0, inner - 1))]
            factor, per = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (-1, 1), (2, 3), (-1, 2)]))
            return Call("skew", (statement, names[inner]), {"by": by, "factor": factor, "per": per})
        case "shift":
            return Call("shift", (statement, loop, draw(st.sampled_from([1, 2, 3, -1, -2]))), {})
        case "bind":
            place = draw(st.sampled_from(("cores", "dynamic", "pipeline") if target == "cpu" else AXES))
            return Call("bind", (statement,), {loop: place})
        case "microkernel":
            return Call("microkernel", (statement, names[-3] if len(names) > 2 else loop), {})
        case "unroll":
            return Call("unroll", (statement, loop), {})
        case "prefetch":
            tensor = draw(st.sampled_from(schedule.nest.statement(statement).tensors))
            return Call("prefetch", (statement, tensor, names[0]), {})
        case "stream":
            return Call("stream", (statement,), {})
        case "reverse":
            return Call("reverse", (statement, loop), {})
        case "vectorize":
            return Call("vectorize", (statement, free[-1]), {})
        case "promote":
            tensor = draw(st.sampled_from(schedule.nest.statement(statement).tensors))
            memories = ["local", "register", *(["shared"] * 2 if target == "cuda" else [])]
            memory = draw(st.sampled_from(memories))
            at = draw(st.sampled_from(names))
            return Call("promote", (tensor, statement), {"at": at, "memory": memory})
        case "pack":
            tensor = draw(st.sampled_from(schedule.nest.statement(statement).tensors))
            axis = draw(st.integers(0, max(0, schedule.nest.tensor(tensor).rank - 1)))
            return Call("pack", (tensor, statement), {"panel": (axis, draw(st.integers(2, 5)))})
    return Call("split", (statement, loop, draw(SIZES)), {})


@st.composite
def placements(draw: st.DrawFn, schedule: Schedule) -> list[Call]:
    """Binds of most statements' outer loops to blocks and inner ones to threads, in an order that can succeed."""
    found = []
    for axis in (
        "block.x",
        *(("cluster.x",) if draw(st.sampled_from([False, False, True])) else ()),
        "thread.x",
        "thread.y",
    ):
        for statement in statements(schedule.tree):
            around = [loop.name for loop in loops_around(schedule.tree, statement) if loop.bind is None]
            if around and draw(st.sampled_from([True, True, False])):
                outer = axis == "block.x" and draw(st.sampled_from([True, True, False]))
                loop = around[0] if outer else draw(st.sampled_from(around))
                found.append(Call("bind", (statement,), {loop: axis}))
    return found


@st.composite
def neighbours(draw: st.DrawFn, names: list[str]) -> list[str]:
    """Some consecutive names, two or more where there are two."""
    length = draw(st.integers(min(2, len(names)), len(names)))
    start = draw(st.integers(0, len(names) - length))
    return names[start : start + length]


@st.composite
def fusions(draw: st.DrawFn, schedule: Schedule) -> Call:
    """fuse two statements that do not share all their loops, at some loop of the first, shifted or not."""
    first, second = draw(st.permutations(statements(schedule.tree)))[:2]
    around = [loop.name for loop in loops_around(schedule.tree, first)] or ["i"]
    at = draw(st.sampled_from(around))
    options: dict[str, Any] = {"at": at}
    if draw(st.sampled_from([False, False, True])):
        options["shift"] = {draw(st.sampled_from(around[: around.index(at) + 1])): draw(st.integers(-1, 3))}
    return Call("fuse", (first, second), options)


@st.composite
def distributions(draw: st.DrawFn, schedule: Schedule) -> Call:
    """distribute a loop whose body is a sequence, if there is one."""
    wide = [x for x in walk(schedule.tree) if isinstance(x, Loop) and isinstance(x.body, Sequence)]
    found = wide or [x for x in walk(schedule.tree) if isinstance(x, Loop)]
    if not found:
        return Call("distribute", (statements(schedule.tree)[0], "i"), {})
    loop = draw(st.sampled_from(found))
    return Call("distribute", (statements(loop)[0], loop.name), {})


@st.composite
def dates(draw: st.DrawFn, schedule: Schedule) -> Call:
    """affine for all statements of one loop: their own dimensions, now and then permuted or skewed, then a position."""
    found = [x for x in walk(schedule.tree) if isinstance(x, Loop)]
    if not found:
        return Call("affine", (), {statements(schedule.tree)[0]: "[0]"})
    loop = draw(st.sampled_from(found))
    names = statements(loop)
    outer = loops_around(schedule.tree, names[0]).index(loop)
    own = {name: schedule.nest.statement(name).dims[outer:] for name in names}
    length = max(map(len, own.values()))
    order = draw(st.one_of(st.just(names), st.permutations(names)))
    given: dict[str, Any] = {}
    for position, name in enumerate(order):
        dims = draw(st.one_of(st.just(own[name]), st.permutations(own[name])))
        parts = [draw(date(list(dims[: at + 1]))) for at in range(len(dims))]
        given[name] = f"[{', '.join([*parts, *['0'] * (length - len(dims)), str(position)])}]"
    return Call("affine", (), given)


@st.composite
def date(draw: st.DrawFn, dims: list[str]) -> str:
    """The last of some dimensions, as it is, backwards, later, or skewed by another."""
    last = dims[-1]
    choices = [last, last, f"-{last}", f"{last} + {draw(st.integers(1, 2))}"]
    if len(dims) > 1:
        choices += [f"{last} + {dims[0]}", f"{last} + 2 * {dims[-2]}"]
    return draw(st.sampled_from(choices))
