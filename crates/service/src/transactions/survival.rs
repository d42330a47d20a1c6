//! Transactions that survive the service: decides which ones do, and opens them again.
//!
//! The engine keeps the view. Beside the view the engine keeps a note of the service's for each
//! transaction: the groups of its user, when it ends by its age, with which transactions of other stores it is
//! linked, and why its lazy commit was set aside. The next service shows that reason until somebody tries the commit again.
//! If a service dies before its next look at transactions set aside (`aside::tend`), the reason is
//! lost.

use crate::clients::replies::Unanswered;
use crate::rights::permissions::{Peer, no_such_transaction};
use crate::service::Service;
use crate::transactions::expiry::Due;
use crate::transactions::leases;
use crate::transactions::notices::How;
use crate::transactions::{OpenTransaction, Transaction};
use atomdir::hosting::now;
use atomdir_disk::reason;
use atomdir_engine::{Credentials, Stranded};
use atomdir_protocol::{Answer, Failure, FailureKind, Partner, TransactionId, WhileOpen};
use rustix::process::geteuid;
use std::sync::Arc;
use std::time::Duration;

/// The service's note about a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Note {
    /// The groups of a user with fewer rights than the service.
    groups: Option<Vec<u32>>,
    /// The age at which it ends, and when that is, in seconds since 1970.
    ends: Option<(Duration, i64)>,
    /// Why its commit was set aside.
    aside: Option<String>,
    /// The transactions that are only committed together with it, and itself.
    linked: Vec<Partner>,
}

const HAS_GROUPS: u8 = 1;
const HAS_END: u8 = 2;
const HAS_ASIDE: u8 = 4;
const HAS_LINKS: u8 = 8;
/// Longer reasons are cut in notes.
const ASIDE_LENGTH_MAX: usize = 8192;

