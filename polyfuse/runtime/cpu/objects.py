"""Python objects in LLVM: reading their fields, calling them, counting references.

NumPy's arrays, tuples and types are read where the C interfaces of NumPy and CPython have their fields, as any
extension module does; everything else goes through functions of CPython's C interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

POINTER, INT, LONG, NOTHING = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64), ir.VoidType()
DOUBLE = ir.DoubleType()
POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)

CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
"""NumPy's flags (NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE)."""

TYPE_OFFSET = object.__basicsize__ - POINTER_BYTES
"""The offset of an object's type: last in its head."""

LENGTH_OFFSET = object.__basicsize__
"""The offset of the length in an object of variable length: after its head."""

ITEMS_OFFSET = tuple.__basicsize__
"""The offset of a tuple's items."""

INTERFACE = {
    "Py_IncRef": (NOTHING, POINTER),
    "Py_DecRef": (NOTHING, POINTER),
    "PyObject_CallObject": (POINTER, POINTER, POINTER),
    "PyList_Append": (INT, POINTER, POINTER),
    "PyFloat_AsDouble": (DOUBLE, POINTER),
    "PyLong_AsLongLong": (LONG, POINTER),
    "PyErr_Clear": (NOTHING,),
    "PyErr_NoMemory": (POINTER,),
    "PyEval_SaveThread": (POINTER,),
    "PyEval_RestoreThread": (NOTHING, POINTER),
}
"""The functions of CPython's C interface that are used: result, arguments."""


class ArrayFields(ctypes.Structure):
    """NumPy's PyArrayObject_fields."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("data", ctypes.c_void_p),
        ("nd", ctypes.c_int),
        ("dimensions", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    )


class Objects:
    """Emits, where a builder stands, what a C extension would do with objects."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of CPython's C interface."""
        result, *kinds = INTERFACE[name]
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, kinds), name)
        return self.builder.call(function, arguments)

    def called(self, callable_: Any) -> Any:
        """A callable's result without arguments: a new reference, or null with an exception set."""
        return self.call("PyObject_CallObject", callable_, POINTER(None))

    def tuple(self, values: Sequence[Any]) -> Any:
        """A new tuple of objects, or null with an exception set."""
        module, kind = self.builder.module, ir.FunctionType(POINTER, [LONG], var_arg=True)
        pack = module.globals.get("PyTuple_Pack") or ir.Function(module, kind, "PyTuple_Pack")
        return self.builder.call(pack, [LONG(len(values)), *values])

    def type(self, value: Any) -> Any:
        """An object's type."""
        return self._load(value, TYPE_OFFSET, POINTER)

    def item(self, held: Any, position: int) -> Any:
        """A tuple's item, borrowed."""
        return self._load(held, ITEMS_OFFSET + POINTER_BYTES * position, POINTER)

    def length(self, value: Any) -> Any:
        """Return the number of items of a tuple."""
        return self._load(value, LENGTH_OFFSET, LONG)

    def element(self, values: Any, position: int) -> Any:
        """An element of a C array."""
        return self.builder.load(self.builder.gep(values, [LONG(position)]))

    def field(self, array: Any, name: str, kind: ir.Type = POINTER) -> Any:
        """A field of a NumPy array."""
        return self._load(array, getattr(ArrayFields, name).offset, kind)

    def longs(self, array: Any, name: str) -> Any:
        """A field of a NumPy array that points to 64-bit integers."""
        return self.builder.bitcast(self.field(array, name), LONG.as_pointer())

    def _load(self, base: Any, offset: int, kind: ir.Type) -> Any:
        address = self.builder.gep(base, [LONG(offset)])
        return self.builder.load(self.builder.bitcast(address, kind.as_pointer()))
