//! Processor time of the programs that the bench runs and of the service that serves them.

use std::fs;

/// The length of a tick in the files below `/proc`, on all processors that Linux runs on here.
const TICK_MILLISECONDS: u64 = 10;

/// Milliseconds that this process, the processes it has waited for, and the service have used so
/// far. `None` if the kernel does not say.
pub fn used(service: Option<u32>) -> Option<u64> {
    let own = ticks("/proc/self/stat")?;
    let served = match service {
        Some(process) => ticks(&format!("/proc/{process}/stat"))?,
        None => 0,
    };
    Some((own + served) * TICK_MILLISECONDS)
}

/// In user and system mode, with those of ended children.
fn ticks(file: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    // The name of the program is in parentheses and may have any characters.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}
