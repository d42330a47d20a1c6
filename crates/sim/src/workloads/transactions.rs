//! Workloads in which a transaction does more than write and commit.

use atomdir_engine::Durability::{self, Durable, Lazy};

use super::{
    carried_and_staged, exchange, file, link, make, mode, modified, moves, owner, remove_directory,
    rename, truncate, unlink, workload, write, xattr,
};
use crate::group::Moment;
use crate::operation::Node::{Directory, Symlink};
use crate::operation::Operation;
use crate::transactions::{Act, LandedPart, Read, Reader};
use crate::workload::{Step, Workload};

pub fn transactions() -> Vec<Workload> {
    let mut all = nested();
    // A view shows a directory's new time even if its entries were changed and changed back.
    for workload in &mut all {
        workload.has_directory_times = false;
    }
    all.extend(native());
    all.extend(serializable());
    all.push(locked());
    all.extend(parts());
    all.extend(groups());
    carried_and_staged(all)
}

fn nested() -> Vec<Workload> {
    use Act::{Aborted, Do, Nested, RolledBack, Siblings};
    let undone = vec![unlink("n"), write("f/z", 0, 40), mode("a", 0o600)];
    let deep = vec![
        Do(vec![file("n", 600), rename("d/e", "e")]),
        Nested(vec![
            Do(vec![write("n", 100, 700), unlink("e/y"), file("e/w", 40)]),
            Nested(vec![Do(vec![rename("e", "d/e"), link("n", "d/n")])]),
            Aborted(vec![Do(undone)]),
        ]),
        Do(vec![write("d/n", 0, 9)]),
    ];
    let back = vec![
        Do(vec![file("n", 600), write("b", 0, 50)]),
        RolledBack(vec![
            Do(vec![unlink("n"), unlink("f/z"), rename("d", "f/d")]),
            RolledBack(vec![Do(vec![file("d", 10), truncate("b", 1)])]),
        ]),
        Do(vec![rename("n", "f/n")]),
        RolledBack(vec![Nested(vec![Do(vec![
            write("f/n", 0, 70),
            mode("f/n", 0o600),
        ])])]),
        Nested(vec![
            RolledBack(vec![Do(vec![unlink("a")])]),
            Do(vec![xattr("a", None)]),
        ]),
    ];
    let nothing = vec![
        Do(vec![file("n", 60)]),
        RolledBack(vec![Do(vec![write("f/z", 0, 200), rename("d/x", "x")])]),
        Aborted(vec![Do(moves())]),
    ];
    let beside = vec![
        Do(vec![file("n", 600), rename("d/e", "e")]),
        Siblings(vec![
            vec![write("n", 100, 700), file("e/w", 40), link("n", "n2")],
            vec![unlink("e/y"), rename("f", "e/f"), mode("a", 0o600)],
            vec![rename("d", "moved"), file("d", 300), write("b", 0, 50)],
        ]),
        Aborted(vec![Siblings(vec![
            vec![file("n3", 500)],
            vec![unlink("n2"), unlink("n")],
        ])]),
        Nested(vec![Siblings(vec![
            vec![rename("moved/x", "x")],
            vec![unlink("moved/z"), xattr("e", Some("note"))],
        ])]),
    ];
    vec![
        workload("nested", vec![Step::Transaction(deep)]),
        workload("nested beside one another", vec![Step::Transaction(beside)]),
        workload("savepoints", vec![Step::Transaction(back.clone())]),
        workload(
            "savepoints between other commits",
            vec![
                Step::Lazy(vec![mode("f", 0o700)]),
                Step::Transaction(back),
                Step::Commit(vec![rename("f/n", "n2"), unlink("b")]),
            ],
        ),
        workload("nearly all undone", vec![Step::Transaction(nothing)]),
        workload("a row of lazy commits", rows()),
        workload(
            "lazy commits over one another",
            vec![
                Step::Row(over_one_another()),
                Step::Deferred(vec![write("n1", 3, 20), unlink("n3")]),
                Step::Lazy(vec![file("n3", 5000)]),
                Step::Commit(vec![rename("n1", "f/n1"), unlink("n2"), write("n3", 0, 9)]),
            ],
        ),
    ]
}

