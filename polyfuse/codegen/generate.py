"""Generate source for a whole schedule: its kernels as loop trees, printed for a target, alpha-equal ones once.

mac0 reading x, w0 and mac1 reading a0, w1   ->   one loop tree over x, w; launched on x, w0 and on a0, w1
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from polyfuse.codegen.cpu import intrinsic_table as operations
from polyfuse.codegen.cpu import printer as cpu
from polyfuse.codegen.cuda import printer as cuda
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.codegen.cuda.proofs.register_tiles import device_operations
from polyfuse.codegen.looptree.alpha_equal import canonical
from polyfuse.codegen.looptree.bounds_as_arguments import (
    Bounded,
    alike,
    operations_called,
    with_bounds_as_arguments,
)
from polyfuse.codegen.looptree.data_bounds import with_data_bounds
from polyfuse.codegen.looptree.naming import base
from polyfuse.codegen.looptree.nodes import Kernel
from polyfuse.codegen.lowering.build import Targets
from polyfuse.codegen.lowering.grid_phases import built_in_parts
from polyfuse.codegen.program import Code, Launch, Program, Target
from polyfuse.ir.form import Form, form_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, loops, parts, statements

TARGETS = Targets(operations.CALLED | DEVICE_OPS.keys() | {"cuda", "uint16"}, device_operations)
"""The facts about the CPU's and the GPU's printers that lowering needs."""


def kernels(nest: Nest, tree: Tree) -> tuple[Kernel, ...]:
    """One loop tree per part of the tree's outermost sequence: what one launch runs."""
    made: dict[Form, tuple[Form, Kernel]] = {}
    found = []
    for part in parts(tree):
        form = form_of(nest, part)
        if form not in made:
            made[form] = form, built_in_parts(nest, part, TARGETS)
        first, kernel = made[form]
        found.append(kernel if first is form else _of_others(kernel, first, form, nest, part))
    return tuple(found)


def _of_others(kernel: Kernel, first: Form, form: Form, nest: Nest, part: Tree) -> Kernel:
    """The first part's kernel for the statements and tensors of another one."""
    theirs = dict(zip(first.names, form.names, strict=True))
    arrays = {inner: nest.tensor(theirs[tensor.name]) for inner, tensor in kernel.arrays.items()}
    return replace(kernel, statements=statements(part), arrays=arrays)


def program(nest: Nest, tree: Tree, target: Target, early: tuple[bool, ...] | None = None) -> Program:
    """Print every kernel of a tree; equal ones once. Names are unique: a second, different `mac` is `mac_2`.

    `early` says of each kernel whether it runs once for all calls (polyfuse.analysis.once); without it none does.
    """
    codes: dict[tuple[object, ...], Code] = {}
    launches = []
    made = kernels(nest, tree)
    runs_once = early or (False,) * len(made)
    different = {_without_names(kernel): kernel for kernel in made}
    known = {own: _printed(with_data_bounds(kernel), target) for own, kernel in different.items()}
    in_calls = {_without_names(kernel) for kernel, once in zip(made, runs_once, strict=True) if not once}
    shared = _sharing(different, known, in_calls) if target == "cpu" else {}
    products = {name for loop in loops(tree) if loop.bind == "microkernel" for name in statements(loop)}
    for kernel, is_early in zip(made, runs_once, strict=True):
        own = _without_names(kernel)
        (code, grid, block, untiled, key), bounds = shared.get(own, (known[own], ()))
        if key not in codes:
            taken = {*TARGETS.called, *(known.name for known in codes.values())}
            codes[key] = _renamed(code, fresh(code.name, taken))
        tensors = tuple(tensor.name for tensor in kernel.arrays.values())
        plain = tuple(name for name in kernel.statements if name in products and base(name) in untiled)
        launches.append(Launch(codes[key], kernel.statements, tensors, grid, block, is_early, plain, bounds))
    sources = "\n".join(code.source for code in codes.values())
    header = (operations if target == "cpu" else cuda).header(sources)
    return Program(target, tuple(launches), nest.params, header)


