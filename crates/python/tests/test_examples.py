"""The example programs work as they say, also when they are killed."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import atomdir

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import content_store
import data_set

ROWS = ['{"day": "mon"}\n', '{"day": "tue"}\n', '{"day": "mon"}\n']


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def wait_beside(program: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    """Waits until `holds` returns true. Fails after five minutes, or if the program ends."""
    for _ in range(30_000):
        if holds():
            return
        assert program.poll() is None
        time.sleep(0.01)
    program.kill()
    raise AssertionError("the program has not done what the test waits for")


def run_and_kill(*arguments: str) -> None:
    """Kills the program while it waits for the third row."""
    program = subprocess.Popen(
        [sys.executable, data_set.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert program.stdin is not None
    program.stdin.write('{"day": "wed"}\n{"day": "mon"}\n'.encode())
    program.stdin.flush()
    base = Path(arguments[0])
    if arguments[-1] == "--plainly":
        # When the second row is in its file, the program waits for the next one.
        wait_beside(program, lambda: (base / arguments[1] / "mon.jsonl").read_text() == ROWS[0])
    else:
        # When its first file is staged, the program has begun to write rows.
        wait_beside(program, lambda: any((base / ".atomdir" / "stage").iterdir()))
    program.kill()
    program.wait()
    program.stdin.close()


def test_only_with_transactions_a_kill_leaves_the_old_data_set(base: Path) -> None:
    data_set.write(str(base), "data", ROWS)
    whole = contents(base / "data")
    assert whole["index.json"] == '{"mon": 2, "tue": 1}'
    assert whole["mon.jsonl"] == ROWS[0] + ROWS[2]
    run_and_kill(str(base), "data")
    assert contents(base / "data") == whole
    data_set.write_plainly(base / "data", ROWS)
    assert contents(base / "data") == whole
    run_and_kill(str(base), "data", "--plainly")
    left = contents(base / "data")
    assert left["index.json"] == whole["index.json"]
    # The index is still the old data set's, and there are files of both data sets.
    assert left["mon.jsonl"] == ROWS[0] and left["tue.jsonl"] == ROWS[1]
    assert left["wed.jsonl"] == '{"day": "wed"}\n'


ADD_UNTIL_KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import atomdir, content_store

def wait(path):
    print("the file is there, the row is not", flush=True)
    sys.stdin.read()

content_store.sqlite3.connect = wait
base = sys.argv[2]
if sys.argv[3] == "plainly":
    content_store.add_plainly(Path(base), "two", b"2")
else:
    content_store.add(atomdir.Store(base, door="service"), "two", b"2")
"""


def add_and_kill(base: Path, how: str) -> None:
    """Kills the program after it has written the file and before it inserts the row."""
    examples = os.path.dirname(content_store.__file__)
    program = subprocess.Popen(
        [sys.executable, "-c", ADD_UNTIL_KILLED, examples, str(base), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None and program.stdout is not None
    assert program.stdout.readline() != b""
    program.kill()
    program.wait()
    program.stdin.close()
    program.stdout.close()


def rows(base: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(base / "index.db")) as database:
        found = database.execute("SELECT digest FROM files ORDER BY digest")
        return [digest for (digest,) in found]


def test_only_with_transactions_a_kill_leaves_no_file_without_a_row(base: Path) -> None:
    command = os.environ.get("ATOMDIR_BIN")
    if command is None:
        pytest.skip("ATOMDIR_BIN does not name the command")
    try:
        with atomdir.Store(base, door="service", service_program=command) as store:
            content_store.add(store, "one", b"1")
            add_and_kill(base, "whole")
            other = content_store.add(store, "three", b"3")
    finally:
        subprocess.run([command, "-C", base, "service", "stop", "--abort"], check=True)
    assert other in rows(base) and len(rows(base)) == 2
    assert sorted(os.listdir(base / "objects")) == rows(base)
    plain = base.parent / "plain"
    plain.mkdir()
    content_store.add_plainly(plain, "one", b"1")
    add_and_kill(plain, "plainly")
    # One file has no row.
    assert len(rows(plain)) == 1 and len(os.listdir(plain / "objects")) == 2


def test_a_row_and_its_file_appear_together(base: Path) -> None:
    command = os.environ.get("ATOMDIR_BIN")
    if command is None:
        pytest.skip("ATOMDIR_BIN does not name the command")
    try:
        with atomdir.Store(base, door="service", service_program=command) as store:
            digest = content_store.add(store, "one", b"1")
            tx = store.transaction()
            assert tx.view is not None and (Path(tx.view) / "index.db").exists()
            tx.abort()

            class Refused(bytes):
                def __len__(self) -> int:
                    raise KeyError

            # The file is written, and inserting the row fails.
            with pytest.raises(KeyError):
                content_store.add(store, "two", Refused(b"2"))
            other = content_store.add(store, "three", b"3")
    finally:
        subprocess.run([command, "-C", base, "service", "stop", "--abort"], check=True)
    database = sqlite3.connect(base / "index.db")
    found = database.execute("SELECT name, digest FROM files ORDER BY name").fetchall()
    database.close()
    assert found == [("one", digest), ("three", other)]
    assert sorted(os.listdir(base / "objects")) == sorted([digest, other])
    plain = base.parent / "plain"
    plain.mkdir()
    assert content_store.add_plainly(plain, "one", b"1") == digest
    assert (plain / "objects" / digest).read_bytes() == b"1"
