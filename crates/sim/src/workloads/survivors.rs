//! Workloads of a transaction that survives the program and the machine.

use super::{
    exchange, file, link, make, mode, remove_directory, rename, truncate, unlink, workload, write,
    xattr,
};
use crate::operation::Node::{Directory, Symlink};
use crate::survivors::Survivor;
use crate::survivors::SurvivorAct::{Do, Flush, Land, Others, Refresh, RolledBack, Siblings, Vote};
use crate::workload::{Step, Workload};

pub fn survivors() -> Vec<Workload> {
    let contents = Survivor {
        before: vec![file("early", 0), write("early", 0, 600)],
        acts: vec![
            Do(vec![file("new", 0), write("new", 0, 700)]),
            Flush,
            Do(vec![
                write("new", 4096, 300),
                file("later", 0),
                write("later", 0, 500),
                write("b", 4096, 904),
            ]),
            Flush,
            Do(vec![
                truncate("later", 0),
                truncate("new", 5),
                unlink("early"),
            ]),
            RolledBack(vec![write("a", 0, 700), file("gone", 0)]),
            Do(vec![write("later", 0, 200), rename("new", "d/new")]),
            Flush,
            Do(vec![truncate("later", 0), unlink("d/new")]),
        ],
        is_committed: true,
    };
    let names = Survivor {
        before: vec![rename("d/e", "e")],
        acts: vec![
            Do(vec![
                make("t", Directory),
                make("t/link", Symlink),
                file("t/x", 0),
                rename("f", "t/f"),
                link("a", "t/a"),
                mode("t", 0o2750),
                xattr("a", None),
            ]),
            Flush,
            Do(vec![
                unlink("d/x"),
                unlink("d/z"),
                remove_directory("d"),
                exchange("a", "b"),
                unlink("t/x"),
                xattr("t", Some("note")),
            ]),
        ],
        is_committed: true,
    };
    let aborted = Survivor {
        before: Vec::new(),
        acts: vec![
            Do(vec![file("new", 0), write("new", 0, 700)]),
            Flush,
            Do(vec![write("f/z", 0, 4096)]),
        ],
        is_committed: false,
    };
    let one = |name, survivor| workload(name, vec![Step::Survivor(survivor)]);
    let older_than_kept = Workload {
        keeps_history: true,
        ..one("a survivor older than kept commits", older())
    };
    vec![
        one("a vote, and a decision to commit", voting(true)),
        one("a vote, and a decision against it", voting(false)),
        older_than_kept,
        one("a survivor older than commits", older()),
        one("a survivor with a newer snapshot", refreshed()),
        one("a survivor that lands a part", landing()),
        one("a survivor with others nested in it", nested()),
        one("a survivor's contents", contents),
        one("a survivor's names", names),
        one("a survivor that is aborted", aborted),
    ]
}

/// While the survivor is open, others change and remove everything that its view shows and that it
/// does not change itself.
fn older() -> Survivor {
    Survivor {
        before: vec![file("mine", 0)],
        acts: vec![
            Do(vec![write("mine", 0, 700), rename("f", "mine-f")]),
            Flush,
            Others(vec![
                write("a", 0, 300),
                unlink("d/x"),
                mode("b", 0o600),
                file("theirs", 0),
                write("theirs", 0, 600),
            ]),
            Do(vec![write("mine", 4096, 200)]),
            Others(vec![
                write("a", 0, 700),
                rename("d", "moved"),
                unlink("theirs"),
                exchange("a", "b"),
            ]),
            Flush,
            Others(vec![unlink("a"), make("d", Directory)]),
            Do(vec![write("mine", 8192, 100)]),
        ],
        is_committed: true,
    }
}

/// It votes, others commit, and the decision comes.
fn voting(is_committed: bool) -> Survivor {
    Survivor {
        before: vec![
            file("mine", 0),
            write("mine", 0, 700),
            write("b", 4096, 300),
        ],
        acts: vec![
            Do(vec![
                rename("f", "mine-f"),
                unlink("d/x"),
                make("mine-d", Directory),
                file("mine-d/in", 0),
            ]),
            Vote,
            Others(vec![
                write("a", 0, 300),
                mode("d/e/y", 0o600),
                file("theirs", 40),
            ]),
            Others(vec![unlink("theirs"), xattr("a", None)]),
        ],
        is_committed,
    }
}

/// The survivor is refreshed: before anything is flushed, when others have moved what it changes,
/// and right before its commit.
fn refreshed() -> Survivor {
    Survivor {
        before: vec![file("mine", 0)],
        acts: vec![
            Do(vec![write("mine", 0, 700), write("d/e/y", 0, 40)]),
            Others(vec![rename("d", "moved"), write("a", 0, 300)]),
            Refresh,
            Do(vec![write("mine", 4096, 200), mode("f", 0o700)]),
            Flush,
            Others(vec![unlink("a"), file("f/theirs", 0), unlink("moved/x")]),
            Refresh,
            Do(vec![rename("mine", "f/mine"), file("a", 0)]),
            Others(vec![write("b", 0, 70)]),
            Refresh,
        ],
        is_committed: true,
    }
}

/// The survivor lands new and changed files, and goes on to change them.
fn landing() -> Survivor {
    Survivor {
        before: vec![file("mine", 0)],
        acts: vec![
            Do(vec![write("mine", 0, 700), write("b", 0, 50)]),
            Flush,
            Land(
                vec![
                    make("t", Directory),
                    file("t/x", 0),
                    write("t/x", 0, 600),
                    rename("f", "t/f"),
                ],
                vec!["t"],
            ),
            Do(vec![write("t/x", 100, 20), write("mine", 4096, 200)]),
            Flush,
            Land(vec![write("a", 0, 300)], vec!["a"]),
            Do(vec![
                unlink("t/x"),
                write("a", 4096, 10),
                rename("mine", "a-mine"),
            ]),
        ],
        is_committed: true,
    }
}

/// Several transactions at a time are nested in the survivor, before and after it is flushed.
fn nested() -> Survivor {
    Survivor {
        before: vec![file("mine", 0)],
        acts: vec![
            Do(vec![write("mine", 0, 700), rename("d/e", "e")]),
            Siblings(vec![
                vec![write("mine", 100, 300), file("e/new", 0)],
                vec![rename("d", "moved"), write("b", 0, 50)],
            ]),
            Flush,
            Do(vec![write("e/new", 0, 600)]),
            Siblings(vec![
                vec![write("mine", 4096, 90), link("mine", "f/mine")],
                vec![unlink("e/new"), mode("b", 0o600)],
                vec![file("f/later", 0), unlink("moved/x")],
            ]),
            Do(vec![write("f/later", 0, 40)]),
        ],
        is_committed: true,
    }
}
