"""Transactions."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
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
    """The result of a commit."""

    #: The commit's place in the commit order, or `None` if nothing had changed or the
    #: transaction was nested.
    sequence: Optional[int]
    #: How many paths were changed.
    changes: int
    #: The obstacle that keeps the durable commit from the files, in words, if there is one.
    stalled: Optional[str]


@dataclass(frozen=True)
class Change:
    """A path that a transaction has changed."""

    #: "A" (added), "M" (modified), "D" (deleted), "R" (renamed) or "T" (another type now).
    letter: str
    #: Relative to the store's root.
    path: str
    #: The old path, if it was renamed.
    old_path: Optional[str]


@dataclass(frozen=True)
class PartReceipt:
    """The result of committing a part of a transaction."""

    #: The commit's place in the commit order.
    sequence: Optional[int]
    #: The changes that are committed, sorted by path.
    landed: list[Change]


@dataclass(frozen=True)
class Texts:
    """The versions of a text in a conflict."""

    #: The snapshot's; empty if it has no such file.
    ancestor: bytes
    #: The transaction's.
    mine: bytes
    #: What others have made of it.
    theirs: bytes
    #: With the changes of both.
    merged: bytes
    #: Whether both sides have changed the same lines, which the merged text has between markers.
    is_marked: bool


class Transaction:
    """An open transaction. As a context manager it commits at the end of the block, and aborts
    if the block raises; `Store.attach` gives one that stays open then. Several threads may use it.

    It sees the store as of its begin, with its own changes, and nobody sees these before the
    commit. `tx / "a" / "b"` is a path in it.
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
        #: The number by which conflicts and commands name the transaction.
        self.id: int = native.id
        #: The directory that shows the transaction to any program, if the store has a
        #: service; else `None`.
        self.view: Optional[str] = native.view
        self._is_past = not_as_then is not None
        # Then it stays open where another one would be aborted.
        self._is_attached = is_attached
        #: In the past: what is shown as it is now, since programs in no transaction have
        #: changed it.
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
        """Ends it without a commit, or leaves it open if it was open before."""
        if not self._is_attached:
            self.abort()
            return
        with contextlib.suppress(OSError):
            self._close_files()
        # If its service has died, it is open again with the next one.
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
        if self._native is None:
            raise TransactionEnded("the transaction has ended")
        return self._native

    @property
    def is_open(self) -> bool:
        """Whether it has been neither committed nor aborted."""
        return self._native is not None

    def commit(self) -> Receipt:
        """Commits the transaction: files that are still open in it are flushed and closed. If
        this raises, the transaction stays open. Only if it was the last to use a store that
        cannot be closed in order, `StoreError` is raised although it is committed."""
        self._close_files()
        receipt = Receipt(*self.native.commit())
        self._end()
        return receipt

    def commit_part(self, *paths: Union[AnyPath, Path]) -> PartReceipt:
        """Commits the changes at and below these paths, and what they need. The transaction
        stays open with the rest."""
        self._flush()
        sequence, landed = self.native.commit_part([relative(path) for path in paths])
        return PartReceipt(sequence, [Change(*line) for line in landed])

    def abort_part(self, *paths: Union[AnyPath, Path]) -> list[Change]:
        """Drops the changes at and below these paths, and what needs them. The transaction stays
        open with the rest. Returns what was dropped. No file may be open in the transaction."""
        dropped = self.native.abort_part([relative(path) for path in paths])
        return [Change(*line) for line in dropped]

    def refresh(self) -> tuple[int, int]:
        """Gives the transaction a newer snapshot: from now on it sees what others have committed
        meanwhile, under its own changes. Returns the numbers of the newest commits in the
        snapshot before and now. Raises `Conflict`, and has changed nothing, if others have
        changed the same. Drops all savepoints. No file may be open in the transaction."""
        return self.native.refresh()

    def conflicts(self) -> list[ConflictingChange]:
        """The conflicts that keep the transaction from being committed now, for
        `commit_with_sides`. Drops all savepoints."""
        self._flush()
        return [ConflictingChange(*found) for found in self.native.conflicts()]

    def texts_in_conflict(self, place: int) -> Optional[Texts]:
        """The versions of the text in the conflict at this place of the list that `conflicts`
        returned last, for showing them or for merging them in another way. `None` if it is not
        about a text."""
        versions, is_marked, why_not = self.native.texts_in_conflict(place)
        if why_not is not None:
            return None
        ancestor, mine, theirs, merged = versions
        return Texts(ancestor, mine, theirs, merged, is_marked)

    def commit_with_sides(self, sides: Iterable[str]) -> Receipt:
        """Commits, and takes "mine", "theirs" or "merge" in each conflict that `conflicts` listed
        last, in that order: with "mine" this transaction's changes replace what others have
        changed, with "theirs" they are not committed there. With "merge" both changes of a text
        are kept, line by line.

        A conflict for which no side is given refuses the commit, and so does one in which
        others have changed something since. If both have changed the same lines, or it is no
        text, a merge raises `Conflict`, whose `conflicts` say why, and has changed nothing. The
        transaction then stays open. If the commit is refused after texts were merged, they are
        merged in the transaction.
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
        """Leaves the transaction open, for `Store.attach` or the command, and makes what was written
        in it durable. Returns its id. It survives the end of this program, of the service and of
        the machine. Needs a service."""
        self._close_files()
        id = self.native.keep()
        self._end()
        return id

    def sync(self) -> None:
        """Makes what was written so far durable, in a transaction that survives its service: one to
        which this program has attached. Another one ends with this program, so this fails. What is
        still in the buffers of open files is not included."""
        self.native.sync()

    def _end(self) -> None:
        with self._mutex:
            was_open, self._native = self._native is not None, None
        if was_open:
            self._ended()

    def changes(self) -> list[Change]:
        """The changes that a commit would make, sorted by path. What is still in the buffers
        of open files is not among them."""
        return [Change(*line) for line in self.native.changes()]

    def lock(
        self,
        *paths: Union[AnyPath, Path],
        shared: bool = False,
        subtree: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """Locks all of these paths until the transaction ends, and waits for others who hold
        locks on them, at most `timeout` seconds."""
        names = [relative(path) for path in paths]
        self.native.lock(names, shared, subtree, timeout)

    def set_savepoint(self, name: str) -> None:
        """Names the present state, for `roll_back`."""
        self._flush()
        self.native.set_savepoint(name)

    def roll_back(self, savepoint: str) -> None:
        """Restores the state at the savepoint. No file may be open in the transaction."""
        self.native.roll_back(savepoint)

    def nest(self) -> Transaction:
        """Begins a transaction within this one: its commit makes its changes part of this
        one. Meanwhile this one cannot be used."""
        self._flush()
        return Transaction(self.native.nest())

    def open(
        self,
        path: str,
        mode: str,
        buffering: int,
        encoding: Optional[str],
        errors: Optional[str],
        newline: Optional[str],
    ) -> IO[Any]:
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
