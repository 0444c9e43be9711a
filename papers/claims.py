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

VERDICTS: Mapping[Verdict, str] = {
    "holds": "yes",
    "holds in part": "part",
    "does not hold": "no",
    "not measured": "open",
}
"""Each verdict with the class of its cell."""


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


def span(values: Sequence[float], of: str = "") -> str:
    """The least and the greatest ratio as text, and what they are of.

    >>> span([1.25, 3.0], "the fused network"), span([2.0]), span([], "our time")
    ('1.25 to 3.00 × the fused network', '2.00 ×', 'not timed')
    """
    if not values:
        return "not timed"
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    text = f"{low} ×" if low == high else f"{low} to {high} ×"
    return f"{text} {of}".rstrip()


def percent(shares: Sequence[float], of: str) -> str:
    """The least and the greatest share as text, and what they are of.

    >>> percent([0.134, 0.2], "the whole"), percent([], "the whole")
    ('13 to 20 % of the whole', 'not timed')
    """
    if not shares:
        return "not timed"
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{low if low == high else f'{low} to {high}'} % of {of}"


def lines(claims: Sequence[Claim]) -> Iterator[str]:
    """Three lines for each claim."""
    width = max(map(len, VERDICTS))
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
.yes { color: #1a6b21; } .part { color: #8a5000; } .no { color: #b71c1c; } .open { color: #5f5f5f; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } th, td { border-color: #444; }
  .yes { color: #7fc985; } .part { color: #f0b060; } .no { color: #ff8a80; } .open { color: #b0b0b0; }
}
"""
"""Each colour of a verdict has a contrast of 4.5 or more with its ground."""


def page(
    title: str, about: Mapping[str, Any], claims: Sequence[Claim], figures: Sequence[Path], readme: str
) -> str:
    """One document without other files: the claims, the figures, and what the folder's README says."""
    facts = ", ".join(
        _fact(name, about[name]) for name in ("date", "cpu", "device", "commit") if name in about
    )
    rows = "".join(
        f"<tr><td>{text(each.claim)}</td><td>{text(each.source)}</td><td>{text(each.here)}</td>"
        f'<td class="{VERDICTS[each.verdict]}">{each.verdict}</td></tr>\n'
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


def _fact(name: str, value: Any) -> str:
    """A fact with its name: of a date the day, of a commit what names it.

    >>> _fact("date", "2026-11-29T21:33:40+00:00"), _fact("commit", "acfbb5ed9ea3a8c46c0d5d3561c07ad1d2bb9c40+changes")
    ('date 2026-11-29', 'commit acfbb5ed9ea3 with changes')
    """
    shown = str(value)
    if name == "date":
        shown = shown[:10]
    if name == "commit":
        commit, changed, _ = shown.partition("+")
        shown = f"{commit[:12]}{' with changes' if changed else ''}"
    return f"{name} {shown}"


def text(plain: str) -> str:
    return html.escape(re.sub(r"`([^`]*)`", r"\1", plain))


def embedded(path: Path) -> str:
    """A picture's file as an address that holds it."""
    kind = "svg+xml" if path.suffix == ".svg" else path.suffix.removeprefix(".")
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
