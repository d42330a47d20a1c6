"""SQLite runs statements outside explicit transactions again after a conflict, unless they return rows."""

import threading

from common import BUSY_SNAPSHOT, code_of, connect, expect

THREADS, STATEMENTS = 4, 30

connection = connect()
connection.execute("create table a(id integer primary key, v)")
connection.execute("create table log(id integer primary key, v)")
connection.execute("create trigger t after update on a begin insert into log(v) values(new.v); end")
connection.execute("insert into a values(1, 0)")
failed = []


def add():
    own = connect()
    try:
        for _ in range(STATEMENTS):
            # On a busy machine even the last run can conflict. Then this program runs the statement again.
            while code := code_of(lambda: own.execute("update a set v = v + 1")):
                expect(code, BUSY_SNAPSHOT)
    except BaseException as error:
        failed.append(error)
        raise
    own.close()


threads = [threading.Thread(target=add) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
total = THREADS * STATEMENTS
expect(connection.execute("select v from a").fetchone(), (total,))
# Runs that were rolled back have left nothing in the trigger's log.
found = connection.execute("select count(*), count(distinct v), max(v) from log").fetchone()
expect(found, (total, total, total))

# To make a conflict certain, the statement calls a function that commits on another connection.
other = connect()
runs = []


def meanwhile(value):
    if not runs:
        other.execute("update a set v = v + 1000")
    runs.append(value)
    return value + 1


connection.create_function("meanwhile", 1, meanwhile)
connection.execute("update a set v = meanwhile(v)")
expect(runs, [total, total + 1000])
expect(other.execute("select v from a").fetchone(), (total + 1001,))

# A statement that conflicts in each of its runs fails in the end with BUSY_SNAPSHOT.
def always(value):
    other.execute("update a set v = v + 1000")
    runs.append(value)
    return value + 1


connection.create_function("always", 1, always)
runs.clear()
(before,) = other.execute("select v from a").fetchone()
expect(code_of(lambda: connection.execute("update a set v = always(v)")), BUSY_SNAPSHOT)
expect(runs, [before + 1000 * number for number in range(25)])
expect(connection.in_transaction, False)

# A statement with RETURNING does not run again: the program has seen rows of the first run.
runs.clear()
statement = "update a set v = meanwhile(v) returning v"
expect(code_of(lambda: connection.execute(statement).fetchall()), BUSY_SNAPSHOT)
expect(len(runs), 1)
# COMMIT does not run again: the program must repeat the whole transaction.
runs.clear()
connection.execute("begin")
connection.execute("update a set v = meanwhile(v)")
expect(code_of(lambda: connection.execute("commit")), BUSY_SNAPSHOT)
expect(connection.in_transaction, False)
