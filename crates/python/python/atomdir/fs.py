"""A file system for fsspec with Atomdir's transactions.

    fs = fsspec.filesystem("atomdir")
    with fs.transaction:
        frame.to_parquet("atomdir:///srv/data/2024/a.parquet")
        fs.rm("/srv/data/2023", recursive=True)

All calls of this file system in the block, in any thread, are one transaction: reads, writes, `rm`,
`mv` and `cp`. The end of the block commits it; if that fails, it raises `atomdir.Conflict` and drops
the changes. Outside a block each call is a transaction of its own, and closing a written file
commits it.

Paths are absolute paths below the root of a store. All paths of a transaction must be in one store.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import threading
from collections.abc import Iterator
from typing import Any, Optional, Union

from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction as FsspecTransaction
from fsspec.utils import isfilelike, stringify_path

from ._path import Path
from ._places import absolute_names, describe, locate
from ._store import Store
from ._transaction import Transaction


class StoreTransaction(FsspecTransaction):  # type: ignore[misc]
    """The class of `fs.transaction`. The transaction begins with the first call in the block."""

    def __init__(self, fs: AtomdirFileSystem, **kwargs: Any) -> None:
        super().__init__(fs, **kwargs)
        self.fs: Optional[AtomdirFileSystem] = fs
        self._mutex = threading.Lock()
        self._opened: Optional[tuple[str, Transaction]] = None

    def start(self) -> None:
        assert self.fs is not None
        self.fs._intrans = True

    def of(self, root: str) -> Transaction:
        """The transaction. Fails if it is not in the store with this root."""
        with self._mutex:
            if self._opened is None:
                assert self.fs is not None
                self._opened = (root, self.fs._begin(root))
            known, transaction = self._opened
        if known != root:
            raise ValueError(
                f"the transaction is in the store '{known}', the path is in '{root}'"
            )
        return transaction

    def complete(self, commit: bool = True) -> None:
        with self._mutex:
            opened, self._opened = self._opened, None
        try:
            if opened is not None:
                # The end of this block commits, and aborts if that fails.
                with opened[1] as transaction:
                    if not commit:
                        transaction.abort()
        finally:
            if self.fs is not None:
                self.fs._intrans = False
                self.fs._transaction = None
                self.fs = None


class AtomdirFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files in stores, by their absolute paths. See the module's documentation.

    `isolation`, `durability` and `label` are those of `atomdir.Store.transaction`. With
    `auto_mkdir`, which pyarrow expects, writing a file makes its missing parent directories.
    """

    protocol = "atomdir"
    root_marker = "/"
    transaction_type = StoreTransaction

    def __init__(
        self,
        isolation: str = "snapshot",
        durability: str = "durable",
        label: str = "",
        auto_mkdir: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._options: dict[str, Any] = {
            "isolation": isolation,
            "durability": durability,
            "label": label,
            "own_reads_only": True,
        }
        self.auto_mkdir = auto_mkdir

    @property
    def fsid(self) -> str:
        return "atomdir"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("atomdir://", "atomdir::", "atomdir:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        if not path.startswith("/"):
            path = f"{os.getcwd()}/{path}"
        # Remove "..", so that a path cannot leave the store in which it begins.
        path = os.path.normpath(path)
        return f"/{path.lstrip('/')}"

    # ---- Transactions.

    def _begin(self, root: str) -> Transaction:
        with contextlib.closing(Store(root)) as store:
            return store.transaction(**self._options)

    @contextlib.contextmanager
    def _all(self, paths: list[str]) -> Iterator[list[Path]]:
        """The paths, in the transaction of the block or in a transaction for this call."""
        located = [locate(self._strip_protocol(path)) for path in paths]
        roots = list(dict.fromkeys(root for root, _, _ in located))
        if len(roots) != 1:
            raise ValueError(f"the paths of a call must be in one store, not in {roots}")
        with absolute_names(located[0][1]):
            if self._intrans:
                transaction = self.transaction.of(roots[0])
                yield [transaction.path(inner) for _, _, inner in located]
            else:
                with self._begin(roots[0]) as transaction:
                    yield [transaction.path(inner) for _, _, inner in located]

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[Path]:
        with self._all([path]) as (at,):
            yield at

    # ---- Directories.

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        with self._at(path) as at:
            at.mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        with self._at(path) as at:
            at.mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        with self._at(path) as at:
            at.rmdir()

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        with self._at(path) as at:
            if at.is_dir():
                found = [describe(f"{path.rstrip('/')}/{one.name}", one) for one in at.iterdir()]
            else:
                found = [describe(path, at)]
        return found if detail else [one["name"] for one in found]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        with self._at(path) as at:
            return describe(path, at)

    def lexists(self, path: str, **kwargs: Any) -> bool:
        with self._at(path) as at:
            return at.exists(follow_symlinks=False)

    def created(self, path: str) -> Any:
        raise NotImplementedError("a store has no creation times")

    def modified(self, path: str) -> Any:
        with self._at(path) as at:
            modified = at.stat().st_mtime
        return datetime.datetime.fromtimestamp(modified, tz=datetime.timezone.utc)

    # ---- Files.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> Any:
        root, entered, inner = locate(self._strip_protocol(path))
        if self._intrans:
            transaction, is_own = self.transaction.of(root), False
        else:
            transaction, is_own = self._begin(root), True
        try:
            with absolute_names(entered):
                at = transaction.path(inner)
                if self.auto_mkdir and mode[0] in "wax":
                    at.parent.mkdir(parents=True, exist_ok=True)
                return StoreFile(self, path, at, mode, transaction if is_own else None)
        except BaseException:
            if is_own:
                transaction.abort()
            raise

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        # fsspec need not commit the file later: its writes go to the transaction.
        kwargs["autocommit"] = True
        return super().open(path, mode, **kwargs)

    def cat_file(
        self,
        path: str,
        start: Optional[int] = None,
        end: Optional[int] = None,
        **kwargs: Any,
    ) -> bytes:
        if start is None and end is None:
            with self._at(path) as at:
                return at.read_bytes()
        contents: bytes = super().cat_file(path, start, end, **kwargs)
        return contents

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        with self._at(path) as at:
            if self.auto_mkdir:
                at.parent.mkdir(parents=True, exist_ok=True)
            if mode == "create" and at.exists(follow_symlinks=False):
                raise FileExistsError(path)
            at.write_bytes(value)

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with self._at(rpath) as at, open(lpath, "rb") as source:
            if self.auto_mkdir:
                at.parent.mkdir(parents=True, exist_ok=True)
            with at.open("xb" if mode == "create" else "wb") as target:
                _copy(source, target, callback)

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any
    ) -> None:
        with self._at(rpath) as at:
            if not isfilelike(lpath) and at.is_dir():
                os.makedirs(lpath, exist_ok=True)
                return
            with contextlib.ExitStack() as stack:
                source = stack.enter_context(at.open("rb"))
                target = outfile or lpath
                if not isfilelike(target):
                    os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)
                    target = stack.enter_context(open(lpath, "wb"))
                _copy(source, target, callback)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        with self._at(path) as at:
            if self.auto_mkdir:
                at.parent.mkdir(parents=True, exist_ok=True)
            if truncate:
                at.write_bytes(b"")
            else:
                at.touch()

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        with self._all([path1, path2]) as (source, target):
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                return
            if self.auto_mkdir:
                target.parent.mkdir(parents=True, exist_ok=True)
            source.copy(target)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """Renames a file or directory; into `path2`, if that is a directory."""
        with self._all([path1, path2]) as (source, target):
            if target.is_dir() and not source.is_dir() or path2.endswith("/"):
                target = target / source.name
            if self.auto_mkdir:
                target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

    def rm_file(self, path: str) -> None:
        with self._at(path) as at:
            at.unlink()

    _rm = rm_file

    def rm(
        self,
        path: Union[str, list[str]],
        recursive: bool = False,
        maxdepth: Optional[int] = None,
    ) -> None:
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        if maxdepth is not None or any(_is_pattern(one) for one in paths):
            paths = self.expand_path(paths, recursive=recursive, maxdepth=maxdepth)
            # Remove the deepest paths first.
            paths.sort(key=len, reverse=True)
        if not paths:
            return
        # Remove all of them in one transaction.
        with self._all(paths) as found:
            for at in found:
                is_directory = at.is_dir() and not at.is_symlink()
                if is_directory and not recursive:
                    raise ValueError("Cannot delete directory, set recursive=True")
                at.rmtree()

    def chmod(self, path: str, mode: int) -> None:
        with self._at(path) as at:
            at.chmod(mode)

    def _isfilestore(self) -> bool:
        return True


