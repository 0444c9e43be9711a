"""Serialise a product and a CPU's machine code: a JSON header and a body of bytes.

A GPU's machine code is kept kernel by kernel (polyfuse.runtime.cuda.cubins).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from polyfuse.analysis.liveness import LiveRange
from polyfuse.codegen.cuda.tensor_maps import BoxMap
from polyfuse.codegen.program import Code, Launch, Program
from polyfuse.ir.tensor import Tensor
from polyfuse.machine import Gpu
from polyfuse.runtime.artifact import Product, Work
from polyfuse.runtime.cpu.native import MachineCode
from polyfuse.runtime.cuda.kernel_times import GpuLimits
from polyfuse.runtime.memory.memory_plan import Memory, Temporaries
from polyfuse.runtime.store.store import Entry, all_of
from polyfuse.strategy.cost.roofline import KernelCost, Tiling
from polyfuse.strategy.explanation import Explanation

Json = dict[str, Any]


def to_header(product: Product, code: MachineCode | None) -> Json:
    """Everything but the object file, which only a program for the CPU has."""
    program, memory = product.program, product.memory
    codes = program.codes
    return {
        "target": program.target,
        "sizes": program.sizes,
        "imports": program.header,
        "codes": [asdict(one) for one in codes],
        "launches": [
            {
                "code": codes.index(launch.code),
                "statements": launch.statements,
                "tensors": launch.tensors,
                "grid": [ast.unparse(extent) for extent in launch.grid],
                "block": [ast.unparse(extent) for extent in launch.block],
                "once": launch.once,
                "untiled": launch.untiled,
                "bounds": launch.bounds,
            }
            for launch in program.launches
        ],
        "memory": asdict(memory),
        "machine": product.machine,
        "work": asdict(product.work),
        "explanation": product.explanation.data(),
        "costs": [asdict(cost) for cost in product.costs],
        "bounds": product.bounds,
        "gpu": None if product.gpu is None else asdict(product.gpu),
        **({} if code is None else _about(code)),
    }


def _about(code: MachineCode) -> Json:
    return {"tensors": code.tensors, "needs": code.needs, "parallel": code.parallel}


def from_entry(entry: Entry) -> tuple[Product, MachineCode | None]:
    """The inverse, with an entry's body as the object file."""
    header = entry.header
    codes = [_code(one) for one in header["codes"]]
    launches = tuple(_launch(one, codes) for one in header["launches"])
    program = Program(header["target"], launches, tuple(header["sizes"]), header["imports"])
    memory = Memory(
        _temporaries(header["memory"]["calls"]),
        _temporaries(header["memory"]["once"]),
        _tensors(header["memory"]["kept"]),
    )
    work, gpu = Work(**all_of(Work, header["work"])), header["gpu"]
    limits = None if gpu is None else _limits(gpu)
    costs, bounds = tuple(map(_cost, header["costs"])), tuple(header["bounds"])
    told = Explanation.of_data(header["explanation"])
    product = Product(program, memory, header["machine"], work, told, costs, bounds, limits)
    if program.target != "cpu":
        return product, None
    tensors, needs = tuple(header["tensors"]), tuple(header["needs"])
    return product, MachineCode(entry.body, tensors, needs, header["parallel"], keepable=True)


def _code(one: Mapping[str, Any]) -> Code:
    maps = tuple(
        BoxMap(**{**all_of(BoxMap, each), "shape": tuple(each["shape"]), "box": tuple(each["box"])})
        for each in one["maps"]
    )
    signature = one["signature"] if isinstance(one["signature"], str) else tuple(one["signature"])
    wide, cluster = tuple(one["wide"]), tuple(one["cluster"])
    return Code(
        **{**all_of(Code, one), "signature": signature, "wide": wide, "maps": maps, "cluster": cluster}
    )


def _launch(one: Mapping[str, Any], codes: list[Code]) -> Launch:
    grid, block = ([ast.parse(text, mode="eval").body for text in one[name]] for name in ("grid", "block"))
    return Launch(
        codes[one["code"]],
        tuple(one["statements"]),
        tuple(one["tensors"]),
        (grid[0], grid[1], grid[2]),
        (block[0], block[1], block[2]),
        one["once"],
        tuple(one["untiled"]),
        tuple(one["bounds"]),
    )


def _limits(found: Json) -> GpuLimits:
    about = all_of(Gpu, found["limits"])
    limits = Gpu(**{**about, "compute_capability": tuple(about["compute_capability"])})
    return GpuLimits(found["sms"], limits)


def _cost(one: Json) -> KernelCost:
    tiling = one["tiling"]
    return KernelCost(
        **{
            **all_of(KernelCost, one),
            "tiling": Tiling(tuple(tiling["sizes"]), tuple(tiling["order"]), tiling["parallel"]),
        }
    )


def _temporaries(found: Json) -> Temporaries:
    lives = tuple(LiveRange(**all_of(LiveRange, life)) for life in found["lives"])
    return Temporaries(_tensors(found["tensors"]), lives, _tensors(found["every"]))


def _tensors(found: list[Json]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(**{**all_of(Tensor, one), "shape": tuple(one["shape"]), "below": tuple(one["below"])})
        for one in found
    )
