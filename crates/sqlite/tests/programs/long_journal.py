"""Rollbacks of savepoints and whole transactions work with a journal that is too long for memory."""

from common import connect, expect

ROWS = 2600
db = connect()
# SQLite writes each page to the journal before it changes it; with a small cache also the pages of a savepoint.
db.execute("pragma cache_size = 10")
db.execute("create table t(id integer primary key, v)")


def fill(letter, first=0):
    for id in range(first, ROWS):
        db.execute("insert or replace into t values(?, ?)", (id, letter * 3500))


def letters():
    found = db.execute("select substr(v, 1, 1), count(*) from t group by 1")
    return dict(found.fetchall())


db.execute("begin")
fill("a")
db.execute("commit")
for end, wanted in [("rollback", {"a": ROWS}), ("commit", {"a": 10, "b": ROWS - 1010, "d": 1000})]:
    db.execute("begin")
    # The journal becomes longer than 8 MiB.
    fill("b", 10)
    db.execute("savepoint one")
    fill("c", 5)
    db.execute("rollback to one")
    expect(letters(), {"a": 10, "b": ROWS - 10})
    fill("d", ROWS - 1000)
    expect(letters(), {"a": 10, "b": ROWS - 1010, "d": 1000})
    db.execute(end)
    expect(letters(), wanted)
expect(db.execute("pragma integrity_check").fetchall(), [("ok",)])
