"""The kernels of a schedule as loop trees; those that are equal up to names are made once.

mac0 reading x, w0 and mac1 reading a0, w1   ->   one loop tree over x, w; launched on x, w0 and on a0, w1
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.codegen.cpu.intrinsic_table import CALLED
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.codegen.cuda.proofs.register_tiles import device_operations
from polyfuse.codegen.looptree.nodes import Kernel
from polyfuse.codegen.lowering.build import Targets
from polyfuse.codegen.lowering.grid_phases import built_in_parts
from polyfuse.ir.form import Form, form_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, parts, statements

TARGETS = Targets(CALLED | DEVICE_OPS.keys() | {"cuda", "uint16"}, device_operations)
"""What lowering is told of the CPU's and the GPU's printers."""


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
