"""Transactions."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Callable, Optional, Union

from . import _native
from ._errors import ConflictingChange, StoreError, TransactionEnded
from ._file import RawFile, open_file
from ._path import Path, relative

if TYPE_CHECKING:
    from typing_extensions import Self

AnyPath = Union[str, "os.PathLike[str]"]

SIDES = ("mine", "theirs", "merge")


@dataclass(frozen=True)
class Receipt:
    """The result of a commit.

    - `sequence`: The commit's place in the commit order, or `None` if nothing had changed
      or the transaction was nested.
    - `changes`: How many paths were changed.
    - `stalled`: Why the durable commit cannot be applied to the files yet, in words;
      otherwise `None`.
    """

    sequence: Optional[int]
    changes: int
    stalled: Optional[str]


@dataclass(frozen=True)
class Change:
    """A path that a transaction has changed.

    - `letter`: "A" (added), "M" (modified), "D" (deleted), "R" (renamed) or "T" (type
      changed).
    - `path`: Relative to the store's root.
    - `old_path`: The path before a rename.
    """

    letter: str
    path: str
    old_path: Optional[str]


@dataclass(frozen=True)
class PartReceipt:
    """The result of committing a part of a transaction.

    - `sequence`: The commit's place in the commit order.
    - `landed`: The changes that are committed, sorted by path.
    """

    sequence: Optional[int]
    landed: list[Change]


@dataclass(frozen=True)
class Texts:
    """The versions of a text in a conflict.

    - `ancestor`: The snapshot's version; empty if it has no such file.
    - `mine`: The transaction's version.
    - `theirs`: The version of the others.
    - `merged`: The text with the changes of both.
    - `is_marked`: Whether both have changed the same lines. Then `merged` has both between
      markers.
    """

    ancestor: bytes
    mine: bytes
    theirs: bytes
    merged: bytes
    is_marked: bool


class Transaction:
    """An open transaction. As a context manager it commits at the end of the block. If the block
    raises, it aborts; one from `Store.attach` stays open instead. Several threads may use it.

    It sees the store as of its beginning, with its own changes. Others do not see these before the
    commit. `tx / "a" / "b"` is a path in it.

    - `id`: The number by which conflicts and commands name the transaction.
    - `view`: The path of the transaction's view, which any program can use; `None` if the store
      has no service.
    - `not_as_then`: For `Store.at`: objects that are shown as they are now, since outside writers
      have changed them.
    """

    def __init__(
        self,
        native: _native.Transaction,
        ended: Callable[[], None] = lambda: None,
        not_as_then: Optional[Iterable[ConflictingChange]] = None,
        is_attached: bool = False,
    ) -> None:
        self._native: Optional[_native.Transaction] = native
        self._ended = ended
        self._mutex = threading.Lock()
        self._files: weakref.WeakKeyDictionary[Any, RawFile] = weakref.WeakKeyDictionary()
        self.id: int = native.id
        self.view: Optional[str] = native.view
        self._is_past = not_as_then is not None
        # Whether it stays open where another transaction would be aborted.
        self._is_attached = is_attached
        self.not_as_then: tuple[ConflictingChange, ...] = tuple(not_as_then or ())

    def __repr__(self) -> str:
        state = "ended" if self._native is None else "open"
        return f"<atomdir.Transaction {self.id}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._native is None:
            return
        if kind is not None or self._is_past:
            self._leave()
            return
        try:
            self.commit()
        except BaseException:
            self._leave()
            raise

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            self._leave()

    def _leave(self) -> None:
        """Aborts the transaction. If it is an attached one, leaves it open instead."""
        if not self._is_attached:
            self.abort()
            return
        with contextlib.suppress(OSError):
            self._close_files()
        # If the service was killed, the next service has the transaction open again.
        with contextlib.suppress(StoreError):
            self.native.keep()
        self._end()

    def __truediv__(self, path: AnyPath) -> Path:
        return self.path(path)

    def path(self, *parts: AnyPath) -> Path:
        """A path in the transaction, relative to the store's root."""
        return Path(self, *parts)

    @property
    def native(self) -> _native.Transaction:
        """The part of the transaction that is written in Rust, for this package only."""
        if self._native is None:
            raise TransactionEnded(f"the transaction {self.id} has ended")
        return self._native

    @property
    def is_open(self) -> bool:
        """Whether the transaction has not ended."""
        return self._native is not None

    def commit(self) -> Receipt:
        """Commits the transaction. Flushes and closes files that are still open in it. If this raises,
        the transaction stays open, with one exception: if it was the last user of the store, and
        closing the store fails, `StoreError` is raised although the transaction is committed."""
        self._close_files()
        receipt = Receipt(*self.native.commit())
        self._end()
        return receipt

    def commit_part(self, *paths: Union[AnyPath, Path]) -> PartReceipt:
        """Commits the changes at and below these paths, and the changes that they need. The
        transaction stays open with the rest."""
        self._flush()
        sequence, landed = self.native.commit_part([relative(path) for path in paths])
        return PartReceipt(sequence, [Change(*line) for line in landed])

    def abort_part(self, *paths: Union[AnyPath, Path]) -> list[Change]:
        """Drops the changes at and below these paths, and the changes that need them. The transaction
        stays open with the rest. Returns the dropped changes. No file may be open in the
        transaction."""
        dropped = self.native.abort_part([relative(path) for path in paths])
        return [Change(*line) for line in dropped]

    def refresh(self) -> tuple[int, int]:
        """Gives the transaction the newest snapshot: it then sees the commits of others, under its own
        changes. Returns the numbers of the newest commits in the old and in the new snapshot. Raises
        `Conflict`, and changes nothing, if others have changed the same things. Drops all savepoints.
        No file may be open in the transaction."""
        return self.native.refresh()

    def conflicts(self) -> list[ConflictingChange]:
        """The conflicts with which a commit would fail now, for `commit_with_sides`. Drops all
        savepoints."""
        self._flush()
        return [ConflictingChange(*found) for found in self.native.conflicts()]

    def texts_in_conflict(self, place: int) -> Optional[Texts]:
        """The versions of the text in a conflict, by its index in the list that `conflicts` returned
        last. Show them, or merge them in another way. `None` if the conflict is not about a text."""
        versions, is_marked, why_not = self.native.texts_in_conflict(place)
        if why_not is not None:
            return None
        ancestor, mine, theirs, merged = versions
        return Texts(ancestor, mine, theirs, merged, is_marked)

    def commit_with_sides(self, sides: Iterable[str]) -> Receipt:
        """Commits with a side for each conflict that `conflicts` listed last, in that order. With
        "mine" this transaction's changes replace those of the others. With "theirs" this
        transaction's changes there are not committed. With "merge" a text is merged line by line.

        Raises `Conflict`, and the transaction stays open, if there are more conflicts than sides, or
        others have changed these things again. A merge raises `Conflict`, and changes nothing, if both
        have changed the same lines or it is not a text; the exception's `conflicts` say which. If the
        texts are merged and the commit is refused all the same, they stay merged in the transaction.
        """
        sides = list(sides)
        for side in sides:
            if side not in SIDES:
                raise ValueError(f"a side is {side!r}, not one of: {', '.join(SIDES)}")
        self._close_files()
        receipt = Receipt(*self.native.commit_with_sides(sides))
        self._end()
        return receipt

    def abort(self) -> None:
        """Drops the changes. Does nothing if the transaction has ended."""
        native = self._native
        if native is None:
            return
        with self._mutex:
            raws = list(self._files.values())
        for raw in raws:
            raw.discard()
        native.abort()
        self._end()

    def keep(self) -> int:
        """Detaches from the transaction, which stays open for `Store.attach` or the command. Makes its
        changes durable, and returns its id. It survives the end of this program, of the service and
        of the machine. Needs a service."""
        self._close_files()
        id = self.native.keep()
        self._end()
        return id

    def sync(self) -> None:
        """Makes the changes so far durable, except data in the buffers of open files. Works only after
        `Store.attach`: any other transaction ends with this program, so this fails."""
        self.native.sync()

    def _end(self) -> None:
        with self._mutex:
            was_open, self._native = self._native is not None, None
        if was_open:
            self._ended()

    def changes(self) -> list[Change]:
        """The changes that a commit would make, sorted by path, except data in the buffers of open
        files."""
        return [Change(*line) for line in self.native.changes()]

    def lock(
        self,
        *paths: Union[AnyPath, Path],
        shared: bool = False,
        subtree: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Locks all of these paths until the transaction ends. Waits at most `timeout` seconds while
        others hold locks on them, by default without limit."""
        names = [relative(path) for path in paths]
        self.native.lock(names, shared, subtree, timeout)

    def confirm_within(self, time: Union[timedelta, float, None]) -> None:
        """Has the commit take itself back after this time, a `timedelta` or seconds, unless
        `Store.confirm` or `atomdir confirm` comes first, also after a crash; `None`: it stays, as by
        default. The time begins at the commit, and whoever has the store open then takes the commit
        back: without a service this program, or the next to open the store. Not in a nested
        transaction. Only for the store's owner and root."""
        if isinstance(time, timedelta):
            time = time.total_seconds()
        if time is not None and not time > 0:
            raise ValueError("the time to confirm a commit must be longer than 0")
        self.native.confirm_within(time)

    def set_savepoint(self, name: str) -> None:
        """Gives the present state a name, for `roll_back`."""
        self._flush()
        self.native.set_savepoint(name)

    def roll_back(self, savepoint: str) -> None:
        """Restores the state at the savepoint. No file may be open in the transaction."""
        self.native.roll_back(savepoint)

    def nest(self) -> Transaction:
        """Begins a transaction within this one. Its commit makes its changes a part of this one, which
        cannot be used until the inner one has ended."""
        self._flush()
        return Transaction(self.native.nest())

    def fork(self) -> Transaction:
        """Begins a second transaction from the present state of this one. From then on the two are
        independent. Where both have changed the same in different ways, the first to commit wins.
        """
        self._flush()
        return Transaction(self.native.fork())

    def open(
        self,
        path: str,
        mode: str,
        buffering: int,
        encoding: Optional[str],
        errors: Optional[str],
        newline: Optional[str],
    ) -> IO[Any]:
        """Opens a file, as `Path.open` does."""
        raw, file = open_file(
            self.native, path, mode, buffering, encoding, errors, newline
        )
        with self._mutex:
            self._files[file] = raw
        return file  # type: ignore[no-any-return]

    def _open_files(self) -> Iterable[Any]:
        with self._mutex:
            return [file for file in self._files if not file.closed]

    def _close_files(self) -> None:
        for file in self._open_files():
            file.close()

    def _flush(self) -> None:
        for file in self._open_files():
            if file.writable():
                file.flush()
