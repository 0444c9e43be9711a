"""Move every module to its place in the new tree, and rewrite what names it: imports, dotted paths, file paths.

    python docs/dev/layout-2026-11-28/move.py        in the root of a clean checkout

Nothing but names of modules changes: statements, classes and functions keep theirs.
"""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path.cwd()


def table(name: str) -> dict[str, str]:
    """The pairs `old -> new` of a file beside this one."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" -> ") for line in lines if line and not line.startswith("#"))


MODULES = {f"polyfuse.{old}": f"polyfuse.{new}" for old, new in table("layout.txt").items()}


def moved_tests() -> dict[str, str]:
    """Where each file below tests/ goes: as tests.txt says, else beside the module that it is named after."""
    named = table("tests.txt")
    places = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        old = path.relative_to(ROOT / "tests").as_posix()
        if old in named:
            places[old] = named[old]
            continue
        folder, _, file = old.rpartition("/")
        if folder and file.startswith("test_"):
            new = MODULES.get(f"polyfuse.{folder.replace('/', '.')}.{file[5:-3]}")
            if new is not None:
                *packages, module = new.split(".")[1:]
                places[old] = "/".join([*packages, f"test_{module}.py"])
    return {old: new for old, new in places.items() if old != new}


TESTS = moved_tests()
DOTTED = MODULES | {
    f"tests.{old[:-3].replace('/', '.')}": f"tests.{new[:-3].replace('/', '.')}" for old, new in TESTS.items()
}
PATTERN = re.compile(
    r"(?<![\w.\0])("
    + "|".join(sorted(map(re.escape, DOTTED), key=len, reverse=True))
    + r")(?![\w])(?!\.py\b)"
)
FILES = {f"{old.replace('.', '/')}.py": f"{new.replace('.', '/')}.py" for old, new in MODULES.items()}
FILES |= {f"tests/{old}": f"tests/{new}" for old, new in TESTS.items()}
SHORT = {
    old.removeprefix("polyfuse/"): new.removeprefix("polyfuse/")
    for old, new in FILES.items()
    if old.startswith("polyfuse/")
}
PATHS = re.compile(
    r"(?<![\w/.])(" + "|".join(sorted(map(re.escape, FILES | SHORT), key=len, reverse=True)) + r")(?!\w)"
)


# A file that is named alone, where that says which one was meant.
NAMES = [file.rpartition("/")[2] for file in FILES]
ONCE = {
    old.rpartition("/")[2]: new.rpartition("/")[2]
    for old, new in FILES.items()
    if NAMES.count(old.rpartition("/")[2]) == 1 and not old.startswith("tests/")
}
BARE = re.compile(r"(?<![\w/.\0])(" + "|".join(map(re.escape, ONCE)) + r")(?!\w)")


def in_prose(file: str, python: bool) -> str:
    """How a file is named: in the package's own comments without its folder."""
    return file.rpartition("/")[2] if python and not file.startswith("tests/") else file


def import_from(node: ast.ImportFrom) -> list[str] | None:
    """`from package import module` in its new form, one line for each module that moved; None if none did."""
    package = node.module or ""
    if not any(f"{package}.{alias.name}" in DOTTED for alias in node.names):
        return None
    lines, stay = [], []
    for alias in node.names:
        new = DOTTED.get(f"{package}.{alias.name}")
        name = alias.asname or alias.name
        if new is None or is_exported(package, alias.name):
            stay.append(alias.name + (f" as {alias.asname}" if alias.asname else ""))
            continue
        parent, _, module = new.rpartition(".")
        lines.append(f"from \0{parent} import {module}" + ("" if module == name else f" as {name}"))
    if stay:
        lines.insert(0, f"from {package} import {', '.join(stay)}")
    return lines


def is_exported(package: str, name: str) -> bool:
    """Whether a package's __init__ binds `name` itself: `from polyfuse.rewrite import bilinear` is the function."""
    init = ROOT / package.replace(".", "/") / "__init__.py"
    if not init.exists():
        return False
    if package not in EXPORTS:
        tree = ast.parse(init.read_text(encoding="utf-8"))
        EXPORTS[package] = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
    return name in EXPORTS[package]


EXPORTS: dict[str, set[str]] = {}


def rewritten(text: str, python: bool) -> str:
    """A file's text with the new names in it."""
    if python:
        lines = text.split("\n")
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        for node in sorted(nodes, key=lambda node: -node.lineno):
            new = import_from(node)
            if new is not None:
                indent = " " * node.col_offset
                lines[node.lineno - 1 : node.end_lineno] = [indent + line for line in new]
        # A new place may be called as an old one was: what is written already is marked by a zero.
        text = "\n".join(lines)
    text = PATTERN.sub(lambda match: "\0" + DOTTED[match.group(1)], text)
    text = PATHS.sub(lambda match: "\0" + in_prose((FILES | SHORT)[match.group(1)], python), text)
    text = BARE.sub(lambda match: "\0" + ONCE[match.group(1)], text)
    return text.replace("\0", "")


def git(*words: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, cwd=ROOT).stdout


def main() -> None:
    """Rewrite, then move."""
    texts = {}
    for name in git("ls-files").splitlines():
        path = ROOT / name
        if name.startswith(("benchmarks/results/", "papers/")) and not name.endswith((".py", ".md")):
            continue
        if path.suffix not in {".py", ".md", ".toml", ".txt", ".ipynb", ".rst"} and path.name != "Makefile":
            continue
        if name == "CHANGELOG.md" or "layout-2026-11-28" in name:
            continue
        old = path.read_text(encoding="utf-8")
        new = rewritten(old, path.suffix == ".py")
        if new != old:
            texts[name] = new
    for name, text in texts.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    # A module may be named as the package it moves into is, so all of them first leave their places.
    for old in FILES:
        git("mv", old, old + ".moving")
    for old, new in FILES.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", old + ".moving", new)
    for old, new in FILES.items():
        folder = (ROOT / new).parent
        while folder != ROOT and old.startswith("polyfuse"):
            init = folder / "__init__.py"
            if not init.exists():
                init.write_text("", encoding="utf-8")
                git("add", str(init))
            folder = folder.parent
    print(len(FILES), "files moved,", len(texts), "rewritten")


if __name__ == "__main__":
    sys.exit(main())
