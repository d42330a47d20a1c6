"""One transaction over several connections, two databases and plain files."""

import os
import sqlite3

from common import BUSY_SNAPSHOT, STORE, code_of, connect, expect

one, two, outside = connect("one.db"), connect("two.db"), connect("one.db")
for connection in (one, two):
    connection.execute("create table t(v)")
    connection.execute("insert into t values(0)")


def values():
    seen = connect("one.db"), connect("two.db")
    return [connection.execute("select v from t").fetchone()[0] for connection in seen]


def path(name):
    return os.path.join(STORE, name)


def begin():
    (number,) = one.execute("select atomdir_begin()").fetchone()
    two.execute("select atomdir_join(?)", (number,))
    return number


# Others see none of the changes before the commit, and all of them after.
begin()
one.execute("update t set v = 1")
two.execute("begin")
two.execute("update t set v = 1")
two.execute("commit")
two.execute("select atomdir_write('note', ?)", ("hello",))
for _ in range(2):
    two.execute("select atomdir_mkdir('new/and/deep')")
two.execute("select atomdir_write('new/and/deep/note', ?)", ("hello",))
expect(one.execute("select atomdir_read('note')").fetchone(), (b"hello",))
expect(values(), [0, 0])
assert not os.path.exists(path("note"))
one.execute("select atomdir_commit()")
expect(values(), [1, 1])
expect(open(path("note")).read(), "hello")
expect(open(path("new/and/deep/note")).read(), "hello")

# The log shows a label.
one.execute("select atomdir_begin('the first order')")
one.execute("select atomdir_write('order', 'x')")
one.execute("select atomdir_commit()")

# An abort drops all changes, and the connections go on without the outer transaction.
begin()
one.execute("update t set v = 2")
two.execute("select atomdir_remove('note')")
expect(two.execute("select atomdir_read('note')").fetchone(), (None,))
two.execute("select atomdir_abort()")
expect(one.execute("select v from t").fetchone(), (1,))
expect(values(), [1, 1])
expect(open(path("note")).read(), "hello")
two.execute("update t set v = 3")
expect(values(), [1, 3])

# A conflict is found at the commit, which then drops all changes of the transaction.
begin()
one.execute("update t set v = 4")
two.execute("update t set v = 4")
outside.execute("update t set v = 5")
expect(code_of(lambda: one.execute("select atomdir_commit()").fetchall()), BUSY_SNAPSHOT)
expect(values(), [5, 3])
expect(one.execute("select v from t").fetchone(), (5,))

# Connections in one outer transaction see each other's changes, so SQLite's locks hold between them.
number = begin()
third = connect("one.db")
third.execute("select atomdir_join(?)", (number,))
one.execute("begin")
one.execute("update t set v = 6")
expect(code_of(lambda: third.execute("select v from t").fetchall()), sqlite3.SQLITE_BUSY)
expect(code_of(lambda: one.execute("select atomdir_commit()").fetchall()), sqlite3.SQLITE_ERROR)
one.execute("rollback")
expect(third.execute("select v from t").fetchone(), (5,))
# A rollback also restores pages that SQLite wrote early because its cache was full.
one.execute("pragma cache_size = 5")
one.execute("begin")
for _ in range(100):
    one.execute("insert into t values(zeroblob(3000))")
one.execute("rollback")
third.execute("update t set v = v + 2")
one.execute("select atomdir_commit()")
expect(values(), [7, 3])
expect(one.execute("select count(*) from t").fetchone(), (1,))
expect(one.execute("pragma integrity_check").fetchone(), ("ok",))

# Without a rollback journal SQLite cannot restore the pages: the outer transaction cannot commit.
one.execute("pragma journal_mode = off")
begin()
one.execute("begin")
for _ in range(100):
    one.execute("insert into t values(zeroblob(3000))")
code_of(lambda: one.execute("rollback"))
expect(code_of(lambda: one.execute("select atomdir_commit()").fetchall()), sqlite3.SQLITE_IOERR)
expect(values(), [7, 3])