def _without_names(kernel: Kernel) -> tuple[object, ...]:
    """All that a kernel's source depends on: its loop tree, which equal kernels share, and its arrays as they are."""
    arrays = (replace(tensor, name=inner) for inner, tensor in kernel.arrays.items())
    return id(kernel.body), kernel.name, kernel.sizes, *arrays


Extents = tuple[ast.expr, ast.expr, ast.expr]
_ONE: Extents = (ast.Constant(1), ast.Constant(1), ast.Constant(1))


Printed = tuple[Code, Extents, Extents, tuple[str, ...], tuple[object, ...]]
"""The code, the grid and the block, what microkernels are plain loops on a GPU, by names in the code, and a key that
codes with other names for their variables share."""


def _printed(kernel: Kernel, target: Target) -> Printed:
    """A kernel's code, and how it is launched."""
    if target == "cpu":
        on_cpu = cpu.cpu_kernel(kernel)
        code = Code(on_cpu.name, on_cpu.source, on_cpu.signature, on_cpu.parallel)
        return code, _ONE, _ONE, (), _key(code)
    on_gpu = cuda.cuda_kernel(kernel)
    code = Code(
        on_gpu.name,
        on_gpu.source,
        on_gpu.signature,
        registers=on_gpu.registers,
        shared_bytes=on_gpu.shared_bytes,
        wide=on_gpu.wide,
        grid_barriers=on_gpu.grid_barriers,
        maps=on_gpu.maps,
        cluster=on_gpu.cluster,
    )
    return code, on_gpu.grid, on_gpu.block, on_gpu.untiled, _key(code)


def _key(code: Code) -> tuple[object, ...]:
    return canonical(code.source), code.signature, code.parallel, code.maps, code.cluster


def _sharing(
    different: Mapping[tuple[object, ...], Kernel],
    known: Mapping[tuple[object, ...], Printed],
    in_calls: Collection[tuple[object, ...]],
) -> dict[tuple[object, ...], tuple[Printed, tuple[int, ...]]]:
    """Kernels that share code with others once bounds are arguments: that code, and their bounds.

    Only where the printer finds the same operations without knowing the bounds. Those `in_calls` run in every call,
    whether or not an equal one runs once. Kernels that share nothing so are tried with strides as arguments, too.
    """
    shared = _shared_by(different, known, in_calls, strides=False)
    rest = {own: kernel for own, kernel in different.items() if own not in shared}
    return shared | _shared_by(rest, known, in_calls, strides=True)


def _shared_by(
    different: Mapping[tuple[object, ...], Kernel],
    known: Mapping[tuple[object, ...], Printed],
    in_calls: Collection[tuple[object, ...]],
    strides: bool,
) -> dict[tuple[object, ...], tuple[Printed, tuple[int, ...]]]:
    """Kernels that share code, and their last arguments."""
    bounded = {
        own: found
        for own, kernel in different.items()
        if (found := with_bounds_as_arguments(with_data_bounds(kernel), own not in in_calls, strides))
        is not None
    }
    forms = alike(tuple(bounded.values()))
    groups: dict[tuple[object, ...], dict[tuple[object, ...], tuple[Printed, Bounded]]] = {}
    for own, each in bounded.items():
        if each.form not in forms:
            continue
        printed = _printed(each.kernel, "cpu")
        if operations_called(printed[0].source) == operations_called(known[own][0].source):
            groups.setdefault((*printed[-1], own not in in_calls), {})[own] = printed, each
    return {
        own: ((*printed[:-1], (*printed[-1], once)), each.values)
        for (*_, once), group in groups.items()
        if len({each.values for _, each in group.values()}) > 1
        for own, (printed, each) in group.items()
    }


def _renamed(code: Code, name: str) -> Code:
    if name == code.name:
        return code
    names = (
        rf"^def {code.name}(?=\()|(?<![\w.]){code.name}(?=_(part|phase|cores|row)(_\d+)?\b)"  # not math.exp
    )
    source = re.sub(names, lambda found: found[0].replace(code.name, name), code.source, flags=re.M)
    return replace(code, name=name, source=source)
