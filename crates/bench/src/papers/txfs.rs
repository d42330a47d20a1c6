use super::{Figure, Paper, fast, flushes, stated, written};
use crate::measure::Side;

pub const TXFS: Paper = Paper {
    key: "txfs",
    title: "TxFS (Hu and others, USENIX ATC 2018)",
    text: "Transactions that use ext4's journal, in a changed kernel. `exact` and `native` are the unchanged \
           program in a view, or unchanged SQLite in `atomdir run`. `embedded` and `service` are programs \
           rewritten for the library; for SQLite, `embedded` is the extension. Where flushes take long, \
           programs that flush often gain more: in the rows with 1 ms flushes, each flush of the disk takes 1 ms \
           longer, for all sides alike ([sqlite.md](sqlite.md#what-it-costs)).",
    figures: FIGURES,
};

const UNCHANGED: &[Side] = &[Side::Exact, Side::Native];
const REWRITTEN: &[Side] = &[Side::Embedded, Side::Service];
const EXTENSION: &[Side] = &[Side::Embedded];

const INSERT: &str = "SQLite: insert 10 000 rows";
const UPDATE: &str = "SQLite: update 10 000 rows";
const TPC_C: &str = "SQLite: TPC-C";
const MAIL: &str = "SQLite: mail";
const SMALLER: &str =
    "100 000 rows before and 30 000 operations, instead of 15 million and 1.5 million.";

