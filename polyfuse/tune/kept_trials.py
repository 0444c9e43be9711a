"""Keep trials in the cache as JSON after each one, so that an interrupted search can continue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from polyfuse.runtime.store.cache import looked_up, store_here
from polyfuse.runtime.store.store import Entry, all_of
from polyfuse.strategy.tuning_trials import Trial, Tuning

NOTHING = Tuning((), 0.0, "")


def recalled(key: str) -> Tuning:
    """The search kept under a key; one of no trials without a cache, or if the entry is damaged."""
    return looked_up(key, from_entry).kept or NOTHING


def keep(key: str, tuning: Tuning) -> None:
    """Keep a search. Without a cache, or with one that cannot be written, it is only not remembered."""
    store = store_here()
    if store is not None:
        with suppress(OSError):
            store.write(key, asdict(tuning), b"")


def from_entry(entry: Entry) -> Tuning:
    """A search from its JSON."""
    header = entry.header
    trials = []
    for one in header["trials"]:
        parameters = {name: (position, count) for name, (position, count) in one["parameters"].items()}
        trials.append(Trial(**{**all_of(Trial, one), "parameters": parameters}))
    return Tuning(tuple(trials), header["spent"], header["ended"])
