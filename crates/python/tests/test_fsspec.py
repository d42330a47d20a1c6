"""fsspec's transactions, on the file system for stores."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import fsspec
import pytest

import atomdir
from atomdir.fs import AtomdirFileSystem


@pytest.fixture
def fs() -> AtomdirFileSystem:
    return AtomdirFileSystem(skip_instance_cache=True)


def names(base: Path) -> list[str]:
    return sorted(name for name in os.listdir(base) if name != ".atomdir")


def test_a_block_is_one_commit(base: Path, fs: AtomdirFileSystem) -> None:
    (base / "old").mkdir()
    (base / "old" / "x").write_text("x")
    (base / "moved").write_text("m")
    with atomdir.Store(base) as store:
        before = store.transaction()
        with fs.transaction:
            with fs.open(f"{base}/new/a", "wb") as file:
                file.write(b"a")
            fs.open(f"atomdir://{base}/new/b", "w").write("b")
            fs.rm(f"{base}/old", recursive=True)
            fs.mv(f"{base}/moved", f"{base}/new/moved")
            fs.cp(f"{base}/new/a", f"{base}/copy")
            fs.pipe({f"{base}/new/c": b"c", f"{base}/new/d": b"d"})
            # The file system sees its own changes; others do not.
            assert fs.cat(f"{base}/new/a") == b"a"
            assert not fs.exists(f"{base}/old")
            assert names(base) == ["moved", "old"]
        assert names(base) == ["copy", "new"]
        assert sorted(os.listdir(base / "new")) == ["a", "b", "c", "d", "moved"]
        assert (base / "new/b").read_text() == "b"
        after = store.transaction()
        (after / "y").touch()
        sequence = after.commit().sequence
        assert sequence is not None
        # The block was exactly one commit, before these two.
        (before / "z").touch()
        second = before.commit().sequence
        assert second == sequence + 1 and sequence == 2


def test_a_block_that_raises_changes_nothing(base: Path, fs: AtomdirFileSystem) -> None:
    (base / "kept").write_text("k")
    with pytest.raises(RuntimeError):
        with fs.transaction:
            fs.rm(f"{base}/kept")
            fs.pipe_file(f"{base}/a", b"a")
            fs.open(f"{base}/b", "wb").write(b"open at the end")
            raise RuntimeError
    assert names(base) == ["kept"]
    # The file system can still be used.
    fs.pipe_file(f"{base}/a", b"a")
    assert names(base) == ["a", "kept"]
    fs.start_transaction()
    fs.rm(f"{base}/a")
    fs.end_transaction()
    assert names(base) == ["kept"]


def test_a_conflict_is_raised_at_the_end_of_the_block(base: Path, fs: AtomdirFileSystem) -> None:
    (base / "a").write_text("0")
    with pytest.raises(atomdir.Conflict):
        with fs.transaction:
            fs.pipe_file(f"{base}/a", b"1")
            fs.pipe_file(f"{base}/b", b"1")
            (base / "a").write_text("outside")
    assert names(base) == ["a"] and (base / "a").read_text() == "outside"


def test_outside_a_block_each_file_is_a_commit(base: Path, fs: AtomdirFileSystem) -> None:
    file = fs.open(f"{base}/a", "wb")
    file.write(b"1")
    assert names(base) == []
    file.close()
    assert (base / "a").read_bytes() == b"1"
    with pytest.raises(RuntimeError), fs.open(f"{base}/a", "wb") as file:
        file.write(b"2")
        raise RuntimeError
    assert (base / "a").read_bytes() == b"1"
    with fs.open(f"{base}/a", "rb") as file:
        fs.pipe_file(f"{base}/a", b"changed meanwhile")
        assert file.read() == b"1"
    assert fs.cat_file(f"{base}/a", 8, 17) == b"meanwhile"


def test_errors_name_the_path_that_the_caller_has_given(
    base: Path, fs: AtomdirFileSystem
) -> None:
    link = base.parent / "link"
    link.symlink_to(base)
    for path in (f"{base}/d/none", f"{link}/d/none"):
        for fail in (fs.cat_file, fs.rm_file, fs.ls, fs.info, fs.open):
            with pytest.raises(FileNotFoundError) as caught:
                fail(path)
            assert caught.value.filename == path
        with pytest.raises(FileNotFoundError) as caught, fs.transaction:
            fs.rm_file(path)
        assert caught.value.filename == path


def test_file_system_is_registered_and_follows_links_to_a_store(base: Path) -> None:
    link = base.parent / "link"
    link.symlink_to(base)
    with fsspec.open(f"atomdir://{link}/d/a", "w") as file:
        file.write("by the link")
    assert (base / "d" / "a").read_text() == "by the link"
    fs = fsspec.filesystem("atomdir")
    assert fs.find(str(base)) == [f"{base}/d/a"]
    assert pickle.loads(pickle.dumps(fs)) == fs
    with pytest.raises(atomdir.NoStore):
        fs.ls(base.parent)
    other = base.parent / "other"
    other.mkdir()
    atomdir.init(other)
    with pytest.raises(ValueError, match="one store"):
        fs.cp_file(f"{base}/d/a", f"{other}/a")
