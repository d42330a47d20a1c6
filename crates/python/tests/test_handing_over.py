"""A program that has opened a store by itself, and others who want it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import atomdir

OTHER = """
import atomdir, sys
with atomdir.transaction(sys.argv[1]) as tx:
    (tx / "other").write_text("1")
"""


@pytest.fixture
def command(base: Path) -> Iterator[str]:
    program = os.environ.get("ATOMDIR_BIN")
    if program is None:
        pytest.skip("ATOMDIR_BIN does not name the command")
    if os.geteuid() != 0 and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this user cannot mount views")
    yield program
    subprocess.run([program, "-C", str(base), "service", "stop"])


def call(command: str, base: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, "-C", str(base), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def test_command_works_beside_a_notebook(base: Path, command: str) -> None:
    store = atomdir.Store(base)
    with store.transaction(label="cell 1") as tx:
        (tx / "a").write_text("1")
    # As in a notebook, the transaction's variable stays.
    assert store.is_embedded and not tx.is_open
    log = call(command, base, "log")
    assert log.returncode == 0 and "cell 1" in log.stdout, log
    with store.transaction() as tx:
        (tx / "b").write_text("1")
        beside = call(command, base, "run", "--", "sh", "-c", "echo 1 > c")
        assert beside.returncode == 0, beside
    assert not store.is_embedded
    assert len(store.log()) == 3
    store.close()


def test_open_transaction_keeps_the_store(base: Path, command: str) -> None:
    with atomdir.Store(base) as store, store.transaction() as tx:
        holder = f"process {os.getpid()} ("
        for verb in ("log", "status", "list", "diff"):
            refused = call(command, base, verb)
            assert refused.returncode != 0 and holder in refused.stderr, refused
        assert holder in call(command, base, "service", "status").stdout
        with pytest.raises(atomdir.StoreError, match="in use"):
            store.hand_over()
        (tx / "a").write_text("1")
    assert call(command, base, "run", "--", "cat", "a").returncode == 0


def test_two_programs_without_a_service_take_turns(base: Path) -> None:
    with atomdir.Store(base) as store:
        for _ in range(2):
            subprocess.run([sys.executable, "-c", OTHER, str(base)], check=True)
            with store.transaction() as tx:
                assert (tx / "other").read_text() == "1"
        assert store.is_embedded


def test_store_for_one_program_is_handed_over_by_call(base: Path, command: str) -> None:
    with atomdir.Store(base, door="embedded") as store:
        assert call(command, base, "log").returncode != 0
        with pytest.raises(atomdir.StoreError, match="hand_over"):
            atomdir.Store(base, door="service", service_program=command)
        store.hand_over()
        assert not store.is_embedded
        assert call(command, base, "log").returncode == 0
        with store.transaction() as tx:
            (tx / "a").write_text("1")
        assert not store.is_embedded


def test_service_is_started_beside_a_store_of_the_same_program(
    base: Path, command: str
) -> None:
    with atomdir.Store(base) as store:
        with store.transaction() as tx:
            with pytest.raises(atomdir.StoreError, match="in use"):
                atomdir.Store(base, door="service", service_program=command)
            (tx / "a").write_text("1")
        assert store.is_embedded
        with atomdir.Store(base, door="service", service_program=command) as served:
            assert not served.is_embedded
            with store.transaction() as tx:
                assert (tx / "a").read_text() == "1"
            assert not store.is_embedded
