"""A content store: files named by digests of their contents, and an SQLite database that lists them.

    content_store.py STORE FILE...

The row and the file appear in one commit, so there is never a row without its file, or a file
without a row. SQLite works on the transaction's view, so the store needs a service; the command
`atomdir` starts one. `add_plainly` does the same without transactions: if it is killed after it has
written the file, that file has no row, and a garbage collector must find it. In the other order, a
row could be left without its file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import atomdir

TABLE = "CREATE TABLE IF NOT EXISTS files (name TEXT, digest TEXT, size INTEGER)"
ROW = "INSERT INTO files VALUES (?, ?, ?)"


def add(store: atomdir.Store, name: str, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    with store.transaction(label=f"add {name}") as tx:
        (tx / "objects").mkdir(exist_ok=True)
        (tx / "objects" / digest).write_bytes(data)
        with contextlib.closing(sqlite3.connect(f"{tx.view}/index.db")) as database:
            with database:
                database.execute(TABLE)
                database.execute(ROW, (name, digest, len(data)))
    return digest


def add_plainly(directory: Path, name: str, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    objects = directory / "objects"
    objects.mkdir(exist_ok=True)
    temporary = objects / f"{digest}.tmp"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(objects / digest)
    descriptor = os.open(objects, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    with contextlib.closing(sqlite3.connect(directory / "index.db")) as database:
        with database:
            database.execute(TABLE)
            database.execute(ROW, (name, digest, len(data)))
    return digest


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    command = shutil.which("atomdir")
    with atomdir.Store(sys.argv[1], door="service", service_program=command) as store:
        for path in sys.argv[2:]:
            print(add(store, path, Path(path).read_bytes()), path)
