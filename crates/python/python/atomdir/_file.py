"""Python's file objects for files in a transaction."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from ._native import File

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._native import Transaction

#: Larger than Python's default, since each call costs more than a system call.
BUFFER_SIZE = 1 << 16


class RawFile(io.RawIOBase):
    """A file without a buffer: the lowest layer of the file that `Path.open` returns."""

    def __init__(self, native: File, name: str, mode: str) -> None:
        super().__init__()
        self.name = name
        self.mode = mode
        self._native = native
        self._position = 0
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "rb"
        self._appends = "a" in mode
        self._is_discarded = False
        if self._appends:
            self._position = self._length()

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def readinto(self, buffer: Buffer) -> int:
        self._check()
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")
        view = memoryview(buffer).cast("B")
        data = self._native.read(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check()
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")
        data = self._native.read((1 << 64) - 1, self._position)
        self._position += len(data)
        return data

    def write(self, data: Buffer) -> int:
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")
        contents = bytes(data)
        if self._is_discarded:
            return len(contents)
        if self._appends:
            self._position = self._native.append(contents)
        else:
            self._native.write(contents, self._position)
            self._position += len(contents)
        return len(contents)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._length()
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence: {whence}")
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._position = offset
        return offset

    def tell(self) -> int:
        self._check()
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("truncate")
        size = self._position if size is None else size
        if not self._is_discarded:
            self._native.truncate(size)
        return size

    def close(self) -> None:
        if not self.closed:
            # `super().close()` flushes. Close the file even if that fails.
            try:
                super().close()
            finally:
                self._native.close()

    def discard(self) -> None:
        """Closes the file and ignores all further writes, since the transaction is aborted."""
        self._is_discarded = True
        self._native.close()

    def _length(self) -> int:
        return 0 if self._is_discarded else self._native.length()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


AnyFile = Union[RawFile, io.BufferedIOBase, io.TextIOWrapper]


def open_file(
    transaction: Transaction,
    path: str,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
) -> tuple[RawFile, Any]:
    """Opens a file like the builtin `open`. Returns its lowest and its highest layer."""
    plain, is_text = _parse(mode)
    if not is_text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if is_text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    kind, plus = plain[0], "+" in plain
    flags = (
        kind == "r" or plus,
        kind in "wx" or (kind == "r" and plus),
        kind == "a",
        kind == "w",
        kind in "wa",
        kind == "x",
    )
    raw = RawFile(
        transaction.open(path, flags, 0o666),
        path,
        kind + "b" + ("+" if plus else ""),
    )
    try:
        return raw, _layers(raw, is_text, buffering, encoding, errors, newline, mode)
    except BaseException:
        raw.close()
        raise


def _layers(
    raw: RawFile,
    is_text: bool,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
    mode: str,
) -> AnyFile:
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else BUFFER_SIZE
    buffered: Any
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if not is_text:
        return buffered  # type: ignore[no-any-return]
    text = io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
    text.mode = mode  # type: ignore[misc]
    return text


def _parse(mode: str) -> tuple[str, bool]:
    """Returns the mode without "b" and "t", and whether it is a text mode."""
    letters = set(mode)
    is_valid = (
        len(letters) == len(mode)
        and letters <= set("rwxab+t")
        and len(letters & set("rwxa")) == 1
        and not {"b", "t"} <= letters
    )
    if not is_valid:
        raise ValueError(f"invalid mode: {mode!r}")
    kind = next(letter for letter in mode if letter in "rwxa")
    return kind + ("+" if "+" in mode else ""), "b" not in mode
