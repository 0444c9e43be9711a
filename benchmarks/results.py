"""Results files: rows as JSON, with all facts about the machine, and as CSV, with the most important in each row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"

COMMON = ("date", "cpu", "cpus", "device", "commit", "versions")
"""What each row of a CSV says of its run."""


@dataclass
class Run:
    """A part that is measured row by row: its files are written anew with each, so an interruption loses one row."""

    folder: Path
    part: str
    about: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, folder: Path, part: str, about: dict[str, Any], resume: bool = False) -> Run:
        """`resume`: with the rows that the latest run of this commit, CPU and versions has."""
        return cls(folder, part, about, kept(folder, part, about) if resume else [])

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Keep these, in the files too."""
        self.rows.extend(rows)
        write(self.folder, self.part, self.about, self.rows)

    def path(self, kind: str) -> Path:
        """The file of this kind: json and csv with the rows, md and svg for people."""
        return self.folder / f"{self.part}-{str(self.about['date'])[:10]}.{kind}"


def write(
    folder: Path, part: str, about: Mapping[str, object], rows: list[dict[str, Any]]
) -> tuple[Path, Path]:
    """`part-DATE.json` and `part-DATE.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_csv = (folder / f"{part}-{str(about['date'])[:10]}.{kind}" for kind in ("json", "csv"))
    whole = json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False) + "\n"
    new = as_json.with_suffix(".new")
    new.write_text(whole, encoding="utf-8")
    new.replace(as_json)  # a run that is interrupted here has lost nothing
    common = {name: about[name] for name in COMMON if name in about}
    if isinstance(versions := common.get("versions"), Mapping):
        common["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    with as_csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*common, *dict.fromkeys(name for row in rows for name in row)])
        writer.writeheader()
        writer.writerows({**common, **row} for row in rows)
    return as_json, as_csv


def kept(folder: Path, part: str, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the latest file of a part, if it is of this commit, CPU and versions."""
    latest = max(folder.glob(f"{part}-????-??-??.json"), default=None)
    if latest is None:
        return []
    found = json.loads(latest.read_text(encoding="utf-8"))
    same = all(found.get(key) == about[key] for key in ("commit", "cpu", "cpus"))
    same = same and found.get("device") == about.get("device")
    same = same and about["versions"].items() <= found["versions"].items()  # those of peers are known later
    rows: list[dict[str, Any]] = found["rows"] if same else []
    return rows


def header(title: str, about: Mapping[str, Any]) -> Iterator[str]:
    """The first lines of a table for people: what was measured, when, on which machine, with what."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield f"# {title}"
    yield ""
    yield f"{about['date']}, {about['cpu']}, {about['cpus']} CPUs, load {about['load']}, commit {about['commit']}; "
    yield f"{versions}."
    yield ""
