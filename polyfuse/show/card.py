"""Cards: HTML elements with a style of their own, light or dark as the browser prefers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from polyfuse.errors.viewed import equal_but_for_numbers

LEFT = {"style": "text-align: left"}

STYLE = """
.polyfuse-card { color-scheme: light dark; --ink: #1f2328; --dim: #59636e; --line: #d1d9e0; --paper: #ffffff;
  --bar: #0969da; --yes: #1a7f37; --no: #cf222e; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; padding: 0.6em 0.9em; font: 13px/1.45 system-ui, sans-serif;
  max-width: 72em; overflow-x: auto; }
@media (prefers-color-scheme: dark) { .polyfuse-card { --ink: #f0f6fc; --dim: #9198a1; --line: #3d444d;
  --paper: #0d1117; --bar: #4493f8; --yes: #3fb950; --no: #f85149; } }
.polyfuse-card p { margin: 0.2em 0; }
.polyfuse-card code, .polyfuse-card pre { font: 12px/1.45 ui-monospace, monospace; color: inherit;
  background: none; padding: 0; }
.polyfuse-card pre { margin: 0.3em 0; max-height: 30em; overflow: auto; white-space: pre; }
.polyfuse-card table { border-collapse: collapse; margin: 0.4em 0; color: inherit; }
.polyfuse-card th, .polyfuse-card td { padding: 0.15em 0.8em 0.15em 0; border-bottom: 1px solid var(--line);
  vertical-align: top; background: none; text-align: left; }
.polyfuse-card td.number, .polyfuse-card th.number { text-align: right; white-space: nowrap; }
.polyfuse-card th, .polyfuse-card .dim { color: var(--dim); font-weight: normal; }
.polyfuse-card summary { cursor: pointer; }
.polyfuse-card .inside { margin-left: 1.4em; }
.polyfuse-card .kernel { border-left: 3px solid var(--bar); padding-left: 0.6em; margin: 0.4em 0; }
.polyfuse-card .bar { display: inline-block; width: 6em; height: 0.7em; border: 1px solid var(--line);
  margin-right: 0.5em; }
.polyfuse-card .bar span { display: block; height: 100%; background: var(--bar); }
.polyfuse-card .yes { color: var(--yes); }
.polyfuse-card .no { color: var(--no); }
"""
"""Colours are variables, so that dark is one rule."""


def card() -> Element:
    """Return an empty card."""
    block = Element("div", {"class": "polyfuse-card"})
    SubElement(block, "style").text = STYLE
    return block


def written(element: Element) -> str:
    """Return an element as HTML, with text escaped."""
    return ElementTree.tostring(element, encoding="unicode", method="html")


def line(parent: Element, strong: str, rest: str = "", kind: str = "") -> Element:
    """Add a line that starts with a bold part."""
    made = SubElement(parent, "p", {"class": kind} if kind else {})
    bold = SubElement(made, "b")
    bold.text, bold.tail = strong, rest
    return made


def table(parent: Element, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """Add a table of code; return its body."""
    made = SubElement(parent, "table")
    heads = SubElement(SubElement(made, "thead"), "tr")
    for title in header:
        SubElement(heads, "th", LEFT).text = title
    body = SubElement(made, "tbody")
    for cells in rows:
        row = SubElement(body, "tr")
        for cell in cells:
            SubElement(SubElement(row, "td", LEFT), "code").text = cell
    return body


def equal_once(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the rows of a table, those that differ in the numbers of names alone once, with how many there are.

    >>> equal_once([("x", "input"), ("w0", "constant"), ("w1", "constant")])
    [['x', 'input'], ['w0 × 2', 'constant']]
    """
    equal = equal_but_for_numbers("\n".join(row) for row in rows)
    first = ((text.split("\n"), times) for text, times in equal)
    return [[f"{name} × {times}" if times > 1 else name, *rest] for (name, *rest), times in first]


def folded(parent: Element, summary: str, opened: bool = False) -> Element:
    """Add a part that folds; return what its content goes into."""
    part = SubElement(parent, "details", {"open": "open"} if opened else {})
    SubElement(part, "summary").text = summary
    return SubElement(part, "div", {"class": "inside"})


def text_block(parent: Element, text: str) -> None:
    """Add text as it is."""
    SubElement(parent, "pre").text = text


def bar(parent: Element, share: float) -> None:
    """Add a bar that is filled up to a share of 1."""
    outer = SubElement(parent, "span", {"class": "bar"})
    width = 100 * min(max(share, 0.0), 1.0)
    SubElement(outer, "span", {"style": f"width: {width:.0f}%"})
