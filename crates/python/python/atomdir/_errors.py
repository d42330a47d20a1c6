"""The exceptions.

Every exception of this package is an `Error`. An error of the operating system is also an
`OSError` with `errno` and `filename`, of the class that `open` would raise: a missing file raises
a `FileError` that is also a `FileNotFoundError`, and so is `NoStore`.
"""

from __future__ import annotations

import errno as errno_numbers
from dataclasses import dataclass
from typing import Optional, cast


class Error(Exception):
    """Any error of this package."""


class InitError(Error):
    """A directory could not be made a store."""


class OpenError(Error):
    """A store could not be opened."""


class NoStore(OpenError, FileNotFoundError):
    """There is no store at the path or above it. `atomdir.init` makes one."""


class StoreHeld(OpenError):
    """Another process has opened the store in its own process, without a service.

    - `process`: The id of that process, if it is known.
    """

    process: Optional[int] = None


class StoreError(Error):
    """The store cannot do this now, for example because it needs a service or is poisoned."""


class BeginError(Error):
    """A transaction could not begin."""


class TransactionEnded(Error):
    """The transaction has ended."""


class FileError(Error, OSError):
    """An operation on a file or directory failed."""


class OutsideStore(FileError):
    """The path leaves the store."""


class CommitError(Error):
    """A commit failed, and nothing was changed."""


class UndoError(Error):
    """Commits could not be undone, files could not be restored, or the past could not be shown."""


class NotKept(UndoError):
    """There is no such commit, its history is no longer kept, or there was nothing at one of the
    paths."""


class SavepointError(Error):
    """A savepoint could not be set or restored."""


class SettingsError(Error):
    """A store's settings could not be read or changed."""


class LockError(Error):
    """Locks were not granted."""


@dataclass(frozen=True)
class ConflictingChange:
    """A change by others that is in conflict with the transaction.

    - `path`: Relative to the store's root.
    - `part`: The part of it that was changed, in words.
    - `by`: The author: "commit", "open" (a transaction that is still open), "outside" (a
      program without a transaction) or "outer" (the outer transaction).
    - `commit`: The number of the commit, if it was one.
    - `transaction`: The id of the transaction, if it is known.
    - `description`: A sentence that describes the conflict.
    - `time`: When the commit was made, in seconds since 1970, if it is known.
    """

    path: str
    part: str
    by: str
    commit: Optional[int]
    transaction: Optional[int]
    description: str
    time: Optional[float] = None

    def __str__(self) -> str:
        return self.description


class Conflict(Error):
    """A conflict with others. Unless it is an `UndoConflict`, the same work may succeed in a new
    transaction. See `atomdir.retry`.

    - `conflicts`: The changes of others that are in conflict.
    """

    conflicts: tuple[ConflictingChange, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The paths in conflict, relative to the store's root, each once."""
        return list(dict.fromkeys(change.path for change in self.conflicts))


class CommitConflict(Conflict, CommitError):
    """Others have changed something that the transaction has written or, if it is serializable,
    has read."""


class UndoConflict(Conflict, UndoError):
    """The changes of the commits were overwritten since. Trying again does not help."""


class LockConflict(Conflict, LockError):
    """Others hold the lock, or have changed the object that was to be locked."""


class FileConflict(Conflict, FileError):
    """With `conflicts="early"`: an open transaction has written the same part."""


_CLASSES: dict[str, type[Error]] = {
    one.__name__: one
    for one in (
        Error,
        InitError,
        OpenError,
        NoStore,
        StoreError,
        BeginError,
        TransactionEnded,
        FileError,
        OutsideStore,
        CommitError,
        UndoError,
        NotKept,
        SavepointError,
        SettingsError,
        LockError,
    )
}
_CONFLICTS: dict[str, type[Conflict]] = {
    "CommitConflict": CommitConflict,
    "LockConflict": LockConflict,
    "UndoConflict": UndoConflict,
    "FileConflict": FileConflict,
}
# Classes that are both ours and one of Python's. Each is made when it is first needed.
_combined: dict[tuple[type[Error], type[OSError]], type[OSError]] = {}

_Described = tuple[str, str, str, Optional[int], Optional[int], str, Optional[float]]


def make_error(name: str, message: str) -> Error:
    return _CLASSES[name](message)


def make_os_error(
    name: str, number: Optional[int], message: str, path: str
) -> OSError:
    number = errno_numbers.EIO if number is None else number
    # OSError(number, ...) has the subclass for that number.
    builtin = type(OSError(number, ""))
    made = _combine(_CLASSES[name], builtin)
    # Python then shows no file name, where there is none.
    return made(number, message, path) if path else made(number, message)


def _combine(ours: type[Error], builtin: type[OSError]) -> type[OSError]:
    if issubclass(ours, builtin):
        return ours
    known = _combined.get((ours, builtin))
    if known is None:
        fields = {"__module__": ours.__module__, "__doc__": ours.__doc__}
        made = type(ours.__name__, (ours, builtin), fields)
        known = _combined.setdefault((ours, builtin), cast("type[OSError]", made))
    return known


def make_conflict(name: str, message: str, found: list[_Described]) -> Conflict:
    if name == "FileConflict":
        path = str(found[0][0]) if found else None
        error: Conflict = FileConflict(errno_numbers.EBUSY, message, path)
    else:
        error = _CONFLICTS[name](message)
    error.conflicts = tuple(ConflictingChange(*described) for described in found)
    return error


def make_held(message: str, process: Optional[int]) -> StoreHeld:
    error = StoreHeld(message)
    error.process = process
    return error
