//! Commits that change files which other programs have open for writing. These keep their inodes.

use super::{file, rename, truncate, workload, write};
use crate::operation::Operation;
use crate::workload::{Step, Workload};

/// Each changes the file `b` of the base, which is 5000 bytes long.
pub(super) fn used() -> Vec<Workload> {
    let append = || vec![write("b", 5000, 9000)];
    let anew = || vec![truncate("b", 0), write("b", 0, 3000), file("new", 50)];
    let kinds: [(&str, Vec<Step>); 7] = [
        ("append", vec![Step::Commit(append())]),
        (
            "write what another has written and not flushed",
            vec![Step::SameUnflushed(vec![
                truncate("b", 0),
                write("b", 0, 3000),
            ])],
        ),
        ("write anew", vec![Step::Commit(anew())]),
        (
            "rename and write",
            vec![Step::Commit(vec![
                rename("b", "d/b"),
                write("d/b", 4000, 500),
            ])],
        ),
        ("write in a native view", vec![Step::Native(append())]),
        (
            "write in turn",
            vec![
                Step::Commit(append()),
                Step::Native(vec![write("b", 100, 20)]),
                Step::Lazy(vec![truncate("b", 4097)]),
                Step::Commit(anew()),
            ],
        ),
        (
            "write, with an older snapshot",
            vec![
                Step::Snapshot,
                Step::Native(append()),
                Step::Commit(vec![write("b", 0, 10)]),
            ],
        ),
    ];
    let kinds = kinds.into_iter();
    kinds.map(|(name, steps)| used_by(name, steps)).collect()
}

/// Commits that are undone, or whose files are brought back.
pub(super) fn undone() -> Vec<Workload> {
    let change = |operations: Vec<Operation>| vec![Step::Native(operations), Step::Undo(1)];
    let append = || vec![write("b", 5000, 9000)];
    let anew = || vec![truncate("b", 0), write("b", 0, 3000)];
    let mut restored = change(append());
    restored.push(Step::Restore(1));
    let all = [
        used_by("undo an append", change(append())),
        used_by("undo new contents", change(anew())),
        used_by("bring back an append", restored),
    ];
    let kept = all.into_iter().map(|workload| Workload {
        keeps_history: true,
        ..workload
    });
    kept.collect()
}

fn used_by(name: &str, mut steps: Vec<Step>) -> Workload {
    steps.insert(0, Step::Use("b"));
    workload(&format!("a used file: {name}"), steps)
}
