//! Workloads in which a commit is cancelled, since the base cannot take it any more.

use super::{
    carried_and_staged, exchange, file, first, moves, remove_directory, rename, second, truncate,
    unlink, workload, write,
};
use crate::cancelled::Cancelled;
use crate::operation::Operation;
use crate::workload::{Step, Workload};

pub fn cancelled() -> Vec<Workload> {
    let mut all = Vec::new();
    for keeps_history in [false, true] {
        let kept = if keeps_history { "kept: " } else { "" };
        for is_lazy in [false, true] {
            let lazy = if is_lazy { "lazy: " } else { "" };
            all.extend(workloads(is_lazy).into_iter().map(|workload| Workload {
                name: format!("{kept}{lazy}{}", workload.name),
                keeps_history,
                ..workload
            }));
        }
    }
    carried_and_staged(all)
}

fn workloads(is_lazy: bool) -> Vec<Workload> {
    use Step::{Checkpoint, Commit, EndSnapshots, Lazy, Reopen, Snapshot};
    let beside = || vec![file("beside", 40), file("beside-2", 5000)];
    let cancelled = |path, operations: Vec<Operation>| {
        Step::Cancelled(Cancelled {
            path,
            operations,
            beside: beside(),
            leaning: Vec::new(),
            checkpoint: false,
            is_lazy,
        })
    };
    let with_checkpoint = |path, operations: Vec<Operation>| {
        Step::Cancelled(Cancelled {
            path,
            operations,
            beside: beside(),
            leaning: Vec::new(),
            checkpoint: true,
            is_lazy,
        })
    };
    let removed = vec![
        rename("d/e/y", "y"),
        remove_directory("d/e"),
        unlink("d/z"),
        write("f/z", 0, 5000),
        truncate("a", 10),
    ];
    vec![
        workload(
            "cancelled: first of all",
            vec![Commit(vec![file("m", 10)]), cancelled("f/z", first())],
        ),
        workload(
            "cancelled: removed directories",
            vec![
                Commit(vec![file("m", 10)]),
                cancelled("d/e", removed.clone()),
                Checkpoint,
            ],
        ),
        workload(
            "cancelled: a ring of names, a checkpoint between",
            vec![Commit(first()), with_checkpoint("f", moves()), Reopen],
        ),
        workload(
            "cancelled: with a lazy commit over it",
            vec![
                Commit(vec![file("m", 10)]),
                Step::Cancelled(Cancelled {
                    path: "b",
                    operations: vec![write("b", 0, 5000), file("n", 30), unlink("a")],
                    beside: beside(),
                    leaning: vec![
                        write("b", 10, 30),
                        unlink("n"),
                        file("a", 7),
                        file("over", 70),
                    ],
                    checkpoint: false,
                    is_lazy: true,
                }),
                Commit(vec![write("b", 1, 40), unlink("n"), file("over", 3)]),
            ],
        ),
        workload(
            "cancelled: behind a lazy commit, with an older snapshot",
            vec![
                Commit(first()),
                Snapshot,
                Lazy(vec![file("lazy", 70)]),
                with_checkpoint("n", second()),
                EndSnapshots,
                Commit(vec![exchange("lazy", "beside")]),
            ],
        ),
    ]
}
