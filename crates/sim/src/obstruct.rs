//! Obstacles in the base that keep a durable commit from being applied.
//!
//! The commit must report the obstacle, and open views must go on unchanged. No
//! transaction may begin. Once the obstacle is gone, the store must go on by
//! itself. A crash at any time leads to the same base.

use std::sync::Arc;

use atomdir_disk::Errno;
use atomdir_engine::{CommitError, Durability, Poison, StoreError, Transaction};

use crate::disk::SimDisk;
use crate::disturb::{Outcome, crash_and_expect, expect, sides, try_all, up_to_last_commit};
use crate::expected::Expected;
use crate::fault::{AfterFailedSync, Fault, Struck};
use crate::opening::{SimStore, begin};
use crate::tree::Tree;
use crate::workload::Workload;

/// What the obstacle caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstructed {
    /// The commit ended before that call.
    NotMet,
    /// Something other than applying the commit met it.
    Elsewhere,
    Stalled,
}

/// The call with this number, counted from the begin of the workload's last
/// commit, fails as if a file system were mounted on a name.
pub fn obstruct_commit(workload: &Workload, number: u64) -> Outcome<Obstructed> {
    let (driver, operations) = up_to_last_commit(workload)?;
    let (store, disk) = (driver.store(), driver.disk.clone());
    // Before the commit all of one view is read, and nothing of the other.
    let known = begin(&store, Durability::Durable)?;
    let unknown = begin(&store, Durability::Durable)?;
    let before = driver.expected.last().ok_or("nothing is expected")?.clone();
    shows(&known, &before, "before the commit")?;
    let transaction = begin(&store, Durability::Durable)?;
    try_all(&*transaction, operations).map_err(|errno| format!("staged: {errno}"))?;
    let sides = sides(&driver, &transaction)?;
    let fault = Fault::Fails {
        call: disk.calls() + number,
        errno: Errno::BUSY,
    };
    disk.set_faults(vec![fault], AfterFailedSync::Written);
    let committed = store.commit(&transaction);
    let struck = disk.struck() != Struck::Nothing;
    disk.set_faults(Vec::new(), AfterFailedSync::Written);
    let stalled = match committed {
        Ok(committed) => committed.stalled,
        Err(
            CommitError::Logged(StoreError::Poisoned { reason })
            | CommitError::Store(StoreError::Poisoned { reason }),
        ) if matches!(reason, Poison::NotFlushed { .. }) => {
            return Ok(Obstructed::Elsewhere);
        }
        Err(CommitError::Logged(error) | CommitError::Store(error)) => {
            return Err(format!("the commit failed: {error}"));
        }
        Err(_) => return Ok(Obstructed::Elsewhere),
    };
    if stalled.is_none() {
        expect(&disk, &[&sides.after], "after the commit")?;
        return Ok(if struck {
            Obstructed::Elsewhere
        } else {
            Obstructed::NotMet
        });
    }
    if store.status().stalled != stalled || store.status().poisoned.is_some() {
        return Err(format!("the status is {:?}", store.status()));
    }
    let views = [&known, &unknown];
    for view in views {
        shows(view, &before, "while the commit is stalled")?;
    }
    crash_and_expect(&disk, &[&sides.after], "a crash while it is stalled")?;
    goes_on(&store)?;
    expect(&disk, &[&sides.after], "once the obstacle is gone")?;
    for view in views {
        shows(view, &before, "once the obstacle is gone")?;
        store.abort(view);
    }
    crash_and_expect(&disk, &[&sides.after], "a crash after that")?;
    Ok(Obstructed::Stalled)
}

fn goes_on(store: &SimStore) -> Outcome<()> {
    let next = begin(store, Durability::Durable)?;
    store.abort(&next);
    match store.status().stalled {
        Some(stalled) => Err(format!("the status still has: {stalled}")),
        None => Ok(()),
    }
}

fn shows(view: &Arc<Transaction<SimDisk>>, expected: &Expected, when: &str) -> Outcome<()> {
    let tree = Tree::of_view(view).map_err(|errno| format!("an open view {when}: {errno}"))?;
    match tree == expected.tree {
        true => Ok(()),
        false => Err(format!(
            "an open view {when}:\n{}",
            tree.difference(&expected.tree)
        )),
    }
}
