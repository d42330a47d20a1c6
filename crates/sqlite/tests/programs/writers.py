"""Processes that write to different pages of one database through the service never conflict.

Prints how many transactions were committed in a second."""

import subprocess
import sys
import time

from common import connect, expect

PROCESSES, TRANSACTIONS = 4, 100

if len(sys.argv) > 4:
    number = sys.argv[4]
    connection = connect()
    for _ in range(TRANSACTIONS):
        connection.execute("begin")
        connection.execute(f"update t{number} set v = v + 1")
        connection.execute("commit")
    sys.exit()

connection = connect()
for number in range(PROCESSES):
    connection.execute(f"create table t{number}(v)")
    connection.execute(f"insert into t{number} values(0)")
began = time.monotonic()
writers = [
    subprocess.Popen([sys.executable, *sys.argv, str(number)]) for number in range(PROCESSES)
]
expect([writer.wait() for writer in writers], [0] * PROCESSES)
seconds = time.monotonic() - began
for number in range(PROCESSES):
    expect(connection.execute(f"select v from t{number}").fetchone(), (TRANSACTIONS,))
print(f"{PROCESSES * TRANSACTIONS / seconds:.0f} transactions in a second")