/// Each makes, replaces and removes files only, so that it is published before it is in the base.
pub fn over_one_another() -> Vec<Vec<Operation>> {
    vec![
        vec![file("n1", 700)],
        vec![write("n1", 10, 500), mode("n1", 0o600)],
        vec![file("n2", 40), unlink("b")],
        vec![unlink("n1"), file("b", 90)],
        vec![write("b", 0, 30), write("n2", 0, 9), unlink("d/x")],
        vec![file("n1", 60), truncate("a", 0), file("d/x", 0)],
        vec![unlink("n2"), write("a", 0, 5)],
        vec![file("n2", 800), file("n3", 1), xattr("d/x", Some("z"))],
    ]
}

/// Some commits touch nothing of those before them, some do.
fn rows() -> Vec<Step> {
    vec![
        Step::Row(vec![
            vec![file("n1", 700)],
            vec![file("n2", 0), mode("b", 0o600)],
            vec![make("new", Directory), file("new/x", 30)],
            vec![mode("f", 0o700)],
        ]),
        Step::Deferred(vec![file("n3", 40)]),
        Step::Row(vec![
            vec![file("new/y", 30)],
            vec![write("new/y", 10, 500)],
            vec![rename("n1", "new/z"), unlink("n2")],
            vec![unlink("new/z")],
        ]),
    ]
}

/// Changes made by a program in the kernel's overlay.
fn native() -> Vec<Workload> {
    let tree = vec![
        make("t", Directory),
        make("t/u", Directory),
        file("t/u/v", 900),
        make("t/u/link", Symlink),
        link("t/u/v", "t/w"),
        mode("t/u", 0o2750),
        xattr("t", Some("note")),
        owner("t/u/v", 5, 6),
    ];
    let changed = vec![
        write("a", 100, 100),
        mode("b", 0o600),
        xattr("d/x", Some("x")),
        truncate("d/e/y", 40),
        write("f/z", 0, 200),
        modified("f", 1000),
    ];
    let moved = vec![
        rename("d/e", "e"),
        exchange("a", "b"),
        rename("f", "e/f"),
        make("f", Directory),
        file("f/z", 20),
        rename("d/x", "f/x"),
    ];
    let removed = vec![
        unlink("a"),
        unlink("d/z"),
        rename("d/e/y", "y"),
        remove_directory("d/e"),
        make("d/e", Directory),
        file("d/e/new", 30),
        rename("s", "d/s"),
    ];
    let names = vec![write("f/z", 0, 100), link("b", "b2"), unlink("f/z")];
    let names_again = vec![unlink("b"), write("d/z", 0, 500), rename("b2", "b")];
    let one = |name: &str, operations| workload(name, vec![Step::Native(operations)]);
    vec![
        one("native: create a tree", tree.clone()),
        one("native: change files", changed.clone()),
        one("native: move", moved),
        one("native: remove and make again", removed),
        workload(
            "native views among other commits",
            vec![
                Step::Lazy(vec![mode("f", 0o700), xattr("b", Some("b"))]),
                Step::Native(names),
                Step::Commit(names_again),
                Step::Native(tree),
            ],
        ),
        workload(
            "native: a time that is set again as it was",
            vec![
                Step::Commit(vec![modified("f/z", 9000)]),
                Step::Native(vec![
                    write("f/z", 0, 20),
                    write("d/z", 400, 50),
                    modified("d/z", 9000),
                    xattr("f/z", Some("z")),
                ]),
            ],
        ),
        workload(
            "native over lazy commits on their way",
            vec![
                Step::Row(over_one_another()),
                Step::NativeAtOnce(changed.clone()),
                Step::Row(vec![vec![write("b", 0, 30)], vec![file("late", 9)]]),
                Step::NativeAtOnce(vec![
                    write("late", 3, 40),
                    rename("late", "f/late"),
                    unlink("b"),
                ]),
            ],
        ),
        workload(
            "native with an older snapshot",
            vec![Step::Snapshot, Step::Native(changed), Step::EndSnapshots],
        ),
    ]
}

