"""Machine code: compile a program's kernels and entry into one object file, and load such a file.

    Program -> numba: one LLVM module -> object file -> loaded by LLVM -> a built-in function of CPython

The object file is all that a second process needs: it names the symbols it takes from numba's runtime and from Python,
holds no address, and is loaded without numba's compiler. It is therefore what the cache keeps.
"""

from __future__ import annotations

import ctypes
import linecache
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import FunctionPassManager, ModulePassManager, NewPassManager
from numba.core import sigutils
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.typing import templates

from polyfuse.codegen.cpu.intrinsic_table import header
from polyfuse.codegen.cpu.intrinsics.interleave import ask_for_vectors
from polyfuse.codegen.cpu.intrinsics.parallel_parts import Part, Relay, lowered, referred
from polyfuse.codegen.cpu.parallel_calls import start_threads
from polyfuse.codegen.operator_types import registry_for
from polyfuse.codegen.program import Code, Program
from polyfuse.runtime.cpu.entry import AS_WRITTEN, REPEATED, Call, Held, Lowered, add_entry
from polyfuse.runtime.cpu.threading_layer import use_openmp
from polyfuse.runtime.interface import ENTRY, Phases
from polyfuse.runtime.store.files import source_file

METH_FASTCALL = 0x80
"""CPython passes a function's arguments as a C array."""


@dataclass(frozen=True)
class MachineCode:
    """An object file with two entries over some tensors, the symbols it needs, and whether it starts threads."""

    object: bytes
    tensors: tuple[str, ...]
    needs: tuple[str, ...]
    parallel: bool
    keepable: bool
    """True if it means the same in another process."""


class _ModulePasses(ModulePassManager):
    """LLVM's passes over a module, which are given back.

    llvmlite (0.50) never frees a pass manager: the `_dispose` that would comes behind ObjectRef's, which does nothing.
    A compile kept 0.16 MB for each module that it optimised, and more for each function.
    """

    _dispose = NewPassManager._dispose


class _FunctionPasses(FunctionPassManager):
    """LLVM's passes over a function, which are given back."""

    _dispose = NewPassManager._dispose


class _ObjectFile(AOTCodeLibrary):
    """numba's library of functions. First passes are made once: numba makes them for each function again."""

    with_lines = False
    """True if its functions get tables of source lines."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._first_passes, self._builder = codegen._function_pass_manager()

    def add_ir_module(self, ir_module: Any) -> None:
        ask_for_vectors(ir_module)
        super().add_ir_module(ir_module)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not (function.is_declaration or _is_as_written(function)):
                self._first_passes.run(function, self._builder)


NO_SCATTERS = "+prefer-no-scatter"
"""LLVM stores one by one what its vectors would scatter: an update of 512 x 512 x 3 x 3 weights, 54 numbers of each
of 64 rows at a time, took 8.05 ms by scatters on two cores of a Zen 5, and takes 1.24. Eleven kernels of PolyBench
that differ without scatters or gathers take the same time within 6 %."""


class _ObjectFiles(JITCPUCodegen):
    """numba's compiler for this very processor, which keeps nothing of what it has made.

    numba's own adds each module to an engine that lives as long as the process: half a MB for two layers.
    """

    _library_class = _ObjectFile

    def _customize_tm_features(self) -> str:
        """The processor's features, without scatters where LLVM makes vectors of loops."""
        known = super()._customize_tm_features()
        more = NO_SCATTERS if llvm.get_process_triple().startswith("x86_64") else ""
        return ",".join(filter(None, (known, more)))

    def _module_pass_manager(self, **options: Any) -> tuple[ModulePassManager, Any]:
        passes, builder = super()._module_pass_manager(**options)
        passes.__class__ = _ModulePasses
        return passes, builder

    def _function_pass_manager(self, **options: Any) -> tuple[FunctionPassManager, Any]:
        passes, builder = super()._function_pass_manager(**options)
        passes.__class__ = _FunctionPasses
        return passes, builder

    def _add_module(self, module: Any) -> None:
        pass


def _is_as_written(function: Any) -> bool:
    """True if no pass is to change a function; those over a module know."""
    return any(AS_WRITTEN[-1].encode() in attributes for attributes in function.attributes)


@cache
def _codegen() -> Any:
    return _ObjectFiles("polyfuse")


@cache
def _operators() -> Any:
    return registry_for("cpu", templates)


