"""Lower launches in parts: one loop tree for each different part, joined into one.

    for launch in 0: { A(x, w0 -> a0);  grid barrier;  A(a0, w1 -> a1);  grid barrier;  B(a1 -> y) }
    ->  { A(x, w -> a);  Barrier(grid);  A(a, w_2 -> a_2);  Barrier(grid);  B(a_2 -> y) }        A and B are made once

On a GPU the blocks meet between parts. On a CPU the parts are those of a parallel region, whose cores wait in between
without a barrier in the tree.

The loops of a part do not depend on what runs before and behind it, but for the axes of the launch, which are all
parts'. Eight equal layers of 512 x 512 take 0.3 s so, and 1.5 s in one piece (one Zen 5 core).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from polyfuse.analysis.producer_consumer import in_own_warps
from polyfuse.analysis.storage import buffers_of
from polyfuse.codegen.looptree.hardware_axes import Bounds, axes_of, bounds_of
from polyfuse.codegen.looptree.naming import Namer, base, line_of, tensors_of
from polyfuse.codegen.looptree.nodes import Allocate, Barrier, Block, Kernel, Node, block, variables
from polyfuse.codegen.looptree.rename import renamed
from polyfuse.codegen.lowering.build import Targets, built, namer_of
from polyfuse.ir.form import Form, form_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import ON_CORES, Loop, Sequence, Tree, loops, statements
from polyfuse.sets import greatest


def meeting(part: Tree) -> tuple[Tree, ...]:
    """The parts of a launch between which all blocks meet, or all cores wait; nothing for another one."""
    match part:
        case Loop(body=Sequence() as inside) if not (part.bind or part.buffers or part.barrier):
            everywhere = set(range(len(inside.children) - 1))
            once = all(date.is_cst() and greatest(date).is_zero() for _, date in part.dates)
            met = everywhere == {*inside.barriers} == {*inside.grid} and not in_own_warps(part)
            if once and (met or (not inside.barriers and is_region(inside))):
                return inside.children
    return ()


def is_region(tree: Tree) -> bool:
    """True if a tree's cores share out its loops, and nothing is bound to a GPU's places."""
    binds = {loop.bind for loop in loops(tree) if loop.bind is not None}
    return "cores" in binds and not any(bind.on_gpu for bind in binds)


def built_in_parts(nest: Nest, part: Tree, targets: Targets) -> Kernel:
    """A launch as a loop tree, in one piece where neither its blocks nor its cores meet between parts."""
    inside = meeting(part)
    if not inside:
        return built(nest, part, targets)
    names, bounds, namer = statements(part), bounds_of(nest, part), namer_of(nest, targets)
    named = {namer(tensor.name): tensor for tensor in tensors_of(nest, names)}
    held = {buffer.tensor for _, buffer in buffers_of(part)}
    bodies = _bodies(nest, inside, targets, bounds, namer)
    cores = (loop for loop in loops(part) if loop.bind in ON_CORES)
    own = {namer(buffer.tensor) for loop in cores for _, buffer in buffers_of(loop)}

    def is_common(node: Node) -> bool:
        return isinstance(node, Allocate) and node.buffer not in own

    buffers = [node for body in bodies for node in filter(is_common, body)]
    rest = (block(tuple(node for node in body if not is_common(node))) for body in bodies)
    if is_region(part):  # its cores wait without a barrier in the tree
        between = list(rest)
    else:
        _, *between = chain.from_iterable((Barrier(grid=True), body) for body in rest)
    return Kernel(
        name="_".join(dict.fromkeys(map(base, names))),
        statements=names,
        text=tuple(line_of(nest, nest.statement(name), namer) for name in names),
        arrays={inner: tensor for inner, tensor in named.items() if tensor.name not in held},
        sizes=nest.params,
        axes=axes_of(bounds),
        body=block((*buffers, *between)),
    )


def _bodies(
    nest: Nest, parts: tuple[Tree, ...], targets: Targets, bounds: Bounds, namer: Namer
) -> list[tuple[Node, ...]]:
    """The body of each part in the launch's names."""
    made: dict[Form, tuple[Form, tuple[Tensor, ...], Node]] = {}
    found = []
    for part in parts:
        form, own = form_of(nest, part), statements(part)
        if form not in made:
            made[form] = form, tuple(tensors_of(nest, own)), built(nest, part, targets, bounds).body
        first, tensors, body = made[form]
        names = _names(nest, body, first, form, tensors, targets, namer)
        body = renamed(body, names, _statements(first, form, own))
        found.append(body.parts if isinstance(body, Block) else (body,))
    return found


def _statements(first: Form, form: Form, own: tuple[str, ...]) -> Mapping[str, str]:
    """The names of a part's statements, by their names in the part that the kernel was built for."""
    return {
        base(one): base(other) for one, other in zip(first.names, form.names, strict=True) if other in own
    }


def _names(
    nest: Nest,
    body: Node,
    first: Form,
    form: Form,
    tensors: tuple[Tensor, ...],
    targets: Targets,
    namer: Namer,
) -> Mapping[str, str]:
    """The launch's names for the tensors and the variables of a part that was made for an equal one."""
    theirs = dict(zip(first.names, form.names, strict=True))
    own = namer_of(nest, targets)
    names = {own(tensor.name): namer(theirs[tensor.name]) for tensor in tensors}
    steps = {base(one): base(other) for one, other in zip(first.loops, form.loops, strict=True)}
    for variable in sorted(variables(body) - names.keys()):
        names[variable] = fresh(steps.get(variable, variable), namer.taken | {*names.values()})
    return names
