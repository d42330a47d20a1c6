//! Advisory locks between processes: flock and fcntl, waited for and not.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Child;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "locks";

const COUNTERS: u64 = 4;
const INCREMENTS: u64 = 100;

type Lock = fn(&File, FlockOperation) -> Result<(), Errno>;
const KINDS: [(&str, Lock); 2] = [
    ("flock", |file, operation| flock(file, operation)),
    ("fcntl", |file, operation| fcntl_lock(file, operation)),
];

fn prepare() -> Outcome {
    fs::write("flock", "0")?;
    Ok(())
}

fn run() -> Outcome {
    fs::write("fcntl", "0")?;
    for (kind, lock) in KINDS {
        counted_under_lock(kind)?;
        excluded(kind, lock)?;
        shared(kind, lock)?;
    }
    ended_with_the_process()
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Several processes read, add one and write. The sum is right only if each waits its turn.
fn counted_under_lock(kind: &str) -> Outcome {
    let counters: Vec<Child> = (0..COUNTERS)
        .map(|_| process::spawn(NAME, "count", &[kind]))
        .collect::<Outcome<_>>()?;
    counters.into_iter().try_for_each(process::finish)?;
    same(
        kind,
        fs::read_to_string(kind)?,
        (COUNTERS * INCREMENTS).to_string(),
    )
}

fn excluded(kind: &str, lock: Lock) -> Outcome {
    let file = open(kind)?;
    lock(&file, FlockOperation::LockExclusive)?;
    process::call(NAME, "refused", &[kind, "exclusive"])?;
    process::call(NAME, "refused", &[kind, "shared"])?;
    lock(&file, FlockOperation::Unlock)?;
    process::call(NAME, "granted", &[kind, "exclusive"])
}

fn shared(kind: &str, lock: Lock) -> Outcome {
    let file = open(kind)?;
    lock(&file, FlockOperation::LockShared)?;
    process::call(NAME, "granted", &[kind, "shared"])?;
    process::call(NAME, "refused", &[kind, "exclusive"])
}

/// The second process never unlocks.
fn ended_with_the_process() -> Outcome {
    for (kind, lock) in KINDS {
        process::call(NAME, "granted", &[kind, "exclusive"])?;
        lock(&open(kind)?, FlockOperation::NonBlockingLockExclusive)?;
    }
    Ok(())
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (kind, lock) = KINDS
        .into_iter()
        .find(|(kind, _)| words.first() == Some(kind))
        .unwrap_or(KINDS[0]);
    let operation = if words.get(1) == Some(&"shared") {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match role {
        "count" => count(kind, lock),
        "granted" => Ok(lock(&open(kind)?, operation)?),
        // POSIX lets fcntl answer either.
        "refused" => match lock(&open(kind)?, operation) {
            Err(Errno::ACCESS) => Ok(()),
            result => refused(kind, result, Errno::AGAIN),
        },
        _ => process::none(role, arguments),
    }
}

/// Does everything through one descriptor: closing another one of the same file would drop
/// the process's fcntl locks on it.
fn count(kind: &str, lock: Lock) -> Outcome {
    let file = open(kind)?;
    for _ in 0..INCREMENTS {
        lock(&file, FlockOperation::LockExclusive)?;
        let mut bytes = [0; 20];
        let length = file.read_at(&mut bytes, 0)?;
        let count: u64 = std::str::from_utf8(&bytes[..length])?.parse()?;
        file.write_all_at((count + 1).to_string().as_bytes(), 0)?;
        lock(&file, FlockOperation::Unlock)?;
    }
    Ok(())
}
