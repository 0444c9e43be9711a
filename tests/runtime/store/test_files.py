"""Files: where they lie, and that they are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.store import files


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"POLYFUSE_CACHE": "off"}, None),
        ({"POLYFUSE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/polyfuse")),
        ({}, Path("/home/.cache/polyfuse")),
    ],
)
def test_where_files_are_kept(
    environment: dict[str, str], expected: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home"))
    for name in ("POLYFUSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert files.cache_directory() == expected


def test_sources_lie_in_files_for_tracebacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    net = pf.compile(cases.dense(6, 9, 4, batch=5), target="cpu")
    found = sorted((tmp_path / "source").iterdir())
    assert len(found) == len(net.program.codes)
    assert all(code.source in "".join(f.read_text() for f in found) for code in net.program.codes)


def test_a_write_that_is_cut_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*args: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "folder" / "file"
    monkeypatch.setattr(files.os, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(path, b"text")
    assert list(path.parent.iterdir()) == []
    monkeypatch.undo()
    files.write_whole(path, b"text")
    assert path.read_bytes() == b"text"
    assert path.stat().st_mode & 0o077 == 0


def test_without_a_place_a_source_has_only_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no folder")
    assert not files.source_file("kernel", "text").exists()
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    assert files.source_file("kernel", "text").parent == Path()
    assert not os.path.exists(files.source_file("kernel", "text"))
