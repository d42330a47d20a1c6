//! Lists past commits, and shows what one of them changed.
//!
//! The history can be read only from its beginning. A list is sent while the history is read for a
//! second time, so a list of any length takes two readings and little memory.

use crate::clients::connection::Connection;
use crate::clients::replies::{PartSender, Unanswered, send_changes};
use crate::requests::store_failure;
use crate::rights::convert;
use crate::rights::permissions::Peer;
use crate::service::Service;
use atomdir::client::CommitDetails;
use atomdir::client::compare::PathFilter;
use atomdir_engine::TreePath;
use atomdir_protocol::{Answer, CommitFilter, Failure, FailureKind, LogRequest, Reply, Sequence};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

const SEE_CHANGES: &str = "see what other users' commits changed";

/// The selection of commits that a peer asks for.
struct Wanted {
    before: Option<Sequence>,
    limit: usize,
    filter: PathFilter,
    only: CommitFilter,
}

impl Wanted {
    fn new(request: LogRequest) -> Wanted {
        let LogRequest {
            before,
            limit,
            paths,
            only,
        } = request;
        let paths = paths
            .into_iter()
            .map(|path| OsString::from_vec(path).into());
        Wanted {
            before,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            filter: PathFilter::new(paths.collect()),
            only,
        }
    }
}

/// The newest of the wanted commits, oldest first.
struct Newest<'a> {
    wanted: &'a Wanted,
    peer: &'a Peer,
    found: VecDeque<Sequence>,
    /// The peer may not see what an older commit changed.
    is_hidden: bool,
}

impl Newest<'_> {
    fn consider(&mut self, commit: &CommitDetails<TreePath>) {
        let CommitDetails { summary, changes } = commit;
        let Wanted { before, filter, .. } = self.wanted;
        if before.is_some_and(|before| summary.sequence >= before) {
            return;
        }
        let label = convert::visible_label(summary, self.peer);
        if !self.wanted.only.wants(summary.time, summary.user, label) {
            return;
        }
        if !filter.is_empty() && !may_see_changes(self.peer, summary.user) {
            self.is_hidden = true;
            self.found.clear();
        } else if filter.wants_commit(changes) {
            self.found.push_back(summary.sequence);
            if self.found.len() > self.wanted.limit {
                self.found.pop_front();
            }
        }
    }

    /// Fails if a commit that the peer may not see could be one of them.
    fn finish(self) -> Result<VecDeque<Sequence>, Failure> {
        if self.is_hidden && self.found.len() < self.wanted.limit {
            self.peer.require_administer(SEE_CHANGES)?;
        }
        Ok(self.found)
    }
}

pub(crate) fn list(
    service: &Service,
    connection: &Connection,
    request: LogRequest,
) -> Result<Answer, Unanswered> {
    let wanted = &Wanted::new(request);
    let peer = &connection.peer;
    let mut newest = Newest {
        wanted,
        peer,
        found: VecDeque::new(),
        is_hidden: false,
    };
    let mut marks = service.store.marks();
    let read = service.store.for_each_commit(|commit| {
        marks.note(&commit.summary);
        newest.consider(&commit);
    });
    read.map_err(store_failure(peer))?;
    let mut newest = newest.finish()?;
    let mut sender = PartSender::new(&connection.stream, Reply::Commits);
    let mut sent = Ok(());
    let read = service.store.for_each_commit(|commit| {
        // The history may have been shortened since.
        while newest
            .front()
            .is_some_and(|next| *next < commit.summary.sequence)
        {
            newest.pop_front();
        }
        if sent.is_ok() && newest.front() == Some(&commit.summary.sequence) {
            let mut summary = convert::commit_summary(commit.summary, peer);
            summary.marks = marks.of(&summary);
            let length = 128 + summary.label.len() + 16 * summary.takes_back.len();
            sent = sender.send(summary, length);
        }
    });
    read.map_err(store_failure(peer))?;
    sent.and_then(|()| sender.finish())?;
    Ok(Answer::Nothing)
}

pub(crate) fn show(
    service: &Service,
    connection: &Connection,
    sequence: Sequence,
) -> Result<Answer, Unanswered> {
    let mut found = None;
    let mut marks = service.store.marks();
    let read = service.store.for_each_commit(|commit| {
        marks.note(&commit.summary);
        if commit.summary.sequence == sequence {
            found = Some(commit);
        }
    });
    read.map_err(store_failure(&connection.peer))?;
    let Some(mut commit) = found else {
        let message = format!("no commit {sequence} in the log");
        return Err(Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir log` shows those there are")
            .into());
    };
    let peer = &connection.peer;
    if !peer.may_use(commit.summary.user) {
        peer.require_administer(SEE_CHANGES)?;
    }
    commit.summary.marks = marks.of(&commit.summary);
    send_changes(&connection.stream, commit.changes)?;
    Ok(Answer::Commit(convert::commit_summary(
        commit.summary,
        peer,
    )))
}

fn may_see_changes(peer: &Peer, user: u32) -> bool {
    peer.may_use(user) || peer.may_administer()
}
