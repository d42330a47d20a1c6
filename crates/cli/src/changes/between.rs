//! The differences between two commits, or between a commit and now: two views of the past, which
//! have the same snapshot. Only what differs from that snapshot in one of them is compared. Renames
//! are shown as removals and additions.

use super::difference::Difference;
use super::patch::{Affected, FilePatch};
use super::version::Version;
use super::{Filter, Subject};
use crate::context::{Connected, Context};
use crate::error::{Error, conflict_line};
use atomdir::client::compare::{change_between, has_below};
use atomdir::client::{BeginOptions, ChangeLine, PastView, Transaction};
use atomdir::{Change, Sequence, TransactionId};
use std::collections::BTreeSet;
use std::convert::Infallible;

pub struct Between {
    old: Transaction,
    /// `None`: the store's present state.
    new: Option<Transaction>,
    paths: BTreeSet<Vec<u8>>,
    subject: Subject,
}

/// A path, as it was and as it became.
type Pair = (Option<Version>, Option<Version>);

impl Between {
    pub fn open(
        context: &Context,
        connected: &mut Connected,
        filter: &Filter,
        (from, to): (Sequence, Option<Sequence>),
    ) -> Result<Between, Error> {
        let mut look = |commit, other| look(context, connected, filter, (commit, other));
        let old = look(from, None)?;
        let new = to.map(|to| look(to, Some((old.id, from)))).transpose()?;
        let mut paths = BTreeSet::new();
        for view in [Some(&old), new.as_ref()].into_iter().flatten() {
            let lines = connected.connection.changes(view.id)?;
            paths.extend(Affected::find(connected, view, &lines)?.into_paths());
        }
        paths.retain(|path| filter.wants_path(path));
        Ok(Between {
            old,
            new,
            paths,
            subject: Subject::Commits {
                from: from.0,
                to: to.map(|to| to.0),
            },
        })
    }

    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// Ends the views.
    pub fn close(self, connected: &mut Connected) {
        let views = [Some(self.old), self.new];
        for view in views.into_iter().flatten() {
            // The service may have ended, and with it the view.
            let _ = connected.connection.abort(view.id);
        }
    }

    fn pair(&self, connected: &mut Connected, path: &[u8]) -> Result<Pair, Error> {
        let old = Version::in_view(&self.old, path)?;
        let new = match &self.new {
            Some(view) => Version::in_view(view, path)?,
            None => Version::in_snapshot(&mut connected.connection, self.old.id, path)?,
        };
        Ok((old, new))
    }

    /// One change after the other: their contents need not fit in memory together.
    pub fn patches(
        &self,
        connected: &mut Connected,
        mut use_it: impl FnMut(&FilePatch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for path in &self.paths {
            let (old, new) = self.pair(connected, path)?;
            if change_of(&old, &new).is_some() {
                use_it(&FilePatch {
                    old_path: path,
                    new_path: path,
                    old,
                    new,
                    has_below: has_below(&self.paths, path),
                    is_gone: false,
                })?;
            }
        }
        Ok(())
    }

    pub fn lines(&self, connected: &mut Connected) -> Result<Vec<ChangeLine>, Error> {
        let mut lines = Vec::new();
        for path in &self.paths {
            let (old, new) = self.pair(connected, path)?;
            lines.extend(change_of(&old, &new).map(|change| ChangeLine {
                change,
                path: path.clone(),
                from: None,
            }));
        }
        Ok(lines)
    }

    pub fn difference<'a>(
        &self,
        connected: &mut Connected,
        line: &'a ChangeLine,
    ) -> Result<Difference<'a>, Error> {
        let (before, after) = self.pair(connected, &line.path)?;
        Ok(Difference {
            line,
            old_path: line.path.clone(),
            before,
            after,
            is_gone: false,
        })
    }
}

fn look(
    context: &Context,
    connected: &mut Connected,
    filter: &Filter,
    (commit, other): (Sequence, Option<(TransactionId, Sequence)>),
) -> Result<Transaction, Error> {
    let (beside, outside_since) = other.unzip();
    let past = PastView {
        commit,
        outside_as_now: true,
        outside_since,
        beside,
    };
    let options = BeginOptions {
        label: b"diff".to_vec(),
        opened: true,
        ..BeginOptions::default()
    };
    let begun = connected.connection.past(past, &options);
    let (view, as_now) = begun.map_err(Error::Undo)?;
    for conflict in as_now.iter().filter(|one| filter.wants_path(&one.path)) {
        let line = conflict_line(conflict);
        context.output.warn(format_args!(
            "how it was after commit {commit} is not known, so it is compared as it is now: {line}"
        ));
    }
    Ok(view)
}

fn change_of(old: &Option<Version>, new: &Option<Version>) -> Option<Change> {
    let attributes = |version: &Option<Version>| version.as_ref().map(Version::attributes);
    let has_same_contents = || {
        let contents = |version| Option::as_ref(version).map(|one: &Version| &one.contents);
        Ok::<_, Infallible>(contents(old) == contents(new))
    };
    let (before, after) = (attributes(old), attributes(new));
    let Ok(change) = change_between(before.as_ref(), after.as_ref(), has_same_contents);
    change
}
