//! Summarizes in one line what a command's transaction has committed.

use crate::context::Context;
use crate::output::counted;
use atomdir::Change;
use atomdir::client::{ChangeLine, Committed, Connection};

/// For users at a terminal. Scripts have `--status-fd` and `--json`.
pub fn show(context: &Context, connection: &mut Connection, committed: &Committed) {
    let output = &context.output;
    if !output.summarizes() {
        return;
    }
    output.note(match committed.sequence {
        None if committed.changes == 0 => "committed: nothing had changed".to_owned(),
        None => "committed to the outer transaction".to_owned(),
        Some(sequence) => match connection.show(sequence) {
            Ok(details) => format!("committed {sequence}: {}", by_kind(&details.changes)),
            // The commit stands even if we cannot get the list of its changes.
            Err(_) => {
                let changes = counted(committed.changes, "change");
                format!("committed {sequence}: {changes}")
            }
        },
    });
}

/// `3 changed, 1 new, 1 removed`.
fn by_kind(changes: &[ChangeLine]) -> String {
    if changes.is_empty() {
        // Entries have come and gone, or files were replaced by their like.
        return "only times of directories, or files replaced by equal ones".to_owned();
    }
    let words = [
        ("changed", &[Change::Modified, Change::TypeChanged][..]),
        ("new", &[Change::Added]),
        ("renamed", &[Change::Renamed]),
        ("removed", &[Change::Deleted]),
    ];
    let counts = words.into_iter().filter_map(|(word, kinds)| {
        let of_kind = changes.iter().filter(|line| kinds.contains(&line.change));
        let count = of_kind.count();
        (count > 0).then(|| format!("{count} {word}"))
    });
    counts.collect::<Vec<_>>().join(", ")
}
