"""Markdown pages, and an API reference made from the docstrings."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))  # where formulas and internal_pages are

project = "polyfuse"
author = "the polyfuse authors"
copyright = f"2026, {author}"
release = version = metadata.version("polyfuse")

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "formulas",
    "internal_pages",
]
exclude_patterns = ["_build"]
nb_execution_mode = "off"  # notebooks are kept with their outputs: `make notebooks`
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"polyfuse {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings are written to be read in a terminal: `name` is code, not a reference.
default_role = "code"
autosummary_generate = True
autosummary_ignore_module_all = False  # a public module's page has the names that it hands on

# Described without the extras that bring them.
autodoc_mock_imports = ["torch", "functorch", "onnx", "google"]
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "member-order": "bysource",
    # A package documents what it defines; what it hands on is documented where it is defined.
    "ignore-module-all": True,
}
autodoc_typehints_format = "short"
# There are neither, and to look for them takes a fifth of the time that the reference takes.
autodoc_use_type_comments = False
autodoc_docstring_signature = False
napoleon_use_ivar = True
# Two classes may have members of one name; a reference to the bare name then takes the first.
suppress_warnings = ["ref.python"]


def plain_to_rst(lines: list[str]) -> list[str]:
    """A docstring as it reads in a terminal, in reStructuredText.

    An indented block between blank lines is literal (a drawing, a grammar, code), and outside of backticks no
    character is markup: `a * b`, `|x|` and `x_` mean themselves.
    """
    out: list[str] = []
    paragraph = ""  # the last line before a blank one
    literal = doctest = False
    for line in lines:
        indented = line.startswith("    ")
        starts_block = indented and bool(out) and not out[-1]
        literal = (literal and (indented or not line)) or (
            starts_block and not paragraph.startswith((" ", "-"))
        )
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line))
        if literal and starts_block and paragraph and not paragraph.endswith("::"):
            out += ["::", ""]
            paragraph = "::"
        out.append(line if literal or doctest else escaped(line))
        if line and not literal:
            paragraph = line
    return out


def escaped(line: str) -> str:
    """`line` with what would be markup outside of backticks escaped."""
    pieces = re.split(r"(`+[^`]*`+)", line)
    pieces[::2] = [re.sub(r"[*|]|(?<=\w)_(?!\w)", r"\\\g<0>", piece) for piece in pieces[::2]]
    return "".join(pieces)


def opened_to_here(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The tree of pages beside each page is open along the way to it, and closed elsewhere.

    Open everywhere it has every module on each module's page: two thirds of the time that the documentation takes.
    """
    if "toctree" in context:
        tree = context["toctree"]
        context["toctree"] = lambda **options: tree(**{**options, "collapse": True})


def long_sentences(app: Sphinx, doctree: nodes.document) -> None:
    """Let printed sentences go on in the next line, where code and tables are scrolled."""
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().splitlines()
        long = [line.strip() for line in lines if len(line) > 110]
        is_code = "python" in block.get("language", "")
        if long and not is_code and not any(line.count("  ") > 2 for line in long):
            block["classes"].append("wrapped")


def readable(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write a default that is made anew as `...`, and a function by its name: else a signature is not read."""
    made_anew = signature and signature.replace("<factory>", "...")
    return made_anew and re.sub(r"<function (\w+)[^>]*>", r"\1", made_anew), returns


def sentences_with_colons(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Put together again what napoleon takes apart at a colon: annotations have the types here, docstrings sentences.

    "The order: outermost first"  ->  ("outermost first", ":type: The order")  ->  "The order: outermost first"
    """
    for field, place in ((":rtype: ", ":returns: "), (":type: ", "")):
        for at in [k for k, line in enumerate(lines) if line.startswith(field)][::-1]:
            text = lines.pop(at).removeprefix(field)
            first = next(k for k, line in enumerate(lines) if line and line.startswith(place))
            lines[first] = f"{place}{text}: {lines[first].removeprefix(place)}"


def setup(app: Sphinx) -> None:
    def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = plain_to_rst(lines)

    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon's, at 500
    app.connect("autodoc-process-docstring", sentences_with_colons, priority=600)  # and behind it
    app.connect("autodoc-process-signature", readable)
    app.connect("doctree-read", long_sentences)
    app.connect("html-page-context", opened_to_here, priority=400)  # before the theme's, at 500
