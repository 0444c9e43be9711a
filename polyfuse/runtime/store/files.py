"""The cache's folder and files: each file is complete or absent, whoever else writes.

    $POLYFUSE_CACHE, $XDG_CACHE_HOME or ~/.cache    the user's; made if it is missing
      polyfuse-cache                                ours: marked, this user's, written by nobody else
        CACHEDIR.TAG                                the mark, by which backups skip it too (bford.info/cachedir)
        compiled, source                            the files, by names that only polyfuse makes

A folder is opened without following a link, and its files are named relative to the open folder. So whatever lies in
or beside the cache, nothing is read, replaced or removed but files that polyfuse made.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

OFF = "off"
"""The value of POLYFUSE_CACHE that keeps no files."""

OWN = "polyfuse-cache"
"""The name of the folder that is ours."""

MARK = "CACHEDIR.TAG"
MARK_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of polyfuse.\n"

PART = ".part"
"""The suffix of files that are being written, or were when their process ended."""


def cache_directory() -> Path | None:
    """Our folder in $POLYFUSE_CACHE, else in $XDG_CACHE_HOME, else in ~/.cache; None if POLYFUSE_CACHE is "off"."""
    chosen = os.environ.get("POLYFUSE_CACHE")
    if chosen == OFF:
        return None
    return Path(chosen or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / OWN


class NotOwn(Exception):
    """A file that polyfuse cannot have made for this user: the message says why."""


@dataclass(frozen=True)
class Folder:
    """A folder of files in a cache; `names` matches the names of those that are kept there, and of no others."""

    root: Path
    name: str
    names: re.Pattern[str]

    def path(self, file: str) -> Path:
        """The path of a file."""
        return self.root / self.name / file

    def read(self, file: str) -> bytes:
        """A file's content; from now on it is the most recently used.

        Raises OSError if there is none, or where the folder is not ours; NotOwn where something else has its name.
        """
        with self._opened() as folder, _opened_file(file, folder) as handle:
            with suppress(OSError):  # a folder that is only read has no order of use
                os.utime(handle)
            with os.fdopen(handle, "rb", closefd=False) as open_file:
                return open_file.read()

    def write(self, file: str, content: bytes) -> None:
        """Write a file so that readers find the old one, none, or all of this one, also after a crash.

        Its folder is made if it is missing. Raises OSError if that cannot be written, or is not ours.
        """
        assert self.names.fullmatch(file), f"a file of another kind: {file}"
        part = f"{secrets.token_hex(8)}{PART}"
        with self._opened(make=True) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(part, flags, 0o600, dir_fd=folder), "wb") as open_file:
                    open_file.write(content)
                    open_file.flush()
                    os.fsync(open_file.fileno())  # else a crash may leave the new name with old blocks
                os.replace(part, file, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
                raise

    def remove(self, file: str) -> None:
        """Remove a file if it is there. Raises OSError if it may not be removed, or the folder is not ours."""
        assert self._made(file), f"a file of another kind: {file}"
        with suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(file, dir_fd=folder)

    def files(self) -> list[tuple[str, os.stat_result]]:
        """Every file that was made here, those that nobody finished too. OSError where the folder is not ours."""
        found = []
        with suppress(FileNotFoundError), self._opened() as folder:
            for name in sorted(filter(self._made, os.listdir(folder))):
                with suppress(FileNotFoundError):  # it went meanwhile
                    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        found.append((name, about))
        return found

    def _made(self, file: str) -> bool:
        return bool(self.names.fullmatch(file) or _PART.fullmatch(file))

    @contextmanager
    def _opened(self, make: bool = False) -> Iterator[int]:
        """The folder, open."""
        with _opened_root(self.root, make) as root:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(self.name, 0o700, dir_fd=root)
            with _opened_folder(self.name, self.root / self.name, root) as folder:
                yield folder


_PART = re.compile(rf"[0-9a-f]{{16}}{re.escape(PART)}")


@contextmanager
def _opened_root(path: Path, make: bool) -> Iterator[int]:
    """Our folder, open, once it is certain that it is ours."""
    if make and not os.path.lexists(path):
        _make_root(path)
    with _opened_folder(path, path) as root:
        try:
            with _opened_file(MARK, root) as mark:
                marked = os.read(mark, len(MARK_TEXT) + 1) == MARK_TEXT
        except (OSError, NotOwn):
            marked = False
        if not marked:
            raise OSError(
                f"{path} was not made by polyfuse, and is left alone: name another place in POLYFUSE_CACHE"
            )
        yield root


def _make_root(path: Path) -> None:
    """Make our folder with its mark: other processes see both or neither."""
    _make_folders(path.parent)
    new = Path(tempfile.mkdtemp(prefix=f"{OWN}-", dir=path.parent))
    try:
        with os.fdopen(os.open(new / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as mark:
            mark.write(MARK_TEXT)
        os.rename(new, path)
    except OSError:
        (new / MARK).unlink(missing_ok=True)
        new.rmdir()
        if not os.path.lexists(path):  # nor did another process make it meanwhile
            raise


def _make_folders(path: Path) -> None:
    """Make a folder and those above it where they are missing, for this user alone, whatever the umask."""
    if not path.exists():
        _make_folders(path.parent)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)


@contextmanager
def _opened_folder(name: str | Path, path: Path, within: int | None = None) -> Iterator[int]:
    """A folder, open, unless it is a link, or others than this user may put files there."""
    if os.open not in os.supports_dir_fd:
        raise OSError("this system cannot name files relative to an open folder")
    try:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise OSError(f"{path} is a link or a file, where a folder belongs") from error
    try:
        if not _is_own(os.fstat(handle)):
            raise OSError(f"{path} is another user's, or may be written by others (chmod go-w)")
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _opened_file(name: str, folder: int) -> Iterator[int]:
    """A file, open for reading; NotOwn unless it is a regular one that only this user can have written."""
    handle = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder
    )  # a pipe would be waited for
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise NotOwn("it is not a regular file")
        if not _is_own(about):
            raise NotOwn("somebody else may have written it")
        yield handle
    finally:
        os.close(handle)


def _is_own(about: os.stat_result) -> bool:
    """True if only this user can have written it. Machine code is run with the rights of the effective user."""
    return about.st_uid == os.geteuid() and not about.st_mode & 0o022


SOURCE = re.compile(r"\w{1,60}_[0-9a-f]{16}\.py")


def source_folder(root: Path) -> Folder:
    """The sources of kernels, for tracebacks."""
    return Folder(root, "source", SOURCE)


def source_file(name: str, text: str) -> Path:
    """A file that holds exactly this text, for tracebacks to show; only its name where no file can be kept."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    root, file, content = cache_directory(), f"{name[:60]}_{digest}.py", text.encode()
    if root is None:
        return Path(file)
    folder = source_folder(root)
    try:
        with suppress(OSError, NotOwn):
            if folder.read(file) == content:
                return folder.path(file)
        folder.write(file, content)
    except OSError:
        return Path(file)
    return folder.path(file)
