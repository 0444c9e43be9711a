"""The cache of compiled programs, shared by processes.

A cache never decides what happens, only how long it takes: without a directory, with one that cannot be written, or
with an entry that is damaged, the compile is done as if there were none, and the report has a line that says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from polyfuse.ir.nest import Nest
from polyfuse.runtime.artifact import Product
from polyfuse.runtime.cpu.native import MachineCode, missing_symbols
from polyfuse.runtime.interface import Phases
from polyfuse.runtime.store.files import OFF, cache_directory
from polyfuse.runtime.store.record import from_entry, to_header
from polyfuse.runtime.store.store import LIMIT, Damaged, Entry, Store

Kept = TypeVar("Kept")


def store_here() -> Store | None:
    """The store that the environment asks for: POLYFUSE_CACHE says where or "off", POLYFUSE_CACHE_MIB how large."""
    directory, mebibytes = cache_directory(), os.environ.get("POLYFUSE_CACHE_MIB", "")
    if directory is None:
        return None
    return Store(directory, int(mebibytes) * 2**20 if mebibytes.isdecimal() else LIMIT)


@dataclass(frozen=True)
class Recalled(Generic[Kept]):
    """A cache lookup: the value under a key, if any, and a note about it."""

    kept: Kept | None
    note: str


def looked_up(key: str, read: Callable[[Entry], Kept]) -> Recalled[Kept]:
    """Return the content of an entry. A damaged entry, or one that `read` rejects in this process, is removed."""
    store = store_here()
    if store is None:
        return Recalled(None, f"{OFF}, as POLYFUSE_CACHE says")
    try:
        entry = store.read(key)
        if entry is None:
            return Recalled(None, "")
        kept = _decoded(entry, read)
    except Damaged as damage:
        store.discard(key)
        return Recalled(None, f"an entry was discarded: {damage}; ")
    return Recalled(kept, f"loaded from {store.path(key).name[:12]}…")


def _decoded(entry: Entry, read: Callable[[Entry], Kept]) -> Kept:
    """Decode an entry with `read`; raise Damaged if it raises, as it may if fields are missing or wrong."""
    try:
        return read(entry)
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"a field is missing or wrong ({type(error).__name__}: {error})") from error


def written(key: str, header: Mapping[str, Any], body: bytes) -> str:
    """Keep an entry; the sentence about it."""
    store = store_here()
    if store is None:
        return ""
    try:
        store.write(key, header, body)
    except OSError as error:
        return f"not kept: {error.strerror or error}"
    return f"kept as {store.path(key).name[:12]}…"


def recall(key: str) -> Recalled[tuple[Product, MachineCode | None]]:
    """Look a compile up."""
    return looked_up(key, _loadable)


def _loadable(entry: Entry) -> tuple[Product, MachineCode | None]:
    product, code = from_entry(entry)
    missing = missing_symbols(code) if code is not None else ()
    if missing:
        raise Damaged(f"it needs {', '.join(missing)}, which this process does not have")
    return product, code


def keep(key: str, nest: Nest, product: Product, code: MachineCode | None) -> str:
    """Keep the compile of a nest; the sentence about it."""
    if store_here() is None:
        return ""
    if not _are_arguments(nest, product, code):
        return "not kept: the kernels read constants that the compile made"
    if code is not None and not code.keepable:
        return "not kept: the machine code holds addresses of this process"
    return written(key, to_header(product, code), b"" if code is None else code.object)


def _are_arguments(nest: Nest, product: Product, code: MachineCode | None) -> bool:
    """True if the kernels access only the nest's arrays and memory of a call."""
    program, memory = product.program, product.memory
    if code is not None:
        return Phases.of(nest, program, memory).names == code.tensors
    known = (*nest.tensors, *memory.calls.tensors, *memory.once.tensors, *memory.kept)
    used = {name for launch in program.launches for name in launch.tensors}
    return used <= {tensor.name for tensor in known}
