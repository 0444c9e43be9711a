"""The explorer's page: one HTML file with its data, its script and its styles, which asks for nothing else."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyfuse.errors import BadArgument

HEIGHT = 760
"""Pixels of the page in a notebook."""


@dataclass(frozen=True, repr=False)
class Explorer:
    """A compiled nest to look at: `save` it as a page, show it in a notebook, or read `data`.

    Attributes:
        data: What the page shows, as dictionaries, lists, texts and numbers: the JSON of the guide's page.
    """

    data: Mapping[str, Any]

    def json(self) -> str:
        """Return the data as JSON.

        Returns:
            One line of text.
        """
        return json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))

    def html(self) -> str:
        """Return the page, a document by itself.

        Returns:
            The HTML.
        """
        script = files("polyfuse.show.explorer").joinpath("app.js").read_text(encoding="utf-8")
        # in a script, only "</" and "<!--" would be read as HTML
        data = self.json().replace("<", "\\u003c")
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>polyfuse explorer: {html.escape(self.data['nest']['name'])}</title>\n"
            '<body>\n<div id="explorer"></div>\n'
            f'<script type="application/json" id="data">{data}</script>\n'
            f"<script>{script}</script>\n</body>\n</html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write the page to a file.

        Args:
            path: The file.

        Raises:
            BadArgument: if it cannot be written.
        """
        try:
            Path(path).write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise BadArgument(f"cannot write {path}: {error.strerror or error}") from error

    def __repr__(self) -> str:
        count, steps = len(self.data["statements"]), len(self.data["steps"]) - 1
        name = self.data["nest"]["name"]
        return f"<Explorer of {name}: {count} statements, {steps} steps; .save(path) writes the page>"

    def _repr_html_(self) -> str:
        """In a notebook, the page in a frame of its own."""
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return (
            f'<iframe title="polyfuse explorer" srcdoc="{html.escape(self.html())}" style="{style}"></iframe>'
        )
