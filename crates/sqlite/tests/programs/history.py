"""Transactions of one process on registers and lists in two databases; see the commands at the end.

A register is a row that fills a page, a list is a table to which rows are added. `run` prints a line for
each transaction: when it began and ended, by a clock that all processes share, its outcome, and
its reads and writes. `last` prints the values after all transactions.
"""

import os
import random
import sqlite3
import sys
import time

from common import BUSY_SNAPSHOT, connect, expect, plain, uri

REGISTERS = 8
LISTS = 3
KEYS = [("R", number) for number in range(REGISTERS)] + [("L", number) for number in range(LISTS)]
NAMES = ("main", "two")
# The test starts a killed service again long before so many connections have failed.
FAILED_MAX = 1_000


def open_databases():
    connection = connect("main.db")
    connection.execute(f"attach '{uri('two.db')}' as two")
    return connection


def create():
    connection = open_databases()
    for name in NAMES:
        connection.execute("begin")
        connection.execute(f"create table {name}.register(id integer primary key, value, padding)")
        for number in range(REGISTERS):
            row = (number, None, b"p" * 3500)
            connection.execute(f"insert into {name}.register values(?, ?, ?)", row)
        for number in range(LISTS):
            connection.execute(f"create table {name}.list{number}(id integer primary key, value)")
        connection.execute("commit")
    connection.close()


def read(connection, key):
    kind, number = key
    name = NAMES[number % 2]
    if kind == "R":
        statement = f"select value from {name}.register where id = {number} and value is not null"
    else:
        statement = f"select value from {name}.list{number} order by id"
    return [value for (value,) in connection.execute(statement)]


def write(connection, key, value):
    kind, number = key
    name = NAMES[number % 2]
    if kind == "R":
        connection.execute(f"update {name}.register set value = ? where id = ?", (value, number))
    else:
        connection.execute(f"insert into {name}.list{number}(value) values(?)", (value,))


def shown(sign, key, values):
    return f"{sign}{key[0]}{key[1]}={','.join(str(value) for value in values)}"


def operate(connection, chance, next_value, operations):
    connection.execute("begin")
    for _ in range(chance.randrange(1, 6)):
        key = chance.choice(KEYS)
        writes = chance.random() < 1 / 3
        if not writes or key[0] == "R":
            operations.append(shown("r", key, read(connection, key)))
        if writes:
            value = next(next_value)
            operations.append(shown("w", key, [value]))
            write(connection, key, value)


def attempt(connection, chance, next_value, operations):
    """Returns the outcome, and whether the connection can still be used."""
    try:
        operate(connection, chance, next_value, operations)
    except sqlite3.Error as error:
        return "aborted", error.sqlite_errorcode == BUSY_SNAPSHOT
    try:
        connection.execute("commit")
    except sqlite3.Error as error:
        is_conflict = error.sqlite_errorcode == BUSY_SNAPSHOT
        return "aborted" if is_conflict else "unknown", is_conflict
    return "committed", True


def open_again():
    for _ in range(FAILED_MAX):
        try:
            connection = open_databases()
            read(connection, KEYS[0])
            read(connection, KEYS[1])
            return connection
        except sqlite3.Error:
            time.sleep(0.01)
    raise AssertionError("the service does not come back")


def run(process, transactions, seed):
    chance = random.Random(f"{seed} {process}")
    next_value = iter(range(process * 1_000_000 + 1, (process + 1) * 1_000_000))
    connection = open_again()
    for _ in range(transactions):
        operations = []
        began = time.monotonic_ns()
        outcome, is_served = attempt(connection, chance, next_value, operations)
        ended = time.monotonic_ns()
        os.write(1, f"{began} {ended} {outcome} {' '.join(operations)}\n".encode())
        if not is_served:
            connection.close()
            connection = open_again()
        elif connection.in_transaction:
            connection.execute("rollback")
    connection.close()


def last():
    connection = open_again()
    for key in KEYS:
        print(shown("r", key, read(connection, key)))
    connection.close()


def verify():
    for name in ("main.db", "two.db"):
        with plain(name) as connection:
            expect(connection.execute("pragma integrity_check").fetchall(), [("ok",)])


command, *rest = [argument for argument in sys.argv[3:] if not argument.startswith("&door=")]
if command == "create":
    create()
elif command == "run":
    run(*(int(number) for number in rest))
elif command == "last":
    last()
    verify()