const FIGURES: &[Figure] = &[
    fast("Create, unlink, sync in a loop, six threads", 133.0)
        .at("idioms", "create, unlink, sync by 6 threads")
        .remark(
            "A transaction for each thread. The ratio depends on how long a flush takes.",
        ),
    fast("The same in one thread", 133.0)
        .also("of six threads")
        .at("cancel", "create, unlink, sync")
        .remark("The program unchanged, in one `run`."),
    fast("Log with four fsyncs, unchanged", 1.20)
        .at("idioms", "log with four fsyncs, then update")
        .of(UNCHANGED),
    fast("The same, rewritten without the log", 1.55)
        .at("idioms", "log with four fsyncs, then update")
        .of(REWRITTEN),
    written("The same, what reaches the disk", 0.5)
        .at("idioms", "log with four fsyncs, then update")
        .of(REWRITTEN)
        .also("of the unchanged program")
        .remark("Counted until no dirty pages are left."),
    fast(
        "Three creates of 10 MB ordered before an update of 10 MB",
        1.38,
    )
    .at("order", "ordered creates, then update"),
    fast("The same with files of a page, unchanged and by the library", 1.38)
        .also("of 10 MB")
        .at("idioms", "three ordered creates, then update")
        .remark("By the library: three lazy commits before a durable one."),
    fast("Inserts, beside SQLite's rollback journal", 0.95)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark(SMALLER),
    fast("Inserts, 1 ms flushes, beside SQLite's rollback journal", 0.95)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Rollback)
        .slowed(),
    fast("Inserts, beside SQLite's write-ahead log", 1.28)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("Inserts, 1 ms flushes, beside SQLite's write-ahead log", 1.28)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Sqlite)
        .slowed(),
    fast("Updates, beside SQLite's rollback journal", 1.31)
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark(SMALLER),
    fast("Updates, 1 ms flushes, beside SQLite's rollback journal", 1.31)
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Rollback)
        .slowed(),
    fast("Updates, beside SQLite's write-ahead log", 1.07)
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("Updates, 1 ms flushes, beside SQLite's write-ahead log", 1.07)
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Sqlite)
        .slowed(),
    stated(
        "SQLite without a journal, beside its rollback journal",
        "1.02x and 1.81x as fast as with it",
    )
    .remark(
        "Not measured: a crash destroys such a database, so a comparison has no meaning.",
    ),
    fast("Unchanged SQLite in a transaction, inserts", 0.97)
        .at("sqlite", INSERT)
        .of(UNCHANGED)
        .to(Side::Rollback),
    fast("Unchanged SQLite in a transaction, updates", 1.14)
        .at("sqlite", UPDATE)
        .of(UNCHANGED)
        .to(Side::Rollback),
    flushes("Syncs for inserts, beside SQLite's rollback journal", 0.25)
        .also("1 to 4")
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark("Flushes of the device, which include those of the file system."),
    flushes("Syncs for inserts, beside SQLite's write-ahead log", 0.33)
        .also("1 to 3")
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Sqlite),
    flushes("Syncs for updates, beside SQLite's rollback journal", 0.1)
        .also("1 to 10")
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Rollback),
    flushes("Syncs for updates, beside SQLite's write-ahead log", 0.33)
        .also("1 to 3")
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Sqlite),
    written("Written for inserts, beside SQLite's rollback journal", 1.0)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Rollback),
    written("Written for inserts, beside SQLite's write-ahead log", 0.49)
        .at("sqlite", INSERT)
        .of(EXTENSION)
        .to(Side::Sqlite),
    written(
        "Written for updates, beside SQLite's rollback journal",
        0.97,
    )
    .at("sqlite", UPDATE)
    .of(EXTENSION)
    .to(Side::Rollback),
    written("Written for updates, beside SQLite's write-ahead log", 1.0)
        .at("sqlite", UPDATE)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("TPC-C, beside SQLite's rollback journal", 1.61)
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark("One warehouse, a tenth of the customers and a hundredth of the items."),
    fast("TPC-C, 1 ms flushes, beside SQLite's rollback journal", 1.61)
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Rollback)
        .slowed(),
    fast("TPC-C, beside SQLite's write-ahead log", 0.99)
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("TPC-C, 1 ms flushes, beside SQLite's write-ahead log", 0.99)
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Sqlite)
        .slowed(),
    flushes("Syncs for TPC-C, beside SQLite's rollback journal", 0.33)
        .also("0.92 to 2.76")
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Rollback),
    flushes("Syncs for TPC-C, beside SQLite's write-ahead log", 0.33)
        .also("0.92 to 2.76")
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Sqlite),
    written("Written for TPC-C, beside SQLite's rollback journal", 0.76)
        .at("sqlite", TPC_C)
        .of(EXTENSION)
        .to(Side::Rollback),
    fast("Mail, beside SQLite's rollback journal", 2.31)
        .at("sqlite", MAIL)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark("A row, a file of 1 MB, the row again; 5 000 rows before, instead of 100 000."),
    fast("Mail, 1 ms flushes, beside SQLite's rollback journal", 2.31)
        .at("sqlite", MAIL)
        .of(EXTENSION)
        .to(Side::Rollback)
        .slowed(),
    fast("Mail, beside SQLite's write-ahead log", 1.98)
        .at("sqlite", MAIL)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("Mail, 1 ms flushes, beside SQLite's write-ahead log", 1.98)
        .at("sqlite", MAIL)
        .of(EXTENSION)
        .to(Side::Sqlite)
        .slowed(),
    fast("git: `git add` of 20 000 files in a transaction", 1.0)
        .at("git", "git add of 20 000 files")
        .remark("20 000 files of 1 KiB; the paper's are empty."),
    fast("git: init, add and commit in a transaction", 1.0)
        .also("of add alone")
        .at("git", "git init, add, commit")
        .remark("9 000 entries, 118 MiB."),
    stated(
        "git: a crash during `git add` corrupts the index",
        "never in a transaction",
    )
    .remark("Not a time. `killed_git_add_leaves_the_old_or_the_new_index` shows it for kills. In its long form (`ATOMDIR_TIER=full`, 20 000 files), 12 kills left the old or the new index and nothing else; 12 kills of plain `git add` left a lock 12 times and temporary files 5 times, and the next `git add` failed each time."),
    stated(
        "More than 100 crashes of a virtual machine",
        "all recovered",
    )
    .remark("Not a time. `./test` recovers from 240 power cuts, 80 on each of ext4, xfs and btrfs, and its long form from 3 000 (`crates/crash/tests/power_cut`). [guarantees.md](guarantees.md) names the tests that kill and that simulate crashes."),
    stated("24 hours of stress by six threads", "passed")
        .remark("Not a time, and not done at that length. `./test --full` runs random work, kills and a million commits for some hours."),
];
