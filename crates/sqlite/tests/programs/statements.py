"""Statements that still read while their connection commits another one; and settings."""

import os
import sqlite3

from common import BUSY_SNAPSHOT, STORE, code_of, connect, expect, plain

one, other = connect(), connect()
one.execute("create table a(id integer primary key, v)")
one.execute("create table b(id integer primary key, v)")
one.execute("create table big(id integer primary key, v)")
one.execute("insert into a values(1, 10)")
one.execute("insert into b values(1, 0)")
one.execute("begin")
for id in range(100):
    one.execute("insert into big values(?, zeroblob(3000))", (id,))
one.execute("commit")


def reading():
    """A statement that has read its first row, and has more pages to read."""
    rows = one.execute("select id from big order by id")
    expect(rows.fetchone(), (0,))
    return rows


# Each of these commits, and the next row comes from the snapshot of that commit.
for row in one.execute("select id from big order by id"):
    one.execute("update b set v = v + 1")
    one.execute("update big set v = ? where id = ?", (row[0], row[0] + 1))
expect(one.execute("select v from b").fetchone(), (100,))
expect(other.execute("select count(*) from big where v = id - 1").fetchone(), (99,))

# Pages that SQLite has read before that commit, and has in its cache, still enter the read set.
rows = reading()
one.execute("select * from a").fetchall()
one.execute("update b set v = 0")
one.execute("begin")
one.execute("update b set v = v + (select v from a)")
other.execute("update a set v = 11")
expect(code_of(lambda: one.execute("commit")), BUSY_SNAPSHOT)
rows.close()
expect(one.execute("select v from b").fetchone(), (0,))

# If another connection has committed since, the statement cannot go on.
rows = reading()
one.execute("update b set v = 1")
other.execute("update b set v = 2")
expect(code_of(rows.fetchall), BUSY_SNAPSHOT)
expect(one.execute("select v from b").fetchone(), (2,))

# A backup in steps ends, and starts again only if something was committed in between.
def backup(pages, when=None, writer=other):
    steps = 0

    def progress(_, remaining, total):
        nonlocal steps
        steps += 1
        if steps == when:
            with writer:
                writer.execute("update b set v = v + 1")
        assert steps <= 2 * total + 2, "it starts again and again"

    with sqlite3.connect(":memory:") as memory:
        one.backup(memory, pages=pages, progress=progress)
        expect(memory.execute("pragma integrity_check").fetchone(), ("ok",))
        return memory.execute("select v from b").fetchone()[0]


expect(backup(1), 2)
expect(backup(3, when=5), 3)
expect(backup(3, when=5, writer=plain()), 4)
one.execute("begin")
one.execute("update a set v = v + 1")
other.execute("update a set v = v + 1")
expect(code_of(lambda: one.execute("commit")), BUSY_SNAPSHOT)

# A journal that is too long for memory moves to a file.
long = connect("long")
long.execute("create table t(v)")
long.execute("begin")
for _ in range(3000):
    long.execute("insert into t values(zeroblob(4000))")
long.execute("commit")
for end, sum in (("rollback", 0), ("commit", 3000 * 11)):
    long.execute("begin")
    long.execute("update t set v = cast(x'313100' || zeroblob(3998) as blob)")
    long.execute(end)
    expect(long.execute("select sum(substr(v, 1, 2)) from t").fetchone(), (sum,))
long.close()

# Page sizes smaller and larger than the unit of conflicts (4096 bytes), and changes of the page size.
pages = connect("pages")
pages.execute("pragma page_size = 1024")
pages.execute("create table t(v)")
for size in (1024, 8192, 512, 4096):
    pages.execute(f"pragma page_size = {size}")
    pages.execute("vacuum")
    pages.execute("begin")
    for _ in range(20):
        pages.execute("insert into t values(zeroblob(2000))")
    pages.execute("commit")
    expect(pages.execute("pragma page_size").fetchone(), (size,))
pages.close()
with plain("pages") as connection:
    expect(connection.execute("pragma integrity_check").fetchone(), ("ok",))
    expect(connection.execute("select count(*), sum(length(v)) from t").fetchone(), (80, 160000))

# SQLite returns the mode in use if there can be no write-ahead log.
expect(one.execute("pragma journal_mode = wal").fetchone(), ("delete",))

# A file that the user may not write is a read-only database.
one.close()
other.close()
if os.geteuid() != 0:
    os.chmod(os.path.join(STORE, "db"), 0o444)
    reader = connect()
    expect(reader.execute("select v from b").fetchone(), (4,))
    expect(code_of(lambda: reader.execute("delete from b")), sqlite3.SQLITE_READONLY)
    reader.close()
os.mkdir(os.path.join(STORE, "directory"))
expect(code_of(lambda: connect("directory")), sqlite3.SQLITE_CANTOPEN)
