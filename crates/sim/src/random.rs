//! Random workloads. Operations that are impossible are left out, so every seed
//! gives a workload.

use atomdir_engine::CARRIED_BYTES_MAX;

use crate::choice::Random;
use crate::disk::SimDisk;
use crate::effect::Ordering;
use crate::operation::{Node, Operation, Target};
use crate::transactions::Act;
use crate::workload::{Step, Workload, act};

const DIRECTORIES: [&str; 5] = ["", "d", "d/e", "f", "n"];
const NAMES: [&str; 6] = ["a", "b", "d", "e", "f", "n"];
const COMMITS: usize = 3;
const OPERATIONS_MAX: usize = 7;

/// A few commits of a few operations each, on a random tree.
pub fn random(seed: u64) -> Workload {
    let mut random = Random(seed);
    let plain = SimDisk::new();
    let mut base = vec![Operation::File("a".to_owned(), 900)];
    for directory in &DIRECTORIES[1..4] {
        base.push(Operation::Make((*directory).to_owned(), Node::Directory));
    }
    base.push(Operation::Link("a".to_owned(), "f/b".to_owned()));
    act(&plain, &base, 0);
    base.extend(possible(&mut random, &plain, 8));
    let mut steps = Vec::new();
    for _ in 0..COMMITS {
        if random.below(3) == 0 {
            steps.push(Step::Snapshot);
        }
        // Every step changes something, since a commit without changes does not
        // count.
        let kept = format!("kept-{}", steps.len());
        let mut operations = vec![Operation::File(kept, 20)];
        act(&plain, &operations, 0);
        let count = 1 + random.below(OPERATIONS_MAX);
        operations.extend(possible(&mut random, &plain, count));
        steps.push(match random.below(9) {
            0 => Step::Lazy(operations),
            8 => Step::Deferred(operations),
            1 => Step::Row(row(&plain, operations, steps.len())),
            2 | 3 => Step::Native(operations),
            4 => Step::Transaction(parts(&mut random, &plain, operations)),
            _ => Step::Commit(operations),
        });
        match random.below(6) {
            0 => steps.push(Step::Checkpoint),
            1 => steps.push(Step::EndSnapshots),
            2 => steps.push(Step::Sync),
            3 => steps.push(Step::Reopen),
            _ => {}
        }
    }
    Workload {
        name: format!("seed {seed}"),
        // All, some or none of the commits are carried in the log.
        carried_bytes_max: [CARRIED_BYTES_MAX, 1000, 0][random.below(3)],
        base,
        steps,
        has_directory_times: false,
        keeps_history: false,
        has_log_elsewhere: false,
    }
}

/// Splits the operations into commits, each of which changes something.
fn row(plain: &SimDisk, operations: Vec<Operation>, step: usize) -> Vec<Vec<Operation>> {
    let commits = operations.chunks(2).enumerate();
    let commits = commits.map(|(place, operations)| {
        let kept = Operation::File(format!("kept-{step}-{place}"), 20);
        act(plain, std::slice::from_ref(&kept), 0);
        operations.iter().cloned().chain([kept]).collect()
    });
    commits.collect()
}

/// Splits the operations into parts, some of them nested, and adds operations that are undone.
fn parts(random: &mut Random, plain: &SimDisk, operations: Vec<Operation>) -> Vec<Act> {
    let mut acts = Vec::new();
    for part in operations.chunks(1 + random.below(4)) {
        let done = Act::Do(part.to_vec());
        acts.push(match random.below(2) {
            0 => Act::Nested(vec![done]),
            _ => done,
        });
    }
    let scratch = SimDisk::boot(plain.image(), Ordering::default());
    let undone = vec![Act::Do(possible(random, &scratch, 4))];
    acts.push(match random.below(2) {
        0 => Act::Aborted(undone),
        _ => Act::RolledBack(undone),
    });
    acts
}

/// Random operations, tried on a plain disk; those that it refuses are left out.
fn possible(random: &mut Random, plain: &SimDisk, count: usize) -> Vec<Operation> {
    let mut done = Vec::new();
    for _ in 0..count * 20 {
        let operation = operation(random);
        if done.len() < count && plain.act(&operation, 0).is_ok() {
            done.push(operation);
        }
    }
    done
}

fn operation(random: &mut Random) -> Operation {
    let path = path(random);
    let other = self::path(random);
    let length = [0, 40, 513, 3000, 9000][random.below(5)];
    match random.below(17) {
        0 | 1 => Operation::File(path, length),
        2 | 3 => Operation::Write(path, random.below(2000) as u64, 1 + length),
        4 => Operation::Truncate(path, length),
        5 => Operation::Make(path, Node::Directory),
        6 => Operation::Make(path, [Node::Symlink, Node::Fifo][random.below(2)]),
        7 => Operation::Mode(path, [0o600, 0o751, 0o4711][random.below(3)]),
        8 => Operation::Xattr(path, [None, Some("one"), Some("two")][random.below(3)]),
        9..=11 => Operation::Rename(path, other),
        12 => Operation::Exchange(path, other),
        13 => Operation::Link(path, other),
        14 => Operation::Modified(path, length as i64),
        15 => Operation::RemoveDirectory(path),
        _ => Operation::Unlink(path),
    }
}

fn path(random: &mut Random) -> String {
    let directory = DIRECTORIES[random.below(DIRECTORIES.len())];
    let name = NAMES[random.below(NAMES.len())];
    match directory {
        "" => name.to_owned(),
        _ => format!("{directory}/{name}"),
    }
}
