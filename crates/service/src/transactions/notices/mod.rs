//! Notices: the service reports to a user the transactions that ended against that user's wish.
//! Others aborted them, they reached their maximum age, or the service died with them.
//!
//! While a transaction is open, a file in the control directory has a note of it. So the next
//! service knows which transactions did not survive. The same file keeps the list of those that
//! have ended by force.
//!
//! Invariants
//! 1. Nothing depends on the notices: transactions begin and end as well if they cannot be written.
//! 2. The note of a transaction is written after its begin and removed after its end. So a service
//!    that dies in between may leave a note too many. It never leads to a notice about a commit
//!    that landed: `note_lost` checks the log and the history.
//! 3. A user sees notices of their own transactions only; the store's owner and root see all.
//! 4. The list is bounded for each user, so that nobody fills it for others (`list`).

mod explain;
mod file;
mod list;
mod unflushed;

pub(crate) use explain::{explain, named};

use crate::clients::connection::Connection;
use crate::clients::connections::Connections;
use crate::clients::replies::{Unanswered, send_parts};
use crate::rights::convert;
use crate::rights::permissions::{Peer, Reach};
use crate::service::Service;
use crate::transactions::{OpenTransaction, Transaction};
use atomdir::hosting::now;
use atomdir_disk::{LinuxDisk, reason, sync};
use atomdir_engine::{Recovery, Store, Stranded, TransactionId};
use atomdir_format::notice::{EndedNotice, Notice, OpenNotice, Reported};
use atomdir_protocol::{Answer, EndedTransaction, Reply};
use file::NoticeFile;
use list::List;
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use unflushed::Unflushed;

pub(crate) use atomdir_protocol::EndedHow as How;

/// Longer labels are cut in notices.
const LABEL_LENGTH_MAX: usize = 256;

/// For how long a request waits until the end of its transaction has been noted.
const NOTING_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Notices {
    state: Mutex<State>,
    /// Signalled when the end of a transaction has been noted.
    noted: Condvar,
}

struct State {
    list: List,
    file: NoticeFile,
    unflushed: Unflushed,
}

impl State {
    fn note(&mut self, notice: Notice) {
        match &notice {
            Notice::Open(open) => self.unflushed.opened(open.transaction, Instant::now()),
            Notice::Done { transaction } => self.unflushed.ended(*transaction),
            Notice::Ended(ended) => self.unflushed.ended(ended.open.transaction),
            Notice::Parts { .. } | Notice::Reported { .. } => {}
        }
        self.list.apply(notice.clone());
        self.file.append(&notice, self.list.notices());
    }
}

impl Notices {
    /// Reads the notes of the last service, and finds out which transactions have not survived it.
    pub(crate) fn open(control: OwnedFd, store: &Store<LinuxDisk>, recovery: &Recovery) -> Notices {
        let (file, notices) = NoticeFile::open(control, store.id());
        let mut list = List::default();
        for notice in notices {
            list.apply(notice);
        }
        let mut state = State {
            list,
            file,
            unflushed: Unflushed::default(),
        };
        note_lost(&mut state, store, recovery);
        Notices {
            state: Mutex::new(state),
            noted: Condvar::new(),
        }
    }

    /// Notes that the transaction is open. One that only looks at the past has nothing to lose.
    pub(crate) fn opened(&self, transaction: &Transaction) {
        if transaction.past().is_none() {
            sync::lock(&self.state).note(Notice::Open(open_notice(transaction)));
        }
    }

    /// Notes that the transaction has ended as its user wanted.
    pub(crate) fn done(&self, transaction: u64) {
        let mut state = sync::lock(&self.state);
        if state.list.is_open(transaction) {
            state.note(Notice::Done { transaction });
            self.noted.notify_all();
        }
    }

    /// Notes that the transaction has ended like this, unless its own user has ended it. Programs
    /// that are attached to it get a message at once. About so many changes are lost, if that is known.
    pub(crate) fn ended(
        &self,
        one: &OpenTransaction,
        (how, changes): (How, Option<u64>),
        connections: &Connections,
    ) {
        let notice = EndedNotice {
            changes,
            ..new_notice(open_notice(&one.transaction), how)
        };
        let open = &notice.open;
        let reply = Reply::Ended(vec![convert::ended(notice.clone())]);
        let mut is_reported = false;
        for (user, stream) in one.holders.keys().filter_map(|id| connections.peer(*id)) {
            is_reported |= stream.try_notify(&reply) && user == open.user;
        }
        if one.transaction.past().is_none() {
            self.add(notice, is_reported);
        }
    }

