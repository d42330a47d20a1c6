"""What a store says of its transactions and commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import _native
from ._errors import ConflictingChange
from ._transaction import Change


@dataclass(frozen=True)
class Commit:
    """A past commit.

    - `sequence`: Its number: its place in the commit order.
    - `transaction`: The id of its transaction.
    - `time`: When it was committed, in seconds since 1970.
    - `user`: The numeric id of the transaction's user.
    - `label`: The label of its transaction.
    - `changes`: How many paths it changed.
    - `pinned`, `forgotten`: Whether it is kept until it is unpinned; whether it cannot be undone.
    - `undone_by`: The commit that has taken it back.
    - `confirm_by`: When it takes itself back unless it is confirmed, in seconds since 1970.
    - `not_taken_back`: It was due and stays, since others had changed the same in so many places.
    """

    sequence: int
    transaction: int
    time: float
    user: int
    label: str
    changes: int
    pinned: bool
    forgotten: bool
    undone_by: Optional[int]
    confirm_by: Optional[float]
    not_taken_back: Optional[int]


@dataclass(frozen=True)
class ShownCommit:
    """A commit and its changes, which are sorted by path."""

    commit: Commit
    changes: list[Change]


@dataclass(frozen=True)
class Differences:
    """The differences between two commits.

    - `changes`: Sorted by path. A rename is a removal and an addition.
    - `not_as_then`: Objects that are compared as they are now, since outside writers have
      changed them as well.
    """

    changes: list[Change]
    not_as_then: list[ConflictingChange]


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction of the store.

    - `id`: The id, for `Store.attach`.
    - `user`: The numeric id of its user.
    - `label`: The name in the log.
    - `began`: When it began, in seconds since 1970.
    - `survives`: Whether it survives the death of the service and of the machine.
    - `kept_commits`: How many commits the history keeps for it, whatever its limits are.
    - `kept_bytes`: How many bytes of disk space the history beyond its limits takes.
    """

    id: int
    user: int
    label: str
    began: float
    survives: bool
    kept_commits: int
    kept_bytes: int


@dataclass(frozen=True)
class EndedTransaction:
    """A transaction that was ended without a request of its user.

    - `id`: The id that it had.
    - `user`: The numeric id of its user.
    - `label`: The label, which may be shortened.
    - `began`: When it began, in seconds since 1970.
    - `ended`: When it ended, in seconds since 1970.
    - `how`: "aborted" (by another user), "max_age" (it reached its maximum age), "stopped"
      (with the service), or "died" (the service was killed, or the machine went down).
    - `by`: The numeric id of the user who aborted it or stopped the service.
    - `description`: How it ended, in words.
    - `changes`: About how many objects it had changed, if that is known.
    """

    id: int
    user: int
    label: str
    began: float
    ended: float
    how: str
    by: Optional[int]
    description: str
    changes: Optional[int]


@dataclass(frozen=True)
class History:
    """The history that a store keeps.

    - `commits`: How many commits can be undone.
    - `bytes`: The disk space that the history takes.
    - `oldest`: The number of the oldest of these commits.
    - `oldest_time`: When the oldest was committed, in seconds since 1970.
    """

    commits: int
    bytes: int
    oldest: Optional[int]
    oldest_time: Optional[float]


def commit_of(
    number: int,
    transaction: int,
    nanoseconds: int,
    user: int,
    label: str,
    changes: int,
    marks: _native._Marks,
) -> Commit:
    pinned, forgotten, undone_by, due, refused = marks
    confirm_by = None if due is None else due / 1e9
    made = (number, transaction, nanoseconds / 1e9, user, label, changes)
    return Commit(*made, pinned, forgotten, undone_by, confirm_by, refused)
