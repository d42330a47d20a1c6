//! `log --system`: the transactions of the system, each with its commits in the stores.

use super::commits::{self, Joined};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, quoted, time};
use crate::verbs::log::marks;
use serde::Serialize;
use serde::ser::Serializer;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

struct Log<'a> {
    stores: &'a [Connected],
    found: &'a [Joined],
    is_brief: bool,
}

impl Show for Log<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for one in self.found {
            painter.paint(Style::Heading, one.mark.to_string())?;
            let label = escaped(&one.label);
            let mark = match one.is_undone() {
                true => "[undone] ",
                false => "",
            };
            if self.is_brief {
                writeln!(painter, "  {mark}{label}")?;
                continue;
            }
            writeln!(painter, "  {}  {mark}{label}", time::readable(one.time))?;
            for (place, commit) in &one.parts {
                let root = self.stores[*place].root.as_os_str().as_bytes();
                let (root, marks) = (quoted(root), marks(commit));
                let (sequence, changes) = (commit.sequence, counted(commit.changes, "change"));
                writeln!(painter, "    {root}: commit {sequence}, {changes} {marks}")?;
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Transaction<'a> {
    id: String,
    label: json::Text<'a>,
    commits: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    store: json::Text<'a>,
    #[serde(flatten)]
    commit: json::Commit<'a>,
}

impl Serialize for Log<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let transactions = self.found.iter().map(|one| Transaction {
            id: one.mark.to_string(),
            label: json::Text(&one.label),
            commits: (one.parts.iter())
                .map(|(place, commit)| Part {
                    store: json::Text(self.stores[*place].root.as_os_str().as_bytes()),
                    commit: json::Commit::from(commit),
                })
                .collect(),
        });
        #[derive(Serialize)]
        struct All<'a> {
            transactions: Vec<Transaction<'a>>,
        }
        let transactions = transactions.collect();
        All { transactions }.serialize(serializer)
    }
}

/// Lists at most `limit` of them.
pub fn log(context: &Context, limit: u64, is_brief: bool) -> Result<(), Error> {
    let mut stores = commits::connect(context)?;
    let mut found = commits::find(&mut stores)?;
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    context.output.print_paged(&Log {
        stores: &stores,
        found: &found,
        is_brief,
    })
}
