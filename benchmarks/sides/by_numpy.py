"""NumPy: the expressions that the references are written in, in float32. Threads are OpenBLAS's, by its environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.references import REFERENCES

FORMS = ("expressions",)
PACKAGES = ("numpy",)


def use(form: str, threads: int) -> None:
    """Nothing to set."""


KINDS: dict[str, Callable[[dict[str, Any]], Callable[[], Any]]] = {
    kind: partial(partial, function) for kind, function in REFERENCES.items()
}
