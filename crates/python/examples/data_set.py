"""Writes a data set with its index, from lines of JSON on the standard input:

    data_set.py STORE NAME < rows.jsonl

Each row goes to a file for its day, and index.json says how many rows each file has. With
transactions the new data set replaces the old one as a whole or not at all, even if the program is
killed. `write_plainly` does the same without transactions: though it is careful, a kill leaves files
of both data sets, and an index that fits neither.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import atomdir


def write(store: str, name: str, lines: Iterable[str]) -> None:
    with atomdir.transaction(store, label=f"data set {name}") as tx:
        directory = tx / name
        if directory.exists():
            directory.rmtree()
        directory.mkdir()
        index: dict[str, int] = {}
        for line in lines:
            day = json.loads(line)["day"]
            with (directory / f"{day}.jsonl").open("a") as file:
                file.write(line)
            index[day] = index.get(day, 0) + 1
        (directory / "index.json").write_text(json.dumps(index))


def write_plainly(directory: Path, lines: Iterable[str]) -> None:
    directory.mkdir(exist_ok=True)
    index: dict[str, int] = {}
    for line in lines:
        day = json.loads(line)["day"]
        with (directory / f"{day}.jsonl").open("a" if day in index else "w") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        index[day] = index.get(day, 0) + 1
    for old in directory.glob("*.jsonl"):
        if old.stem not in index:
            old.unlink()
    temporary = directory / "index.json.tmp"
    with temporary.open("w") as file:
        file.write(json.dumps(index))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / "index.json")
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[3] == "--plainly":
        write_plainly(Path(sys.argv[1]) / sys.argv[2], sys.stdin)
    elif len(sys.argv) == 3:
        write(sys.argv[1], sys.argv[2], sys.stdin)
    else:
        sys.exit(__doc__)
