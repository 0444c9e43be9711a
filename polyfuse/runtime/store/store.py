"""The store: files by key, each with a checksum, in one directory of bounded size.

    file   ::= MAGIC  sha256 of the rest  length of header  header  body        header is JSON, body is bytes

A file is written whole or not at all and read back only if it is this user's and its checksum holds, so writers need
no lock, and one that is killed leaves nothing that is taken for a file. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from polyfuse.runtime.store.files import PART, Folder, NotOwn, source_folder

MAGIC = b"polyfuse cache 1\n"
DIGEST_BYTES = 32
LENGTH_BYTES = 8
SUFFIX = ".entry"
ENTRY = re.compile(rf"[0-9a-f]{{64}}{re.escape(SUFFIX)}")
"""The names of entries: keys are digests (polyfuse.runtime.keys)."""

LIMIT = 512 * 2**20
"""Bytes of all files together; POLYFUSE_CACHE_MIB says another number of MiB. An 8-layer network takes some 100 KiB."""

ABANDONED = 3600.0
"""Seconds after which a file that is still being written has no writer any more."""


@dataclass(frozen=True)
class Entry:
    """The entry under a key."""

    header: Mapping[str, Any]
    body: bytes


class Damaged(Exception):
    """A file that is not what was written: the message says how."""


@dataclass(frozen=True)
class Store:
    """Entries in a directory. Any number of processes may use it at once."""

    directory: Path
    limit: int = LIMIT

    @property
    def entries(self) -> Folder:
        """The folder of entries."""
        return Folder(self.directory, "compiled", ENTRY)

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The folders that count towards the bound: entries, and kernels' sources for tracebacks."""
        return self.entries, source_folder(self.directory)

    def path(self, key: str) -> Path:
        """Return the path of a key's entry."""
        return self.entries.path(f"{key}{SUFFIX}")

    def read(self, key: str) -> Entry | None:
        """The entry of a key, from now on the most recently used; None if there is none.

        Raises Damaged for a file that was cut off, changed, or may have been written by somebody else.
        """
        try:
            content = self.entries.read(f"{key}{SUFFIX}")
        except OSError:
            return None
        except NotOwn as reason:
            raise Damaged(str(reason)) from reason
        entry = unpacked(content)
        if entry.header.get("key") != key:
            raise Damaged("it belongs to another key")
        return entry

    def write(self, key: str, header: Mapping[str, Any], body: bytes) -> None:
        """Keep an entry, and let go of those not used for longest where the bound asks for it.

        Raises OSError if the directory cannot be written, or is another's.
        """
        self.entries.write(f"{key}{SUFFIX}", packed({**header, "key": key}, body))
        self.trim()

    def discard(self, key: str) -> None:
        """Remove an entry, if it is there and may be removed."""
        with suppress(OSError):
            self.entries.remove(f"{key}{SUFFIX}")

    def trim(self) -> None:
        """Remove files, least recently used first, until all are within the bound, and those nobody finished."""
        now, kept = time.time(), []
        for folder in self.folders:
            with suppress(OSError):  # one that is another's holds nothing of ours
                for name, about in folder.files():
                    if not name.endswith(PART):
                        kept.append((about.st_mtime, about.st_size, folder, name))
                    elif now - about.st_mtime > ABANDONED:
                        folder.remove(name)
        total = sum(size for _, size, *_ in kept)
        for _, size, folder, name in sorted(kept, key=lambda one: one[:2]):
            if total <= self.limit:
                break
            folder.remove(name)
            total -= size

    def clear(self) -> tuple[int, int]:
        """Remove every file; how many there were, and their bytes together.

        Raises OSError if one may not be removed, or where a folder is another's.
        """
        every = list(self.files())
        for folder, name, _ in every:
            folder.remove(name)
        return len(every), sum(about.st_size for *_, about in every)

    def files(self) -> Iterator[tuple[Folder, str, os.stat_result]]:
        """Every file of the store: its folder, its name, what is known of it; not one that goes meanwhile."""
        for folder in self.folders:
            for name, about in folder.files():
                yield folder, name, about


def packed(header: Mapping[str, Any], body: bytes) -> bytes:
    """An entry as a file's content."""
    text = json.dumps(header).encode()
    rest = len(text).to_bytes(LENGTH_BYTES, "little") + text + body
    return MAGIC + hashlib.sha256(rest).digest() + rest


def unpacked(content: bytes) -> Entry:
    """The inverse of `packed`; Damaged if a single bit differs from what it made, or it made no such thing."""
    start = len(MAGIC) + DIGEST_BYTES
    digest, rest = content[len(MAGIC) : start], content[start:]
    if not content.startswith(MAGIC):
        raise Damaged("it does not begin as an entry does")
    if len(rest) < LENGTH_BYTES or hashlib.sha256(rest).digest() != digest:
        raise Damaged("its checksum does not hold")
    stop = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "little")
    try:
        header = json.loads(rest[LENGTH_BYTES:stop])
    except (ValueError, RecursionError) as error:
        raise Damaged("its header is no JSON") from error
    if not isinstance(header, dict):
        raise Damaged("its header is no JSON object")
    return Entry(header, rest[stop:])


def all_of(kind: type[Any], found: Any) -> dict[str, Any]:
    """The fields of a dataclass from JSON: all and no others, else Damaged, even if one has a default."""
    names = {one.name for one in fields(kind)}
    if not isinstance(found, dict) or found.keys() != names:
        raise Damaged(f"a {kind.__name__} in it does not have the fields {', '.join(sorted(names))}")
    return found
