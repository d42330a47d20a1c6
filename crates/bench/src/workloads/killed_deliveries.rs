//! Counts the files and torn messages that killed deliveries leave. Each is killed at a random moment
//! of its usual duration.

use std::fs;
use std::time::{Duration, Instant};

use super::deliveries::{Agent, Delivery, Format, MESSAGES, agents};
use crate::bench::Bench;
use crate::error::{Describe, Result};
use crate::load::pages::random;
use crate::measure::Side;
use crate::report::{Figure, Row};

/// How many deliveries are not killed, to measure how long one takes.
const TIMED: u64 = 21;

/// What the killed deliveries have left. Each delivery has a mailbox of its own.
#[derive(Default)]
struct Left {
    locks: usize,
    cut_off: usize,
    temporary: usize,
}

pub fn killed_deliveries(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for format in [Format::Mbox, Format::Maildir] {
        for agent in &agents(bench) {
            rows.extend(kill(bench, agent, format)?);
        }
    }
    Ok(rows)
}

fn kill(bench: &Bench, agent: &Agent, format: Format) -> Result<[Row; 2]> {
    let kills = bench.scaled(MESSAGES);
    let delivery = Delivery::prepare(bench, agent, format, kills)?;
    let whole = duration(&delivery, kills)?;
    // The same sequence of random moments for each agent.
    let mut state = 1;
    let mut ended = 0;
    for number in 0..kills {
        let moment = whole.mul_f64((random(&mut state) % 1000) as f64 / 1000.0);
        if delivery.deliver_and_kill(number, number, moment)? {
            ended += 1;
        }
    }
    delivery.end_service()?;
    let left = Left::find(&delivery)?;
    let program = match agent.side {
        Side::Tool => "atomdir-deliver",
        side => side.name(),
    };
    let row = |what: &str, count: usize| {
        let figure = Figure {
            value: count as f64,
            unit: "left",
            at_most: None,
        };
        let row = Row::figure(&format!("{format}, {what}, {program}"), figure);
        row.note(&format!(
            "{kills} deliveries killed within {whole:.1?}; {ended} had ended"
        ))
    };
    let first = match format {
        Format::Mbox => row("lock files", left.locks),
        Format::Maildir => row("files in tmp", left.temporary),
    };
    Ok([first, row("messages cut off", left.cut_off)])
}

/// The median duration of a delivery.
fn duration(delivery: &Delivery, mailboxes: u64) -> Result<Duration> {
    let mut durations = Vec::new();
    for number in 0..TIMED {
        let started = Instant::now();
        delivery.deliver(number % mailboxes, number)?;
        durations.push(started.elapsed());
    }
    durations.sort_unstable();
    Ok(durations[durations.len() / 2])
}

impl Left {
    fn find(delivery: &Delivery) -> Result<Left> {
        let mut left = Left::default();
        let mut open = vec![delivery.mail.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).describe("list", &directory)? {
                let entry = entry.describe("list", &directory)?;
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                if name == ".atomdir" {
                    continue;
                }
                if path.is_dir() {
                    open.push(path);
                } else if directory.ends_with("tmp") {
                    left.temporary += 1;
                } else if name.ends_with(".lock") {
                    left.locks += 1;
                } else if !name.ends_with("deliveries") {
                    let text = fs::read(&path).describe("read", &path)?;
                    left.cut_off += delivery.cut_off_in(&String::from_utf8_lossy(&text));
                }
            }
        }
        Ok(left)
    }
}
