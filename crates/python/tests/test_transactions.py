"""Transactions and paths in them."""

from __future__ import annotations

import io
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import atomdir


def names(base: Path) -> list[str]:
    return sorted(name for name in os.listdir(base) if name != ".atomdir")


def test_a_block_commits_all_or_nothing(base: Path) -> None:
    with atomdir.transaction(base) as tx:
        (tx / "conf").mkdir()
        (tx / "conf" / "a.toml").write_text("port = 80\n")
        (tx / "b").write_bytes(b"1")
        assert names(base) == []
    assert (base / "conf/a.toml").read_text() == "port = 80\n"
    with pytest.raises(ZeroDivisionError):
        with atomdir.transaction(base) as tx:
            (tx / "b").unlink()
            (tx / "c").open("w").write("never flushed")
            1 // 0
    assert names(base) == ["b", "conf"]
    assert not tx.is_open
    with pytest.raises(atomdir.TransactionEnded):
        (tx / "b").read_bytes()


def test_commit_and_abort_by_hand(base: Path) -> None:
    tx = atomdir.transaction(base, label="by hand", durability="lazy")
    (tx / "a").write_text("1")
    assert tx.changes() == [atomdir.Change("A", "a", None)]
    receipt = tx.commit()
    assert receipt.sequence is not None and receipt.changes == 1
    tx.abort()
    with atomdir.transaction(base) as tx:
        (tx / "a").unlink()
        tx.abort()
    assert names(base) == ["a"]
    # Deleting an open transaction aborts it and closes the store.
    tx = atomdir.transaction(base)
    (tx / "dropped").touch()
    del tx
    atomdir.Store(base, door="embedded").close()
    assert names(base) == ["a"]
    with pytest.raises(ValueError, match="isolation is 'none'"):
        atomdir.transaction(base, isolation="none")


def test_conflicts_name_the_path_and_the_author(base: Path) -> None:
    (base / "a").write_text("0")
    with atomdir.Store(base) as store:
        first = store.transaction()
        second = store.transaction()
        (first / "a").write_text("1")
        (second / "a").write_text("2")
        first_receipt = first.commit()
        with pytest.raises(atomdir.Conflict) as caught:
            second.commit()
        assert isinstance(caught.value, atomdir.CommitError)
        assert caught.value.paths == ["a"]
        (change, *_) = caught.value.conflicts
        assert (change.by, change.commit) == ("commit", first_receipt.sequence)
        assert "'a'" in str(change)
        # The transaction stays open, so its changes can still be read.
        assert (second / "a").read_text() == "2"
        second.abort()
        # A change by an outside writer is a conflict like a commit.
        third = store.transaction()
        (third / "a").write_text("3")
        (base / "a").write_text("outside")
        with pytest.raises(atomdir.Conflict) as caught, third:
            pass
        assert caught.value.conflicts[0].by == "outside"
        assert not third.is_open
        # With early conflicts the write itself fails.
        older = store.transaction(conflicts="early")
        younger = store.transaction(conflicts="early")
        (older / "a").write_text("4")
        with pytest.raises(atomdir.FileConflict) as early:
            (younger / "a").write_text("5")
        assert isinstance(early.value, OSError)
        younger.abort()
        older.abort()


def test_retry_loses_no_update(base: Path) -> None:
    (base / "visits").write_text("0")
    store = atomdir.Store(base)

    @atomdir.retry
    def count_visit() -> None:
        with store.transaction() as tx:
            visits = tx / "visits"
            visits.write_text(str(int(visits.read_text()) + 1))

    def visit() -> None:
        for _ in range(10):
            count_visit()

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (base / "visits").read_text() == "40"
    tries = []

    @atomdir.retry(tries=3)
    def hopeless() -> None:
        tries.append(1)
        raise atomdir.Conflict("always")

    with pytest.raises(atomdir.Conflict):
        hopeless()
    assert len(tries) == 3
    store.close()


