"""Transactions that stay open when the program ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import atomdir

KEEP = """
import atomdir, sys
base, command = sys.argv[1:]
with atomdir.Store(base, door="service", service_program=command) as store:
    tx = store.transaction(label="kept")
    (tx / "kept").write_text("1")
    print(tx.keep())
    assert not tx.is_open
"""


def test_embedded_store_cannot_keep_transactions_open(base: Path) -> None:
    with atomdir.Store(base, door="embedded") as store:
        with store.transaction() as tx:
            for call in (tx.keep, tx.sync, store.transactions, store.ended):
                with pytest.raises(atomdir.StoreError, match="service"):
                    call()
            tx.abort()
        with pytest.raises(atomdir.StoreError, match="service"):
            store.attach(1)


def test_kept_transaction_goes_on_after_program_and_service_have_ended(
    base: Path,
) -> None:
    command = os.environ.get("ATOMDIR_BIN")
    if command is None:
        pytest.skip("ATOMDIR_BIN does not name the command")
    if os.geteuid() != 0 and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this user cannot mount views")
    arguments = [sys.executable, "-c", KEEP, str(base), command]
    kept = int(subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout)
    status = [command, "-C", str(base), "--json", "service", "status"]
    try:
        service = subprocess.run(status, check=True, stdout=subprocess.PIPE)
        dying = atomdir.Store(base, door="service")
        lost = dying.transaction(label="lost")
        os.kill(int(json.loads(service.stdout)["process"]), signal.SIGKILL)
        lost.abort()
        with pytest.raises(atomdir.StoreError):
            dying.close()
        with atomdir.Store(base, door="service", service_program=command) as store:
            (ended,) = store.ended()
            assert (ended.id, ended.label, ended.how) == (lost.id, "lost", "died")
            assert (ended.user, ended.by) == (os.geteuid(), None)
            assert ended.began <= ended.ended and "killed" in ended.description
            (listed,) = store.transactions()
            assert (listed.id, listed.label, listed.survives) == (kept, "kept", True)
            assert (listed.kept_commits, listed.kept_bytes) == (0, 0)
            with pytest.raises(ZeroDivisionError), store.attach(kept) as tx:
                (tx / "more").write_text("2")
                raise ZeroDivisionError
            assert [one.id for one in store.transactions()] == [kept]
            with store.attach(kept) as tx:
                assert (tx / "kept").read_text() == "1"
                assert (tx / "more").read_text() == "2"
                tx.sync()
            assert store.transactions() == []
            assert (base / "kept").read_text() == "1"
            with pytest.raises(atomdir.Error):
                store.attach(kept)
            with store.transaction() as tx:
                with pytest.raises(atomdir.StoreError, match="nothing to flush"):
                    tx.sync()
                tx.abort()
    finally:
        subprocess.run([command, "-C", base, "service", "stop", "--abort"], check=True)
