"""Image pipelines as nests: Harris corners, unsharp mask, a chain of blurs, a level of a pyramid."""

from papers.pipelines.registry import PIPELINES, Pipeline, Sizes

__all__ = ["PIPELINES", "Pipeline", "Sizes"]
