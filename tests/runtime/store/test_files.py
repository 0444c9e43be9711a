"""Files: where they lie, and that they are whole or absent."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.store import files
from polyfuse.runtime.store.store import Damaged, Store


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"POLYFUSE_CACHE": "off"}, None),
        ({"POLYFUSE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a/polyfuse-cache")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/polyfuse-cache")),
        ({}, Path("/home/.cache/polyfuse-cache")),
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
    found = sorted((tmp_path / files.OWN / "source").iterdir())
    assert len(found) == len(net.program.codes)
    assert all(code.source in "".join(f.read_text() for f in found) for code in net.program.codes)


NAMES = re.compile("[a-z]+")


def test_a_write_that_is_cut_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    folder = files.Folder(tmp_path / "cache", "folder", NAMES)
    monkeypatch.setattr(files.os, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        folder.write("file", b"text")
    assert list((tmp_path / "cache" / "folder").iterdir()) == []
    monkeypatch.undo()
    folder.write("file", b"text")
    assert folder.path("file").read_bytes() == b"text"
    assert folder.path("file").stat().st_mode & 0o077 == 0


def test_a_file_that_holds_another_source_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    path = files.source_file("kernel", "text")
    path.write_text("te")
    assert files.source_file("kernel", "text") == path
    assert path.read_text() == "text"


Made = Callable[[Path, Path], None]
"""Puts something where the cache belongs, or into it: the cache, and a folder of the user's."""


def _another(root: Path, users: Path) -> None:
    shutil.copytree(users, root)


def _with_another_mark(root: Path, users: Path) -> None:
    shutil.copytree(users, root)
    (root / files.MARK).write_text("Signature: 8a477f597d28d172789f06886806bc55\n# another's\n")


def _link(root: Path, users: Path) -> None:
    root.symlink_to(users)


def _linked_part(name: str) -> Made:
    def made(root: Path, users: Path) -> None:
        files.Folder(root, "first", NAMES).write("file", b"")
        (root / name).symlink_to(users / name)

    return made


def _file(root: Path, users: Path) -> None:
    root.write_text("mine")


@pytest.mark.parametrize(
    "made",
    [_another, _with_another_mark, _link, _linked_part("compiled"), _linked_part("source"), _file],
    ids=lambda made: made.__qualname__.lstrip("_").partition(".")[0],
)
def test_a_folder_that_polyfuse_did_not_make_is_left_alone(made: Made, tmp_path: Path) -> None:
    users, root = tmp_path / "users", tmp_path / "cache"
    for folder in ("compiled", "source"):
        (users / folder).mkdir(parents=True)
        (users / folder / f"{'0' * 64}.entry").write_text("mine")
        (users / folder / f"kernel_{'0' * 16}.py").write_text("mine")
        (users / folder / f"{'0' * 16}.part").write_text("mine")
    made(root, users)
    mine = [path for path in tmp_path.rglob("*") if path.is_file()]
    store = Store(root, limit=0)
    for use in (
        lambda: store.write("0" * 64, {}, b"new"),
        lambda: store.discard("0" * 64),
        store.trim,
        store.clear,
        lambda: files.source_folder(root).write(f"kernel_{'0' * 16}.py", b"new"),
    ):
        with suppress(OSError):
            use()
    assert [path.read_text() for path in mine if "users" in path.parts] == ["mine"] * 6
    assert all(path.is_file() for path in mine)
    with pytest.raises(OSError, match=r"was not made by polyfuse|is a link or a file"):
        store.clear()


