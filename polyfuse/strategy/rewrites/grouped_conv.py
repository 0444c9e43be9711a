"""Give the statements around a grouped convolution its loops: over groups, and over the filters of one.

Depthwise ones with channels last have their channels' loop outside, and what surrounds them takes that order too.

    for n, c: zero;  for n, g, f, k: mac: y[n, 4*g + f] += …;  for n, c: bias;  for n, c: relu
    ->  for n, g, f: zero;  for n, g, f, k: mac;  for n, g, f: bias;  for n, g, f: relu

The search over fusions compares loops by their number. So what follows a convolution in groups is fused with it as far
inside as with any other convolution, and the convolution's results can be tiles in registers.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.machine import GpuMachine, Machine
from polyfuse.rewrite import follow, why_not_follow
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cuda.gemm.depthwise import windows_of
from polyfuse.strategy.cuda.gemm.implicit_gemm import convolution_of
from polyfuse.strategy.match.gemm import moved_axes
from polyfuse.strategy.remarks import Remark, applied

PASS = "grouped convolution"


def in_groups(nest: Nest, machine: Machine, choose: Choose = cheapest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest for a GPU with all that is pointwise around convolutions in groups in their loops; and what was done."""
    said: list[Remark] = []
    on_gpu = isinstance(machine, GpuMachine)
    for name in [s.name for s in nest.statements] if on_gpu and not nest.params else ():
        if not _is_in_groups(nest, name) or not choose.asks(PASS, (name,)):
            continue
        leaders, tensors = [name], {nest.statement(name).write.tensor: name}
        for other in statements(nest.order):
            s = nest.statement(other)
            leader = next((tensors[t] for t in s.tensors if t in tensors), None)
            if leader is None or other in leaders or s.is_reduction or len(s.dims) != _rank(nest, leader):
                continue
            if why_not_follow(nest, other, leader) is None:
                done = follow(nest, other, leader)
                nest = done.nest
                leaders.append(other)
                tensors.setdefault(s.write.tensor, other)
        if leaders[1:]:
            names, dims = ", ".join(leaders[1:]), ", ".join(nest.statement(leaders[1]).dims)
            line = f"{names} run in the loops of the results of {name}: {dims}."
            said.append(applied(PASS, leaders[1:], line))
    return nest, tuple(said)


def _rank(nest: Nest, leader: str) -> int:
    """The axes of what a statement writes."""
    return nest.tensor(nest.statement(leader).write.tensor).rank


def _is_in_groups(nest: Nest, name: str) -> bool:
    """True if a statement is a convolution whose results' loops are not their tensor's axes one by one."""
    s = nest.statement(name)
    axes = moved_axes(s.write, len(s.dims))
    if axes is None or (list(axes) == sorted(axes) and len(set(axes.values())) == len(axes)):
        return False
    return convolution_of(nest, name) is not None or windows_of(nest, name) is not None
