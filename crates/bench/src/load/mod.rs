//! What this program does when it is itself the program in a transaction, so
//! that every side runs the very same calls.

pub mod files;
pub mod pages;
mod transfer;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Describe, Error, Result};

/// The first argument that asks for this.
pub const WORD: &str = "load";

/// A shell command that runs a load in the directory it is started in.
pub fn command(name: &str, numbers: &[u64]) -> Result<String> {
    let program = std::env::current_exe().describe("find", Path::new("this program"))?;
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Ok(format!(
        "'{}' {WORD} {name} {}",
        program.display(),
        numbers.join(" ")
    ))
}

pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["files", count] if number(count).is_some() => {
            files::all(number(count).unwrap_or_default())
        }
        ["transfer", bytes] if number(bytes).is_some() => {
            transfer::all(number(bytes).unwrap_or_default())
        }
        _ => Err(Error::NoLoad(arguments.to_vec())),
    }
}

/// Says that a step has ended, as the shell's `step` does.
fn step(name: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    println!("step {name} {}", now.unwrap_or_default().as_nanos());
}
