"""The store: files by key, each with a checksum, in one directory that never grows beyond a bound.

    file   ::= MAGIC  sha256 of the rest  length of header  header  body        header is JSON, body is bytes

A file is written whole or not at all and read back only if it is this user's and its checksum holds, so writers need
no lock, and one that is killed leaves nothing that is taken for a file. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfuse.runtime.store.files import PART, write_whole

MAGIC = b"polyfuse cache 1\n"
DIGEST_BYTES = 32
LENGTH_BYTES = 8
SUFFIX = ".entry"

LIMIT = 512 * 2**20
"""Bytes of all files together; POLYFUSE_CACHE_MIB says another number of MiB. An 8-layer network takes some 100 KiB."""

ABANDONED = 3600.0
"""Seconds after which a file that is still being written has no writer any more."""


@dataclass(frozen=True)
class Entry:
    """What is kept under a key."""

    header: Mapping[str, Any]
    body: bytes


class Damaged(Exception):
    """A file that is not what was written: the message says how."""


@dataclass(frozen=True)
class Store:
    """Entries in a directory. Any number of processes may use it at once."""

    directory: Path
    limit: int = LIMIT

    def path(self, key: str) -> Path:
        """Where the entry of a key lies."""
        return self.directory / "compiled" / f"{key}{SUFFIX}"

    def read(self, key: str) -> Entry | None:
        """The entry of a key, from now on the most recently used; None if there is none.

        Raises Damaged for a file that was cut off, changed, or may have been written by somebody else.
        """
        path = self.path(key)
        try:
            with path.open("rb") as file:
                _check_owner(os.fstat(file.fileno()))
                content = file.read()
        except OSError:
            return None
        entry = unpacked(content)
        if entry.header.get("key") != key:
            raise Damaged("it belongs to another key")
        with suppress(OSError):  # a directory that is only read has no order of use
            os.utime(path)
        return entry

    def write(self, key: str, header: Mapping[str, Any], body: bytes) -> None:
        """Keep an entry, and let go of those not used for longest where the bound asks for it.

        Raises OSError where the directory cannot be written.
        """
        write_whole(self.path(key), packed({**header, "key": key}, body))
        self.trim()

    def discard(self, key: str) -> None:
        """Remove an entry, if it is there and may be removed."""
        with suppress(OSError):
            self.path(key).unlink()

    def trim(self) -> None:
        """Remove files, least recently used first, until all are within the bound, and those nobody finished."""
        now = time.time()
        found = []
        for path, about in self.files():
            if path.suffix != PART:
                found.append((about.st_mtime, about.st_size, path))
            elif now - about.st_mtime > ABANDONED:
                path.unlink(missing_ok=True)
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size

    def clear(self) -> tuple[int, int]:
        """Remove every file; how many there were, and their bytes together. Raises OSError where one may not be."""
        every = [(path, about.st_size) for path, about in self.files()]
        for path, _ in every:
            path.unlink(missing_ok=True)
        return len(every), sum(size for _, size in every)

    def files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Every file of the store, kernels' sources for tracebacks among them; not one that goes meanwhile."""
        for folder in ("compiled", "source"):
            for path in sorted((self.directory / folder).glob("*")):
                with suppress(OSError):
                    yield path, path.stat()


def packed(header: Mapping[str, Any], body: bytes) -> bytes:
    """An entry as a file's content."""
    text = json.dumps(header).encode()
    rest = len(text).to_bytes(LENGTH_BYTES, "little") + text + body
    return MAGIC + hashlib.sha256(rest).digest() + rest


def unpacked(content: bytes) -> Entry:
    """The inverse of `packed`; Damaged if a single bit differs from what it made."""
    start = len(MAGIC) + DIGEST_BYTES
    digest, rest = content[len(MAGIC) : start], content[start:]
    if not content.startswith(MAGIC):
        raise Damaged("it does not begin as an entry does")
    if len(rest) < LENGTH_BYTES or hashlib.sha256(rest).digest() != digest:
        raise Damaged("its checksum does not hold")
    stop = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "little")
    return Entry(json.loads(rest[LENGTH_BYTES:stop]), rest[stop:])


def _check_owner(about: os.stat_result) -> None:
    """Machine code is run: it has to come from this user (on systems that have users)."""
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
        raise Damaged("somebody else may have written it")
