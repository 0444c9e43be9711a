"""Check that a tree's bindings can be mapped to hardware: rules on the tree's shape, independent of dependences.

kernel ::= block*  rest                          loops over blocks around everything: no block waits for another one
         | (in order | sequence)*  block*  rest    all blocks are there at once, and meet at grid barriers

- loops over a cluster's blocks among those over blocks around everything (analysis/clusters.py)
- no place twice on one path, and no cores beside a GPU's places
- no shared buffer inside a loop over threads: the block has one, and every thread would fill it anew
- no barrier inside a loop over threads, and no grid barrier inside one over blocks: the others would not get there
- one loop in order directly inside a pipeline: its values wait for each other there
- no loop over cores, blocks or threads inside a microkernel or a bulk copy, which are one operation of one thread
- no buffer of several stages at a loop whose values run at once: stages are of iterations in order
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.storage import BLOCKS, LANE, ON_THREADS, buffers_of
from polyfuse.ir.bindings import Binding
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import BULK, ON_CORES, Leaf, Loop, Sequence, Tree, children, parts

ONE_OPERATION = (Binding.MICROKERNEL, *BULK)
"""Bindings of loops that become one operation, with the loops inside."""


def misplaced(tree: Tree) -> str | None:
    """Return the fault in the places of a tree's loops and buffers, as a sentence; None if there is none."""
    return next((fault for kernel in parts(tree) for fault in _faults(kernel, ())), None)


def left_outside(nest: Nest, tree: Tree) -> str | None:
    """Return an access to a buffer's tensor outside of the buffer's loop, as a sentence; None if there is none.

    Even what stores what nobody reads needs memory to store to, and of such a tensor there is the buffer alone.
    """
    for loop, buffer in buffers_of(tree):
        for s in (*nest.writers(buffer.tensor), *nest.readers(buffer.tensor)):
            if s.name not in loop.members:
                return (
                    f"{s.name} accesses {buffer.tensor} outside of loop {loop.name}, inside which it is promoted to a "
                    f"{buffer.memory} buffer; promote {buffer.tensor} at a loop around both, or do not promote it"
                )
    return None


def _faults(tree: Tree, around: tuple[Loop, ...]) -> Iterator[str]:
    inside_threads = [x.name for x in around if x.bind in ON_THREADS]
    if isinstance(tree, Loop):
        yield from _loop_faults(tree, around)
        around = (*around, tree)
        inside_threads += [tree.name] if tree.bind in ON_THREADS else []
        shared = [buffer.tensor for buffer in tree.buffers if buffer.memory == "shared"]
        if shared and inside_threads:
            yield (
                f"{shared[0]} is promoted to shared memory for each iteration of {tree.name}, but threads of "
                f"{inside_threads[0]} run these at the same time; promote around {inside_threads[0]}, or to local "
                "memory"
            )
        staged = [buffer.tensor for buffer in tree.buffers if buffer.stages > 1]
        if staged and tree.bind is not None:
            yield (
                f"{staged[0]} has a stage for each of several consecutive iterations of {tree.name}, which is bound to "
                f"{tree.bind}; promote it without stages, or at a sequential loop"
            )
        if tree.barrier and inside_threads:
            yield f"a barrier at the end of {tree.name} lies inside {inside_threads[0]}, which is bound to threads"
    elif isinstance(tree, Sequence) and tree.barriers and inside_threads:
        yield f"a barrier in a sequence lies inside {inside_threads[0]}, which is bound to threads"
    inside_blocks = [x.name for x in around if x.bind in BLOCKS]
    if not isinstance(tree, Leaf) and tree.grid and inside_blocks:
        yield f"a grid barrier lies inside {inside_blocks[0]}, whose values are blocks: not all of them would get there"
    for child in children(tree):
        yield from _faults(child, around)


def _loop_faults(loop: Loop, around: tuple[Loop, ...]) -> Iterator[str]:
    if loop.bind in (None, "vector", "unroll"):
        return
    for other in around:
        if other.bind in ONE_OPERATION:
            yield (
                f"loop {loop.name} inside {other.name} is bound to {loop.bind}, but {other.bind} makes the loops "
                "inside one operation of one thread"
            )
        if {other.bind, loop.bind} == {LANE, "thread.x"}:
            yield f"loops {other.name} and {loop.name} lie one inside the other, and lanes run along thread.x too"
        if other.bind == loop.bind:
            yield f"loops {other.name} and {loop.name} lie one inside the other and are both bound to {loop.bind}"
        elif (
            other.bind is not None
            and (other.bind.on_gpu or loop.bind.on_gpu)
            and {*ON_CORES} & {other.bind, loop.bind}
        ):
            yield f"loop {other.name} is bound to {other.bind} and {loop.name} to {loop.bind}, which cannot be nested"
        elif {other.bind, loop.bind} <= {*ON_CORES}:
            yield f"loops {other.name} and {loop.name} are nested, but both are bound to cores"
    if loop.bind == "pipeline" and not (isinstance(loop.body, Loop) and loop.body.bind is None):
        yield (
            f"loop {loop.name} is bound to pipeline, but does not directly contain exactly one sequential loop, in "
            "which its iterations could wait"
        )
    if loop.bind in BLOCKS:
        yield from (
            f"loop {loop.name} is bound to {loop.bind}, but {other.name} around it to {other.bind}: only sequential "
            "loops and "
            "loops over blocks may enclose a loop over blocks; interchange first"
            for other in around
            if other.bind not in (None, *BLOCKS)
        )