@global_compiler_lock
def machine_code(program: Program, phases: Phases, timed: bool = False) -> MachineCode:
    """Compile a program's kernels and its entries; with `timed` that of calls notes when each kernel ends."""
    use_openmp()
    cpu_target.typing_context.refresh()
    cpu_target.typing_context.install_registry(_operators())
    cpu_target.target_context.refresh()
    context = cpu_target.target_context
    library = _codegen().create_library(ENTRY)
    codes = {code.name: _lowered(code, library) for code in program.codes}
    module = library.create_ir_module(ENTRY)
    launched = Counter[str]()
    for name, phase in phases.entries:
        calls = [Call(codes[launch.name][0], launch.tensors, launch.bounds) for launch in phase.launches]
        add_entry(context, module, name, phase.interface, calls, timed and name == ENTRY)
        launched.update(call.kernel.symbol for call in calls)
    library.add_ir_module(module)
    for symbol, times in launched.items():
        if times >= REPEATED:
            library.get_function(symbol).add_function_attribute("noinline")
    # else LLVM keeps a copy for others to call beside the one in the entry
    for symbol in chain.from_iterable(functions for _, functions in codes.values()):
        library.get_function(symbol).linkage = "internal"
    code = library.emit_native_object()
    needs = _outside(library._final_module)
    parallel = any(code.parallel for code in program.codes)
    return MachineCode(code, phases.names, needs, parallel, not library.has_dynamic_globals)


@global_compiler_lock
def assembly_text(code: Code, with_lines: bool = True) -> tuple[str, int]:
    """Return a kernel's assembly with the line of each instruction, and the number of lines before its source.

    The kernel is compiled once more, by itself, with tables of source lines.

    Args:
        code: The kernel.
        with_lines: Make these tables.
    """
    use_openmp()
    cpu_target.typing_context.refresh()
    cpu_target.typing_context.install_registry(_operators())
    cpu_target.target_context.refresh()
    library = _codegen().create_library(code.name)
    library.with_lines = with_lines
    _lowered(code, library)
    library.finalize()
    text = _codegen()._tm.emit_assembly(library._final_module)
    return text, len(header(code.source).split("\n")) + 1


def _lowered(code: Code, library: Any) -> tuple[Lowered, list[str]]:
    """A kernel as LLVM in a library, and all its functions there; its source lies in a file for tracebacks."""
    text = f"{header(code.source)}\n\n{code.source}"
    space: dict[str, Any] = {}
    file = str(source_file(code.name, text))
    exec(compile(text, file, "exec", dont_inherit=True), space)
    arguments, _ = sigutils.normalize_signature(str(code.signature))
    function = space[code.name]
    if isinstance(function, Relay):
        function, arguments = function.function, referred(arguments)
    # vector rows are read from it, also where no file is kept
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    try:
        kernel = lowered(function, arguments, library).llvm_func_name
    finally:
        del linecache.cache[file]
    parts = (one for one in space.values() if isinstance(one, Part))
    return Lowered(kernel, arguments), [
        kernel,
        *(symbol for part in parts for symbol in part.symbols(library)),
    ]


def _outside(module: Any) -> tuple[str, ...]:
    """The symbols a module uses and does not define; LLVM's own operations are none."""
    every = (*module.functions, *module.global_variables)
    return tuple(one.name for one in every if one.is_declaration and not one.name.startswith("llvm."))


def missing_symbols(code: MachineCode) -> tuple[str, ...]:
    """The symbols that machine code needs and this process does not have; numba's runtime is started for it."""
    rtsys.initialize(cpu_target.target_context)
    if code.parallel:
        use_openmp()
        start_threads()
    return tuple(name for name in code.needs if llvm.address_of_symbol(name) is None)


class Library:
    """Machine code loaded into this process."""

    def __init__(self, code: MachineCode) -> None:
        absent = missing_symbols(code)
        assert not absent, f"LLVM would end the process: there is no {', '.join(absent)}"
        target = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code.object))
        self._engine.finalize_object()
        self._definitions: dict[str, _MethodDef] = {}

    def function(self, entry: str, held: Held) -> Callable[..., Any]:
        """An entry as a built-in function; `held` is its own, and has to keep this library alive."""
        if entry not in self._definitions:
            address = self._engine.get_function_address(entry)
            self._definitions[entry] = _MethodDef(b"entry", address, METH_FASTCALL, None)
        new: Callable[..., Any] = _new_function(ctypes.byref(self._definitions[entry]), held.items(), None)
        return new


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    )


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p)
