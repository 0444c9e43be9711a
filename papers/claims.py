"""Claims of a paper beside the figures of a run here, with a verdict each: as lines of text, and as an HTML report."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["holds", "holds in part", "does not hold", "not measured"]

COLOURS: Mapping[Verdict, str] = {
    "holds": "#2e7d32",
    "holds in part": "#b26a00",
    "does not hold": "#c62828",
    "not measured": "#777777",
}


@dataclass(frozen=True)
class Claim:
    """One claim of a source beside a run's figures."""

    claim: str
    source: str
    here: str
    verdict: Verdict


def judged(values: Sequence[float], least: float) -> Verdict:
    """Whether all of some figures, or a part of them, are at least so much.

    >>> judged([1.2, 2.0], 1.0), judged([0.9, 2.0], 1.0), judged([0.9], 1.0), judged([], 1.0)
    ('holds', 'holds in part', 'does not hold', 'not measured')
    """
    reached = [value >= least for value in values]
    if not reached:
        return "not measured"
    return "holds" if all(reached) else "holds in part" if any(reached) else "does not hold"


def span(values: Sequence[float], unit: str = "×") -> str:
    """The least and the greatest figure as text.

    >>> span([1.25, 3.0]), span([2.0]), span([])
    ('1.25 to 3.00 ×', '2.00 ×', 'no times')
    """
    if not values:
        return "no times"
    low, high = min(values), max(values)
    return f"{low:.2f} {unit}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f} {unit}"


def lines(claims: Sequence[Claim]) -> Iterator[str]:
    """Three lines for each claim."""
    width = max(map(len, COLOURS))
    for each in claims:
        yield f"{each.verdict:<{width}}  {each.claim}"
        yield f"{'':<{width}}  the source: {each.source}"
        yield f"{'':<{width}}  here:       {each.here}"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #ccc; padding: .4rem .6rem; text-align: left; vertical-align: top; }
img { max-width: 100%; background: white; }
pre { white-space: pre-wrap; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } th, td { border-color: #444; } }
"""


def page(
    title: str, about: Mapping[str, Any], claims: Sequence[Claim], figures: Sequence[Path], readme: str
) -> str:
    """One document without other files: the claims, the figures, and what the folder's README says."""
    facts = ", ".join(
        f"{name} {about[name]}" for name in ("date", "cpu", "device", "commit") if name in about
    )
    rows = "".join(
        f"<tr><td>{text(each.claim)}</td><td>{text(each.source)}</td><td>{text(each.here)}</td>"
        f'<td style="color: {COLOURS[each.verdict]}">{each.verdict}</td></tr>\n'
        for each in claims
    )
    images = "".join(f'<p><img alt="{text(path.stem)}" src="{embedded(path)}"></p>\n' for path in figures)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{text(title)}</title>\n'
        f"<style>{STYLE}</style>\n<h1>{text(title)}</h1>\n<p>{text(facts)}</p>\n"
        f"<table>\n<tr><th>claim</th><th>the source</th><th>here</th><th>verdict</th></tr>\n{rows}</table>\n"
        f"{images}<details><summary>What was run, and what differs</summary><pre>{text(readme)}</pre></details>\n"
        "</html>\n"
    )


def text(plain: str) -> str:
    return html.escape(re.sub(r"`([^`]*)`", r"\1", plain))


def embedded(path: Path) -> str:
    """A picture's file as an address that holds it."""
    kind = "svg+xml" if path.suffix == ".svg" else path.suffix.removeprefix(".")
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
