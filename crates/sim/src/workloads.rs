//! The workloads: every kind of change that a commit can make, and the
//! circumstances that matter to crashes.

mod cancelled;
mod kept;
mod survivors;
mod transactions;
mod used;

use atomdir_engine::CARRIED_BYTES_MAX;

use crate::operation::Node::{Device, Directory, Fifo, Symlink};
use crate::operation::{Node, Operation};
pub use crate::random::random;
use crate::workload::{Step, Workload};
pub use cancelled::cancelled;
pub use kept::kept;
pub use survivors::survivors;
pub use transactions::transactions;

fn file(path: &str, length: u64) -> Operation {
    Operation::File(path.to_owned(), length)
}

fn write(path: &str, offset: u64, length: u64) -> Operation {
    Operation::Write(path.to_owned(), offset, length)
}

fn truncate(path: &str, length: u64) -> Operation {
    Operation::Truncate(path.to_owned(), length)
}

fn make(path: &str, what: Node) -> Operation {
    Operation::Make(path.to_owned(), what)
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename(from.to_owned(), to.to_owned())
}

fn exchange(from: &str, to: &str) -> Operation {
    Operation::Exchange(from.to_owned(), to.to_owned())
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link(from.to_owned(), to.to_owned())
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink(path.to_owned())
}

fn remove_directory(path: &str) -> Operation {
    Operation::RemoveDirectory(path.to_owned())
}

fn mode(path: &str, mode: u32) -> Operation {
    Operation::Mode(path.to_owned(), mode)
}

fn owner(path: &str, user: u32, group: u32) -> Operation {
    Operation::Owner(path.to_owned(), user, group)
}

fn modified(path: &str, seconds: i64) -> Operation {
    Operation::Modified(path.to_owned(), seconds)
}

fn xattr(path: &str, value: Option<&'static str>) -> Operation {
    Operation::Xattr(path.to_owned(), value)
}

/// Files of several sizes, nested directories, a file with two names.
fn base() -> Vec<Operation> {
    vec![
        file("a", 700),
        file("b", 5000),
        make("d", Directory),
        file("d/x", 10),
        make("d/e", Directory),
        file("d/e/y", 1500),
        make("f", Directory),
        file("f/z", 300),
        link("f/z", "d/z"),
        make("s", Symlink),
        xattr("a", Some("old")),
    ]
}

fn workload(name: &str, steps: Vec<Step>) -> Workload {
    Workload {
        name: name.to_owned(),
        base: base(),
        steps,
        carried_bytes_max: CARRIED_BYTES_MAX,
        has_directory_times: true,
        keeps_history: false,
        has_log_elsewhere: false,
    }
}

/// Makes two versions of each workload: with small contents carried in the log, and with all
/// contents in staged files.
fn carried_and_staged(carried: Vec<Workload>) -> Vec<Workload> {
    let staged = carried.iter().map(|workload| Workload {
        name: format!("{}, staged", workload.name),
        carried_bytes_max: 0,
        ..workload.clone()
    });
    let staged: Vec<Workload> = staged.collect();
    carried.into_iter().chain(staged).collect()
}

fn one(name: &str, operations: Vec<Operation>) -> Workload {
    workload(name, vec![Step::Commit(operations)])
}

/// Outside writers give privileges to files that commits have changed, and that
/// recovery will write again.
pub fn privileged() -> Vec<Workload> {
    let given = vec![
        mode("f/z", 0o4755),
        Operation::Capability("f/z".to_owned()),
        mode("large", 0o2755),
    ];
    let steps = vec![
        Step::Commit(vec![write("f/z", 100, 5000), write("large", 4096, 8192)]),
        Step::Outside(given),
        Step::Commit(vec![write("b", 0, 10), file("new", 30)]),
    ];
    let mut workload = workload("privileges from outside", steps);
    workload
        .base
        .extend([file("large", 100), truncate("large", 3 << 20)]);
    carried_and_staged(vec![workload])
}

/// Workloads with one commit each, of one kind of change.
pub fn kinds() -> Vec<Workload> {
    let mut all = new_objects();
    all.extend(contents_and_attributes());
    all.extend(moved_names());
    all.extend(removed_and_reused_names());
    all.extend(used::used());
    carried_and_staged(all)
}