class StoreFile(io.BufferedIOBase):
    """An open file. Outside `fs.transaction` it has a transaction of its own. Closing the file commits
    it. If its `with` block raises, or it is never closed, its writes are dropped."""

    def __init__(
        self,
        fs: AtomdirFileSystem,
        path: str,
        at: Path,
        mode: str,
        own: Optional[Transaction],
    ) -> None:
        super().__init__()
        self.fs = fs
        self.path = path
        self.name = path
        self.mode = mode
        self._file: Any = at.open(mode)
        self._own = own
        self.size: Optional[int] = at.stat().st_size if "r" in mode else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file, name)

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return True

    def read(self, size: Optional[int] = -1) -> bytes:
        contents: bytes = self._file.read(-1 if size is None else size)
        return contents

    def read1(self, size: int = -1) -> bytes:
        contents: bytes = self._file.read1(size)
        return contents

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        return count

    def readline(self, size: Optional[int] = -1) -> bytes:
        line: bytes = self._file.readline(-1 if size is None else size)
        return line

    def write(self, data: Any) -> int:
        count: int = self._file.write(data)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position: int = self._file.seek(offset, whence)
        return position

    def tell(self) -> int:
        position: int = self._file.tell()
        return position

    def truncate(self, size: Optional[int] = None) -> int:
        length: int = self._file.truncate(size)
        return length

    def flush(self) -> None:
        if not self._file.closed and self._file.writable():
            self._file.flush()

    def info(self) -> dict[str, Any]:
        if self.readable():
            return {"name": self.path, "size": self.size, "type": "file"}
        raise ValueError("Info not available while writing")

    def close(self) -> None:
        if self.closed:
            return
        own, self._own = self._own, None
        try:
            # The end of this block commits.
            with own or contextlib.nullcontext():
                self._file.close()
        finally:
            super().close()

    def discard(self) -> None:
        """Closes the file. Outside `fs.transaction`, drops its writes."""
        own, self._own = self._own, None
        if own is not None:
            own.abort()
        self.close()

    def commit(self) -> None:
        self.close()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # A file that was not closed may be incomplete: drop its writes.
        if getattr(self, "_own", None) is not None:
            self.discard()


def _copy(source: Any, target: Any, callback: Any) -> None:
    while True:
        data = source.read(1 << 20)
        if not data:
            return
        target.write(data)
        if callback is not None:
            callback.relative_update(len(data))


def _is_pattern(path: str) -> bool:
    return any(letter in str(path) for letter in "*?[")
