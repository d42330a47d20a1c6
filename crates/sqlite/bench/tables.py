"""Writes the tables of docs/sqlite.md from the results of two runs of the bench.

    atomdir-bench --rounds 3 --file-system ext4 --json sqlite > own.json
    atomdir-bench --rounds 3 --file-system ext4 --flush-us 1000 --json sqlite > slow.json
    python3 tables.py own.json slow.json docs/sqlite.md
"""

import json
import re
import sys

BEGIN = "<!-- Written by crates/sqlite/bench/tables.py: do not edit below this line. -->"
END = "<!-- Do not edit above this line. -->"

# The bench's name of each side, and its name in the tables.
SIDES = {
    "rollback": "rollback",
    "sqlite": "WAL",
    "turso": "Turso",
    "embedded": "extension",
    "exact": "`run`, exact",
    "native": "`run`, native",
}
ROWS = {
    "SQLite: insert 10 000 rows": "insert, 10 000 rows in each",
    "SQLite: update 10 000 rows": "update, 10 000 rows in each",
    "SQLite: insert a row": "insert, 1 row in each",
    "SQLite: update a row": "update, 1 row in each",
    "SQLite: TPC-C": "TPC-C, one thread",
    "SQLite: mail": "mail: a row, a file of 1 MB, the row again",
    "SQLite: six threads, twelve databases": "six threads, twelve databases",
    "SQLite: six threads, one database": "six threads, one database",
    "SQLite: two attached databases": "a row in each of two attached databases",
}
# Row, side, and how many times as fast as the rollback journal and as WAL the paper says it is.
PAPERS = [
    ("SQLite: insert 10 000 rows", "embedded", 0.95, 1.28),
    ("SQLite: update 10 000 rows", "embedded", 1.31, 1.07),
    ("SQLite: insert 10 000 rows", "exact", 0.97, None),
    ("SQLite: update 10 000 rows", "exact", 1.14, None),
    ("SQLite: insert 10 000 rows", "native", 0.97, None),
    ("SQLite: update 10 000 rows", "native", 1.14, None),
    ("SQLite: TPC-C", "embedded", 1.61, 0.99),
    ("SQLite: mail", "embedded", 2.31, 1.98),
    ("SQLite: six threads, twelve databases", "embedded", 3.3, 2.1),
]
# Row, the side to compare with, the least ratio wanted, and why it is not reached.
GOALS = [
    ("SQLite: update 10 000 rows", "rollback", 2, "bytes: 90 MB where the others write 66, since the old pages are kept for the history. Flushes are under a hundredth of the time (6.3 for each transaction)"),
    ("SQLite: update 10 000 rows", "sqlite", 1.5, "the same"),
    ("SQLite: TPC-C", "rollback", 2, "each transaction reads its pages anew, makes and removes a staged file, and the log holds the old pages"),
    ("SQLite: mail", "rollback", 3, "three flushes are left (file and log) and 1 MB to write, which takes as long on all sides"),
    ("SQLite: six threads, twelve databases", "rollback", 4, "processor time: 0.7 ms for each transaction (rollback 0.6, WAL 0.35). A fifth of it goes to files and a directory that each transaction makes and removes"),
]


class Run:
    def __init__(self, path):
        with open(path) as file:
            run = json.load(file)
        self.machine = run["machine"]["line"]
        self.rows = {row["row"]: row for row in run["rows"] if row["workload"] == "sqlite"}
        self.rounds = max(len(side["all_ms"]) for row in self.rows.values() for side in row["sides"].values())

    def side(self, row, side):
        return self.rows[row]["sides"].get(side) if row in self.rows else None

    def count(self, row):
        return int(re.match(r"\d+", self.rows[row]["note"])[0])

    def rate(self, row, side):
        found = self.side(row, side)
        return short(1000 * self.count(row) / found["median_ms"]) if found else ""

    def each(self, row, side, what, unit=1):
        found = self.side(row, side)
        if not found or found[what] is None:
            return ""
        return short(found[what] / unit / self.count(row))

    def ratio(self, row, side, to):
        """How many times as fast as `to` the side is."""
        ours, theirs = self.side(row, side), self.side(row, to)
        return theirs["median_ms"] / ours["median_ms"] if ours and theirs else None


def short(number):
    if number >= 10:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2f}"


def table(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def rates(title, run):
    sides = [side for side in SIDES if any(run.side(row, side) for row in ROWS)]
    counted = [side for side in ("rollback", "sqlite", "embedded") if side in sides]
    names = ", ".join(SIDES[side] for side in counted)
    heading = [title, *(SIDES[side] for side in sides), f"flushes: {names}", "KiB"]
    rows = []
    for row, name in ROWS.items():
        if row in run.rows:
            flushes = ", ".join(run.each(row, side, "flushes") for side in counted)
            kib = ", ".join(run.each(row, side, "bytes_written", 1024) for side in counted)
            rows.append([name, *(run.rate(row, side) for side in sides), flushes, kib])
    return table(heading, rows)


def beside_papers(slow, own):
    def cell(run, row, side, is_both):
        to = ["rollback", "sqlite"] if is_both else ["rollback"]
        ratios = [run.ratio(row, side, one) for one in to]
        return ", ".join(short(ratio) for ratio in ratios if ratio is not None)

    rows = []
    for row, side, to_rollback, to_wal in PAPERS:
        is_both = to_wal is not None
        name = ROWS[row] if side == "embedded" else f"SQLite unchanged, {SIDES[side]}: {ROWS[row]}"
        paper = f"{to_rollback}, {to_wal}" if is_both else f"{to_rollback}"
        rows.append([name, paper, cell(slow, row, side, is_both), cell(own, row, side, is_both)])
    return table(["times as fast", "paper: as rollback, as WAL", "1 ms flushes", "own flushes"], rows)


def goals(slow, own):
    rows = []
    for row, to, least, reason in GOALS:
        found = [run.ratio(row, "embedded", to) for run in (slow, own)]
        shown = ["not measured" if ratio is None else f"{short(ratio)}x" for ratio in found]
        met = [ratio is not None and ratio >= least for ratio in found]
        if all(met):
            reason = "met"
        elif any(met):
            flushes = "1 ms" if met[0] else "own"
            reason = f"met with {flushes} flushes; otherwise {reason}"
        rows.append([ROWS[row], f"{least}x {SIDES[to]}", *shown, reason])
    return table(["goal", "as fast as", "1 ms flushes", "own flushes", "what stands in the way"], rows)


def text(own, slow):
    return "\n".join([
        "The numbers are transactions in a second.",
        f"Own flushes, medians of rounds in turn ({own.rounds}): {own.machine}.",
        f"1 ms flushes, medians of rounds in turn ({slow.rounds}): {slow.machine}.",
        "",
        rates("1 ms flushes", slow),
        rates("the disk's own flushes", own),
        "Beside the papers' ratios, which are of larger data and of another machine:",
        "",
        beside_papers(slow, own),
        "What was to be reached:",
        "",
        goals(slow, own),
    ])


def main(own_path, slow_path, document):
    with open(document) as file:
        before, rest = file.read().split(BEGIN)
    _, after = rest.split(END)
    written = text(Run(own_path), Run(slow_path))
    with open(document, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{written}\n{END}{after}")


if len(sys.argv) != 4:
    sys.exit(__doc__)
main(*sys.argv[1:])