    /// Like [`ended`](Self::ended), for a transaction that could not be opened.
    pub(crate) fn ended_stranded(&self, one: &Stranded, how: How) {
        let open = OpenNotice {
            transaction: one.id.0,
            user: one.owner.unwrap_or_else(|| geteuid().as_raw()),
            began: one.began,
            label: short(&one.label),
        };
        self.add(new_notice(open, how), false);
    }

    fn add(&self, mut notice: EndedNotice, user_got_it: bool) {
        if by(notice.how) == Some(notice.open.user) {
            return self.done(notice.open.transaction);
        }
        notice.reported.user = user_got_it;
        sync::lock(&self.state).note(Notice::Ended(notice));
        self.noted.notify_all();
    }

    /// Called before each commit: commits of parts do not end the transaction. `newest` is the
    /// newest commit.
    pub(crate) fn before_commit(
        &self,
        transaction: u64,
        is_part: bool,
        newest: impl FnOnce() -> u64,
    ) {
        let mut state = sync::lock(&self.state);
        if is_part {
            let up_to = u64::MAX;
            state.note(Notice::Parts { transaction, up_to });
        } else if state.list.has_parts(transaction) {
            let up_to = newest();
            state.note(Notice::Parts { transaction, up_to });
        }
    }

    /// Makes the notes of transactions durable that have been open for a while, so that a power cut
    /// loses none of them. Nothing is locked meanwhile. To be called every second or so, until it
    /// returns false.
    pub(crate) fn flush_due(&self) -> bool {
        let mut state = sync::lock(&self.state);
        if !state.unflushed.take_due(Instant::now()) {
            return !state.unflushed.is_empty();
        }
        let flush = state.file.flush();
        drop(state);
        if let Err(errno) = flush.run() {
            tracing::warn!("cannot flush the notices: {}", reason(errno));
        }
        !sync::lock(&self.state).unflushed.is_empty()
    }

    /// Those that the peer may see, the oldest first.
    pub(crate) fn visible(&self, peer: &Peer) -> Vec<EndedNotice> {
        let state = sync::lock(&self.state);
        let visible = state.list.ended().filter(|one| may_see(one, peer));
        visible.cloned().collect()
    }

    /// Those that were not yet reported to the peer.
    pub(crate) fn news(&self, peer: &Peer) -> Vec<EndedNotice> {
        let state = sync::lock(&self.state);
        let news = state.list.ended().filter(|one| {
            let after = reported(one, peer);
            may_see(one, peer) && after != one.reported
        });
        news.cloned().collect()
    }

    /// Notes that these were reported to the peer.
    pub(crate) fn note_reported(&self, ended: &[EndedNotice], peer: &Peer) {
        let mut state = sync::lock(&self.state);
        for one in ended {
            let transaction = one.open.transaction;
            let reported = reported(one, peer);
            if reported != one.reported {
                state.note(Notice::Reported {
                    transaction,
                    reported,
                });
            }
        }
    }

    /// How the transaction has ended. `is_ending`: it is open no more, so a note that says
    /// otherwise will soon be replaced.
    fn find(&self, transaction: u64, peer: &Peer, is_ending: bool) -> Option<EndedNotice> {
        if is_ending {
            self.await_ends(&[transaction], peer);
        }
        let state = sync::lock(&self.state);
        let mut ended = state.list.ended();
        let found = ended.find(|one| one.open.transaction == transaction);
        found.filter(|one| peer.may_use(one.open.user)).cloned()
    }

    /// Waits until the ends of these have been noted, as far as they are the peer's.
    fn await_ends(&self, transactions: &[u64], peer: &Peer) {
        let waits = |state: &mut State| {
            let users = transactions.iter().map(|id| state.list.user_of_open(*id));
            users.flatten().any(|user| peer.may_use(user))
        };
        // A thread that takes longer is reported by a later command.
        drop(
            self.noted
                .wait_timeout_while(sync::lock(&self.state), NOTING_MAX, waits),
        );
    }

    fn noted_open(&self) -> Vec<u64> {
        let state = sync::lock(&self.state);
        let open = state.list.open();
        open.map(|(one, _)| one.transaction).collect()
    }
}