fn new_objects() -> Vec<Workload> {
    let many = || (0..20).map(|number| file(&format!("d/new-{number}"), 40));
    let made_by_both = |name, both| {
        let mine = vec![write("b", 0, 300)];
        workload(name, vec![Step::EqualUnflushed { both, mine }])
    };
    vec![
        made_by_both(
            "create what another has created and not flushed",
            vec![
                file("d/new", 1300),
                make("t", Directory),
                file("t/u", 900),
                make("e", Directory),
                mode("e", 0o700),
                make("link", Symlink),
            ],
        ),
        made_by_both(
            "create as many as another has created and not flushed",
            many().collect(),
        ),
        one("create", vec![file("new", 1300), file("d/new", 0)]),
        one("create many", many().collect()),
        one(
            "create a tree",
            vec![
                make("t", Directory),
                make("t/u", Directory),
                file("t/u/v", 900),
                make("t/u/link", Symlink),
                mode("t/u", 0o2750),
                xattr("t", Some("note")),
                owner("t/u/v", 5, 6),
                modified("t/u", 1000),
            ],
        ),
        one(
            "make special files",
            vec![
                make("fifo", Fifo),
                make("null", Device),
                make("link", Symlink),
                owner("fifo", 3, 4),
            ],
        ),
    ]
}

fn contents_and_attributes() -> Vec<Workload> {
    let large = vec![
        file("large", 100),
        truncate("large", 3 << 20),
        write("large", 2 << 20, 9000),
    ];
    vec![
        one("rewrite", vec![write("a", 0, 700), write("b", 4096, 904)]),
        one("write pages in place", vec![write("f/z", 100, 5000)]),
        one(
            "cut and grow in place",
            vec![truncate("f/z", 100), truncate("d/z", 9000)],
        ),
        Workload {
            carried_bytes_max: CARRIED_BYTES_MAX,
            name: "write pages of a large file".to_owned(),
            base: large,
            has_directory_times: true,
            keeps_history: false,
            has_log_elsewhere: false,
            steps: vec![
                Step::Commit(vec![
                    write("large", 4096, 8192),
                    write("large", (2 << 20) + 512, 700),
                ]),
                Step::Commit(vec![truncate("large", 5000)]),
            ],
        },
        Workload {
            // The record carries the pages, but not the new file.
            carried_bytes_max: 5000,
            ..one(
                "write pages in place beside a large new file",
                vec![file("new", 9000), write("f/z", 100, 200)],
            )
        },
        one(
            "change attributes",
            vec![
                mode("a", 0o4711),
                owner("b", 7, 8),
                modified("d/x", 5),
                xattr("a", None),
                xattr("d", Some("new")),
                mode("d/e", 0o1777),
                owner("s", 9, 9),
                mode("", 0o711),
            ],
        ),
    ]
}

fn moved_names() -> Vec<Workload> {
    vec![
        one(
            "rename a file",
            vec![rename("a", "d/a"), rename("d/x", "b")],
        ),
        one(
            "rename a directory",
            vec![rename("d/e", "g"), rename("f", "g/f")],
        ),
        one(
            "invert directories",
            vec![rename("d/e", "e"), rename("d", "e/d")],
        ),
        one("swap files", vec![exchange("a", "d/e/y")]),
        one("swap directories", vec![exchange("d/e", "f")]),
        one(
            "swap parent and child",
            vec![rename("d/e", "t"), exchange("d", "t"), rename("t", "d/e")],
        ),
        one(
            "ring of names",
            vec![
                rename("a", "t"),
                rename("b", "a"),
                rename("d/x", "b"),
                rename("t", "d/x"),
            ],
        ),
        one(
            "link",
            vec![link("a", "d/a"), link("a", "f/a"), link("s", "t")],
        ),
        one(
            "move all names of a file",
            vec![rename("f/z", "p"), rename("d/z", "q"), link("p", "r")],
        ),
    ]
}

fn removed_and_reused_names() -> Vec<Workload> {
    vec![
        one("unlink", vec![unlink("a"), unlink("d/z"), unlink("s")]),
        one(
            "remove directories",
            vec![
                unlink("d/e/y"),
                remove_directory("d/e"),
                unlink("d/x"),
                unlink("d/z"),
                remove_directory("d"),
            ],
        ),
        one(
            "save the contents of a removed directory",
            vec![
                rename("d/e/y", "y"),
                remove_directory("d/e"),
                rename("d/x", "x"),
                unlink("d/z"),
                remove_directory("d"),
            ],
        ),
        one(
            "reuse names for other kinds",
            vec![
                unlink("a"),
                make("a", Directory),
                file("a/b", 60),
                unlink("f/z"),
                remove_directory("f"),
                file("f", 80),
            ],
        ),
        one(
            "old into new",
            vec![
                make("n", Directory),
                make("n/m", Directory),
                rename("d", "n/m/d"),
                link("a", "n/a"),
            ],
        ),
        one(
            "save by rename",
            vec![
                file("a.new", 800),
                mode("a.new", 0o600),
                rename("a.new", "a"),
            ],
        ),
    ]
}

