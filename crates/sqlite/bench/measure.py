"""What the extension costs beside SQLite's rollback journal and its write-ahead log.

    python3 measure.py EXTENSION DIRECTORY [ROUNDS]

DIRECTORY is on the file system to measure, and `atomdir` in the PATH. The sides alternate within each
round, and each number is the median of the rounds: rows or transactions in a second.
Durability is the same everywhere: synchronous=FULL, and for the extension durable commits.
"""

import hashlib
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

EXTENSION, DIRECTORY = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
ROWS = 20_000
SIDES = ["rollback", "wal", "atomdir"]

_first = sqlite3.connect(":memory:")
_first.enable_load_extension(True)
_first.load_extension(EXTENSION)


class Side:
    """An empty directory, and connections to databases in it."""

    def __init__(self, name):
        self.name = name
        self.path = os.path.join(DIRECTORY, f"measure-{name}")
        shutil.rmtree(self.path, ignore_errors=True)
        os.mkdir(self.path)
        if name == "atomdir":
            subprocess.run(["atomdir", "init", "-q", self.path], check=True)

    def connect(self, database):
        path = os.path.join(self.path, database)
        more = "?vfs=atomdir&door=embedded" if self.name == "atomdir" else ""
        connection = sqlite3.connect(
            f"file:{path}{more}", uri=True, isolation_level=None, timeout=60
        )
        if self.name == "wal":
            connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        return connection


def fill(connection, rows):
    connection.execute("create table t(id integer primary key, v)")
    connection.execute("begin")
    for id in range(rows):
        connection.execute("insert into t values(?, ?)", (id, os.urandom(1000)))
    connection.execute("commit")


def insert(side, per_transaction, count):
    connection = side.connect("db")
    fill(connection, ROWS)
    start = time.perf_counter()
    for transaction in range(count):
        connection.execute("begin")
        for _ in range(per_transaction):
            connection.execute("insert into t(v) values(?)", (os.urandom(1000),))
        connection.execute("commit")
    taken = time.perf_counter() - start
    connection.close()
    return per_transaction * count / taken


def update(side, per_transaction, count):
    connection = side.connect("db")
    fill(connection, ROWS)
    chance = random.Random(1)
    start = time.perf_counter()
    for transaction in range(count):
        connection.execute("begin")
        for _ in range(per_transaction):
            row = (os.urandom(1000), chance.randrange(ROWS))
            connection.execute("update t set v = ? where id = ?", row)
        connection.execute("commit")
    taken = time.perf_counter() - start
    connection.close()
    return per_transaction * count / taken


def twelve(side, count):
    """Six threads; each reads a row of one of twelve databases and writes its digest to another."""
    names = [f"db{number}" for number in range(12)]
    for name in names:
        connection = side.connect(name)
        fill(connection, 3000)
        connection.close()

    def work(number):
        chance = random.Random(number)
        connections = {}
        for _ in range(count):
            start, to = chance.sample(names, 2)
            for name in (start, to):
                if name not in connections:
                    connections[name] = side.connect(name)
            id = chance.randrange(3000)
            (value,) = connections[start].execute("select v from t where id = ?", (id,)).fetchone()
            digest = hashlib.sha256(value).digest()
            connections[to].execute("update t set v = ? where id = ?", (digest * 31, id))
        for connection in connections.values():
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 6 * count / (time.perf_counter() - start)


def pair(side, count):
    """One transaction over two attached databases."""
    connection = side.connect("one")
    fill(connection, 3000)
    other = side.connect("two")
    fill(other, 3000)
    other.close()
    path = os.path.join(side.path, "two")
    more = "?vfs=atomdir" if side.name == "atomdir" else ""
    connection.execute(f"attach 'file:{path}{more}' as two")
    if side.name == "wal":
        connection.execute("pragma two.journal_mode = wal")
    connection.execute("pragma two.synchronous = full")
    chance = random.Random(2)
    start = time.perf_counter()
    for _ in range(count):
        id = chance.randrange(3000)
        connection.execute("begin")
        connection.execute("update main.t set v = ? where id = ?", (os.urandom(1000), id))
        connection.execute("update two.t set v = ? where id = ?", (os.urandom(1000), id))
        connection.execute("commit")
    taken = time.perf_counter() - start
    connection.close()
    return count / taken


WORKLOADS = {
    "insert, 1 row in each transaction": lambda side: insert(side, 1, 300),
    "insert, 1000 rows": lambda side: insert(side, 1000, 10),
    "update, 1 row": lambda side: update(side, 1, 300),
    "update, 1000 rows": lambda side: update(side, 1000, 5),
    "update of a row in each of two databases": lambda side: pair(side, 200),
    "six threads, twelve databases": lambda side: twelve(side, 100),
}

only = sys.argv[4] if len(sys.argv) > 4 else ""
sides = sys.argv[5].split(",") if len(sys.argv) > 5 else SIDES
for workload, measure in WORKLOADS.items():
    if only not in workload:
        continue
    found = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name in sides:
            side = Side(name)
            found[name].append(measure(side))
            shutil.rmtree(side.path)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    print(workload, *(f"{name} {rate:.0f}/s" for name, rate in medians.items()), sep="; ", flush=True)