/// Sends the transactions that have ended by force, or of these only the news.
pub(crate) fn list(
    service: &Service,
    connection: &Connection,
    news: bool,
) -> Result<Answer, Unanswered> {
    let peer = &connection.peer;
    service.notices.await_ends(&ending(service), peer);
    let ended = match news {
        true => service.notices.news(peer),
        false => service.notices.visible(peer),
    };
    let length = |one: &EndedTransaction| 64 + one.label.len();
    let sent = ended.iter().cloned().map(convert::ended);
    send_parts(&connection.stream, sent, length, Reply::Ended)?;
    service.notices.note_reported(&ended, peer);
    if news {
        connection.stream.take_notices();
    }
    Ok(Answer::Nothing)
}

/// The transactions that are listed no more, and of which no end is noted yet.
fn ending(service: &Service) -> Vec<u64> {
    let stranded = service.store.stranded();
    let is_stranded = |id: u64| stranded.iter().any(|one| one.id.0 == id);
    let is_listed = |id: u64| service.transactions.get(TransactionId(id)).is_some();
    let noted = service.notices.noted_open().into_iter();
    noted
        .filter(|id| !is_listed(*id) && !is_stranded(*id))
        .collect()
}

/// Notes how the transactions ended that the last service had open and that have not survived it:
/// they were committed, or died with it.
fn note_lost(state: &mut State, store: &Store<LinuxDisk>, recovery: &Recovery) {
    let survivors = store.transactions().into_iter().map(|one| one.id().0);
    let stranded = store.stranded().into_iter().map(|one| one.id.0);
    let survivors: BTreeSet<u64> = survivors.chain(stranded).collect();
    let lost = state.list.open();
    let lost: BTreeMap<u64, (OpenNotice, u64)> = lost
        .filter(|(open, _)| !survivors.contains(&open.transaction))
        .map(|(open, parts)| (open.transaction, (open.clone(), parts)))
        .collect();
    if lost.is_empty() {
        return;
    }
    let mut committed = BTreeSet::new();
    let read = store.for_each_commit(|commit| {
        let transaction = commit.summary.transaction.0;
        let parts = lost.get(&transaction).map(|(_, parts)| *parts);
        if parts.is_some_and(|parts| commit.summary.sequence.0 > parts) {
            committed.insert(transaction);
        }
    });
    if let Err(error) = read {
        tracing::warn!("cannot find out which transactions were discarded: {error}");
    }
    for (transaction, (open, _)) in lost {
        let discarded = recovery.discarded.iter();
        let mut discarded = discarded.filter(|one| one.id.0 == transaction);
        state.note(match committed.contains(&transaction) {
            true => Notice::Done { transaction },
            false => Notice::Ended(EndedNotice {
                open,
                ended: now(),
                how: How::Died,
                changes: discarded.next().map(|one| one.changes),
                reported: Reported::default(),
            }),
        });
    }
}

fn new_notice(open: OpenNotice, how: How) -> EndedNotice {
    EndedNotice {
        open,
        ended: now(),
        how,
        changes: None,
        // They have ended it themselves, or find it in the list.
        reported: Reported {
            user: false,
            administrator: true,
        },
    }
}

fn open_notice(transaction: &Transaction) -> OpenNotice {
    OpenNotice {
        transaction: transaction.id().0,
        user: transaction.owner(),
        began: transaction.began(),
        label: short(&transaction.label()),
    }
}

/// Never ends within a character.
fn short(label: &[u8]) -> Vec<u8> {
    let cut = &label[..label.len().min(LABEL_LENGTH_MAX)];
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => cut[..error.valid_up_to()].to_vec(),
        _ => cut.to_vec(),
    }
}

fn by(how: How) -> Option<u32> {
    match how {
        How::Aborted { by } => Some(by),
        How::Stopped { by } => by,
        How::Age { .. } | How::Died => None,
    }
}

fn may_see(one: &EndedNotice, peer: &Peer) -> bool {
    peer.reach == Reach::All && (peer.user == one.open.user || peer.may_administer())
}

/// The parties that know of the end once this peer does.
fn reported(one: &EndedNotice, peer: &Peer) -> Reported {
    Reported {
        user: one.reported.user || peer.user == one.open.user,
        administrator: one.reported.administrator || peer.may_administer(),
    }
}
