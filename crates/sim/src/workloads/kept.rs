//! Workloads of a store that keeps what commits replace. After every crash, the commits can be
//! undone.

use super::transactions::over_one_another;
use super::{
    back, carried_and_staged, exchange, file, first, link, make, mode, moves, remove_directory,
    rename, second, third, truncate, unlink, used, workload, write, xattr,
};
use crate::operation::Node::{Directory, Symlink};
use crate::operation::Operation;
use crate::workload::{Step, Workload};

pub fn kept() -> Vec<Workload> {
    let mut all = replaced_and_removed();
    all.push(over_one_another_kept());
    all.extend(undone());
    all.extend(used::undone());
    for workload in &mut all {
        workload.keeps_history = true;
    }
    carried_and_staged(all)
}

fn removed() -> Vec<Operation> {
    vec![
        rename("d/e/y", "y"),
        remove_directory("d/e"),
        unlink("d/x"),
        unlink("d/z"),
        remove_directory("d"),
        unlink("s"),
    ]
}

fn reused() -> Vec<Operation> {
    vec![
        unlink("a"),
        make("a", Directory),
        file("a/b", 60),
        make("d", Symlink),
        write("b", 4096, 904),
    ]
}

fn over_one_another_kept() -> Workload {
    use Step::{Checkpoint, EndSnapshots, Snapshot};
    workload(
        "kept: lazy commits over one another",
        vec![
            Snapshot,
            Step::Row(over_one_another()),
            Checkpoint,
            Step::Row(vec![
                vec![write("n3", 0, 70)],
                vec![unlink("n3"), write("b", 5, 9)],
                vec![file("n3", 12)],
            ]),
            EndSnapshots,
            Step::Sync,
        ],
    )
}

fn replaced_and_removed() -> Vec<Workload> {
    use Step::{
        Age, Checkpoint, Commit, EndSnapshots, ForgetOldest, Lazy, Prune, Reopen, Snapshot,
    };
    let mut pages = workload(
        "kept: pages of a large file",
        vec![
            Commit(vec![
                write("large", 4096, 8192),
                write("large", (2 << 20) + 512, 700),
            ]),
            Commit(vec![truncate("large", 5000), mode("large", 0o600)]),
        ],
    );
    pages.base = vec![
        file("large", 100),
        truncate("large", 3 << 20),
        write("large", 2 << 20, 9000),
    ];
    vec![
        workload(
            "kept: three commits",
            vec![Commit(first()), Commit(second()), Commit(third())],
        ),
        workload(
            "kept: checkpoints between",
            vec![Commit(first()), Checkpoint, Commit(second()), Checkpoint],
        ),
        workload(
            "kept: removed directories and reused names",
            vec![Commit(removed()), Commit(reused()), Checkpoint],
        ),
        workload(
            "kept: new files removed before a checkpoint",
            vec![
                Commit(vec![file("n", 900), make("m", Symlink), link("n", "o")]),
                Commit(vec![write("n", 0, 300), xattr("n", Some("x"))]),
                Lazy(vec![unlink("n"), unlink("m"), unlink("o")]),
                Commit(vec![file("n", 10)]),
            ],
        ),
        workload(
            "kept: a ring of names",
            vec![Commit(moves()), Commit(back()), Reopen],
        ),
        workload(
            "kept: forgotten",
            vec![
                Commit(vec![unlink("a"), write("b", 0, 5000)]),
                Commit(vec![write("f/z", 100, 5000)]),
                Prune,
                Commit(vec![file("a", 20), write("f/z", 0, 100)]),
                Checkpoint,
            ],
        ),
        workload(
            "kept: older than the history",
            vec![
                Commit(vec![unlink("a"), write("b", 0, 5000)]),
                Commit(vec![write("f/z", 100, 5000)]),
                Age,
                Commit(vec![file("a", 20), write("f/z", 0, 100)]),
                Age,
            ],
        ),
        workload(
            "kept: the oldest forgotten",
            vec![
                Commit(vec![unlink("a"), write("b", 0, 5000)]),
                Commit(vec![write("f/z", 100, 5000), unlink("b")]),
                Commit(vec![file("a", 20), write("f/z", 0, 100)]),
                ForgetOldest,
                Commit(vec![unlink("a"), unlink("f/z")]),
                ForgetOldest,
            ],
        ),
        workload(
            "kept: the oldest forgotten while a snapshot shows it",
            vec![
                Snapshot,
                Commit(vec![unlink("a"), write("f/z", 100, 5000)]),
                Commit(vec![write("b", 0, 300)]),
                ForgetOldest,
                EndSnapshots,
                Checkpoint,
            ],
        ),
        workload(
            "kept: an older snapshot",
            vec![
                Snapshot,
                Commit(vec![write("a", 0, 700), write("f/z", 0, 50), unlink("d/z")]),
                Commit(vec![write("a", 0, 100), unlink("f/z")]),
                EndSnapshots,
                Checkpoint,
            ],
        ),
        pages,
    ]
}

fn undone() -> Vec<Workload> {
    use Step::{Checkpoint, Commit, ForgetOldest, Restore, Snapshot, Undo};
    vec![
        workload(
            "kept: undone",
            vec![Commit(first()), Commit(second()), Undo(2)],
        ),
        workload(
            "kept: undone as one after a checkpoint",
            vec![Commit(removed()), Commit(reused()), Checkpoint, Undo(1)],
        ),
        workload(
            "kept: undone, and the undone commit forgotten",
            vec![
                Commit(vec![unlink("a"), write("f/z", 0, 50)]),
                Undo(1),
                ForgetOldest,
                Commit(vec![unlink("a")]),
                ForgetOldest,
            ],
        ),
        workload(
            "kept: restored",
            vec![Commit(first()), Commit(second()), Restore(1)],
        ),
        workload(
            "kept: restored after a checkpoint, and back",
            vec![
                Commit(removed()),
                Commit(reused()),
                Checkpoint,
                Restore(0),
                Restore(2),
            ],
        ),
        workload(
            "kept: undone twice",
            vec![
                Commit(vec![
                    exchange("d/e", "f"),
                    unlink("b"),
                    write("a", 0, 700),
                    write("d/z", 0, 9),
                ]),
                Snapshot,
                Undo(1),
                Undo(2),
            ],
        ),
    ]
}
