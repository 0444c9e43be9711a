"""`polyfuse papers list | run NAME`: reproduce published experiments.

    papers/NAME/README.md       "# title"; what was claimed, what was run, on what, what differs
    papers/NAME/experiment.py   run(target, quick, out): rows and a figure, into the folder out; returns the claims
    papers/NAME/results/        what a run left: CSV with date, machine and versions, the same as JSON, a figure
    papers/claims.py            a claim beside what came out, as lines and as report.html

They lie beside the package, in the checkout it runs from; an installed package has none.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyfuse.cli.checkout import ROOT, module, present
from polyfuse.errors import BadArgument
from polyfuse.workbench.terminal import Terminal, folder_to_write, writing

FOLDER = ROOT / "papers"


@dataclass(frozen=True)
class Paper:
    """A folder with an experiment, and what the first line of its README calls it."""

    folder: Path
    title: str

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.folder.name

    @property
    def results(self) -> Path:
        """The folder of its results."""
        return self.folder / "results"


def papers_in(folder: Path) -> tuple[Paper, ...]:
    """The experiments of a folder by name.

    Raises BadArgument if there is no such folder: then the package was installed without its checkout.
    """
    present(folder, "experiments")
    found = sorted(path.parent for path in folder.glob("*/experiment.py"))
    return tuple(Paper(path, _title(path / "README.md")) for path in found)


def _title(readme: Path) -> str:
    first = readme.read_text(encoding="utf-8").partition("\n")[0] if readme.is_file() else ""
    return first.removeprefix("#").strip()


def show_papers(terminal: Terminal, folder: Path = FOLDER) -> None:
    """Print each experiment's name and title."""
    papers = papers_in(folder)
    width = max((len(paper.name) for paper in papers), default=0)
    for paper in papers:
        terminal.text(f"{paper.name:<{width}}  {paper.title}")


def run_paper(terminal: Terminal, name: str, target: str, quick: bool, out: Path | None) -> None:
    """Run an experiment; its files go into `out`, else into its own results, and of a quick run into a new folder.

    Raises BadArgument for a name that no experiment has.
    """
    paper = _named(papers_in(FOLDER), name)
    if out is None:
        out = Path(tempfile.mkdtemp(prefix=f"polyfuse-{name}-")) if quick else paper.results
    folder_to_write(out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*")}
    claims = module(f"papers.{name}.experiment").run(target, quick, out)
    written = [path for path in sorted(out.glob("*")) if before.get(path) != path.stat().st_mtime_ns]
    terminal.heading("claims")
    of = module("papers.claims")
    for line in of.lines(claims):
        terminal.text(line)
    figures = [path for path in written if path.suffix in (".svg", ".png")]
    about = json.loads(next(path for path in written if path.suffix == ".json").read_text(encoding="utf-8"))
    report = out / "report.html"
    readme = (paper.folder / "README.md").read_text(encoding="utf-8")
    with writing(report):
        report.write_text(of.page(paper.title, about, claims, figures, readme), encoding="utf-8")
    for path in (*written, report):
        terminal.text(f"wrote {path}")


def _named(papers: Sequence[Paper], name: str) -> Paper:
    for paper in papers:
        if paper.name == name:
            return paper
    raise BadArgument(f"unknown paper {name!r}; expected one of {', '.join(paper.name for paper in papers)}")
