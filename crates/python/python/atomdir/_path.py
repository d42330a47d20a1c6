"""Paths in a transaction, with the methods of `pathlib.Path`."""

from __future__ import annotations

import os
import stat as stat_bits
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal, Optional, Union, overload

if TYPE_CHECKING:
    import io

    from ._native import _Stat
    from ._transaction import Transaction

AnyPath = Union[str, "os.PathLike[str]"]
# The same as in the pathlib of this Python version.
FINAL_STARS_MATCH_FILES = sys.version_info >= (3, 13)
_BINARY = Literal["rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b", "rb+", "wb+", "ab+"]


def relative(path: Union[AnyPath, Path]) -> str:
    return str(path) if isinstance(path, Path) else os.fspath(path)


class Path:
    """A path in a transaction, relative to the store's root: `tx / "conf" / "a.toml"`.

    It has the methods of `pathlib.Path`, and needs no mount. Outside the transaction it is not a
    path, so `open(path)` raises `TypeError`; use `path.open()`.
    """

    __slots__ = ("_path", "transaction")

    def __init__(self, transaction: Transaction, *parts: AnyPath) -> None:
        self.transaction = transaction
        self._path = PurePosixPath(*parts)

    def _with(self, path: PurePosixPath) -> Path:
        return Path(self.transaction, path)

    # ---- The path itself.

    def __str__(self) -> str:
        return str(self._path)

    def __repr__(self) -> str:
        return f"<atomdir.Path {str(self._path)!r} of transaction {self.transaction.id}>"

    def __hash__(self) -> int:
        return hash((id(self.transaction), self._path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self.transaction is other.transaction and self._path == other._path

    def __lt__(self, other: Path) -> bool:
        return self._path < other._path

    def __truediv__(self, part: AnyPath) -> Path:
        return self._with(self._path / part)

    def joinpath(self, *parts: AnyPath) -> Path:
        """The path with these parts after it."""
        return self._with(self._path.joinpath(*parts))

    @property
    def name(self) -> str:
        """The last part."""
        return self._path.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._path.stem

    @property
    def suffix(self) -> str:
        """The last suffix: `.gz` of `a.tar.gz`."""
        return self._path.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes: `.tar` and `.gz` of `a.tar.gz`."""
        return self._path.suffixes

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts."""
        return self._path.parts

    @property
    def parent(self) -> Path:
        """The path without its last part."""
        return self._with(self._path.parent)

    @property
    def parents(self) -> list[Path]:
        """The parent, its parent, and so on, up to the store's root."""
        return [self._with(path) for path in self._path.parents]

    def as_posix(self) -> str:
        """The path as text, relative to the store's root."""
        return str(self._path)

    def with_name(self, name: str) -> Path:
        """The path with another last part."""
        return self._with(self._path.with_name(name))

    def with_stem(self, stem: str) -> Path:
        """The path with another last part and the same suffix."""
        return self._with(self._path.with_stem(stem))

    def with_suffix(self, suffix: str) -> Path:
        """The path with another last suffix."""
        return self._with(self._path.with_suffix(suffix))

    def relative_to(self, other: Union[AnyPath, Path]) -> PurePosixPath:
        """The path relative to another one above it."""
        return self._path.relative_to(relative(other))

    def is_relative_to(self, other: Union[AnyPath, Path]) -> bool:
        """Whether the other path is this one or above it."""
        return self._path.is_relative_to(relative(other))

    def match(self, pattern: str) -> bool:
        """Whether the path matches a pattern, as `pathlib.PurePath.match` says."""
        return self._path.match(pattern)

    # ---- Contents.

    @overload
    def open(
        self,
        mode: Literal["r", "w", "x", "a", "r+", "w+", "x+", "a+", "rt", "wt"] = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, mode: _BINARY, buffering: int = -1) -> IO[bytes]: ...
    @overload
    def open(
        self,
        mode: str,
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]: ...
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]:
        """Opens the file like the builtin `open`. A commit flushes and closes files that are still
        open."""
        return self.transaction.open(
            str(self), mode, buffering, encoding, errors, newline
        )

    def read_bytes(self) -> bytes:
        """The contents."""
        return self.transaction.native.read(str(self))

    def write_bytes(self, data: Union[bytes, bytearray, memoryview]) -> int:
        """Replaces the contents, and makes the file if there is none. Returns the number of bytes."""
        contents = bytes(data)
        self.transaction.native.write(str(self), contents)
        return len(contents)

    def read_text(
        self, encoding: Optional[str] = None, errors: Optional[str] = None
    ) -> str:
        """The contents as text."""
        with self.transaction.open(str(self), "r", -1, encoding, errors, None) as file:
            text: str = file.read()
            return text

    def write_text(
        self,
        data: str,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> int:
        """Replaces the contents by a text, and makes the file if there is none."""
        with self.transaction.open(
            str(self), "w", -1, encoding, errors, newline
        ) as file:
            return file.write(data)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Makes an empty file, or sets the times of an existing one to now."""
        native = self.transaction.native
        is_new = not exist_ok or not self.exists()
        # The last two flags are create and create new. No flag truncates an existing file.
        flags = (False, True, False, False, is_new and exist_ok, not exist_ok)
        native.open(str(self), flags, mode).close()
        if not is_new:
            self.utime()

    # ---- Names.

    def mkdir(
        self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Makes a directory; with `parents`, missing ones above it as well."""
        try:
            self.transaction.native.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, parents=False, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def symlink_to(
        self, target: Union[AnyPath, Path], target_is_directory: bool = False
    ) -> None:
        """Makes this a symbolic link to the target."""
        self.transaction.native.symlink(relative(target), str(self))

    def hardlink_to(self, target: Union[AnyPath, Path]) -> None:
        """Makes this another name of an existing file."""
        self.transaction.native.link(relative(target), str(self))

    def readlink(self) -> PurePosixPath:
        """The target of the symbolic link."""
        return PurePosixPath(self.transaction.native.readlink(str(self)))

    def rename(self, target: Union[AnyPath, Path]) -> Path:
        """Renames it to a path relative to the store's root. Replaces an existing object."""
        self.transaction.native.rename(str(self), relative(target))
        return Path(self.transaction, relative(target))

    def replace(self, target: Union[AnyPath, Path]) -> Path:
        """The same as `rename`."""
        return self.rename(target)

    def exchange(self, other: Union[AnyPath, Path]) -> None:
        """Exchanges two objects in one step."""
        self.transaction.native.exchange(str(self), relative(other))

    def copy(self, target: Union[AnyPath, Path]) -> Path:
        """Copies the contents and the mode of the file."""
        self.transaction.native.copy(str(self), relative(target))
        return Path(self.transaction, relative(target))

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes a name that is not a directory's."""
        try:
            self.transaction.native.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        self.transaction.native.rmdir(str(self))

    def rmtree(self) -> None:
        """Removes the file, or the directory with everything in it."""
        self.transaction.native.remove_all(str(self))

    def iterdir(self) -> Iterator[Path]:
        """The paths in the directory, in no order."""
        for name, _ in self.transaction.native.list(str(self)):
            yield self / name

    def walk(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Like `os.walk`, from the top down. Symbolic links to directories count as files."""
        entries = self.transaction.native.list(str(self))
        directories = [name for name, kind in entries if stat_bits.S_ISDIR(kind)]
        files = [name for name, kind in entries if not stat_bits.S_ISDIR(kind)]
        yield self, directories, files
        for name in directories:
            yield from (self / name).walk()

    def glob(self, pattern: str) -> Iterator[Path]:
        """The paths below this directory that match a pattern such as `conf/*.toml`. `**`
        stands for any number of directories, and does not follow symbolic links. At the end of a
        pattern it also matches files from Python 3.13 on, as in pathlib."""
        parts = PurePosixPath(pattern).parts
        if not parts or pattern.startswith("/"):
            raise ValueError(f"not a relative pattern: {pattern!r}")
        # A path may be found several times: yield it once.
        yield from dict.fromkeys(self._glob(parts))

    def rglob(self, pattern: str) -> Iterator[Path]:
        """`glob` in the directory and all below it."""
        yield from self.glob(f"**/{pattern}")

    def _glob(self, parts: tuple[str, ...]) -> Iterator[Path]:
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._glob(rest)
            for name, kind in self._entries():
                if stat_bits.S_ISDIR(kind):
                    yield from (self / name)._glob(parts)
                elif not rest and FINAL_STARS_MATCH_FILES:
                    yield self / name
        elif any(letter in first for letter in "*?["):
            for name, _ in self._entries():
                if fnmatchcase(name, first):
                    yield from (self / name)._glob(rest)
        elif (self / first).exists(follow_symlinks=False):
            yield from (self / first)._glob(rest)

    def _entries(self) -> list[tuple[str, int]]:
        try:
            return self.transaction.native.list(str(self))
        except (NotADirectoryError, FileNotFoundError):
            return []

    # ---- Attributes.

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as `os.stat` returns them."""
        return _stat_result(self.transaction.native.stat(str(self), follow_symlinks))

    def lstat(self) -> os.stat_result:
        """Attributes; of a symbolic link, its own."""
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether something has this name."""
        return self._mode(follow_symlinks) is not None

    def is_file(self) -> bool:
        """Whether it is a regular file, or a link to one."""
        return stat_bits.S_ISREG(self._mode() or 0)

    def is_dir(self) -> bool:
        """Whether it is a directory, or a link to one."""
        return stat_bits.S_ISDIR(self._mode() or 0)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat_bits.S_ISLNK(self._mode(False) or 0)

    def _mode(self, follow: bool = True) -> Optional[int]:
        try:
            return self.transaction.native.stat(str(self), follow)[0]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def chmod(self, mode: int) -> None:
        """Sets the permissions."""
        self.transaction.native.chmod(str(self), mode)

    def chown(self, user: Optional[int] = None, group: Optional[int] = None) -> None:
        """Sets the owner, the group or both, by their ids. Does not follow a symbolic link."""
        self.transaction.native.chown(str(self), user, group)

    def utime(
        self, accessed_ns: Optional[int] = None, modified_ns: Optional[int] = None
    ) -> None:
        """Sets the times, in nanoseconds since 1970; without arguments, both to now. Does not follow a
        symbolic link."""
        if accessed_ns is None and modified_ns is None:
            accessed_ns = modified_ns = time.time_ns()
        self.transaction.native.utime(str(self), accessed_ns, modified_ns)

    def getxattr(self, name: str) -> Optional[bytes]:
        """The value of an extended attribute, or `None` if there is no such attribute."""
        return self.transaction.native.xattr(str(self), name)

    def listxattr(self) -> list[str]:
        """The names of the extended attributes."""
        return self.transaction.native.xattr_names(str(self))

    def setxattr(self, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self.transaction.native.set_xattr(str(self), name, value)

    def removexattr(self, name: str) -> None:
        """Removes an extended attribute."""
        self.transaction.native.remove_xattr(str(self), name)


def _stat_result(numbers: _Stat) -> os.stat_result:
    mode, inode, links, user, group, size, blocks, device, atime, mtime, ctime = numbers
    second = 1_000_000_000
    seconds = (atime // second, mtime // second, ctime // second)
    whole = (mode, inode, 0, links, user, group, size, *seconds)
    exact = {
        "st_atime": atime / second,
        "st_mtime": mtime / second,
        "st_ctime": ctime / second,
        "st_atime_ns": atime,
        "st_mtime_ns": mtime,
        "st_ctime_ns": ctime,
        "st_blocks": blocks,
        "st_rdev": device,
    }
    return os.stat_result(whole, exact)
