"""`polyfuse cache info | clear`: the contents of the cache of compiled programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyfuse.errors import BadArgument
from polyfuse.runtime.store.cache import store_here
from polyfuse.runtime.store.store import Store
from polyfuse.workbench.terminal import Terminal

MIB = 2**20


def show_cache(terminal: Terminal) -> None:
    """Print where the cache is, how much it holds and how much it may."""
    store = store_here()
    if store is None:
        terminal.text("the cache is disabled by POLYFUSE_CACHE")
        return
    sizes: dict[str, list[int]] = {"compiled": [], "source": []}
    with _refused(store):
        for folder, _, about in store.files():
            sizes[folder.name].append(about.st_size)
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
        terminal.text("the cache is disabled by POLYFUSE_CACHE")
        return
    with _refused(store):
        count, size = store.clear()
    terminal.text(
        f"removed {count} file{'' if count == 1 else 's'}, {size / MIB:.1f} MiB, from {store.directory}"
    )


@contextmanager
def _refused(store: Store) -> Iterator[None]:
    """Turn an operating-system error into a BadArgument that names the cache."""
    try:
        yield
    except OSError as error:
        raise BadArgument(f"the cache {store.directory} cannot be used: {error.strerror or error}") from error