/// Workloads of several commits, durable and lazy, with everything that may happen beside them.
pub fn sequences() -> Vec<Workload> {
    let mut all = commits_in_a_row();
    all.extend(with_snapshots());
    carried_and_staged(all)
}

fn first() -> Vec<Operation> {
    vec![file("n", 600), write("f/z", 0, 200), rename("d/x", "x")]
}

fn second() -> Vec<Operation> {
    vec![
        write("n", 300, 600),
        unlink("b"),
        rename("x", "d/x"),
        mode("a", 0o640),
    ]
}

fn third() -> Vec<Operation> {
    vec![
        rename("n", "b"),
        link("a", "aa"),
        unlink("d/z"),
        write("f/z", 100, 600),
    ]
}

fn moves() -> Vec<Operation> {
    vec![rename("d/e", "e"), rename("f", "e/f"), exchange("a", "b")]
}

fn back() -> Vec<Operation> {
    vec![rename("e/f", "f"), rename("e", "d/e"), unlink("a")]
}

fn commits_in_a_row() -> Vec<Workload> {
    use Step::{Both, Checkpoint, Commit, Lazy, LoseDirectories, Reopen, ShortenHistory, Sync};
    vec![
        workload(
            "three commits",
            vec![Commit(first()), Commit(second()), Commit(third())],
        ),
        workload(
            "two lazy commits and a durable one",
            vec![Lazy(first()), Lazy(second()), Commit(third())],
        ),
        workload(
            "a lazy commit and a sync",
            vec![Commit(moves()), Lazy(back()), Sync],
        ),
        workload(
            "a lazy commit and nothing",
            vec![Commit(moves()), Lazy(back())],
        ),
        workload(
            "moved there and back",
            vec![Commit(moves()), Commit(back())],
        ),
        workload(
            "checkpoints between",
            vec![
                Commit(first()),
                Checkpoint,
                Commit(second()),
                Checkpoint,
                Checkpoint,
            ],
        ),
        workload(
            "a checkpoint of a lazy commit",
            vec![Lazy(first()), Checkpoint, Lazy(second())],
        ),
        workload(
            "a history made shorter",
            vec![
                Commit(first()),
                Checkpoint,
                Commit(second()),
                Checkpoint,
                ShortenHistory,
                Commit(third()),
                Checkpoint,
            ],
        ),
        workload(
            "empty directories of the control directory are lost",
            vec![
                Commit(first()),
                LoseDirectories,
                Commit(second()),
                Lazy(third()),
            ],
        ),
        workload(
            "lose the name by which it was changed",
            vec![
                Commit(vec![write("d/z", 0, 300), mode("d/z", 0o600)]),
                Commit(vec![unlink("d/z")]),
            ],
        ),
        workload(
            "two beside each other",
            vec![Both(
                vec![mode("a", 0o600), xattr("a", None)],
                vec![write("a", 0, 700)],
            )],
        ),
        workload(
            "closed and opened",
            vec![Commit(first()), Reopen, Commit(second()), Reopen],
        ),
    ]
}

fn with_snapshots() -> Vec<Workload> {
    use Step::{Checkpoint, Commit, EndSnapshots, Snapshot};
    vec![
        workload(
            "an older snapshot",
            vec![
                Snapshot,
                Commit(first()),
                Commit(second()),
                Snapshot,
                Commit(third()),
                EndSnapshots,
            ],
        ),
        workload(
            "an older snapshot and checkpoints",
            vec![
                Snapshot,
                Commit(moves()),
                Checkpoint,
                Commit(back()),
                EndSnapshots,
                Checkpoint,
            ],
        ),
        workload(
            "an older snapshot of what is removed",
            vec![
                Snapshot,
                Commit(vec![
                    unlink("a"),
                    write("f/z", 0, 50),
                    unlink("d/e/y"),
                    remove_directory("d/e"),
                    unlink("d/z"),
                ]),
                Commit(vec![file("a", 50), xattr("f/z", Some("z"))]),
                EndSnapshots,
            ],
        ),
    ]
}
