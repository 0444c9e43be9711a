"""The store: what is read is what was written, whoever else writes and whatever became of the file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyfuse.runtime.store.store import (
    ABANDONED,
    DIGEST_BYTES,
    LENGTH_BYTES,
    MAGIC,
    Damaged,
    Store,
    packed,
    unpacked,
)

A, B, C, D = (64 * letter for letter in "abcd")
"""Keys."""

HEADER = {"kernels": ["mac0"], "sizes": [1, 2]}
BODY = bytes(range(256)) * 4
CONTENT = packed(HEADER, BODY)
RANGES = {
    "magic": (0, len(MAGIC)),
    "digest": (len(MAGIC), DIGEST_BYTES),
    "length": (len(MAGIC) + DIGEST_BYTES, LENGTH_BYTES),
    "header": (len(MAGIC) + DIGEST_BYTES + LENGTH_BYTES, 20),
    "body": (len(CONTENT) - len(BODY), len(BODY)),
}
"""The parts of a file: where each begins, how many bytes it has."""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    assert store.read(A) is None
    store.write(A, HEADER, BODY)
    entry = store.read(A)
    assert entry is not None
    assert entry.header == {**HEADER, "key": A}
    assert entry.body == BODY
    store.discard(A)
    store.discard(A)
    assert store.read(A) is None


@pytest.mark.parametrize("part", RANGES)
@given(data=st.data())
def test_a_changed_bit_is_noticed(part: str, data: st.DataObject) -> None:
    start, count = RANGES[part]
    position = start + data.draw(st.integers(0, count - 1))
    changed = bytearray(CONTENT)
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        unpacked(bytes(changed))


@given(st.integers(0, len(CONTENT) - 1), st.binary(max_size=3))
def test_a_file_cut_short_or_longer_is_noticed(length: int, more: bytes) -> None:
    with pytest.raises(Damaged):
        unpacked(CONTENT[:length])
    if more:
        with pytest.raises(Damaged):
            unpacked(CONTENT + more)


@given(st.binary())
def test_any_other_file_is_noticed(content: bytes) -> None:
    with pytest.raises(Damaged):
        unpacked(content)


def test_a_file_of_another_key_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write(A, HEADER, BODY)
    store.path(A).rename(store.path(B))
    with pytest.raises(Damaged, match="another key"):
        store.read(B)


def test_a_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write(A, HEADER, BODY)
    store.path(A).chmod(0o666)
    with pytest.raises(Damaged, match="somebody else may have written it"):
        store.read(A)


@pytest.mark.parametrize("header", [b"", b"[]", b'"text"', b"{", b"\xff", b"[" * 100_000])
def test_a_header_that_is_no_json_object_is_noticed(header: bytes) -> None:
    rest = len(header).to_bytes(LENGTH_BYTES, "little") + header
    with pytest.raises(Damaged, match="its header is no JSON"):
        unpacked(MAGIC + hashlib.sha256(rest).digest() + rest)


def aged(store: Store, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(store.path(key), (then, then))


def test_the_bound_holds_and_the_least_recently_used_go_first(tmp_path: Path) -> None:
    size = len(packed({**HEADER, "key": A}, BODY))
    store = Store(tmp_path / "cache", limit=3 * size)
    for age, key in enumerate((A, B, C)):
        store.write(key, HEADER, BODY)
        aged(store, key, 100 - age)
    assert store.read(A) is not None  # now b is the oldest
    store.write(D, HEADER, BODY)
    assert [key for key in (A, B, C, D) if store.path(key).exists()] == [A, C, D]
    assert sum(about.st_size for *_, about in store.files()) <= store.limit


def test_an_entry_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", limit=len(BODY))
    store.write(A, HEADER, BODY)
    assert list(store.files()) == []


def test_what_a_killed_writer_left_is_removed_later(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write(A, HEADER, BODY)
    for age in (0, int(2 * ABANDONED)):
        part = store.path(A).with_name(f"{age:016}.part")
        part.write_bytes(CONTENT[:100])
        os.utime(part, (time.time() - age,) * 2)
    store.write(B, HEADER, BODY)
    names = {name for _, name, _ in store.files()}
    assert names == {f"{0:016}.part", store.path(A).name, store.path(B).name}


def test_a_writer_that_is_killed_leaves_the_old_entry(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.write(A, HEADER, b"old")
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom polyfuse.runtime.store import store, files\n"
        "files.os.replace = lambda *names, **folders: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.Store(Path(sys.argv[1])).write('a' * 64, {}, b'new')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "cache")], capture_output=True)
    assert done.returncode == -9
    entry = store.read(A)
    assert entry is not None
    assert entry.body == b"old"
    assert sum(name.endswith(".part") for _, name, _ in store.files()) == 1
    assert store.clear()[0] == 2
    assert list(store.files()) == []


def write_and_read(directory: Path, number: int) -> int:
    """Write one of two keys again and again, and read the other; how often it was there, always whole."""
    store, found = Store(directory, limit=20 * len(BODY)), 0
    for turn in range(40):
        store.write("ab"[number % 2] * 64, {"number": number}, bytes([number]) * (1000 + turn))
        entry = store.read("ba"[number % 2] * 64)
        if entry is not None:
            found += 1
            assert set(entry.body) == {entry.header["number"]}
    return found


def test_many_processes_at_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(write_and_read, [tmp_path / "cache"] * 4, range(4)))
    assert sum(found) > 0
    assert {name for _, name, _ in Store(tmp_path / "cache").files()} == {f"{A}.entry", f"{B}.entry"}
