"""Two writers at once: if they write different pages, both commit; if they write one page, only the first."""

import os
import sqlite3

from common import BUSY_SNAPSHOT, STORE, code_of, connect, expect, plain

one, other = connect(), connect()
one.execute("create table a(id integer primary key, v)")
one.execute("create table b(id integer primary key, v)")
one.execute("insert into a values(1, 0)")
one.execute("insert into b values(1, 0)")

# Different tables are on different pages. Both transactions would only change the change counter.
for turn in range(1, 4):
    one.execute("begin")
    other.execute("begin")
    one.execute("update a set v = ?", (turn,))
    other.execute("update b set v = ?", (turn,))
    one.execute("commit")
    other.execute("commit")
    for connection in (one, other):
        expect(connection.execute("select v from a").fetchone(), (turn,))
        expect(connection.execute("select v from b").fetchone(), (turn,))

# The same page: the first commit succeeds, and SQLite has rolled the other transaction back.
one.execute("begin")
other.execute("begin")
one.execute("update a set v = v + 10")
other.execute("update a set v = v + 100")
one.execute("commit")
expect(code_of(lambda: other.execute("commit")), BUSY_SNAPSHOT)
expect(other.in_transaction, False)
expect(other.execute("select v from a").fetchone(), (13,))
other.execute("update a set v = v + 100")
expect(one.execute("select v from a").fetchone(), (113,))

# Write skew: each transaction reads the page that the other writes.
one.execute("begin")
other.execute("begin")
one.execute("update a set v = v + (select v from b)")
other.execute("update b set v = v + (select v from a)")
one.execute("commit")
expect(code_of(lambda: other.execute("commit")), BUSY_SNAPSHOT)

# The same, with all pages in SQLite's page cache before.
for connection in (one, other):
    connection.execute("select * from a, b").fetchall()
one.execute("begin")
other.execute("begin")
one.execute("update a set v = v + (select v from b)")
other.execute("update b set v = v + (select v from a)")
one.execute("commit")
expect(code_of(lambda: other.execute("commit")), BUSY_SNAPSHOT)

# A reader keeps its snapshot, and a transaction that only read commits.
other.execute("begin")
before = other.execute("select v from a").fetchone()
one.execute("update a set v = v + 1")
expect(other.execute("select v from a").fetchone(), before)
other.execute("commit")
expect(other.execute("select v from a").fetchone(), (before[0] + 1,))

# A rollback leaves nothing, also if SQLite wrote pages early because its cache was full.
one.execute("create table big(v)")
one.execute("pragma cache_size = 10")
one.execute("begin")
for _ in range(300):
    one.execute("insert into big values(zeroblob(3000))")
one.execute("savepoint s")
one.execute("update big set v = 1")
one.execute("rollback to s")
expect(one.execute("select count(*), sum(length(v)) from big").fetchone(), (300, 900000))
one.execute("rollback")
expect(one.execute("select count(*) from big").fetchone(), (0,))
expect(other.execute("pragma integrity_check").fetchone(), ("ok",))

# VACUUM and auto-vacuum cut the file off.
for _ in range(300):
    one.execute("insert into big values(zeroblob(3000))")
long = os.stat(os.path.join(STORE, "db")).st_size
one.execute("delete from big")
one.execute("vacuum")
short = os.stat(os.path.join(STORE, "db")).st_size
assert short < long / 10, (short, long)
expect(other.execute("select v from a").fetchone(), (before[0] + 1,))

# VACUUM also changes the page size, and memory mapping stays off.
for size in (8192, 4096):
    one.execute(f"pragma page_size = {size}")
    one.execute("vacuum")
    expect(other.execute("select v from a").fetchone(), (before[0] + 1,))
    expect(other.execute("pragma page_size").fetchone(), (size,))
expect(other.execute("pragma mmap_size = 1000000").fetchall(), [])

# Connections with a shared cache are refused, since they would share a transaction.
shared = connect(options="&cache=shared"), connect(options="&cache=shared")
shared[0].execute("select * from a").fetchall()
assert code_of(lambda: shared[1].execute("select * from a").fetchall())
for connection in shared:
    connection.close()

# A backup from and to the database; and auto-vacuum, which gives free pages back at each commit.
with sqlite3.connect(":memory:") as memory:
    one.backup(memory)
    memory.execute("update a set v = 4711")
    memory.commit()
    memory.backup(one)
expect(other.execute("select v from a").fetchone(), (4711,))
vacuums = connect("vacuums")
vacuums.execute("pragma auto_vacuum = full")
vacuums.execute("create table t(v)")
vacuums.execute("begin")
for _ in range(300):
    vacuums.execute("insert into t values(zeroblob(3000))")
vacuums.execute("commit")
long = os.stat(os.path.join(STORE, "vacuums")).st_size
vacuums.execute("delete from t")
assert os.stat(os.path.join(STORE, "vacuums")).st_size < long / 10
expect(vacuums.execute("pragma integrity_check").fetchone(), ("ok",))
vacuums.close()

one.close()
other.close()
with plain() as connection:
    expect(connection.execute("pragma integrity_check").fetchone(), ("ok",))
    expect(connection.execute("select v from a").fetchone(), (4711,))