def test_beside_other_files_only_those_of_polyfuse_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write("a" * 64, {}, b"")
    files.source_folder(store.directory).write(f"kernel_{'0' * 16}.py", b"")
    compiled, source, users = (
        tmp_path / "cache" / "compiled",
        tmp_path / "cache" / "source",
        tmp_path / "users",
    )
    users.write_text("mine")
    mine = [
        compiled / "report.pdf",
        compiled / f"{'a' * 63}.entry",
        compiled / f"{'a' * 64}.entry.bak",
        compiled / "new.part",
        source / "thesis.tex",
        source / "kernel.py",
    ]
    for path in mine:
        path.write_text("mine")
        os.utime(path, (0, 0))
    (compiled / f"{'b' * 64}.entry").symlink_to(users)
    (source / f"folder_{'0' * 16}.py").mkdir()
    assert store.clear()[0] == 2
    store = Store(store.directory, limit=0)
    store.write("c" * 64, {}, b"")
    assert all(path.read_text() == "mine" for path in [*mine, users])
    assert (source / f"folder_{'0' * 16}.py").is_dir()
    assert list(store.files()) == []


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_bytes(b"mine")
    folder = files.Folder(tmp_path / "cache", "folder", NAMES)
    folder.write("file", b"text")
    folder.path("file").unlink()
    folder.path("file").symlink_to(users)
    with pytest.raises(OSError, match="symbolic links"):
        folder.read("file")
    folder.write("file", b"text")
    assert folder.read("file") == b"text"
    assert users.read_bytes() == b"mine"


@pytest.fixture
def impatient() -> Iterator[None]:
    """A test that waits for ten seconds fails."""

    def late(*args: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("place", ["compiled", "source", files.MARK])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    store = Store(tmp_path / files.OWN)
    store.write("a" * 64, {}, b"body")
    source = files.source_file("kernel", "text")
    path = {"compiled": store.path("a" * 64), "source": source, files.MARK: store.directory / files.MARK}[
        place
    ]
    path.unlink()
    os.mkfifo(path)
    if place == files.MARK:
        assert store.read("a" * 64) is None
        assert files.source_file("kernel", "text").parent == Path()
        return
    if place == "compiled":
        with pytest.raises(Damaged, match="it is not a regular file"):
            store.read("a" * 64)
        store.discard("a" * 64)
        store.write("a" * 64, {}, b"body")
    entry = store.read("a" * 64)
    assert entry is not None
    assert files.source_file("kernel", "text") == source
    assert source.read_text() == "text"
    assert path.is_file()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_every_folder_and_file_is_this_users_alone(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        Store(tmp_path / "a" / "b" / "cache").write("a" * 64, {}, b"body")
        files.source_folder(tmp_path / "a" / "b" / "cache").write(f"kernel_{'0' * 16}.py", b"text")
    finally:
        os.umask(before)
    made = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "a", *(tmp_path / "a").rglob("*"))}
    assert len(made) == 8
    assert {mode for path, mode in made.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in made.items() if path.is_file()} == {0o600}


@pytest.mark.parametrize("part", ["", "compiled"])
def test_a_folder_that_others_may_write_is_not_used(part: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write("a" * 64, {}, b"body")
    (store.directory / part).chmod(0o777)
    assert store.read("a" * 64) is None
    with pytest.raises(OSError, match="may be written by others"):
        store.write("b" * 64, {}, b"body")
    (store.directory / part).chmod(0o700)
    assert store.read("a" * 64) is not None


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "cache")
    store.write("a" * 64, {}, b"body")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert store.read("a" * 64) is None
    with pytest.raises(OSError, match="another user's"):
        store.write("b" * 64, {}, b"body")


def _first_writes(root: Path, name: str) -> None:
    files.Folder(root, "folder", NAMES).write(name, b"text")


def test_many_processes_make_one_folder(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        list(pool.map(_first_writes, [tmp_path / "cache"] * 8, "abcdefgh"))
    assert {path.name for path in (tmp_path / "cache" / "folder").iterdir()} == {*"abcdefgh"}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_without_a_place_a_source_has_only_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no folder")
    assert not files.source_file("kernel", "text").exists()
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    assert files.source_file("kernel", "text").parent == Path()
    assert not os.path.exists(files.source_file("kernel", "text"))
