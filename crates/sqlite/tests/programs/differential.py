"""Runs random statements on a database in a store and on one in memory: the results must be the same.

Small caches make SQLite write pages long before the commit, and restore them in rollbacks.
"""

import random
import sqlite3
import sys

from common import connect, expect, uri

seed, steps = sys.argv[3:5]
chance = random.Random(seed)
SCHEMAS = ["main", "two"]


def open_pair():
    connection = connect("one.db")
    connection.execute(f"attach '{uri('two.db')}' as two")
    return connection


def settings(connection):
    for schema in SCHEMAS:
        connection.execute(f"pragma {schema}.cache_size = {chance.choice([5, 10, 2000])}")
        mode = chance.choice(["delete", "truncate", "persist", "memory"])
        connection.execute(f"pragma {schema}.journal_mode = {mode}")


ours, twin = open_pair(), sqlite3.connect(":memory:", isolation_level=None)
twin.execute("attach ':memory:' as two")
settings(ours)
savepoints = []
in_outer = False


def both(statement, *arguments):
    """Runs the statement on both. Rows or error messages must be the same."""
    results = []
    for connection in (ours, twin):
        try:
            results.append(connection.execute(statement, arguments).fetchall())
        except sqlite3.Error as error:
            results.append(str(error))
    expect(results[0], results[1])


for schema in SCHEMAS:
    for table in "ab":
        both(f"create table {schema}.{table}(id integer primary key, k, v)")

for step in range(int(steps)):
    schema, table = chance.choice(SCHEMAS), chance.choice("ab")
    name, is_open = f"{schema}.{table}", ours.in_transaction
    id, length = chance.randrange(200), chance.choice([10, 100, 3000, 20000])
    what = chance.randrange(18)
    if what <= 3:
        value = chance.randbytes(length)
        both(f"insert or replace into {name} values(?, ?, ?)", id, id % 7, value)
    elif what <= 5:
        both(f"update {name} set v = zeroblob(?), k = k + 1 where id % 9 = ?", length, id % 9)
    elif what == 6:
        both(f"delete from {name} where id % 5 = ?", id % 5)
    elif what == 7:
        both(f"insert into {name}(k, v) select k, v from {chance.choice(SCHEMAS)}.a limit 20")
    elif what == 8 and not is_open:
        both(chance.choice(["begin", "begin immediate", "begin exclusive"]))
    elif what == 9 and is_open:
        both("commit")
        savepoints.clear()
    elif what == 10 and is_open:
        both("rollback")
        savepoints.clear()
    elif what == 11:
        savepoints.append(f"s{step}")
        both(f"savepoint s{step}")
    elif what == 12 and savepoints:
        both(f"rollback to {chance.choice(savepoints)}")
        # A savepoint that no longer exists must fail with the same message on both sides.
    elif what == 13 and savepoints:
        both(f"release {chance.choice(savepoints)}")
    elif what == 14:
        index = f"{schema}.i{chance.randrange(3)}"
        both(chance.choice([f"create index if not exists {index} on {table}(k)", f"drop index if exists {index}"]))
    elif what == 15 and not is_open and chance.random() < 0.3:
        ours.execute(f"vacuum {schema}")
    elif what == 16 and not is_open and not in_outer:
        if chance.random() < 0.5:
            ours.close()
            ours = open_pair()
        settings(ours)
    elif what == 17 and not is_open:
        # An outer transaction changes no result of the SQLite transactions in it.
        ours.execute("select atomdir_commit()" if in_outer else "select atomdir_begin()").fetchall()
        in_outer = not in_outer
    both(f"select id, k, length(v), hex(substr(v, 1, 8)) from {name} order by id")
    expect(ours.in_transaction, twin.in_transaction)

if ours.in_transaction:
    both("commit")
if in_outer:
    ours.execute("select atomdir_commit()").fetchall()
ours.close()
ours = open_pair()
for schema in SCHEMAS:
    for table in "ab":
        both(f"select * from {schema}.{table} order by id")
    expect(ours.execute(f"pragma {schema}.integrity_check").fetchone(), ("ok",))