def test_paths_behave_like_those_of_pathlib(base: Path) -> None:
    """The same function has the same results on a path of pathlib and on one in a transaction."""

    def work(root: pathlib.Path) -> list[object]:
        seen: list[object] = []
        (root / "d" / "e").mkdir(parents=True)
        (root / "d").mkdir(exist_ok=True)
        a = root / "d" / "a.txt"
        a.write_text("one\ntwo\n")
        a.chmod(0o640)
        a.touch()
        seen += [a.name, a.stem, a.suffix, a.exists(), a.is_file(), a.is_dir()]
        seen += [stat.S_IMODE(a.stat().st_mode), a.stat().st_size, a.parent.name]
        with a.open("a") as file:
            file.write("three\n")
        with a.open() as file:
            seen += [file.readline(), list(file)]
        with a.open("r+b") as binary:
            binary.seek(4)
            binary.write(b"TWO")
            binary.seek(0, os.SEEK_END)
            seen.append(binary.tell())
            binary.truncate(8)
        seen.append(a.read_bytes())
        with a.open("rb") as binary:
            seen.append(binary.read(3))
            binary.seek(-1, os.SEEK_CUR)
            seen.append(binary.read())
        (root / "link").symlink_to("d/a.txt")
        if sys.version_info >= (3, 10) or isinstance(root, atomdir.Path):
            (root / "hard").hardlink_to(a)
        else:
            os.link(a, root / "hard")
        seen += [(root / "link").is_symlink(), os.fspath((root / "link").readlink())]
        seen += [(root / "hard").stat().st_nlink, (root / "link").read_text()]
        (root / "b.txt").write_bytes(b"b" * 100_000)
        (root / "b.txt").replace(root / "c.txt")
        seen.append(sorted(path.name for path in root.iterdir()))
        for pattern in ["*.txt", "**/*.txt", "d/*", "d/a.txt", "**", "*/e", "none/*"]:
            found = [path.relative_to(root).as_posix() for path in root.glob(pattern)]
            if sys.version_info >= (3, 13) or pattern != "**":
                seen.append(sorted(found))
        seen.append(sorted(path.name for path in root.rglob("?.txt")))
        (root / "hard").unlink()
        (root / "hard").unlink(missing_ok=True)
        (root / "d" / "e").rmdir()
        wrongs: list[Callable[[], object]] = [
            lambda: (root / "none").read_text(),
            lambda: (root / "d").rmdir(),
            lambda: (root / "d").mkdir(),
            lambda: (root / "d").read_bytes(),
            lambda: (root / "c.txt" / "x").read_bytes(),
            lambda: a.open("x"),
            lambda: a.open("rw"),
            lambda: a.open("rb").write(b""),
        ]
        for wrong in wrongs:
            try:
                wrong()
            except Exception as error:
                kinds = [
                    kind
                    for kind in (OSError, FileNotFoundError, FileExistsError)
                    + (IsADirectoryError, NotADirectoryError, io.UnsupportedOperation)
                    + (ValueError,)
                    if isinstance(error, kind)
                ]
                seen.append((kinds, getattr(error, "errno", None)))
        return seen

    plain = base.parent / "plain"
    plain.mkdir()
    with atomdir.transaction(base) as tx:
        # Use a directory, since a transaction's root has no name.
        (tx / "plain").mkdir()
        found = work(tx / "plain")  # type: ignore[arg-type]
    assert found == work(plain)
    assert (base / "plain/c.txt").read_bytes() == b"b" * 100_000
    assert names(base / "plain") == names(plain)


def test_errors_have_the_classes_of_system_errors(base: Path) -> None:
    with atomdir.transaction(base) as tx:
        with pytest.raises(FileNotFoundError) as caught:
            (tx / "none").read_bytes()
        assert isinstance(caught.value, atomdir.FileError)
        assert caught.value.filename == "none"
        assert str(caught.value) == "[Errno 2] No such file or directory: 'none'"
        with pytest.raises(FileNotFoundError) as caught:
            (tx / "none" / "a").open("w")
        assert str(caught.value) == "[Errno 2] No such file or directory: 'none/a'"
        with pytest.raises(atomdir.OutsideStore):
            (tx / ".." / "x").write_text("")
        with pytest.raises(atomdir.OutsideStore):
            (tx / "/etc/passwd").read_text()
        with pytest.raises(TypeError):
            open(tx / "a")  # type: ignore[call-overload]
        odd = os.fsdecode(b"odd \xff\n")
        (tx / odd).write_text("odd")
        assert [path.name for path in (tx / ".").iterdir()] == [odd]
    assert os.listdir(os.fsencode(base)).count(b"odd \xff\n") == 1
    with pytest.raises(FileNotFoundError, match="`atomdir.init` makes") as caught:
        atomdir.transaction(base.parent)
    assert isinstance(caught.value, atomdir.NoStore)
    assert caught.value.filename == str(base.parent)
    with pytest.raises(FileNotFoundError) as caught:
        atomdir.Store(base / "missing")
    assert isinstance(caught.value, atomdir.OpenError)


def test_without_a_label_the_log_names_the_program(base: Path, tmp_path: Path) -> None:
    program = tmp_path / "nightly.py"
    code = f"import atomdir\nwith atomdir.transaction({str(base)!r}) as tx: (tx / 'a').touch()\n"
    program.write_text(code)
    subprocess.run([sys.executable, program], check=True)
    subprocess.run([sys.executable, "-c", code.replace("'a'", "'b'")], check=True)
    with atomdir.Store(base) as store:
        assert [commit.label for commit in store.log()] == ["python", "nightly.py"]


def test_files_open_at_the_commit_are_flushed(base: Path) -> None:
    with atomdir.transaction(base) as tx:
        text = (tx / "text").open("w", encoding="utf-8")
        text.write("grüße\n")
        binary = (tx / "binary").open("wb")
        binary.write(b"1")
    assert text.closed and binary.closed
    assert (base / "text").read_text(encoding="utf-8") == "grüße\n"
    assert (base / "binary").read_bytes() == b"1"
    with pytest.raises(ValueError):
        text.write("late")


