//! Calls of programs outside transactions that go through a guard wait for locks of transactions and,
//! if the store is set so, for transactions that have written what they change.
//!
//! A call that changes what a lock covers asks in the lock table, as a commit's changes would meet
//! it. It takes its turn among the requests of transactions, but is granted nothing: when it has its
//! turn it makes its change, inside the gate, and a lock is granted only while no call is inside
//! (`requests::lock`). So no call changes what is locked meanwhile.
//!
//! A call waits for nothing but locks that are held when it comes, and for what came before it then.
//! So a lock that is requested later does not hold it up, and it holds up no request for long. It
//! holds no lock, so it is part of no cycle in the table.
//!
//! For writers it waits first, and only for those that had written when it came (`early`), until they end. It
//! is not in the table meanwhile, so no transaction waits for it: one that has written can have no
//! turn behind a call that waits for its end. After that it asks in the table, where it does not wait
//! for writers any more: who writes the same later conflicts with the call. So the call waits for what was
//! there when it came, and then for the locks that are held, and does not starve.

use atomdir_disk::{Disk, Errno, Name, Result};
use atomdir_types::{LockMode, TransactionId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::snapshot::PAGE;
use crate::commit::guarded::{Located, located};
use crate::lock;
use crate::locks::reach::Reach;
use crate::locks::table::{Asker, Lock};
use crate::locks::{Extent, Target};
use crate::store::awaited::Awaited;
use crate::store::guard::Guard;
use crate::transaction::contention::Contention;

/// What a call changes.
pub enum Change<'a> {
    /// Contents of a file, from one byte up to another.
    Contents(&'a Located<'a>, u64, u64),
    Attributes(&'a Located<'a>),
    /// The attribute that says who may lock it.
    Leave(&'a Located<'a>),
    /// A name in a directory that leads to nothing, or to an object that stays.
    Name(&'a Located<'a>, &'a Name),
    /// A name in a directory, whose object is moved or loses the name.
    Leaving(&'a Located<'a>, &'a Name),
}

/// A call must wait. Some of the transactions that hold the locks, or the writers.
#[derive(Debug, PartialEq, Eq)]
pub struct MustWait(pub Vec<TransactionId>);

/// Calls have numbers that no transaction gets.
static CALLS: AtomicU64 = AtomicU64::new(1 << 63);

impl<D: Disk> Guard<D> {
    /// Whether a call may change this now. If it must wait, it asks again, with the same number, when
    /// [`Guarding::retry`](crate::Guarding::retry) was called, or gives up. The caller is inside, and
    /// stays so until after its change.
    pub fn may_change(
        &self,
        call: u64,
        changes: &[Change<'_>],
    ) -> Result<std::result::Result<(), MustWait>> {
        let Contention { locks, writers } = &*self.store.0.contention;
        let mut waiting = lock(&self.waiting);
        let is_first = match waiting.get_mut(&call) {
            None => true,
            Some(Awaited::Locks(ticket)) => {
                let mut table = locks.table();
                if !table.pass(*ticket) {
                    let holders = table.waits_for(*ticket);
                    let holders = holders.into_iter().map(|waits| waits.holder);
                    return Ok(Err(MustWait(holders.collect())));
                }
                waiting.remove(&call);
                // Those that came later may have their turn now.
                locks.wake_all();
                return Ok(Ok(()));
            }
            Some(Awaited::Writers {
                transactions,
                targets,
            }) => {
                let still = writers.written(targets);
                transactions.retain(|transaction| still.contains(transaction));
                if !transactions.is_empty() {
                    return Ok(Err(MustWait(transactions.iter().copied().collect())));
                }
                waiting.remove(&call);
                false
            }
        };
        drop(waiting);
        let targets = self.targets(changes)?;
        let own = TransactionId(CALLS.fetch_add(1, Ordering::Relaxed));
        let mut waiting = lock(&self.waiting);
        let written = match is_first {
            true => writers.written(&targets),
            false => BTreeSet::new(),
        };
        if !written.is_empty() {
            let transactions = written.iter().copied().collect();
            let awaited = Awaited::Writers {
                transactions: written,
                targets,
            };
            waiting.insert(call, awaited);
            return Ok(Err(MustWait(transactions)));
        }
        let mut table = locks.table();
        let held = table.forbid(own, &targets);
        if held.is_empty() {
            return Ok(Ok(()));
        }
        let asker = Asker {
            transaction: own,
            age: own,
        };
        let wanted = targets.into_iter().map(|target| Lock {
            target,
            mode: LockMode::Exclusive,
            path: Vec::new(),
            reach: Reach::everything(),
            is_vote: false,
        });
        let ticket = table.ask(asker, wanted.collect());
        waiting.insert(call, Awaited::Locks(ticket));
        let holders = held.into_iter().map(|waits| waits.holder);
        Ok(Err(MustWait(holders.collect())))
    }

    /// The call will not ask again.
    pub fn give_up(&self, call: u64) {
        let Some(Awaited::Locks(ticket)) = lock(&self.waiting).remove(&call) else {
            return;
        };
        let locks = &self.store.0.contention.locks;
        let mut table = locks.table();
        table.withdraw(ticket);
        locks.wake_all();
    }

    /// Whether a call that comes now may have to wait.
    pub fn may_have_to_wait(&self) -> bool {
        let Contention { locks, writers } = &*self.store.0.contention;
        !locks.table().is_empty() || writers.has_for_calls()
    }

    /// A call has changed who may lock something.
    pub fn wake_for_leave(&self) {
        self.store.0.contention.locks.wake_all();
    }

    /// For whom a transaction waits because of locks, turns included.
    pub fn awaited_by(&self, transaction: TransactionId) -> Vec<TransactionId> {
        self.store.0.contention.locks.table().awaited(transaction)
    }

    /// Changes of objects that are not in the base are left out.
    fn targets(&self, changes: &[Change<'_>]) -> Result<Vec<Target>> {
        let core = &*self.store.0.core;
        let mut targets = Vec::new();
        for change in changes {
            let (object, extent) = match change {
                Change::Contents(object, start, end) => {
                    (object, Extent::Pages(start / PAGE, end.div_ceil(PAGE)))
                }
                Change::Attributes(object) => (object, Extent::Attributes),
                Change::Leave(object) => (object, Extent::Leave),
                Change::Name(directory, name) | Change::Leaving(directory, name) => {
                    (directory, Extent::Entry((*name).clone()))
                }
            };
            let Some(base) = located(core, object)? else {
                continue;
            };
            if let Change::Leaving(_, name) = change {
                let handle = core.directory(&base)?;
                match core.stat_entry(&handle, name) {
                    Ok(stat) => targets.push(Target {
                        base: core.intern(&stat, &base, name),
                        extent: Extent::Subtree,
                    }),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            targets.push(Target { base, extent });
        }
        Ok(targets)
    }
}
