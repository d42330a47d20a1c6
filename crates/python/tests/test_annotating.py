"""Commits that take themselves back unless they are confirmed, pins and labels."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Union

import pytest

import atomdir


def commit(
    store: atomdir.Store, text: str, wait: Union[timedelta, float, None] = None
) -> int:
    tx = store.transaction()
    (tx / "file").write_text(text)
    tx.confirm_within(wait)
    sequence = tx.commit().sequence
    assert sequence is not None
    return sequence


def wait_for(store: atomdir.Store, text: str) -> None:
    while (Path(store.root) / "file").read_text() != text:
        time.sleep(0.02)


def test_commit_takes_itself_back_unless_it_is_confirmed(store: atomdir.Store) -> None:
    commit(store, "old")
    confirmed = commit(store, "confirmed", timedelta(hours=1))
    due = store.log(1)[0].confirm_by
    assert due is not None and due > time.time() + 60
    store.confirm(confirmed)
    assert store.log(1)[0].confirm_by is None
    with pytest.raises(atomdir.NotKept, match="does not wait to be confirmed"):
        store.confirm(confirmed)
    with pytest.raises(atomdir.NotKept):
        store.confirm(10**6)

    lost = commit(store, "lost", 0.05)
    wait_for(store, "confirmed")
    while store.show(lost).commit.confirm_by is not None:
        time.sleep(0.02)
    assert store.show(lost).commit.undone_by == store.log(1)[0].sequence
    with pytest.raises(atomdir.UndoError, match="has been taken back"):
        store.confirm(lost)
    with store.undo(confirmed) as undo:
        undo.confirm_within(timedelta(milliseconds=50))
    wait_for(store, "confirmed")

    @atomdir.retry
    def again() -> None:
        with store.transaction() as tx:
            (tx / "file").write_text("again")
            tx.confirm_within(3600)

    again()
    store.confirm(store.log(1)[0].sequence)
    with pytest.raises(atomdir.NotKept):
        store.confirm(commit(store, "stays", None))


def test_commit_that_could_not_be_taken_back_is_refused(store: atomdir.Store) -> None:
    with store.transaction() as tx:
        for wrong in (0, -1, float("nan"), timedelta(0)):
            with pytest.raises(ValueError, match="longer than 0"):
                tx.confirm_within(wrong)
        with tx.nest() as inner:
            with pytest.raises(atomdir.CommitError, match="nested"):
                inner.confirm_within(1)
        store.set_setting("history-age", "off")
        with pytest.raises(atomdir.CommitError, match="keeps no history"):
            tx.confirm_within(float("inf"))
    with pytest.raises(atomdir.TransactionEnded):
        tx.confirm_within(1)


def test_commit_that_others_have_changed_since_stays(store: atomdir.Store) -> None:
    commit(store, "old")
    lost = commit(store, "lost", 1)
    (Path(store.root) / "file").write_text("outside")
    while store.show(lost).commit.not_taken_back is None:
        time.sleep(0.02)
    assert (Path(store.root) / "file").read_text() == "outside"
    store.confirm(lost)
    assert store.show(lost).commit.not_taken_back is None


def test_next_to_open_the_store_takes_back_what_is_due(base: Path) -> None:
    with atomdir.Store(base, door="embedded") as store:
        commit(store, "old")
        commit(store, "lost", 0.3)
    time.sleep(0.3)
    with atomdir.Store(base, door="embedded") as store:
        assert (base / "file").read_text() == "old"


def test_pinned_commits_are_kept_and_labels_can_be_changed(store: atomdir.Store) -> None:
    old, pinned = commit(store, "old"), commit(store, "pinned")
    store.pin(pinned)
    kept = store.prune(0)
    assert kept is not None and (kept.commits, kept.oldest) == (1, pinned)
    newest = store.log(2)
    assert [(one.pinned, one.forgotten) for one in newest] == [(True, False), (False, True)]
    with pytest.raises(atomdir.NotKept):
        store.pin(old)
    with store.undo(pinned) as undo:
        undo.abort()
    store.unpin(pinned)
    assert store.prune(0) == atomdir.History(0, 0, None, None)
    with pytest.raises(atomdir.NotKept):
        store.pin(pinned)
    store.relabel(old, "another label")
    assert store.log()[1].label == "another label"
    for call in (store.pin, store.unpin):
        with pytest.raises(atomdir.NotKept):
            call(10**6)
    with pytest.raises(atomdir.NotKept):
        store.relabel(10**6, "none")