impl Note {
    fn encode(&self) -> Vec<u8> {
        let flag = |has, flag| if has { flag } else { 0 };
        let mut bytes = vec![
            flag(self.groups.is_some(), HAS_GROUPS)
                | flag(self.ends.is_some(), HAS_END)
                | flag(self.aside.is_some(), HAS_ASIDE)
                | flag(!self.linked.is_empty(), HAS_LINKS),
        ];
        if let Some((age, at)) = self.ends {
            let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            bytes.extend(age_ms.to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        if let Some(aside) = &self.aside {
            let aside = &aside.as_bytes()[..aside.len().min(ASIDE_LENGTH_MAX)];
            bytes.extend((aside.len() as u32).to_le_bytes());
            bytes.extend(aside);
        }
        if !self.linked.is_empty() {
            bytes.extend((self.linked.len() as u32).to_le_bytes());
        }
        for one in &self.linked {
            bytes.extend(one.store);
            bytes.extend(one.transaction.0.to_le_bytes());
            bytes.extend((one.root.len() as u32).to_le_bytes());
            bytes.extend(&one.root);
        }
        for group in self.groups.iter().flatten() {
            bytes.extend(group.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Note> {
        let (flags, mut rest) = bytes.split_first()?;
        let mut note = Note::default();
        if flags & HAS_END != 0 {
            let (age, left) = rest.split_first_chunk::<8>()?;
            let (at, left) = left.split_first_chunk::<8>()?;
            let age = Duration::from_millis(u64::from_le_bytes(*age));
            note.ends = Some((age, i64::from_le_bytes(*at)));
            rest = left;
        }
        if flags & HAS_ASIDE != 0 {
            let (length, left) = rest.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (aside, left) = left.split_at_checked(length)?;
            note.aside = Some(String::from_utf8_lossy(aside).into_owned());
            rest = left;
        }
        if flags & HAS_LINKS != 0 {
            let (count, left) = rest.split_first_chunk::<4>()?;
            rest = left;
            for _ in 0..u32::from_le_bytes(*count) {
                let (one, left) = take_partner(rest)?;
                note.linked.push(one);
                rest = left;
            }
        }
        if flags & HAS_GROUPS != 0 {
            let (groups, left) = rest.as_chunks::<4>();
            let groups = groups.iter().map(|group| u32::from_le_bytes(*group));
            note.groups = Some(groups.collect());
            rest = left;
        }
        let is_known = flags & !(HAS_GROUPS | HAS_END | HAS_ASIDE | HAS_LINKS) == 0;
        (is_known && rest.is_empty()).then_some(note)
    }
}

fn take_partner(bytes: &[u8]) -> Option<(Partner, &[u8])> {
    let (store, rest) = bytes.split_first_chunk::<16>()?;
    let (transaction, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (root, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let partner = Partner {
        store: *store,
        root: root.to_vec(),
        transaction: TransactionId(u64::from_le_bytes(*transaction)),
    };
    Some((partner, rest))
}

fn note_of(transaction: &Transaction) -> Option<Note> {
    Note::decode(&transaction.note()?)
}

/// Has a detached transaction survive the service, if it can. If not, its status says so.
pub(crate) fn survive(service: &Service, one: &OpenTransaction) {
    if let Err(error) = service
        .store
        .survive(&one.transaction, note_for(service, one))
    {
        let id = one.id();
        tracing::info!("transaction {id} ends with the service: {error}");
    }
}

/// What the next service needs to know of it.
pub(crate) fn note_for(service: &Service, one: &OpenTransaction) -> Vec<u8> {
    let now = now().seconds;
    let ends = service.expiry.end_of(one.id());
    let ends = ends.map(|(age, left)| {
        let left = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        (age, now.saturating_add(left))
    });
    let groups = one.transaction.restriction().map(|user| user.groups);
    let known = service.store.find_set_aside(one.transaction.id());
    let aside = known.map(|known| known.reason);
    let aside = aside.or_else(|| left_aside(&one.transaction));
    let note = Note {
        groups,
        ends,
        aside,
        linked: one.transaction.linked().to_vec(),
    };
    note.encode()
}

fn keep(service: &Service, transaction: &Arc<Transaction>, note: &Note) {
    if let Err(error) = service.store.survive(transaction, note.encode()) {
        let id = transaction.id();
        tracing::info!("transaction {id} ends with the service: {error}");
    }
}

/// The reason in the transaction's note: this service or an earlier one has set its commit aside.
pub(crate) fn left_aside(transaction: &Transaction) -> Option<String> {
    note_of(transaction)?.aside
}

/// Somebody has tried to commit the transaction and has got the error. The reason that an earlier
/// service met no longer matters.
pub(crate) fn forget_aside(service: &Service, one: &OpenTransaction) {
    let is_retried = service.store.find_set_aside(one.transaction.id()).is_some();
    if !is_retried
        && let Some(note) = note_of(&one.transaction)
        && note.aside.is_some()
    {
        let note = Note {
            aside: None,
            ..note
        };
        keep(service, &one.transaction, &note);
    }
}

/// Opens the transactions that have survived the last service.
pub(crate) fn open_all(service: &Service) {
    for transaction in service.store.transactions() {
        if let Err(failure) = open(service, transaction.clone()) {
            let id = transaction.id();
            tracing::error!("transaction {id} has survived without a view: {failure}");
            if service.transactions.get(id).is_none() {
                service.store.strand(&transaction, failure.message);
            }
        }
    }
}

fn open(service: &Service, transaction: Arc<Transaction>) -> Result<(), Failure> {
    let id = transaction.id();
    let unusable = |why: &str| Failure::new(FailureKind::Internal, why.to_owned());
    let note = transaction.note().and_then(|note| Note::decode(&note));
    let note = note.ok_or_else(|| unusable("its note cannot be read"))?;
    let owner = transaction.owner();
    match note.groups {
        Some(groups) => {
            let user = Credentials {
                user: owner,
                groups,
            };
            let restricted = transaction.restrict_to(user);
            restricted.map_err(|_| no_such_transaction(id))?;
        }
        None if owner != 0 && owner != geteuid().as_raw() => {
            return Err(unusable("its user has fewer rights than the service"));
        }
        None => {}
    }
    transaction.link_with(note.linked);
    if let Some(budget) = service.budgets.of(owner) {
        transaction.set_budget(budget);
    }
    let one = OpenTransaction::detached(&transaction)
        .map_err(|errno| unusable(&reason(errno).to_string()))?;
    if !service.transactions.add(&one) {
        return Err(no_such_transaction(id));
    }
    if let Some((age, at)) = note.ends {
        let left = u64::try_from(at.saturating_sub(now().seconds)).unwrap_or(0);
        let due = Due::transaction(id, age);
        service.expiry.add_after(due, Duration::from_secs(left));
    }
    service.views.show(&transaction)
}

/// Makes everything in a view durable.
pub(crate) fn flush(
    service: &Service,
    connection: &crate::clients::connection::Connection,
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    let one = service.transactions.find(id, &connection.peer)?;
    if !one.transaction.survives() {
        let message =
            format!("transaction {id} ends with its service, so there is nothing to flush");
        let failure = Failure::new(FailureKind::BadRequest, message);
        return Err(failure
            .with_hint("detached transactions survive, unless they are serializable or nested")
            .into());
    }
    leases::gather(service, &connection.stream, &one.transaction)?;
    one.transaction.flush().map_err(|errno| {
        let errno = reason(errno);
        let message = format!("cannot flush transaction {id}: {errno}");
        Failure::new(FailureKind::Io, message)
    })?;
    Ok(Answer::Nothing)
}

/// The transactions that have survived and cannot be opened, as far as the peer may see them.
pub(crate) fn stranded<'a>(
    service: &Service,
    peer: &'a Peer,
) -> impl Iterator<Item = Stranded> + use<'a> {
    let may_see = |one: &Stranded| {
        peer.may_administer()
            || peer.reach == crate::rights::permissions::Reach::All
                && one.owner.is_some_and(|owner| peer.may_use(owner))
    };
    service.store.stranded().into_iter().filter(may_see)
}

/// Drops a transaction that cannot be opened; false if there is none of this id.
pub(crate) fn abort_stranded(service: &Service, peer: &Peer, id: TransactionId) -> bool {
    let found = stranded(service, peer).find(|one| one.id == id);
    let how = How::Aborted { by: peer.user };
    found.is_some_and(|one| drop_stranded(service, &one, how))
}

/// Drops those of the peer's transactions that cannot be opened; for root, all.
pub(crate) fn abort_all_stranded(service: &Service, peer: &Peer) -> u64 {
    let own = stranded(service, peer).filter(|one| match one.owner {
        Some(owner) => peer.may_use(owner),
        None => peer.may_administer(),
    });
    let how = How::Aborted { by: peer.user };
    let aborted = own.map(|one| u64::from(drop_stranded(service, &one, how)));
    aborted.sum()
}

fn drop_stranded(service: &Service, one: &Stranded, how: How) -> bool {
    let dropped = service.store.abort_stranded(one.id);
    if dropped {
        service.notices.ended_stranded(one, how);
    }
    dropped
}

/// Why a transaction that has survived cannot be opened, if it cannot and the peer may see it.
pub(crate) fn why_stranded(service: &Service, peer: &Peer, id: TransactionId) -> Option<String> {
    let found = stranded(service, peer).find(|one| one.id == id);
    found.map(|one| one.reason)
}

/// Fails if open transactions keep the service from being stopped.
pub(crate) fn check_stop(service: &Service, open: WhileOpen) -> Result<(), Failure> {
    let staying = service.transactions.staying(&service.connections);
    let survives = |one: &&OpenTransaction| one.transaction.survives();
    let ends = staying.iter();
    let ends: Vec<&OpenTransaction> = ends
        .filter(|one| matches!(open, WhileOpen::Refuse | WhileOpen::RefuseIfUsed) || !survives(one))
        .collect();
    if open == WhileOpen::Abort || ends.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = ends.iter().map(|one| one.id().to_string()).collect();
    let ids = ids.join(", ");
    let (message, hint) = match (open, &ends[..]) {
        (WhileOpen::Keep, [one]) => {
            let message = format!(
                "transaction {ids} would end with the service: {}",
                why_it_ends(one)
            );
            let end = match one.detached {
                true => format!("commit it with `atomdir commit {ids}`"),
                false => "wait until its command has ended".to_owned(),
            };
            let hint = format!("{end}, or drop it with `atomdir abort {ids}`, and try again");
            (message, hint)
        }
        (WhileOpen::Keep, _) => (
            format!("transactions {ids} would end with the service"),
            "commit or abort each of them first, or wait until its command has ended; attached, \
             nested and serializable ones do not survive, and of the others `atomdir list` says why"
                .to_owned(),
        ),
        (_, all) => {
            let message = match all.len() {
                1 => format!("transaction {ids} is open"),
                _ => format!("transactions {ids} are open"),
            };
            let keep = match all.iter().all(survives) {
                true => "keep it for the next service with `atomdir service stop --keep`",
                false => "commit what would not survive the service, and try again",
            };
            let hint = format!(
                "`atomdir list` shows what is open: {keep}, or drop it with `atomdir service stop \
                 --abort`"
            );
            (message, hint)
        }
    };
    Err(Failure::new(FailureKind::InUse, message).with_hint(hint))
}

fn why_it_ends(one: &OpenTransaction) -> String {
    let reason = one.transaction.why_it_ends().filter(|_| one.detached);
    reason.map_or_else(
        || "a command works in it".to_owned(),
        |reason| reason.to_string(),
    )
}

/// At the end of the service, aborts what does not survive it. Returns how many it kept.
pub(crate) fn end_all(service: &Service) -> u64 {
    let all = service.transactions.remove_all();
    let (kept, ended): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|one| one.transaction.survives() && !service.stop.aborts_all());
    let how = service.stop.how().unwrap_or(How::Stopped { by: None });
    service.abort_by_force(ended, how);
    if service.stop.aborts_all() {
        for one in service.store.stranded() {
            drop_stranded(service, &one, how);
        }
    }
    for one in &kept {
        // A shutdown may follow that does not flush the page cache.
        if let Err(errno) = one.transaction.flush() {
            let errno = reason(errno);
            tracing::error!("transaction {} cannot be flushed: {errno}", one.id());
        }
        service.views.hide(&one.transaction);
    }
    kept.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_disk::LinuxDisk;
    use atomdir_engine::{BeginOptions, Conflicts, Durability, Isolation, Store};
    use atomdir_testing::exit_code::NO_SUCH;
    use atomdir_testing::{Scratch, call_here};

    #[test]
    fn notes_are_read_as_they_were_written() {
        for groups in [None, Some(Vec::new()), Some(vec![0, 7, u32::MAX])] {
            for ends in [None, Some((Duration::from_millis(1500), 1_800_000_000))] {
                for aside in [None, Some(String::new()), Some("busy".to_owned())] {
                    for linked in 0..3 {
                        let partner = |number| Partner {
                            store: [7; 16],
                            root: b"/srv".repeat(number as usize),
                            transaction: TransactionId(number),
                        };
                        let note = Note {
                            groups: groups.clone(),
                            ends,
                            aside: aside.clone(),
                            linked: (0..linked).map(partner).collect(),
                        };
                        assert_eq!(Note::decode(&note.encode()), Some(note));
                    }
                }
            }
        }
        assert_eq!(Note::decode(&[]), None);
        assert_eq!(Note::decode(&[0x80]), None, "of a later version");
        assert_eq!(Note::decode(&[HAS_GROUPS, 1]), None);
        assert_eq!(Note::decode(&[HAS_ASIDE, 2, 0, 0, 0, b'x']), None);
        assert_eq!(Note::decode(&[HAS_LINKS, 1, 0, 0, 0, b'x']), None);
    }

    #[test]
    fn survivor_with_an_unreadable_note_is_listed_until_it_is_aborted() {
        let scratch = Scratch::new("unreadable-note");
        let base = scratch.path();
        let control = atomdir::init(base, None).unwrap().store.control;
        let root = |path| LinuxDisk::open_root(path).unwrap();
        let options = atomdir::hosting::engine_options(0);
        let opened = Store::open(LinuxDisk::new(), root(base), root(&control), None, options);
        let store = opened.unwrap().0;
        let begun = store.begin(BeginOptions {
            owner: geteuid().as_raw(),
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            conflicts: Conflicts::AtCommit,
            first_try: None,
            label: b"mine".to_vec(),
        });
        let transaction = begun.unwrap();
        store.survive(&transaction, vec![HAS_END]).unwrap();
        let id = transaction.id().to_string();
        drop((transaction, store));

        let listed = call_here(base, &["--json", "list"]).expect(0).text();
        for said in [&*id, "mine", "its note cannot be read"] {
            assert!(listed.contains(said), "{listed}");
        }
        call_here(base, &["commit", &id])
            .expect(NO_SUCH)
            .says(&["its note cannot be read"]);
        call_here(base, &["abort", &id]).expect(0);
        let listed = call_here(base, &["--json", "list"]).expect(0).text();
        assert!(!listed.contains("mine"), "{listed}");
        call_here(base, &["service", "stop"]).expect(0);
        call_here(base, &["check"]).expect(0);
    }
}
