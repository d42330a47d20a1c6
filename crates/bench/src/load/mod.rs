//! The loads: what this program does when a workload runs it in a transaction or in a plain directory.
//! So every side makes exactly the same calls.

pub mod beyond;
pub mod files;
mod ordering;
pub mod pages;
mod transfer;

use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Describe, Error, Result};
use crate::small;

/// The first argument that selects a load.
pub const WORD: &str = "load";

/// A shell command that runs a load in its working directory.
pub fn command(name: &str, number: u64) -> Result<String> {
    let program = std::env::current_exe().describe("find", Path::new("this program"))?;
    Ok(format!("'{}' {WORD} {name} {number}", program.display()))
}

pub fn run(arguments: &[String]) -> Result<()> {
    let unknown = || Error::NoLoad(arguments.to_vec());
    if let [word, work @ ..] = arguments
        && word == small::WORD
    {
        return small::run(work);
    }
    let [name, number] = arguments else {
        return Err(unknown());
    };
    let number = number.parse().map_err(|_| unknown())?;
    match name.as_str() {
        "files" => files::all(number),
        "threads" => files::by_threads(number),
        "transfer" => transfer::all(number),
        "beyond" => beyond::all(number),
        "cancel" => ordering::cancel(number),
        "order" => ordering::order(number),
        "replace" => pages::replace(Path::new("./data"), number),
        _ => Err(unknown()),
    }
}

fn in_threads(count: u64, action: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let action = &action;
        let started: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || action(number)))
            .collect();
        started.into_iter().try_for_each(|thread| {
            // The thread has printed its panic.
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Prints that a step has ended, as the shell function `step` does.
fn step(name: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    println!("step {name} {}", now.unwrap_or_default().as_nanos());
}