def test_own_reads_conflict_by_pages(store: atomdir.Store) -> None:
    with store.transaction() as tx:
        (tx / "pages").write_bytes(bytes(8192))
    with store.transaction(isolation="serializable", own_reads_only=True) as reader:
        with (reader / "pages").open("rb", buffering=0) as file:
            file.read(1)
        (reader / "seen").write_text("1")
        with store.transaction() as writer:
            with (writer / "pages").open("r+b") as file:
                file.seek(4096)
                file.write(b"1")


def test_of_two_forks_either_can_be_taken(base: Path) -> None:
    with atomdir.Store(base) as store:
        first = store.transaction()
        (first / "common").write_text("1")
        with first.fork() as other:
            (other / "result").write_text("good")
            (first / "result").write_text("bad")
        assert (base / "common").read_text() == "1"
        with pytest.raises(atomdir.Conflict):
            first.commit()
        first.abort()
        assert (base / "result").read_text() == "good"


def test_savepoints_nesting_and_locks(base: Path) -> None:
    with atomdir.transaction(base, isolation="serializable") as tx:
        (tx / "a").write_text("1")
        tx.set_savepoint("first")
        with (tx / "b").open("w") as file:
            file.write("2")
            with pytest.raises(atomdir.SavepointError, match="open"):
                tx.roll_back("first")
        tx.roll_back("first")
        assert not (tx / "b").exists()
        with tx.nest() as inner:
            (inner / "c").write_text("3")
        with pytest.raises(KeyError), tx.nest() as inner:
            (inner / "d").write_text("4")
            raise KeyError
        tx.lock("a", tx / "c")
        with pytest.raises(atomdir.LockError):
            tx.lock("../x")
    assert names(base) == ["a", "c"]


def test_attributes(base: Path) -> None:
    with atomdir.transaction(base) as tx:
        a = tx / "a"
        a.touch()
        a.utime(modified_ns=1_000_000_007)
        assert a.stat().st_mtime_ns == 1_000_000_007
        a.setxattr("user.origin", b"x")
        assert a.listxattr() == ["user.origin"] and a.getxattr("user.none") is None
        a.chown(os.getuid(), os.getgid())
        (tx / "b").touch()
        a.exchange("b")
        assert (tx / "b").getxattr("user.origin") == b"x"
        (tx / "b").copy("c")
        (tx / "b").removexattr("user.origin")
        (tx / "d" / "e").mkdir(parents=True)
        (tx / "d").rmtree()
    assert (base / "b").stat().st_mtime_ns == 1_000_000_007
    assert names(base) == ["a", "b", "c"]


def test_other_threads_run_while_one_waits(base: Path) -> None:
    """Waiting for another thread's lock must release the interpreter's lock. Otherwise this test
    would hang."""
    (base / "a").touch()
    with atomdir.Store(base) as store:
        holder, waiter = store.transaction(), store.transaction()
        holder.lock("a")
        granted = threading.Event()

        def wait() -> None:
            waiter.lock("a", timeout=600)
            granted.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not granted.is_set()
        holder.abort()
        thread.join()
        assert granted.is_set()
        waiter.abort()


def test_transactions_of_a_process_share_one_store(base: Path) -> None:
    with atomdir.transaction(base) as one, atomdir.transaction(base) as other:
        (one / "a").touch()
        (other / "b").touch()
        probe = f"import atomdir; atomdir.Store({str(base)!r})"
        found = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True
        )
        assert "StoreHeld" in found.stderr and str(os.getpid()) in found.stderr
    assert names(base) == ["a", "b"]
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_garbage_collection_aborts_open_transactions(base: Path) -> None:
    import gc

    class Cycle:
        def __init__(self, tx: atomdir.Transaction) -> None:
            self.tx, self.itself = tx, self

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(50):
            Cycle(atomdir.transaction(base)).tx.path(str(number)).touch()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    atomdir.Store(base, door="embedded").close()
    assert names(base) == []


def test_a_forked_process_cannot_change_its_parents_transaction(base: Path) -> None:
    tx = atomdir.transaction(base)
    (tx / "a").write_text("1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (tx / "b").write_text("2")
        except OSError:
            # The parent holds the store, so the child cannot open it either.
            try:
                atomdir.Store(base)
            except atomdir.StoreHeld:
                tx.abort()
                code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    tx.commit()
    assert names(base) == ["a"]


KILLED = """
import atomdir, sys
store = atomdir.Store(sys.argv[1])
for number in range(1, 10**9):
    with store.transaction() as tx:
        for name in "ab":
            (tx / name).write_text(str(number) * 3000)
    print(number, flush=True)
"""


def test_a_killed_program_leaves_whole_commits(base: Path) -> None:
    for stop_at in [1, 2, 5]:
        program = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(base)], stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        for _ in range(stop_at):
            line = program.stdout.readline()
        program.send_signal(signal.SIGKILL)
        last = (line + program.stdout.read()).split()[-1]
        program.wait()
        with atomdir.transaction(base) as tx:
            a, b = (tx / "a").read_text(), (tx / "b").read_text()
        assert a == b and a in (last * 3000, str(int(last) + 1) * 3000)
