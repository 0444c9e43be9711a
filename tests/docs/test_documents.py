"""The documents keep what they promise: links lead somewhere, cited figures stand in their files, pages stay short."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import polyfuse as pf

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
LISTS = ("how-to", "concepts")
MEASUREMENTS = ROOT / "docs" / "dev" / "measurements"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
FENCED = re.compile(r"^(```|\$\$).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs and list items outside of code, formulas and tables, each on one line.

    >>> list(paragraphs("# A\\n\\none\\ntwo\\n- three\\n  four\\n- five\\n\\n```py\\nsix\\n```\\n| seven |\\n"))
    ['one two', '- three four', '- five']
    """
    prose = re.sub(r"^(#.*|\|.*|<!--.*|!\[.*|    .*)$", "", FENCED.sub("", text), flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", prose):
        if block.strip():
            yield " ".join(block.split())


@pytest.mark.parametrize("page", DOCUMENTS, ids=named)
def test_links_lead_to_files(page: Path) -> None:
    missing = [link for link in LINK.findall(FENCED.sub("", read(page))) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", GUIDE, ids=named)
def test_paragraphs_of_the_guide_are_short(page: Path) -> None:
    assert not [paragraph for paragraph in paragraphs(read(page)) if len(paragraph) > 700]


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page.parent != MEASUREMENTS], ids=named)
def test_cited_modules_are_there(page: Path) -> None:
    text = FENCED.sub("", read(page))
    files = re.findall(r"`((?:[a-z_]+/)+[a-z_*]+\.py)`", text)
    missing = [file for file in files if not [*ROOT.glob(file), *ROOT.glob(f"polyfuse/{file}")]]
    missing += [name for name in re.findall(r"`(polyfuse(?:\.\w+)+)", text) if not defined(name)]
    assert not missing


def defined(name: str) -> bool:
    """Whether a dotted name is a module, or a name that occurs in one.

    >>> defined("polyfuse.sets"), defined("polyfuse.nowhere.at_all")
    (True, False)
    """
    place, inside = ROOT, name.split(".")
    while inside and (place / inside[0]).is_dir():
        place /= inside.pop(0)
    source = place / "__init__.py"
    if inside and (place / f"{inside[0]}.py").exists():
        source = place / f"{inside.pop(0)}.py"
    return all(re.search(rf"\b{word}\b", read(source)) for word in inside)


def test_cited_results_are_there() -> None:
    cited = re.compile(r"[a-z][a-z-]*-2026-\d\d-\d\d[a-z0-9-]*")
    for page in ("README.md", "docs/index.md", "docs/dev/STATUS.md"):
        names = set(cited.findall(read(ROOT / page)))
        assert names
        assert not [name for name in names if not list(RESULTS.glob(f"{name}.*"))]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_ratios_stand_in_the_file_that_their_row_cites(page: str) -> None:
    rows = [row for row in read(ROOT / page).splitlines() if row.startswith("|") and "peers-2026" in row]
    assert len(rows) == 3
    for row in rows:
        (name,) = re.findall(r"(peers-2026-[a-z0-9-]+)\.md", row)
        measured = read(RESULTS / f"{name}.md")
        for cell in row.split("|")[2:4]:
            mean, worst = re.findall(r"\d+\.\d\d", cell)
            assert f"geometric mean {mean};" in measured
            assert re.search(rf"\| (\*\*)?{re.escape(worst)}(\*\*)? \|$", measured, re.MULTILINE)


def test_readme_begins_with_what_polyfuse_does_a_picture_and_figures() -> None:
    head = "\n".join(read(ROOT / "README.md").splitlines()[:10])
    assert head.startswith("# polyfuse\n")
    assert head.index("polyhedral compiler") < head.index("![") < head.index("torch.compile")


def test_readme_knows_how_many_examples_a_property_test_draws() -> None:
    text = read(ROOT / "README.md")
    assert f"{settings.get_profile('ci').max_examples} examples for most" in text
    assert f"({settings.get_profile('nightly').max_examples:,} for most)" in text


