"""Compares the extension's costs with those of SQLite's rollback journal and write-ahead log.

    python3 measure.py EXTENSION DIRECTORY [--rounds N] [--workload PART] [--sides SIDE,...]
                       [--scale N] [--json]

DIRECTORY must be on the file system to measure, and `atomdir` in the PATH. The sides alternate within each
round. Each number is the median of the rounds: transactions in a second, and for each transaction the
flushes of DIRECTORY's disk and the KiB written to it. Flushes and KiB are meaningful only if no other program
uses the disk, as with `slow_disk.c`. Durability is the same everywhere: synchronous=FULL, and durable commits
for the extension. In the sides `run` and `run-native`, SQLite is unchanged and uses its rollback journal, and
each transaction is one `atomdir run`, in an exact or a native view. The time in which the command
starts is not counted, the time of its commit is.
The side `turso`, which is measured only if it is named, needs `pip install pyturso`.

`atomdir-bench sqlite` also runs this program, with `--json`, which prints a line for each workload and side
with the sums of all its transactions.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

import tpcc

SCALE = 1.0
ROWS = 100_000
PER_TRANSACTION = 10_000
VIEWS = {"run": "exact", "run-native": "native"}


def scaled(count):
    return max(1, int(count * SCALE))


def open_database(path, mode, **more):
    options = "?vfs=atomdir&door=embedded" if mode == "atomdir" else ""
    connection = sqlite3.connect(
        f"file:{path}{options}", uri=True, isolation_level=None, timeout=60, **more
    )
    connection.execute("pragma synchronous = full")
    return connection


def open_turso(path):
    """Opens a database with Turso, in the mode `mvcc`: several writers at once (BEGIN CONCURRENT)."""
    import turso

    connection = turso.connect(path, isolation_level=None)
    mode = connection.execute("pragma journal_mode = 'mvcc'").fetchone()
    assert mode == ("mvcc",), mode
    connection.execute("pragma synchronous = full")
    return connection


def fill(connection, rows):
    connection.execute("create table t(id integer primary key, v)")
    connection.execute("begin")
    for id in range(rows):
        connection.execute("insert into t values(?, ?)", (id, os.urandom(1000)))
    connection.execute("commit")


def insert_rows(connection, count):
    connection.execute("begin")
    for _ in range(count):
        connection.execute("insert into t(v) values(?)", (os.urandom(1000),))
    connection.execute("commit")


def update_rows(connection, count, rows, chance):
    connection.execute("begin")
    for _ in range(count):
        row = (os.urandom(1000), chance.randrange(rows))
        connection.execute("update t set v = ? where id = ?", row)
    connection.execute("commit")


class Disk:
    """Counts the KiB written to the disk under a directory, and its flushes."""

    def __init__(self, path):
        device = os.stat(path).st_dev
        self.path = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"

    def read(self):
        os.sync()
        with open(self.path) as file:
            fields = [int(field) for field in file.read().split()]
        return fields[6] // 2, fields[15] if len(fields) > 15 else 0


class Side:
    """One of the ways to run SQLite that are compared, with a directory for its databases."""

    def __init__(self, name):
        self.name = name
        self.path = os.path.join(DIRECTORY, f"measure-{name}")
        shutil.rmtree(self.path, ignore_errors=True)
        os.mkdir(self.path)
        self.disk = Disk(self.path)

    def prepare(self, make, *names):
        """Copies a database that `make` fills to each of `names`, and makes the directory a store if
        the side needs one. `make` fills it only once for all sides and rounds."""
        template = os.path.join(DIRECTORY, f"template-{make.__name__}-{scaled(ROWS)}")
        if not os.path.exists(template):
            with sqlite3.connect(template, isolation_level=None) as connection:
                make(connection)
            connection.close()
        for name in names:
            shutil.copy(template, os.path.join(self.path, name))
            if self.name == "wal":
                self.connect(name).execute("pragma journal_mode = wal")
        if self.name in ("atomdir", *VIEWS):
            subprocess.run(["atomdir", "init", "-q", self.path], check=True)

    def connect(self, database, **more):
        if self.name == "turso":
            return open_turso(os.path.join(self.path, database))
        return open_database(os.path.join(self.path, database), self.name, **more)

    def measure(self, transactions, work):
        """Returns transactions in a second, and KiB and flushes for each."""
        self.transactions = transactions
        before = self.disk.read()
        start = time.perf_counter()
        left_out = work() or 0
        taken = time.perf_counter() - start - left_out
        after = self.disk.read()
        each = [(now - then) / transactions for then, now in zip(before, after)]
        return transactions / taken, *each


def rows(connection):
    fill(connection, scaled(ROWS))


def small(connection):
    fill(connection, scaled(3000))


def mails(connection):
    fill(connection, scaled(5000))


def ten_thousand(kind):
    def workload(side):
        side.prepare(rows, "db")
        count = 3
        if side.name in VIEWS:
            return side.measure(count, lambda: run_commands(side, kind, count))
        connection = side.connect("db")
        result = side.measure(count, lambda: transactions(connection, kind, count, scaled(PER_TRANSACTION)))
        connection.close()
        return result

    return workload


def single(kind):
    def workload(side):
        side.prepare(rows, "db")
        connection = side.connect("db")
        count = scaled(200)
        result = side.measure(count, lambda: transactions(connection, kind, count, 1))
        connection.close()
        return result

    return workload


def transactions(connection, kind, count, per_transaction):
    chance = random.Random(1)
    for _ in range(count):
        if kind == "insert":
            insert_rows(connection, per_transaction)
        else:
            update_rows(connection, per_transaction, scaled(ROWS), chance)


def run_commands(side, kind, count):
    """Runs the commands. Returns how many seconds Python took to start, in all."""
    left_out = 0.0
    for number in range(count):
        command = ["atomdir", "run", "-q", "--view", VIEWS[side.name], "-C", side.path]
        command += ["--", sys.executable, __file__]
        command += ["--one", kind, str(number), str(SCALE)]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        left_out += float(found.stdout)
    return left_out


def run_one(kind, number):
    """What each `atomdir run` runs. Prints how many seconds ago its process began."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    began = ticks / os.sysconf("SC_CLK_TCK")
    print(time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    connection = open_database("db", "rollback")
    if kind == "insert":
        insert_rows(connection, scaled(PER_TRANSACTION))
    else:
        update_rows(connection, scaled(PER_TRANSACTION), scaled(ROWS), random.Random(number))
    connection.close()


def tpc_c(side):
    side.prepare(tpcc.fill, "db")
    connection = side.connect("db")
    count = scaled(300)
    result = side.measure(count, lambda: tpcc.run(connection, count))
    connection.close()
    return result


def mail(side):
    """Each transaction inserts a row, writes a file of 1 MB beside the database, and updates the row."""
    side.prepare(mails, "db")
    connection = side.connect("db")
    contents = os.urandom(1 << 20)

    def plain(number):
        connection.execute("insert into t(v) values(?)", (os.urandom(1000),))
        (id,) = connection.execute("select max(id) from t").fetchone()
        file = os.open(os.path.join(side.path, f"mail{number}"), os.O_CREAT | os.O_WRONLY)
        os.write(file, contents)
        os.fsync(file)
        os.close(file)
        directory = os.open(side.path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        connection.execute("update t set v = ? where id = ?", (f"mail{number}", id))

    def ours(number):
        connection.execute("select atomdir_begin()").fetchone()
        connection.execute("insert into t(v) values(?)", (os.urandom(1000),))
        (id,) = connection.execute("select max(id) from t").fetchone()
        connection.execute("select atomdir_write(?, ?)", (f"mail{number}", contents)).fetchone()
        connection.execute("update t set v = ? where id = ?", (f"mail{number}", id))
        connection.execute("select atomdir_commit()").fetchone()

    def work():
        for number in range(count):
            (ours if side.name == "atomdir" else plain)(number)

    count = scaled(40)
    result = side.measure(count, work)
    connection.close()
    return result


def twelve(side):
    """Six threads; each reads a row of one of twelve databases and writes its digest to another."""
    names = [f"db{number}" for number in range(12)]
    side.prepare(small, *names)
    count = scaled(60)

    shared = {"check_same_thread": False}
    opened = [{name: side.connect(name, **shared) for name in names} for _ in range(6)]

    def work(number):
        chance = random.Random(number)
        connections = opened[number]
        for _ in range(count):
            start, to = chance.sample(names, 2)
            id = chance.randrange(scaled(3000))
            query = "select v from t where id = ?"
            (value,) = connections[start].execute(query, (id,)).fetchone()
            digest = hashlib.sha256(value).digest()
            connections[to].execute("update t set v = ? where id = ?", (digest * 31, id))
        for connection in connections.values():
            connection.close()

    return side.measure(6 * count, lambda: in_threads(work))


def one_database(side):
    """Six threads; each transaction reads a row of one database and changes another one."""
    side.prepare(rows, "db")
    count = scaled(60)
    opened = [side.connect("db", check_same_thread=False) for _ in range(6)]
    begin = "begin concurrent" if side.name == "turso" else "begin immediate"

    def transaction(cursor, chance):
        read, written = (chance.randrange(scaled(ROWS)) for _ in range(2))
        cursor.execute(begin)
        (value,) = cursor.execute("select v from t where id = ?", (read,)).fetchone()
        digest = hashlib.sha256(value).digest()
        cursor.execute("update t set v = ? where id = ?", (digest * 31, written))
        cursor.execute("commit")

    def work(number):
        chance = random.Random(number)
        cursor = opened[number].cursor()
        for _ in range(count):
            until_committed(cursor, lambda: transaction(cursor, chance))
        opened[number].close()

    return side.measure(6 * count, lambda: in_threads(work))


def until_committed(cursor, transaction):
    """Runs the transaction until it commits, with random pauses like the extension's for statements."""
    while True:
        try:
            return transaction()
        except Exception as error:
            # Turso's errors have no codes.
            words = str(error).lower()
            if not any(word in words for word in ("conflict", "busy", "locked", "snapshot")):
                raise
            try:
                cursor.execute("rollback")
            except Exception as error:
                # The database has rolled it back already.
                if "no transaction" not in str(error):
                    raise
            time.sleep(random.uniform(0, 0.01))


def in_threads(work):
    failures = []

    def watched(number):
        try:
            work(number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=watched, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def pair(side):
    """Each transaction changes a row in each of two attached databases."""
    side.prepare(small, "one", "two")
    connection = side.connect("one")
    path = os.path.join(side.path, "two")
    more = "?vfs=atomdir" if side.name == "atomdir" else ""
    connection.execute(f"attach 'file:{path}{more}' as two")
    connection.execute("pragma two.synchronous = full")
    chance = random.Random(2)

    count = scaled(100)

    def work():
        for _ in range(count):
            id = chance.randrange(scaled(3000))
            connection.execute("begin")
            connection.execute("update main.t set v = ? where id = ?", (os.urandom(1000), id))
            connection.execute("update two.t set v = ? where id = ?", (os.urandom(1000), id))
            connection.execute("commit")

    result = side.measure(count, work)
    connection.close()
    return result


WORKLOADS = {
    "insert, 10 000 rows": ten_thousand("insert"),
    "update, 10 000 rows": ten_thousand("update"),
    "insert, 1 row": single("insert"),
    "update, 1 row": single("update"),
    "TPC-C": tpc_c,
    "mail": mail,
    "six threads, twelve databases": twelve,
    "six threads, one database": one_database,
    "two attached databases": pair,
}


def main(arguments):
    if not arguments.json:
        print("load", *os.getloadavg())
    for workload, measure in WORKLOADS.items():
        if arguments.workload not in workload:
            continue
        sides = arguments.sides.split(",")
        chosen = [name for name in sides if workload_has(workload, name)]
        found = {name: [] for name in chosen}
        for _ in range(arguments.rounds):
            for name in chosen:
                side = Side(name)
                found[name].append(measure(side))
                subprocess.run(["atomdir", "-C", side.path, "service", "stop"], capture_output=True)
                shutil.rmtree(side.path)
        for name, results in found.items():
            show = show_json if arguments.json else show_line
            show(workload, name, side.transactions, [statistics.median(one) for one in zip(*results)])
    if not arguments.json:
        print("load", *os.getloadavg())


def workload_has(workload, side):
    """`run` and `run-native` are measured with long transactions only, Turso only where several threads
    write to one database."""
    match side:
        case "run" | "run-native":
            return "10 000" in workload
        case "turso":
            return workload == "six threads, one database"
    return True


def show_line(workload, side, _, medians):
    rate, kib, flushes = medians
    line = f"{rate:.1f} transactions/s, {flushes:.1f} flushes and {kib:.0f} KiB each"
    print(workload, side, line, sep="; ", flush=True)


def show_json(workload, side, transactions, medians):
    rate, kib, flushes = medians
    row = {"workload": workload, "side": side, "transactions": transactions}
    row |= {"milliseconds": 1000 * transactions / rate}
    row |= {"kib": round(kib * transactions), "flushes": round(flushes * transactions)}
    print(json.dumps(row), flush=True)


if sys.argv[1] == "--one":
    SCALE = float(sys.argv[4])
    run_one(sys.argv[2], int(sys.argv[3]))
else:
    parser = argparse.ArgumentParser(description="Measure the extension beside plain SQLite")
    parser.add_argument("extension")
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", default="", help="only workloads whose name contains PART", metavar="PART")
    parser.add_argument("--sides", default="rollback,wal,atomdir,run,run-native")
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    DIRECTORY, SCALE = chosen.directory, chosen.scale
    first = sqlite3.connect(":memory:")
    first.enable_load_extension(True)
    first.load_extension(chosen.extension)
    main(chosen)
