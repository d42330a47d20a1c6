"""The past, commits of parts, and sides in conflicts, with a service and without one."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import atomdir


def commit(store: atomdir.Store, **files: str) -> int:
    with store.transaction(label="test") as tx:
        for name, contents in files.items():
            (tx / name).write_text(contents)
        sequence = tx.commit().sequence
    assert sequence is not None
    return sequence


def read(store: atomdir.Store, name: str) -> str:
    with store.transaction() as tx:
        return (tx / name).read_text()


def test_log_undo_restore_and_at(store: atomdir.Store) -> None:
    began = time.time()
    one = commit(store, a="1", b="1")
    two = commit(store, a="2", b="2", c="2")
    (last, first) = store.log(2)
    assert (last.sequence, first.sequence) == (two, one)
    assert (last.label, last.changes, last.user) == ("test", 3, os.geteuid())
    assert began - 60 < last.time < time.time() + 60

    with store.at(one) as past:
        assert (past / "a").read_text() == "1" and not (past / "c").exists()
        assert past.not_as_then == ()
        with pytest.raises(atomdir.FileError):
            (past / "a").write_text("3")
    with store.restore(one, "a") as tx:
        assert (tx / "a").read_text() == "1"
    assert (read(store, "a"), read(store, "b")) == ("1", "2")
    # The restore has changed "a" again, and an undo must not undo later changes.
    with pytest.raises(atomdir.UndoConflict) as caught:
        store.undo(two)
    assert isinstance(caught.value, atomdir.UndoError) and caught.value.paths == ["a"]
    with store.undo(two, paths=["b", "c"]) as tx:
        assert [change.path for change in tx.changes()] == ["b", "c"]
    assert read(store, "b") == "1"
    with pytest.raises(atomdir.NotKept):
        store.undo(10**6)
    with pytest.raises(atomdir.NotKept):
        store.restore(one, "none")
    with pytest.raises(atomdir.NotKept):
        store.at(10**6)


def test_commits_by_path_and_time_and_their_changes(store: atomdir.Store) -> None:
    one = commit(store, a="1", b="1")
    two = commit(store, a="2", c="2")
    added = [atomdir.Change("A", "a", None), atomdir.Change("A", "b", None)]
    shown = store.show(one)
    assert (shown.commit, shown.changes) == (store.log(2)[1], added)
    assert [found.sequence for found in store.log(paths=["b"])] == [one]
    assert [found.sequence for found in store.log(before=two)] == [one]
    with pytest.raises(atomdir.StoreError):
        store.log(paths=["/a"])
    with pytest.raises(atomdir.NotKept):
        store.show(10**6)

    assert store.diff(0, one) == atomdir.Differences(added, [])
    changed = [(change.letter, change.path) for change in store.diff(one).changes]
    assert changed == [("M", "a"), ("A", "c")]
    with pytest.raises(atomdir.NotKept):
        store.diff(10**6)

    now = datetime.now()
    assert store.commit_at(now) == store.commit_at(now.timestamp()) == two
    assert store.commit_at(0) == one - 1
    with pytest.raises(TypeError):
        store.commit_at("yesterday")  # type: ignore[arg-type]


def test_undo_conflict_is_not_retried(store: atomdir.Store) -> None:
    one = commit(store, a="1")
    commit(store, a="2")
    tries = 0

    @atomdir.retry
    def undo() -> None:
        nonlocal tries
        tries += 1
        store.undo(one)

    with pytest.raises(atomdir.UndoConflict):
        undo()
    assert tries == 1


def test_undo_takes_sides_and_skips_paths(store: atomdir.Store) -> None:
    one = commit(store, a="1", b="1", c="1", d="1")
    commit(store, a="2", b="2")
    with store.undo(one, take_mine=["a"], take_theirs=True, skip=["d"]) as tx:
        changed = [(change.letter, change.path) for change in tx.changes()]
    assert changed == [("D", "a"), ("D", "c")]
    with pytest.raises(atomdir.UndoConflict):
        store.undo(one, take_mine=["a"])


def test_refresh_shows_the_commits_of_others(store: atomdir.Store) -> None:
    tx = store.transaction()
    (tx / "mine").write_text("1")
    newest = commit(store, theirs="1")
    with (tx / "mine").open():
        with pytest.raises(atomdir.CommitError):
            tx.refresh()
    assert tx.refresh()[1] == newest
    assert (tx / "theirs").read_text() == "1"
    assert (tx / "mine").read_text() == "1"
    commit(store, mine="2")
    with pytest.raises(atomdir.Conflict):
        tx.refresh()
    tx.abort()


def test_at_lists_files_that_outside_writers_have_changed(store: atomdir.Store) -> None:
    one = commit(store, a="1")
    with store.transaction() as tx:
        (tx / "a").chmod(0o600)
    (Path(store.root) / "a").write_text("outside")
    with pytest.raises(atomdir.UndoConflict):
        store.at(one)
    with store.at(one, outside_as_now=True) as past:
        assert [change.by for change in past.not_as_then] == ["outside"]
        assert (past / "a").read_text() == "outside"


def test_part_of_a_transaction_is_committed(store: atomdir.Store) -> None:
    with store.transaction() as tx:
        with (tx / "done").open("w") as file:
            file.write("1")
        (tx / "dropped").write_text("2")
        part = tx.commit_part(tx / "done")
        assert part.sequence == store.log(1)[0].sequence
        assert part.landed == [atomdir.Change("A", "done", None)]
        assert tx.changes() == [atomdir.Change("A", "dropped", None)]
        with pytest.raises(atomdir.CommitError):
            tx.commit_part("done")
        with (tx / "stays").open("w"):
            with pytest.raises(atomdir.CommitError):
                tx.abort_part("dropped")
        assert tx.abort_part("dropped") == [atomdir.Change("A", "dropped", None)]
        assert tx.changes() == [atomdir.Change("A", "stays", None)]
        with pytest.raises(atomdir.CommitError):
            tx.abort_part("dropped")
        tx.abort()
    assert sorted(os.listdir(store.root)) == [".atomdir", "done"]


def test_commit_with_sides_resolves_conflicts(store: atomdir.Store) -> None:
    commit(store, a="0", b="0")
    mine = store.transaction()
    for name in "abc":
        (mine / name).write_text("mine")
    commit(store, a="theirs", b="theirs")
    with pytest.raises(atomdir.Conflict):
        mine.commit()
    found = mine.conflicts()
    assert {conflict.path for conflict in found} == {"a", "b"}
    newest = store.log(1)[0]
    assert {conflict.time for conflict in found} == {newest.time}
    sides = ["mine" if conflict.path == "a" else "theirs" for conflict in found]
    with pytest.raises(ValueError, match="a side is 'ours'"):
        mine.commit_with_sides(["ours"])
    with pytest.raises(atomdir.Conflict):
        mine.commit_with_sides(sides[1:])
    # A change that was made after the list is not overwritten.
    commit(store, a="later")
    with pytest.raises(atomdir.Conflict):
        mine.commit_with_sides(sides)
    found = mine.conflicts()
    sides = ["mine" if conflict.path == "a" else "theirs" for conflict in found]
    receipt = mine.commit_with_sides(sides)
    assert receipt.sequence == store.log(1)[0].sequence and not mine.is_open
    assert [read(store, name) for name in "abc"] == ["mine", "theirs", "mine"]


def test_texts_are_merged_line_by_line(store: atomdir.Store) -> None:
    commit(store, text="1\n2\n3\n", clash="1\n")
    mine = store.transaction()
    (mine / "text").write_text("1\n2\nmine\n")
    (mine / "clash").write_text("mine\n")
    commit(store, text="theirs\n2\n3\n", clash="theirs\n")
    found = mine.conflicts()
    with pytest.raises(atomdir.CommitConflict) as caught:
        mine.commit_with_sides(["merge"] * len(found))
    assert caught.value.paths == ["clash"]
    assert "same lines" in caught.value.conflicts[0].description
    assert (mine / "text").read_text() == "1\n2\nmine\n"
    found = mine.conflicts()
    for place, conflict in enumerate(found):
        texts = mine.texts_in_conflict(place)
        assert texts is not None and texts.theirs.startswith(b"theirs\n")
        assert texts.is_marked == (conflict.path == "clash")
        assert (b">>>>>>>" in texts.merged) == texts.is_marked
    with pytest.raises(IndexError):
        mine.texts_in_conflict(len(found))
    sides = ["merge" if conflict.path == "text" else "mine" for conflict in found]
    mine.commit_with_sides(sides)
    assert read(store, "text") == "theirs\n2\nmine\n"
    assert read(store, "clash") == "mine\n"


def test_prune_and_the_settings_of_the_history(
    store: atomdir.Store,
) -> None:
    one = commit(store, a="1")
    kept = store.prune(timedelta(days=1))
    assert kept is not None and (kept.commits, kept.oldest) == (1, one)
    assert kept == store.prune(86400.0) == store.prune()
    assert store.prune(0) == atomdir.History(0, 0, None, None)
    with pytest.raises(atomdir.NotKept):
        store.undo(one)
    assert [found.sequence for found in store.log()] == [one]

    assert store.settings()["history-age"] == "7d"
    with pytest.raises(atomdir.SettingsError, match="never"):
        store.set_setting("history-age", "never")
    with pytest.raises(atomdir.SettingsError, match="no setting 'none'"):
        store.set_setting("none", "")
    store.set_setting("history-age", "off")
    assert store.settings()["history-age"] == "off"
    assert store.prune() is None
    with pytest.raises(atomdir.NotKept):
        store.undo(commit(store, a="2"))
    store.set_setting("history-age", "")
    with store.undo(commit(store, a="3")):
        pass
    assert read(store, "a") == "2"
