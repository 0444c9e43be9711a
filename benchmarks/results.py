"""Results files: rows as JSON, with all facts about the machine, and as CSV, with date, CPU and commit in each row."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def write(folder: Path, part: str, about: dict[str, object], rows: list[dict[str, Any]]) -> tuple[Path, Path]:
    """`part-DATE.json` and `part-DATE.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_csv = (folder / f"{part}-{str(about['date'])[:10]}.{kind}" for kind in ("json", "csv"))
    as_json.write_text(
        json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    common = {name: about[name] for name in ("date", "cpu", "cpus", "commit")}
    with as_csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*common, *dict.fromkeys(name for row in rows for name in row)])
        writer.writeheader()
        writer.writerows({**common, **row} for row in rows)
    return as_json, as_csv
