"""Stores, and the list of those that are open in this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Optional, Union

from . import _native
from ._errors import ConflictingChange, StoreError
from ._records import (
    Commit,
    Differences,
    EndedTransaction,
    History,
    OpenTransaction,
    ShownCommit,
    commit_of,
)
from ._transaction import Change, Transaction

if TYPE_CHECKING:
    from typing_extensions import Self

AnyPath = Union[str, "os.PathLike[str]"]


class _Open:
    """An open store, shared by all its users in this process."""

    def __init__(self, native: _native.Store, door: str) -> None:
        self.native = native
        self.door = door
        self.users = 0
        self.process = os.getpid()


# A store without a service can be open only once, so all users in this process share it. The lock is
# recursive: while a thread holds it, the garbage collector may delete an open transaction, which
# releases its store.
_mutex = threading.RLock()
_stores: dict[str, _Open] = {}


def _forget() -> None:
    """Empties the list after a fork: the child cannot use its parent's stores and must open its own."""
    global _mutex
    _mutex = threading.RLock()
    _stores.clear()


os.register_at_fork(after_in_child=_forget)


def _acquire(path: str, door: str, program: Optional[str]) -> _Open:
    root = _native.find(path)
    with _mutex:
        while True:
            found = _stores.get(root)
            if found is None:
                found = _stores[root] = _Open(_native.Store(path, door, program), door)
            elif door == "embedded" and not found.native.is_embedded:
                raise StoreError(f"the store '{root}' is already open through its service")
            elif door == "service" and found.door == "embedded":
                raise StoreError(
                    f"the store '{root}' is already open in this process; `hand_over` gives it up"
                )
            elif door == "service" and found.door == "any":
                # The others in this process go on through the service that is found or started now.
                found.native.hand_over()
                _native.Store(path, door, program).close()
            found.users += 1
            # The garbage collector may just have closed the store with its last user. Then try again.
            if _stores.get(root) is found:
                return found


def _release(store: _Open) -> None:
    if store.process != os.getpid():
        return
    with _mutex:
        store.users -= 1
        if store.users > 0:
            return
        if _stores.get(store.native.root) is store:
            del _stores[store.native.root]
        # Keep the lock, so that no thread opens the store again before it is closed.
        store.native.close()


