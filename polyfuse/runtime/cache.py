"""The cache of compiled programs: what one process compiled for the CPU, the next one loads.

A cache never decides what happens, only how long it takes: without a directory, with one that cannot be written, or
with an entry that is damaged, the compile is done as if there were none, and the report has a line that says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from polyfuse.ir.nest import Nest
from polyfuse.runtime.files import OFF, cache_directory
from polyfuse.runtime.interface import Phases
from polyfuse.runtime.native import MachineCode, missing_symbols
from polyfuse.runtime.product import Product
from polyfuse.runtime.record import from_entry, to_header
from polyfuse.runtime.store import LIMIT, Damaged, Store


def store_here() -> Store | None:
    """The store that the environment asks for: POLYFUSE_CACHE says where or "off", POLYFUSE_CACHE_MIB how large."""
    directory, mebibytes = cache_directory(), os.environ.get("POLYFUSE_CACHE_MIB", "")
    if directory is None:
        return None
    return Store(directory, int(mebibytes) * 2**20 if mebibytes.isdecimal() else LIMIT)


@dataclass(frozen=True)
class Recalled:
    """What the cache has under a key, if anything, and the sentence about it."""

    kept: tuple[Product, MachineCode] | None
    note: str


def recall(key: str) -> Recalled:
    """Look a compile up. An entry that is damaged, or cannot be loaded in this process, is removed."""
    store = store_here()
    if store is None:
        return Recalled(None, f"{OFF}, as POLYFUSE_CACHE says")
    try:
        entry = store.read(key)
        if entry is None:
            return Recalled(None, "")
        product, code = from_entry(entry)
        missing = missing_symbols(code)
        if missing:
            raise Damaged(f"it needs {', '.join(missing)}, which this process does not have")
    except Damaged as damage:
        store.discard(key)
        return Recalled(None, f"an entry was discarded: {damage}; ")
    return Recalled((product, code), f"loaded from {store.path(key).name[:12]}…")


def keep(key: str, nest: Nest, product: Product, code: MachineCode) -> str:
    """Keep the compile of a nest; the sentence about it."""
    store = store_here()
    if store is None:
        return ""
    if Phases.of(nest, product.program, product.memory).names != code.tensors:
        return "not kept: the kernels read constants that the compile made"
    if not code.keepable:
        return "not kept: the machine code holds addresses of this process"
    try:
        store.write(key, to_header(product, code), code.object)
    except OSError as error:
        return f"not kept: {error.strerror or error}"
    return f"kept as {store.path(key).name[:12]}…"
