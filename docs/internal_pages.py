"""Write a page for each module of polyfuse, with its docstrings and a table of the modules inside.

The pages lead to each other by links alone. In the menu beside each page they would be 800 entries, and the menu is
made for every page of the site. They themselves all have the same menu, which is made once.
"""

import ast
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PACKAGE = Path(__file__).parents[1] / "polyfuse"


def modules_in(folder: Path) -> list[Path]:
    """Return the modules of a package, by its files."""
    files = [path for path in folder.glob("*.py") if not path.stem.startswith("_")]
    return sorted([*files, *folder.glob("*/__init__.py")], key=named)


def named(path: Path) -> tuple[str, ...]:
    """Return the names of a module's packages, and its own."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def summary(path: Path) -> str:
    """Return the first paragraph of a module's docstring on one line, or nothing."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page(path: Path, inside: list[Path]) -> str:
    """Return the page of a module, in reStructuredText."""
    parts = named(path)
    name = ".".join(parts)
    above = [f":doc:`{part} <{'.'.join(parts[: at + 1])}>`" for at, part in enumerate(parts[:-1])]
    lines = [":orphan:", ":nosearch:", "", name.replace("_", r"\_"), "=" * (len(name) + name.count("_")), ""]
    lines += [":doc:`Internals <../internals>` › " + " › ".join([*above, f"**{parts[-1]}**"]), ""]
    lines += [f".. automodule:: {name}", "   :no-index:", ""]
    if inside:
        lines += [".. rubric:: Modules", "", ".. list-table::", "   :widths: 25 75", ""]
        for each in inside:
            own = ".".join(named(each))
            lines += [f"   * - :doc:`{named(each)[-1]} <{own}>`", f"     - {escaped(summary(each))}"]
    return "\n".join(lines) + "\n"


def escaped(line: str) -> str:
    """Return a docstring's line with what would be markup outside of backticks escaped."""
    pieces = line.split("`")
    pieces[::2] = [piece.replace("*", r"\*").replace("|", r"\|").replace("_", r"\_") for piece in pieces[::2]]
    return "`".join(pieces)


def write(app: Sphinx) -> None:
    """Write the pages into the folder `internals`."""
    folder = Path(app.srcdir) / "internals"
    folder.mkdir(exist_ok=True)
    left = [PACKAGE / "__init__.py"]
    while left:
        path = left.pop()
        inside = modules_in(path.parent) if path.name == "__init__.py" else []
        left += inside
        (folder / f"{'.'.join(named(path))}.rst").write_text(page(path, inside), encoding="utf-8")


class Menu:
    """The menu of the pages, kept from the first of them; before the theme makes one, and behind."""

    def __init__(self) -> None:
        self.kept = ""

    def before(self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        """Leave the theme nothing to make."""
        if page.startswith("internals/") and self.kept:
            context["toctree"] = lambda **options: ""

    def behind(self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        """Put the menu into the page, or keep it."""
        if page.startswith("internals/"):
            self.kept = self.kept or context["furo_navigation_tree"]
            context["furo_navigation_tree"] = self.kept


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    menu = Menu()
    app.connect("builder-inited", write)
    app.connect("html-page-context", menu.before, priority=450)  # the theme's is at 500
    app.connect("html-page-context", menu.behind, priority=550)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
