"""Running finished schedules: emitted CPU source as plain Python, by numba, and CUDA source on a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyfuse.analysis.once import once
from polyfuse.codegen.cpu.printer import CpuEmitter
from polyfuse.codegen.generate import kernels, program
from polyfuse.codegen.looptree.nodes import Block, For, Guard, Node
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Sequence, Tree, children, with_children
from polyfuse.runtime.cpu.native import machine_code
from polyfuse.runtime.cpu.runner import CpuProgram
from polyfuse.runtime.emulated.runner import EmulatedProgram
from polyfuse.runtime.interface import Phases
from polyfuse.runtime.memory.memory_plan import Memory, plan_memory, shape_of
from tests.support.plain import plain_names

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def memory(
    nest: Nest, extended: Nest, tree: Tree, inputs: Mapping[str, Array], sizes: dict[str, int]
) -> Arrays:
    """An array for every tensor outside kernels: inputs copied, temporaries in one arena, the rest NaN."""
    found = {name: np.array(array) for name, array in inputs.items()}
    for tensor in nest.with_role("output"):
        found[tensor.name] = np.full(shape_of(tensor, sizes), np.nan)
    plan = plan_memory(nest, extended, tree, sizes)
    arena = np.full(plan.size // 8 + 1, np.nan).view(np.uint8)
    for name, (start, stop) in plan.spans.items():
        tensor = extended.tensor(name)
        found[name] = arena[start:stop].view(tensor.dtype).reshape(shape_of(tensor, sizes))
    return found


def unordered(node: Node) -> Node:
    """The loop tree with vector loops to be run in any order, value by value, as if memory had no caches."""
    match node:
        case Block(parts):
            return Block(tuple(unordered(part) for part in parts))
        case Guard(condition, body, otherwise):
            return Guard(condition, unordered(body), None if otherwise is None else unordered(otherwise))
        case For():
            body = unordered(node.body)
            if node.bind != "vector":
                return replace(node, body=body)
            return replace(node, bind="any order", body=body, ahead=(), streams=())
    return node


class InAnyOrder(CpuEmitter):
    """Prints such loops."""

    def loop(self, node: For) -> list[str]:
        lines = super().loop(replace(node, bind=None) if node.bind == "any order" else node)
        if node.bind != "any order":
            return lines
        # what the loop reads in one place stands before it
        head, shuffled = (f"for {node.variable} in {values}(" for values in ("range", "shuffled"))
        assert any(line.lstrip().startswith(head) for line in lines)
        return [line.replace(head, shuffled, 1) for line in lines]


def run_plain(nest: Nest, tree: Tree, arrays: Arrays, sizes: Mapping[str, int], seed: int) -> str:
    """Run the emitted CPU source as plain Python, cores and vector lanes in random order; the source."""
    every = []
    for kernel in kernels(nest, tree):
        source = InAnyOrder(replace(kernel, body=unordered(kernel.body))).source()
        space = plain_names(seed)
        exec(source, space)
        function: Callable[..., None] = space[kernel.name]
        tensors = [tensor.name for tensor in kernel.arrays.values()]
        passed = [
            arrays[name].reshape(arrays[name].shape or 1) for name in tensors
        ]  # a scalar has one element
        function(*passed, *(sizes[name] for name in kernel.sizes))
        every.append(source)
    return "\n".join(every)


def run_numba(nest: Nest, tree: Tree, arrays: Arrays, sizes: Mapping[str, int]) -> None:
    """Compile and run on the CPU."""
    early = once(nest, tree)
    printed = program(nest, tree, "cpu", early)
    phases = Phases.of(nest, printed, Memory.of(nest, nest, tree, early))
    CpuProgram(machine_code(printed, phases), phases, arrays).run(arrays, sizes)


def run_lockstep(nest: Nest, tree: Tree, arrays: Arrays, sizes: Mapping[str, int]) -> None:
    """Run the CUDA source on the lock-step stand-in, which also finds races and wrong barriers."""
    EmulatedProgram(program(nest, tree, "cuda"), "lockstep").run(arrays, sizes)


def without_gpu(tree: Tree) -> Tree:
    """The tree with its GPU bindings and barriers taken off: the same order, sequential."""
    tree = with_children(tree, tuple(without_gpu(child) for child in children(tree)))
    if isinstance(tree, Loop):
        return replace(
            tree, bind=None if tree.bind and tree.bind.on_gpu else tree.bind, barrier=False, grid=False
        )
    return replace(tree, barriers=(), grid=()) if isinstance(tree, Sequence) else tree