def _program() -> str:
    """The name of the program that Python runs."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    # A package is run by the file in it, code without a file by an option.
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(sys.argv[0]))
    return "python" if name in ("", "-", "-c", "-m") else name


class Store:
    """The store that contains `path`, opened. As a context manager it closes the store at the end.

    `door` is "service" (through the store's service), "embedded" (in this process; no other process
    can use the store until it is closed or handed over), or "any" (through the service if one runs,
    otherwise in this process until another process wants the store and nothing of it is open here). If `service_program` is the path of the command `atomdir`, that starts a service if none
    runs.

    All users in this process share the store; closing the last of them closes it.

    - `root`: The store's root directory.
    """

    def __init__(
        self,
        path: AnyPath,
        *,
        door: str = "any",
        service_program: Optional[AnyPath] = None,
    ) -> None:
        program = None if service_program is None else os.fspath(service_program)
        self._open: Optional[_Open] = _acquire(os.fspath(path), door, program)
        self.root: str = self._open.native.root

    @property
    def is_embedded(self) -> bool:
        """Whether the store is now open in this process, and not used through its service."""
        return self._store().native.is_embedded

    def __repr__(self) -> str:
        return f"<atomdir.Store {self.root!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", None) is not None:
            self.close()

    def transaction(
        self,
        *,
        isolation: str = "snapshot",
        durability: str = "durable",
        conflicts: str = "commit",
        label: str = "",
        own_reads_only: bool = False,
    ) -> Transaction:
        """Begins a transaction.

        `isolation` is "snapshot", or "serializable": then a commit also fails if others have changed
        something that the transaction has read. `durability` is "durable", "deferred": the commit
        is durable when it returns, and in the directory up to 100 ms later, or "lazy": then the commit
        does not wait for the disk, and is durable within a tenth of a second. With
        `conflicts="early"` a write fails at once if an open transaction has written the same part.
        `label` is the transaction's name in the log; by default, the program's name.

        `own_reads_only` is for a serializable transaction whose files are read only through this
        library, not in its `view`. Then single pages count as read, and not whole files, also with a
        service.
        """
        native = self._store().native
        label = label or _program()
        begun = native.begin(isolation, durability, conflicts, label, own_reads_only)
        return self._transaction(begun)

    def attach(self, id: int) -> Transaction:
        """Attaches to a transaction that `Transaction.keep` or the command has left open. As a context
        manager it commits at the end of the block; if the block raises, it stays open. Needs a
        service."""
        return self._transaction(self._store().native.attach(id), is_attached=True)

    def transactions(self) -> list[OpenTransaction]:
        """The open transactions of this user (for root: of all users). Needs a service."""
        return [
            OpenTransaction(id, user, label, began / 1e9, survives, kept_commits, kept_bytes)
            for id, user, label, began, survives, kept_commits, kept_bytes in (
                self._store().native.transactions()
            )
        ]

    def ended(self) -> list[EndedTransaction]:
        """The transactions of this user (for the store's owner and root: of all users) that were ended
        without a request of their users, oldest first. Needs a service."""
        return [
            EndedTransaction(
                id, user, label, began / 1e9, ended / 1e9, how, by, description, changes
            )
            for id, user, label, began, ended, how, by, description, changes in (
                self._store().native.ended()
            )
        ]

    def prune(
        self, older_than: Union[timedelta, float, None] = None
    ) -> Optional[History]:
        """Drops the history of commits older than this, in seconds or as a `timedelta`; by default
        older than the store's settings allow; with 0, of all commits. These commits are still listed,
        but cannot be undone. Returns the history that is left, or `None` if the store keeps none."""
        if isinstance(older_than, timedelta):
            older_than = older_than.total_seconds()
        kept = self._store().native.prune(older_than)
        if kept is None:
            return None
        commits, bytes_kept, oldest = kept
        if oldest is None:
            return History(commits, bytes_kept, None, None)
        return History(commits, bytes_kept, oldest[0], oldest[1] / 1e9)

    def settings(self) -> dict[str, str]:
        """The store's settings, as `atomdir config` prints them. Only for the store's owner and
        root."""
        return self._store().native.settings()

    def set_setting(self, key: str, value: str) -> None:
        """Changes a setting: "allow", "view", "history-age" or "history-space", with a value as
        for `atomdir config`. An empty value restores the default. Only for the store's owner and
        root."""
        self._store().native.set_setting(key, value)

    def log(
        self,
        limit: int = 100,
        *,
        before: Optional[int] = None,
        paths: Iterable[AnyPath] = (),
    ) -> list[Commit]:
        """The last commits, newest first, at most `limit` of them. The history is limited in
        length, so old ones may be missing. With `before`, only commits older than that one. With
        `paths`, only those that changed something at or below these."""
        names = [os.fspath(path) for path in paths]
        commits = self._store().native.log(limit, before, names)
        return [commit_of(*commit) for commit in commits]

    def show(self, commit: int) -> ShownCommit:
        """A commit and its changes. Only the store's owner and root can see other users' commits."""
        shown, changes = self._store().native.show(commit)
        return ShownCommit(commit_of(*shown), [Change(*line) for line in changes])

    def diff(self, start: int, end: Optional[int] = None) -> Differences:
        """The differences between the states of the store just after two commits, or just after one
        and now."""
        changes, found = self._store().native.diff(start, end)
        return Differences(
            [Change(*line) for line in changes],
            [ConflictingChange(*one) for one in found],
        )

    def commit_at(self, moment: Union[datetime, float]) -> int:
        """The number of the newest commit at or before a moment: seconds since 1970, or a
        `datetime`, which is local if it has no time zone. If all commits in the log are later, the
        number before the first of them; 0 if the log is empty."""
        if isinstance(moment, datetime):
            moment = moment.timestamp()
        return self._store().native.commit_at(round(moment * 1e9))

    def undo(
        self,
        *commits: int,
        paths: Iterable[AnyPath] = (),
        skip: Iterable[AnyPath] = (),
        take_mine: Union[bool, Iterable[AnyPath]] = False,
        take_theirs: Union[bool, Iterable[AnyPath]] = False,
    ) -> Transaction:
        """Begins a transaction that undoes the changes of these commits; commit it to make that
        effective. With `paths`, it undoes only changes at and below these, with `skip` none at and
        below those. Raises `UndoConflict` if later changes are in conflict with that.

        `take_mine` overwrites such later changes, so that what was there before the commits comes
        back. `take_theirs` leaves them, and undoes the rest. Each is `True` for all of them, or the
        paths at and below which to do it."""

        def names(paths: Iterable[AnyPath]) -> list[str]:
            return [os.fspath(path) for path in paths]

        def side(taken: Union[bool, Iterable[AnyPath]]) -> Optional[list[str]]:
            if isinstance(taken, bool):
                return None if taken else []
            return names(taken)

        sides = (side(take_mine), side(take_theirs))
        native = self._store().native
        return self._transaction(native.undo(list(commits), names(paths), names(skip), sides))

    def restore(self, commit: int, *paths: AnyPath) -> Transaction:
        """Begins a transaction in which everything at and below these paths is as it was just
        after a commit; after commit 0, as it was before the first one."""
        names = [os.fspath(path) for path in paths]
        return self._transaction(self._store().native.restore(commit, names))

    def at(self, commit: int, *, outside_as_now: bool = False) -> Transaction:
        """Begins a read-only transaction that shows the store as it was just after a commit. As a
        context manager it is aborted at the end.

        Raises `UndoConflict` if outside writers have changed objects that later commits have changed.
        With `outside_as_now` these are shown as they are now, and listed in `not_as_then`.
        """
        shown, found = self._store().native.at(commit, outside_as_now)
        return self._transaction(shown, [ConflictingChange(*one) for one in found])

    def confirm(self, commit: int) -> None:
        """Confirms a commit that would take itself back: see `Transaction.confirm_within`. Raises
        `NotKept` if it does not wait for that, `UndoError` if it has been taken back. Only for the
        store's owner and root."""
        self._store().native.confirm(commit)

    def pin(self, commit: int) -> None:
        """Keeps a commit from being forgotten, however old it gets and however little space there is,
        until it is unpinned. Raises `NotKept` if it is forgotten already. Only for the store's owner
        and root."""
        self._store().native.pin(commit)

    def unpin(self, commit: int) -> None:
        """Unpins a commit: it is forgotten like others. Only for the store's owner and root."""
        self._store().native.unpin(commit)

    def relabel(self, commit: int, label: str) -> None:
        """Changes what the log says of a commit. Of the user's own commits; the store's owner and
        root can change any."""
        self._store().native.relabel(commit, label)

    def _transaction(
        self,
        begun: _native.Transaction,
        not_as_then: Optional[list[ConflictingChange]] = None,
        is_attached: bool = False,
    ) -> Transaction:
        # The transaction keeps the store open.
        store = self._store()
        with _mutex:
            store.users += 1
        return Transaction(begun, lambda: _release(store), not_as_then, is_attached)

    def hand_over(self) -> None:
        """If the store is open in this process, gives it up, so that another process can open it. All
        commits become durable first. The next use of this store opens it again: through the service
        if one runs then, otherwise in this process. Raises `StoreError` while transactions or files
        of it are open. With `door="any"` this happens by itself as soon as another process wants
        the store."""
        store = self._store()
        store.native.hand_over()
        if store.door == "embedded":
            store.door = "any"

    def sync(self) -> None:
        """Makes all lazy commits durable."""
        self._store().native.sync()

    def close(self) -> None:
        """Closes the store, or lets the last open transaction in this process close it."""
        store, self._open = self._open, None
        if store is not None:
            _release(store)

    def _store(self) -> _Open:
        if self._open is None:
            raise StoreError(f"the store '{self.root}' was closed")
        return self._open


def transaction(
    store: Union[Store, AnyPath],
    *,
    isolation: str = "snapshot",
    durability: str = "durable",
    conflicts: str = "commit",
    label: str = "",
    own_reads_only: bool = False,
) -> Transaction:
    """Begins a transaction in a store, or in the store that contains a path:

        with atomdir.transaction("/srv/data") as tx:
            (tx / "a").write_text("1")

    The options are those of `Store.transaction`. If `store` is a path, the store is closed when the
    transaction ends, so a program with many transactions should keep a `Store` open.
    """
    opened = store if isinstance(store, Store) else Store(store)
    try:
        return opened.transaction(
            isolation=isolation,
            durability=durability,
            conflicts=conflicts,
            label=label,
            own_reads_only=own_reads_only,
        )
    finally:
        if opened is not store:
            opened.close()
