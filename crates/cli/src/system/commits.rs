//! The commits of several stores that belong together.

use super::Mark;
use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir::client::{CommitFilter, compare::PathFilter};
use atomdir::{CommitSummary, Timestamp};
use std::collections::BTreeMap;

/// The commits of one transaction of several stores.
pub struct Joined {
    pub mark: Mark,
    pub label: Vec<u8>,
    pub time: Timestamp,
    /// For each store that it has changed, its place among them.
    pub parts: Vec<(usize, CommitSummary)>,
}

impl Joined {
    /// Whether undos have taken all of it back.
    pub fn is_undone(&self) -> bool {
        self.parts
            .iter()
            .all(|(_, commit)| commit.marks.undone_by.is_some())
    }
}

/// Connects to all stores of the context.
pub fn connect(context: &Context) -> Result<Vec<Connected>, Error> {
    let first = std::iter::once(context.directory());
    let roots = first.chain(context.others().iter().map(|other| other.as_path()));
    roots.map(|root| context.connect_at(root)).collect()
}

/// Those that the logs of all stores have, newest first.
pub fn find(stores: &mut [Connected]) -> Result<Vec<Joined>, Error> {
    let mut found: BTreeMap<Mark, Joined> = BTreeMap::new();
    for (place, store) in stores.iter_mut().enumerate() {
        let only = CommitFilter {
            label: super::MARK_START.trim_ascii().to_vec(),
            ..CommitFilter::default()
        };
        let paths = PathFilter::default();
        for commit in store.connection.log_only((&paths, only), None, u64::MAX)? {
            let Some((label, mark)) = Mark::split(&commit.label) else {
                continue;
            };
            let joined = found.entry(mark).or_insert_with(|| Joined {
                mark,
                label: label.to_vec(),
                time: commit.time,
                parts: Vec::new(),
            });
            joined.time = joined.time.max(commit.time);
            joined.parts.push((place, commit));
        }
    }
    let mut found: Vec<Joined> = found.into_values().collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.time));
    Ok(found)
}
