"""Image pipelines as nests: Harris corners, unsharp mask, a chain of blurs, a level of a pyramid.

PIPELINES is loaded when it is asked for: `closed` needs NumPy alone, and is read where there is no polyfuse.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from papers.pipelines.registry import PIPELINES, Pipeline, Sizes

__all__ = ["PIPELINES", "Pipeline", "Sizes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from papers.pipelines import registry

    return getattr(registry, name)