fn serializable() -> Vec<Workload> {
    use Read::{Attributes, Contents, Listing, Missing};
    let reads = vec![
        Contents("a"),
        Attributes("d/e/y"),
        Listing("d/e"),
        Missing("g"),
    ];
    let reader = |meanwhile: Vec<Operation>, is_refused| {
        Step::Serializable(Reader {
            reads: reads.clone(),
            writes: vec![write("f/z", 0, 100), file("f/new", 300)],
            meanwhile,
            is_refused,
        })
    };
    let elsewhere = vec![write("b", 0, 60), unlink("d/x"), make("d/n", Directory)];
    vec![
        workload(
            "serializable beside what it has not read",
            vec![
                reader(elsewhere, false),
                Step::Commit(vec![unlink("f/new")]),
            ],
        ),
        workload(
            "serializable and refused",
            vec![
                reader(vec![write("a", 0, 60)], true),
                reader(vec![file("d/e/new", 60)], true),
                reader(vec![file("g", 60)], true),
                Step::Commit(vec![file("f/new", 30), unlink("g")]),
            ],
        ),
    ]
}

fn locked() -> Workload {
    let contended = Step::Locked {
        path: "d",
        holder: vec![write("d/x", 0, 600), unlink("d/e/y"), file("d/e/w", 40)],
        other: vec![file("d/e/v", 700), write("b", 0, 50)],
        beside: vec![write("b", 0, 70), xattr("a", None)],
    };
    let after = vec![file("d/e/v", 50), rename("d/x", "x")];
    workload("locked", vec![contended, Step::Commit(after)])
}

fn parts() -> Vec<Workload> {
    let files = LandedPart {
        landed: vec![file("n", 600), write("b", 0, 50), rename("a", "f/a")],
        paths: vec!["n", "b", "f/a"],
        rest: vec![file("m", 600), write("d/x", 0, 90), unlink("d/z")],
        checkpoint: false,
        is_committed: true,
    };
    let tree = LandedPart {
        landed: vec![
            make("t", Directory),
            make("t/u", Directory),
            file("t/u/v", 900),
            unlink("d/e/y"),
            remove_directory("d/e"),
        ],
        paths: vec!["t/u/v", "d/e"],
        rest: vec![file("t/w", 300), file("t/u/w", 400), rename("b", "t/b")],
        checkpoint: false,
        is_committed: true,
    };
    let both = |name: &str, part: &LandedPart| {
        let aborted = LandedPart {
            is_committed: false,
            ..part.clone()
        };
        let checkpoint = LandedPart {
            checkpoint: true,
            ..part.clone()
        };
        let after = || Step::Commit(vec![mode("f", 0o700), write("d/x", 0, 30)]);
        let one = |name: String, part| workload(&name, vec![Step::Part(part), after()]);
        vec![
            one(format!("a part lands: {name}"), part.clone()),
            one(
                format!("a part lands, the rest is aborted: {name}"),
                aborted,
            ),
            one(
                format!("a checkpoint between a part and the rest: {name}"),
                checkpoint,
            ),
        ]
    };
    let mut all = [both("files", &files), both("a tree", &tree)].concat();
    for workload in &mut all {
        workload.has_directory_times = false;
    }
    all
}

/// Each commit changes its own directories; otherwise it could not join the group.
fn groups() -> Vec<Workload> {
    let first = || vec![write("a", 0, 70), file("new", 300), unlink("b")];
    let others: Vec<(Durability, Vec<Operation>)> = vec![
        (Lazy, vec![write("d/e/y", 0, 70), file("d/e/new", 40)]),
        (Durable, vec![unlink("d/x"), file("d/new", 700)]),
        (Durable, vec![file("f/new", 30), mode("f/new", 0o600)]),
    ];
    let lazy = vec![
        (Lazy, vec![file("f/new", 30)]),
        (Lazy, vec![write("d/x", 0, 30)]),
    ];
    let second = Step::Group(
        vec![unlink("new")],
        vec![
            (Durable, vec![unlink("f/new")]),
            (Lazy, vec![unlink("d/x")]),
        ],
        Moment::Before,
    );
    vec![
        workload(
            "a group that meets before a flush",
            vec![Step::Group(first(), others.clone(), Moment::Before)],
        ),
        workload(
            "a group that meets after a flush",
            vec![Step::Group(first(), others, Moment::After)],
        ),
        workload(
            "groups with an older snapshot",
            vec![
                Step::Snapshot,
                Step::Group(first(), lazy, Moment::After),
                second,
                Step::EndSnapshots,
            ],
        ),
    ]
}