def test_status_has_two_pages() -> None:
    words = re.sub(r"[|]|-{3,}", " ", read(ROOT / "docs" / "dev" / "STATUS.md")).split()
    assert len(words) < 1500


def test_the_changelog_has_one_line_a_change() -> None:
    text = read(ROOT / "CHANGELOG.md")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases[0].startswith("Unreleased")
    for release in releases:
        assert set(re.findall(r"^### (.*)$", release, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}
        lines = [line for line in release.splitlines()[1:] if line and not line.startswith("#")]
        assert all(line.startswith("- ") and line.endswith(".") and len(line) <= 140 for line in lines)


def test_each_page_of_the_guide_is_in_one_list() -> None:
    """A new page belongs to how-to or to concepts: to the table, and to the toctree that the site's menu is."""
    menus = [re.findall(r"^guide/(\S+)$", read(ROOT / "docs" / f"{name}.md"), re.MULTILINE) for name in LISTS]
    assert sorted(page for menu in menus for page in menu) == sorted(page.stem for page in GUIDE)


def test_the_reference_lists_every_public_name_once() -> None:
    listed = re.findall(r"^   polyfuse\.(\w+)$", read(ROOT / "docs" / "reference.md"), re.MULTILINE)
    assert sorted(listed) == sorted({*pf.__all__, "onnx", "torch"} - {"__version__"})


def test_public_functions_describe_their_arguments() -> None:
    missing = []
    for module in (pf, pf.nn, pf.optim, pf.rewrite, pf.bilinear):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and inspect.signature(value).parameters:
                missing += [f"{module.__name__}.{name}"] * ("Args:" not in (inspect.getdoc(value) or ""))
    assert not missing


def test_layers_describe_what_they_are_made_of() -> None:
    """A layer that is no dataclass has the arguments in the docstring of its `__init__`, which the reference shows."""
    layers = [getattr(pf.nn, name) for name in pf.nn.__all__]
    made = [
        layer
        for layer in layers
        if inspect.isclass(layer)
        and issubclass(layer, pf.nn.Module)
        and not dataclasses.is_dataclass(layer)
        and inspect.signature(layer).parameters
    ]
    assert pf.nn.Linear in made
    assert not [layer for layer in made if "Args:" not in (inspect.getdoc(layer.__init__) or "")]


def test_fields_of_public_classes_are_described() -> None:
    """Each field stands in the class's docstring under Attributes, or has a docstring of its own."""
    modules = (pf, pf.nn, pf.optim)
    public = {
        value
        for module in modules
        for name in module.__all__
        if dataclasses.is_dataclass(value := getattr(module, name))
    }
    missing = []
    for value in public:
        own = re.findall(r"^    (\w+): \S", inspect.getdoc(value) or "", re.MULTILINE)
        source = inspect.getsource(sys.modules[value.__module__])
        beneath = re.findall(r'^    (\w+): [^\n]*\n    """', source, re.MULTILINE)
        fields = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        missing += [f"{value.__name__}.{name}" for name in fields if name not in {*own, *beneath}]
    assert not missing


PACKAGE = ROOT / "polyfuse"
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
MOST_ENTRIES = 22
"""Entries of a folder at most, so that its listing can be read as a table of contents."""


def test_architecture_lists_the_folders_by_their_docstrings() -> None:
    rows = []
    for folder in FOLDERS:
        docstring = ast.get_docstring(ast.parse(read(folder / "__init__.py"))) or ""
        summary = " ".join(docstring.split("\n\n")[0].split())
        rows.append(f"| `{folder.relative_to(PACKAGE).as_posix()}` | {summary} |")
    listed = [line for line in read(ROOT / "docs/dev/architecture.md").splitlines() if line in rows]
    assert listed == rows


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_folder_reads_as_a_table_of_contents(folder: Path) -> None:
    entries = [path for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    assert 0 < len(entries) <= MOST_ENTRIES
