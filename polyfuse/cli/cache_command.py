"""`polyfuse cache info | clear`: what the cache of compiled programs holds."""

from __future__ import annotations

from polyfuse.runtime.store.cache import store_here
from polyfuse.terminal import Terminal

MIB = 2**20


def show_cache(terminal: Terminal) -> None:
    """Print where the cache is, how much it holds and how much it may."""
    store = store_here()
    if store is None:
        terminal.text("the cache is off, as POLYFUSE_CACHE says")
        return
    sizes: dict[str, list[int]] = {"compiled": [], "source": []}
    for path, about in store.files():
        sizes[path.parent.name].append(about.st_size)
    together = sum(map(sum, sizes.values()))
    lines = (
        ("directory", str(store.directory)),
        ("compiled", f"{len(sizes['compiled'])}, {sum(sizes['compiled']) / MIB:.1f} MiB"),
        ("sources", f"{len(sizes['source'])}, {sum(sizes['source']) / MIB:.1f} MiB"),
        ("bound", f"{together / MIB:.1f} of {store.limit / MIB:g} MiB"),
    )
    for name, value in lines:
        terminal.text(f"{name:<12} {value}")


def clear_cache(terminal: Terminal) -> None:
    """Remove every file of the cache."""
    store = store_here()
    if store is None:
        terminal.text("the cache is off, as POLYFUSE_CACHE says")
        return
    count, size = store.clear()
    terminal.text(f"removed {count} files, {size / MIB:.1f} MiB, from {store.directory}")
