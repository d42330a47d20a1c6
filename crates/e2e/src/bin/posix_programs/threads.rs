//! Many threads work at once in the same directories. Each uses its own names, and some use
//! the same on purpose.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::check::{Failure, Outcome, pattern, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "threads",
    prepare,
    run,
    child: process::none,
};

const THREADS: usize = 8;
const ROUNDS: usize = 60;

fn prepare() -> Outcome {
    fs::create_dir("shared")?;
    for thread in 0..THREADS {
        fs::write(
            format!("shared/old {thread}"),
            pattern(thread as u64, 50_000),
        )?;
    }
    Ok(())
}

fn run() -> Outcome {
    together(|thread| (0..ROUNDS).try_for_each(|round| own_names(thread, round)))?;
    same(
        "left",
        fs::read_dir("shared")?.count(),
        THREADS + THREADS * ROUNDS / 2,
    )?;
    let wins = AtomicUsize::new(0);
    together(|_| (0..ROUNDS).try_for_each(|round| same_names(round, &wins)))?;
    same("one winner each", wins.into_inner(), 3 * ROUNDS)?;
    one_file_in_turns()
}

fn together(work: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
        })
    })
}

fn own_names(thread: usize, round: usize) -> Outcome {
    let name = format!("shared/{thread} {round}");
    fs::write(&name, pattern(round as u64, 3000))?;
    fs::create_dir(format!("{name} directory"))?;
    fs::rename(&name, format!("{name} directory/moved"))?;
    let mut old = OpenOptions::new()
        .append(true)
        .open(format!("shared/old {thread}"))?;
    old.write_all(name.as_bytes())?;
    let found = fs::read(format!("{name} directory/moved"))?;
    same(
        "contents are right",
        found == pattern(round as u64, 3000),
        true,
    )?;
    if round.is_multiple_of(2) {
        fs::remove_dir_all(format!("{name} directory"))?;
    }
    Ok(())
}

/// All threads make the same file, directory and hard link. Each time exactly one succeeds.
fn same_names(round: usize, wins: &AtomicUsize) -> Outcome {
    let name = format!("contended {round}");
    win(
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&name)
            .map(drop),
        ErrorKind::AlreadyExists,
        wins,
    )?;
    let made = fs::create_dir(format!("directory {round}"));
    win(made, ErrorKind::AlreadyExists, wins)?;
    let moved = fs::hard_link(&name, format!("linked {round}"));
    win(moved, ErrorKind::AlreadyExists, wins)
}

fn win(result: std::io::Result<()>, lost: ErrorKind, wins: &AtomicUsize) -> Outcome {
    match result {
        Ok(()) => {
            wins.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        Err(error) if error.kind() == lost => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Threads write their own stripes of one file, at the same time.
fn one_file_in_turns() -> Outcome {
    use std::os::unix::fs::FileExt;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open("striped")?;
    together(|thread| {
        for round in 0..ROUNDS {
            let stripe = round * THREADS + thread;
            file.write_all_at(&pattern(stripe as u64, 1000), stripe as u64 * 1000)?;
        }
        Ok(())
    })?;
    let expected: Vec<u8> = (0..ROUNDS * THREADS)
        .flat_map(|stripe| pattern(stripe as u64, 1000))
        .collect();
    same("contents are right", fs::read("striped")? == expected, true)
}
