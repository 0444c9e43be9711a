"""A CUDA kernel's source text to machine code, on any machine: no GPU, no driver, nothing launched.

    text -> Python function -> LLVM IR (numba.cuda) -> PTX (NVVM) -> cubin (nvJitLink)

The compiler's own report gives registers, spills and shared memory. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from polyfuse.codegen.cuda.cluster_axes import ALONE, CAPABILITY
from polyfuse.codegen.cuda.compile.canonical_loops import counted
from polyfuse.codegen.cuda.compile.dynamic_shared import declared_shared, with_dynamic_shared
from polyfuse.codegen.cuda.compile.narrow_indices import in_short
from polyfuse.codegen.cuda.compile.outlining import in_called_parts
from polyfuse.codegen.cuda.compile.ptx.ptx_passes import rewritten_ptx
from polyfuse.codegen.cuda.device_ops import DeviceOp, by_position, called_in
from polyfuse.codegen.cuda.kernel_arguments import CONST, pointee
from polyfuse.codegen.cuda.tensor_maps import KIND, MAP_ALIGNMENT, MAP_BYTES
from polyfuse.codegen.operator_types import registry_for
from polyfuse.errors import PolyfuseError, TargetUnavailable
from polyfuse.ir.number_types import HELD_TYPES

SCALARS = HELD_TYPES


class BuildFailure(PolyfuseError):
    """numba or NVIDIA's tools refused a kernel; the cause is chained."""


class OtherInstructions(TargetUnavailable):
    """A kernel's instructions are those of another GPU than the one it is built for."""


@dataclass(frozen=True)
class Cubin:
    """One kernel as machine code, with what its compiler said of it."""

    entry: str  # name to load the kernel by
    arch: str  # "sm_90"
    registers: int  # per thread
    spill_stores: int  # bytes per thread
    spill_loads: int  # bytes per thread
    shared_bytes: int  # per block, as declared; the hardware may reserve more
    dynamic_bytes: int  # of these, what a launch has to ask for: all where a kernel may not declare so many
    code: bytes = field(repr=False)
    ptx: str = field(repr=False)


def build(
    source: str,
    name: str,
    signature: tuple[str, ...],
    cc: tuple[int, int] = (9, 0),
    launch_bounds: int | tuple[int, ...] | None = None,
    max_registers: int | None = None,
    path: Path | None = None,
    cluster: tuple[int, int, int] = ALONE,
    count_passes: bool = False,
) -> Cubin:
    """Compiles kernel `name` of `source`; 0.3 s for a small kernel, 1.2 s for the first of a process.

    `signature` has one entry a parameter: "float32*" is the address of float32 elements, "const float32*" of some that
    the kernel only reads, "int64" a number.
    `launch_bounds` is the most threads a block will have, or (threads, least blocks per multiprocessor).
    So many blocks along each axis are a `cluster`, in each launch.
    With `count_passes` addresses follow from loops' variables alone, in all loops (canonical_loops.py);
    without, for registers that are planned, PTX_PASSES rewrite the loops of products (ptx_passes.py).
    The source imports what it calls, as `polyfuse.codegen.cuda.printer.header` says. `path` is where it lies, for
    messages and tracebacks to show its lines.

    Raises BuildFailure if the source does not compile, TargetUnavailable where the extra is missing,
    OtherInstructions, which is one, where the kernel's are those of another GPU.
    """
    with extra_needed():
        from numba.cuda.core.compiler_lock import global_compiler_lock
        from numba.cuda.descriptor import cuda_target

    arch = f"sm_{cc[0]}{cc[1]}"
    parts: dict[object, Any] = {}
    try:
        function = _function(source, name, path, cc, parts, count_passes)
        with global_compiler_lock:  # numba's compiler is not safe in several threads at once
            cuda_target.typing_context.install_registry(_operators())
            ptx = _ptx(function, name, signature, cc, launch_bounds, max_registers)
        ptx = with_maps_by_value(ptx, name, [p for p, kind in enumerate(signature) if kind == KIND])
        sizes = declared_shared(ptx)
        ptx, dynamic = with_dynamic_shared(ptx)
        ptx, arch = for_warpgroups(in_clusters(ptx, name, cluster, cc), arch)
        certain, every = (ptx, ptx) if count_passes else rewritten_ptx(ptx)
        ptx, code, log = _with_least_spills(certain, every, name, arch, max_registers)
    except TargetUnavailable:
        raise
    except Exception as error:  # whatever numba, NVVM or nvJitLink raise: each has a family of its own
        where = f" ({path})" if path else ""
        raise BuildFailure(f"kernel {name!r}{where} does not compile for {arch}: {error}") from error
    finally:
        parts.clear()  # numba keeps every intrinsic, and with it what it refers to
    return _cubin(name, arch, code, ptx, log, dynamic or sum(sizes.values()), dynamic)


