"""Remarks on a kernel's loops: parallel, permutable, skewed, or the dependence that a loop carries."""

from __future__ import annotations

from polyfuse.analysis.bands import LoopFacts, among, facts, permutable, skews
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree, statements
from polyfuse.schedule.chains import chain_from
from polyfuse.sets import expression_text


def findings(nest: Nest, part: Tree) -> tuple[str, ...]:
    """Sentences on the loops of one kernel as they stand: each loop once, outer before inner."""
    every = facts(nest, part)
    lines = [*_parallel(every), *(_carried(fact) for fact in every if not fact.parallel)]
    pairs = among(nest, part)
    band = permutable(part, pairs)
    if len(band) > 1:
        lines.append(f"permutable: {', '.join(loop.name for loop in band)}")
    needed = skews(chain_from(part), pairs) if isinstance(part, Loop) else {}
    lines += [
        f"{inner} needs {factor} × {outer} to be permutable" for (inner, outer), factor in needed.items()
    ]
    return tuple(lines)


def _parallel(every: tuple[LoopFacts, ...]) -> list[str]:
    free = [f"{_name(fact)}" for fact in every if fact.parallel]
    return [f"parallel: {', '.join(free)}"] if free else ["parallel: no loop"]


def _name(fact: LoopFacts) -> str:
    return f"{fact.loop.name} around {', '.join(statements(fact.loop))}"


def _carried(fact: LoopFacts) -> str:
    return f"{_name(fact)} carries {fact.carried}"


def skewed(part: Tree) -> str:
    """The dates of a kernel's outermost loops where they are more than a dimension: "i at 2t + i"."""
    lines = []
    for loop in chain_from(part) if isinstance(part, Loop) else ():
        texts = dict.fromkeys(expression_text(date) for _, date in loop.dates)
        if any(text != loop.name for text in texts):
            lines.append(f"{loop.name} at {' and '.join(texts)}")
    return ", ".join(lines)
