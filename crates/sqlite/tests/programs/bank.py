"""Several threads transfer amounts between accounts in two databases; see the commands at the end.

Each transfer also raises a counter of its thread. Once it is committed, thread and counter are printed.
"""

import os
import random
import sys
import threading

from common import BUSY_SNAPSHOT, connect, expect, plain

ACCOUNTS = 48
START = 100
THREADS = 8


def attached(options=""):
    connection = connect("one.db", options)
    connection.execute(f"attach '{connection_uri('two.db', options)}' as two")
    return connection


def connection_uri(name, options):
    from common import STORE

    return f"file:{STORE}/{name}?vfs=atomdir{options}"


def create(options):
    connection = attached(options)
    for schema in ("main", "two"):
        connection.execute("begin")
        connection.execute(f"create table {schema}.account(id integer primary key, sum, padding)")
        connection.execute(f"create table {schema}.done(thread integer primary key, count, padding)")
        for id in range(ACCOUNTS):
            row = (id, START, b"p" * 1000)
            connection.execute(f"insert into {schema}.account values(?, ?, ?)", row)
        for thread in range(THREADS):
            row = (thread, 0, b"p" * 3000)
            connection.execute(f"insert into {schema}.done values(?, ?, ?)", row)
        connection.execute("commit")
    connection.close()


def transfer(connection, thread, chance):
    """Runs one transfer until it commits. Returns the thread's count."""
    start, to = chance.sample(range(ACCOUNTS), 2)
    here, there = chance.choice([("main", "two"), ("two", "main"), ("main", "main")])
    amount = chance.randrange(1, 5)
    for _ in range(100_000):
        try:
            connection.execute("begin")
            connection.execute(f"update {here}.account set sum = sum - ? where id = ?", (amount, start))
            connection.execute(f"update {there}.account set sum = sum + ? where id = ?", (amount, to))
            for schema in ("main", "two"):
                connection.execute(f"update {schema}.done set count = count + 1 where thread = ?", (thread,))
            (count,) = connection.execute("select count from done where thread = ?", (thread,)).fetchone()
            connection.execute("commit")
            return count
        except sqlite3_error() as error:
            expect(error.sqlite_errorcode, BUSY_SNAPSHOT)
            if connection.in_transaction:
                connection.execute("rollback")
    raise AssertionError("no try has committed")


def sqlite3_error():
    import sqlite3

    return sqlite3.OperationalError


def check_sums(connection):
    """Checks in one snapshot that the sum is unchanged and both databases count the same transfers."""
    connection.execute("begin")
    total = 0
    for schema in ("main", "two"):
        (sum,) = connection.execute(f"select sum(sum) from {schema}.account").fetchone()
        total += sum
    expect(total, 2 * ACCOUNTS * START)
    counts = [
        connection.execute(f"select thread, count from {schema}.done order by thread").fetchall()
        for schema in ("main", "two")
    ]
    connection.execute("commit")
    expect(counts[0], counts[1])
    return dict(counts[0])


def work(thread, transfers, seed, options):
    connection = attached(options)
    chance = random.Random(f"{seed} {thread}")
    done = 0
    while transfers == 0 or done < transfers:
        count = transfer(connection, thread, chance)
        done += 1
        os.write(1, f"{thread} {count}\n".encode())
        if done % 10 == 0:
            check_sums(connection)
    connection.close()


def run(threads, transfers, seed, options):
    failed = []

    def guarded(thread):
        try:
            work(thread, transfers, seed, options)
        except BaseException as error:
            failed.append(error)
            raise

    workers = [threading.Thread(target=guarded, args=(thread,)) for thread in threads]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed


def verify(options):
    """Prints each thread's count, and checks the databases through the extension."""
    connection = attached(options)
    for thread, count in check_sums(connection).items():
        print(thread, count)
    for schema in ("main", "two"):
        found = connection.execute(f"pragma {schema}.integrity_check").fetchall()
        expect(found, [("ok",)])
    connection.close()


def verify_plain():
    for name in ("one.db", "two.db"):
        with plain(name) as connection:
            expect(connection.execute("pragma integrity_check").fetchall(), [("ok",)])


command, options, *rest = sys.argv[3:]
if command == "create":
    create(options)
elif command == "run":
    # The threads' numbers, as 0,1,2; how many transfers each makes, 0 for no end; the seed.
    run([int(thread) for thread in rest[0].split(",")], int(rest[1]), rest[2], options)
elif command == "verify":
    verify(options)
    verify_plain()