def with_maps_by_value(ptx: str, name: str, positions: list[int]) -> str:
    r"""PTX whose arguments at some positions are a tensor's map each, of which the kernel knows the address.

    >>> ptx = ".param .u64 k_param_1\n ld.param.u64 %rd2, [k_param_1];\n"
    >>> print(with_maps_by_value(ptx, "k", [1]))
    .param .align 64 .b8 k_param_1[128]
     mov.b64 %rd2, k_param_1;
     cvta.param.u64 %rd2, %rd2;
    <BLANKLINE>
    """
    for position in positions:
        parameter = f"{name}_param_{position}"
        ptx = re.sub(
            rf"\.param \.[ub]64 {parameter}\b",
            f".param .align {MAP_ALIGNMENT} .b8 {parameter}[{MAP_BYTES}]",
            ptx,
        )
        ptx = re.sub(
            rf"^(\s*)ld\.param\.[ub]64\s+(%\w+), \[{parameter}\];",
            rf"\1mov.b64 \2, {parameter};\n\1cvta.param.u64 \2, \2;",
            ptx,
            flags=re.MULTILINE,
        )
        if f"[{parameter}]" in ptx:
            raise BuildFailure(f"a tensor's map is read as a number: parameter {position} of {name}")
    return ptx


def in_clusters(ptx: str, name: str, cluster: tuple[int, int, int], cc: tuple[int, int]) -> str:
    r"""PTX of a kernel whose every launch is in clusters of so many blocks along each axis (PTX ISA, "Cluster
    Dimension Directives").

    >>> print(in_clusters(".entry k(\n .param .u64 k_param_0\n)\n.maxntid 32", "k", (2, 1, 1), (9, 0)))
    .entry k(
     .param .u64 k_param_0
    )
    .explicitcluster
    .reqnctapercluster 2, 1, 1
    .maxntid 32
    """
    if cluster == ALONE:
        return ptx
    if cc < CAPABILITY:
        raise OtherInstructions(
            f"kernel {name} has clusters of blocks, which GPUs have from compute capability 9.0 on, and this is "
            f"{cc[0]}.{cc[1]}"
        )
    extents = ", ".join(map(str, cluster))
    parted = re.sub(
        rf"(\.entry {name}\([^)]*\))", rf"\1\n.explicitcluster\n.reqnctapercluster {extents}", ptx, count=1
    )
    if parted == ptx:
        raise BuildFailure(f"the parameters of kernel {name} are not found in its PTX")
    return parted


def for_warpgroups(ptx: str, arch: str) -> tuple[str, str]:
    r"""PTX with a warpgroup's instructions is for sm_90a, which has them and runs on compute capability 9.0 alone.

    >>> for_warpgroups(".target sm_90\nwgmma.fence.sync.aligned;", "sm_90")[1]
    'sm_90a'
    """
    if "wgmma." not in ptx:
        return ptx, arch
    if arch != "sm_90":
        raise OtherInstructions(
            f"a warpgroup's instructions, wgmma, are those of sm_90a and of no other GPU, and this is {arch}"
        )
    return re.sub(r"^\.target sm_90\b", ".target sm_90a", ptx, flags=re.MULTILINE), "sm_90a"


@contextmanager
def extra_needed() -> Iterator[None]:
    """Says which extra to install where one of its packages is missing."""
    try:
        yield
    except ImportError as error:
        raise TargetUnavailable(
            f"compiling for CUDA needs {error.name}: pip install polyfuse[cuda]"
        ) from error


