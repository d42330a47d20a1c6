//! Two processes append to one file at the same time. Every line is complete, and none is
//! lost.

use std::fs::{self, OpenOptions};
use std::io::Write;

use crate::check::{Outcome, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "appending";

const LINES: usize = 1000;

fn prepare() -> Outcome {
    Ok(fs::write("journal", "the first line\n")?)
}

fn run() -> Outcome {
    let first = process::spawn(NAME, "append", &["first"])?;
    let second = process::spawn(NAME, "append", &["second"])?;
    append("third")?;
    process::finish(first)?;
    process::finish(second)?;
    let journal = fs::read_to_string("journal")?;
    let mut lines: Vec<&str> = journal.lines().collect();
    same("lines", lines.len(), 1 + 3 * LINES)?;
    same("first line", lines[0], "the first line")?;
    for who in ["first", "second", "third"] {
        // The lines of each process are in the order in which it wrote them.
        let own: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|line| line.starts_with(who))
            .collect();
        let expected: String = (0..LINES).map(|number| line(who, number)).collect();
        same("lines of one", own, expected.lines().collect())?;
    }
    // The lines mix in a different order in each run.
    lines.sort_unstable();
    fs::write("sorted", lines.join("\n"))?;
    Ok(fs::remove_file("journal")?)
}

fn line(who: &str, number: usize) -> String {
    format!("{who} {number:04} {}\n", "x".repeat(number % 120))
}

fn append(who: &str) -> Outcome {
    let mut journal = OpenOptions::new().append(true).open("journal")?;
    for number in 0..LINES {
        journal.write_all(line(who, number).as_bytes())?;
    }
    Ok(())
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    match (role, arguments) {
        ("append", [who]) => append(who),
        _ => process::none(role, arguments),
    }
}
