"""Trials in the cache: after each one, so that a search that is interrupted goes on where it was. JSON, no pickles."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from polyfuse.runtime.store.cache import store_here
from polyfuse.runtime.store.store import Damaged, Entry
from polyfuse.strategy.tuning_trials import Trial, Tuning

NOTHING = Tuning((), 0.0, "")


def recalled(key: str) -> Tuning:
    """The search kept under a key; one of no trials without a cache, or if the entry is damaged."""
    store = store_here()
    if store is None:
        return NOTHING
    try:
        entry = store.read(key)
    except Damaged:
        store.discard(key)
        return NOTHING
    return NOTHING if entry is None else from_entry(entry)


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
        trials.append(Trial(**{**one, "parameters": parameters}))
    return Tuning(tuple(trials), header["spent"], header["ended"])