def _function(
    source: str,
    name: str,
    path: Path | None,
    cc: tuple[int, int],
    parts: dict[object, Any],
    count_passes: bool,
) -> Callable[..., None]:
    """The kernel; what numba makes of the functions of its parts goes to `parts` (outlining.py)."""
    from numba import int32, int64, uint32

    _check_has(called_in(source), name, cc)
    # the source imports what it calls; these are what indices in fewer bits are converted by (narrow_indices.py)
    namespace: dict[str, Any] = {"int32": int32, "int64": int64, "uint32": uint32}
    module = ast.parse(source)
    at, kernel = next(
        (at, node)
        for at, node in enumerate(module.body)
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    apart = in_called_parts(in_short(by_position(kernel)))
    made = [*apart.functions, apart.kernel]
    module.body[at : at + 1] = [counted(each, waiting=not count_passes) for each in made]
    exec(compile(module, str(path or f"<kernel {name}>"), "exec"), namespace)
    if apart.functions:
        from polyfuse.codegen.cuda.compile.inlined_functions import inlined

        names = [function.name for function in apart.functions]
        namespace |= {part: inlined(namespace[part], cc, parts) for part in names}
    function: Callable[..., None] = namespace[name]
    return function


def _check_has(called: tuple[DeviceOp, ...], name: str, cc: tuple[int, int]) -> None:
    """Raises OtherInstructions if a GPU lacks an operation that a kernel calls; the newest one is named."""
    lacking = [op for op in called if not op.is_on(cc)]
    if lacking:
        op = max(lacking, key=lambda each: each.requires)
        which = "of no other GPU" if op.requires.endswith("a") else "of later GPUs"
        raise OtherInstructions(
            f"kernel {name} calls {op.name}, an operation of {op.requires} and {which}, and this is sm_{cc[0]}{cc[1]}"
        )


@cache
def _operators() -> Any:
    from numba.cuda.typing import templates

    return registry_for("cuda", templates)


def _ptx(
    function: Callable[..., None],
    name: str,
    signature: tuple[str, ...],
    cc: tuple[int, int],
    launch_bounds: int | tuple[int, ...] | None,
    max_registers: int | None,
) -> str:
    from numba.cuda import types
    from numba.cuda.compiler import compile_cuda, kernel_fixup
    from numba.cuda.cudadrv import nvvm

    # numba's ordinary way (cuda.jit, or cuda.compile for a kernel) asks the current device, which there is
    # none of; these are the steps it takes underneath.
    compiled = compile_cuda(
        function,
        types.void,
        tuple(_type(text) for text in signature),
        nvvm_options={"opt": 3},
        cc=cc,
        max_registers=max_registers,
    )
    kernel = compiled.library.get_function(compiled.fndesc.llvm_func_name)
    kernel_fixup(kernel, False)
    for argument, text in zip(kernel.args, signature, strict=True):
        if text.startswith(CONST):  # kernel_arguments.py says why
            argument.add_attribute("noalias")
    nvvm.set_launch_bounds(kernel, launch_bounds)
    ptx: str = compiled.library.get_asm_str(cc=cc)
    # numba's mangled names count the compilations of this process: replaced, equal source gives equal code.
    # Its environment pointer is for exceptions, which a kernel cannot raise.
    ptx = re.sub(r"^\.common \.global .*NumbaEnv.*\n", "", ptx, flags=re.MULTILINE)
    return ptx.replace(kernel.name, name)


def _type(text: str) -> Any:
    from numba.cuda import types

    scalar = pointee(text).replace(KIND, "int64")
    if scalar not in SCALARS:
        raise ValueError(
            f"signature entry {text!r}; expected is one of {', '.join(SCALARS)}, with * or without"
        )
    kind = getattr(types, scalar)
    return types.CPointer(kind) if text.endswith("*") else kind


def report(entry: str, log: str) -> tuple[int, int, int]:
    """A kernel's registers, and the bytes of its spills, stored and loaded, in what a linker says of it.

    nvJitLink counts both; the driver's own linker, which cuda.core takes too, counts local memory as a whole.
    """
    registers = [int(n) for n in re.findall(r"[Uu]sed (\d+) registers", log)]
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    spills = spills or [(n, n) for n in re.findall(r"(\d+) bytes lmem", log)]
    if not registers or not spills:
        raise BuildFailure(f"the linker's report on {entry!r} names no registers or spills: {log!r}")
    return max(registers), sum(int(stores) for stores, _ in spills), sum(int(loads) for _, loads in spills)


def _with_least_spills(
    certain: str, every: str, name: str, arch: str, max_registers: int | None
) -> tuple[str, bytes, str]:
    """(PTX, machine code, the linker's report) after `every` pass, or the `certain` ones where these spill less."""
    code, log = _linked(every, name, arch, max_registers)
    if every != certain and any(report(name, log)[1:]):
        before, said = _linked(certain, name, arch, max_registers)
        if sum(report(name, said)[1:]) < sum(report(name, log)[1:]):
            return certain, before, said
    return every, code, log


def _linked(ptx: str, name: str, arch: str, max_registers: int | None) -> tuple[bytes, str]:
    with extra_needed():
        from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=arch, verbose=True, max_register_count=max_registers)
    linker = Linker(ObjectCode.from_ptx(ptx.encode(), name=name), options=options)
    code = bytes(linker.link("cubin").code)
    return code, linker.get_info_log() or ""


def _cubin(
    entry: str, arch: str, code: bytes, ptx: str, log: str, shared_bytes: int, dynamic_bytes: int
) -> Cubin:
    registers, stores, loads = report(entry, log)
    return Cubin(
        entry=entry,
        arch=arch,
        registers=registers,
        spill_stores=stores,
        spill_loads=loads,
        shared_bytes=shared_bytes,
        dynamic_bytes=dynamic_bytes,
        code=code,
        ptx=ptx,
    )
