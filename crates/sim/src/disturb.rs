//! Faults at run time: one occurs during a workload's last commit, or during a
//! recovery.
//!
//! Each check returns whether the fault struck, or how a promise was broken.

use atomdir_disk::Errno;
use atomdir_engine::{CommitError, Durability, StoreError};

use crate::choice::Bounds;
use crate::disk::SimDisk;
use crate::effect::Ordering;
use crate::expected::Expected;
use crate::explore::{Plan, restart};
use crate::fault::{AfterFailedSync, Fault, Struck};
use crate::opening::{SimStore, begin, begin_in_base, open};
use crate::operation::{Operation, Target};
use crate::tree::Tree;
use crate::workload::{Driver, Step, Workload, act};

pub(crate) type Outcome<T> = Result<T, String>;

/// The trees before and after the disturbed commit.
pub(crate) struct Sides {
    pub before: Expected,
    pub after: Expected,
}

/// Does all steps but the last, which must be a commit. Also returns that commit's operations.
pub(crate) fn up_to_last_commit(workload: &Workload) -> Outcome<(Driver, &[Operation])> {
    let Some((Step::Commit(operations), earlier)) = workload.steps.split_last() else {
        return Err("the last step is no commit".to_owned());
    };
    let mut driver = workload.driver(Ordering::Least, None);
    driver.open();
    for (number, step) in earlier.iter().enumerate() {
        driver.step(step, 1 + number as u64);
    }
    Ok((driver, operations))
}

/// Disturbs the last commit of the workload. `fault` gets the number of the first
/// call that it may strike.
pub fn disturb_commit(
    workload: &Workload,
    fault: &dyn Fn(u64) -> Fault,
    after_failed_sync: AfterFailedSync,
) -> Outcome<Struck> {
    let (driver, operations) = up_to_last_commit(workload)?;
    let (store, disk) = (driver.store(), driver.disk.clone());
    let transaction = begin_in_base(&store, Durability::Durable)?;
    disk.set_faults(vec![fault(disk.calls())], after_failed_sync);
    let staged = try_all(&*transaction, operations);
    if let Err(errno) = staged {
        let struck = disk.struck();
        disk.set_faults(Vec::new(), after_failed_sync);
        let newest = driver.expected.last().ok_or("nothing is expected")?;
        expect(&disk, &[newest], "after an operation that failed")?;
        store.abort(&transaction);
        check_usable(&store, operations)?;
        return if struck != Struck::Nothing {
            Ok(struck)
        } else {
            Err(format!("staging failed by itself: {errno}"))
        };
    }
    // The view is read without the fault, which counts calls.
    let sides = sides(&driver, &transaction);
    let committed = store.commit(&transaction);
    let struck = disk.struck();
    disk.set_faults(Vec::new(), after_failed_sync);
    let sides = sides?;
    if let Err(error) = &committed {
        check_message(&error.to_string(), fault(0), &sides)?;
    }
    let is_logged = matches!(committed, Ok(_) | Err(CommitError::Logged(_)));
    if transaction.is_open() == is_logged {
        let open = transaction.is_open();
        return Err(format!(
            "open: {open}, after a commit that said {committed:?}"
        ));
    }
    match committed {
        Ok(committed) => {
            if committed.stalled.is_some() {
                crash_and_expect(&disk, &[&sides.after], "a crash of the stalled store")?;
                store
                    .sync()
                    .map_err(|error| format!("applied again: {error}"))?;
            }
            expect(&disk, &[&sides.after], "after the commit")?;
            crash_and_expect(&disk, &[&sides.after], "a crash after the commit")?;
        }
        Err(CommitError::Io { .. } | CommitError::NoSpace { .. }) => {
            expect(&disk, &[&sides.before], "after a commit that failed")?;
            let again = store.commit(&transaction);
            again.map_err(|error| format!("committed again: {error}"))?;
            expect(&disk, &[&sides.after], "committed again")?;
            crash_and_expect(&disk, &[&sides.after], "a crash after that")?;
        }
        Err(CommitError::Logged(error) | CommitError::Store(error)) => {
            check_poisoned(&store, &error)?;
            let either = [&sides.before, &sides.after];
            crash_and_expect(&disk, &either, "a crash of the poisoned store")?;
            drop((store, driver, transaction));
            restart_and_expect(&disk, &either)?;
        }
        Err(error) => return Err(format!("the commit failed with: {error}")),
    }
    Ok(struck)
}

/// Disturbs a commit that finds its new objects made by an outside writer as well, who has not flushed
/// them. The last step of the workload says which.
pub fn disturb_equal(
    workload: &Workload,
    fault: &dyn Fn(u64) -> Fault,
    after_failed_sync: AfterFailedSync,
) -> Outcome<Struck> {
    let Some(Step::EqualUnflushed { both, mine }) = workload.steps.last() else {
        return Err("the last step is no such commit".to_owned());
    };
    let mut driver = workload.driver(Ordering::Least, None);
    driver.open();
    let (store, disk) = (driver.store(), driver.disk.clone());
    let transaction = begin_in_base(&store, Durability::Durable)?;
    for operations in [both, mine] {
        act(&*transaction, operations, 1);
    }
    act(&disk, both, 1);
    disk.set_faults(vec![fault(disk.calls())], after_failed_sync);
    let committed = store.commit(&transaction);
    let struck = disk.struck();
    disk.set_faults(Vec::new(), after_failed_sync);
    match committed {
        Ok(_) => {}
        Err(CommitError::Io { .. } | CommitError::NoSpace { .. }) => {
            let again = store.commit(&transaction);
            again.map_err(|error| format!("committed again: {error}"))?;
        }
        Err(CommitError::Logged(error) | CommitError::Store(error)) => {
            check_poisoned(&store, &error)?;
        }
        Err(error) => return Err(format!("the commit failed with: {error}")),
    }
    Ok(struck)
}

/// How the workload ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The program dies. Everything that it wrote is there, flushed or not.
    Process,
    /// The machine dies, and everything that was not flushed may be lost.
    Machine,
}

/// Disturbs the recovery of everything that the workload has left in the log.
pub fn disturb_recovery(
    workload: &Workload,
    death: Death,
    fault: &dyn Fn(u64) -> Fault,
    after_failed_sync: AfterFailedSync,
) -> Outcome<Struck> {
    let mut driver = workload.driver(Ordering::Least, None);
    driver.open();
    for (number, step) in workload.steps.iter().enumerate() {
        driver.step(step, 1 + number as u64);
    }
    let newest = driver.expected.last().ok_or("nothing is expected")?.clone();
    let disk = match death {
        Death::Process => driver.disk.clone(),
        Death::Machine => SimDisk::boot(driver.disk.crash(false), Ordering::Least),
    };
    drop(driver);
    disk.set_faults(vec![fault(disk.calls())], after_failed_sync);
    let opened = open(&disk).map(drop);
    let struck = disk.struck();
    disk.set_faults(Vec::new(), after_failed_sync);
    match opened {
        Ok(()) => expect(&disk, &[&newest], "recovered")?,
        Err(_) if struck == Struck::Nothing => return Err("recovery failed by itself".to_owned()),
        Err(_) => {}
    }
    crash_and_expect(&disk, &[&newest], "a crash after a disturbed recovery")?;
    open(&disk).map_err(|error| format!("started again: {error}"))?;
    expect(&disk, &[&newest], "started again")?;
    crash_and_expect(&disk, &[&newest], "a crash after that start")?;
    Ok(struck)
}

pub(crate) fn try_all(target: &impl Target, operations: &[Operation]) -> Result<(), Errno> {
    let mut numbered = (0..).zip(operations);
    numbered.try_for_each(|(number, operation)| target.act(operation, number))
}

pub(crate) fn sides(
    driver: &Driver,
    transaction: &atomdir_engine::Transaction<SimDisk>,
) -> Outcome<Sides> {
    let before = driver.expected.last().ok_or("nothing is expected")?.clone();
    let tree = driver.disk.undisturbed(|| Tree::of_view(transaction));
    let after = Expected {
        tree: tree.map_err(|errno| format!("the view: {errno}"))?,
        sequence: before.sequence + 1,
        commits_min: before.commits_min + 1,
        is_cancelled: false,
        surviving: None,
        ..before.clone()
    };
    Ok(Sides { before, after })
}

pub(crate) fn expect(disk: &SimDisk, allowed: &[&Expected], when: &str) -> Outcome<()> {
    let image = disk.image();
    let differences = allowed.iter().map(|expected| expected.difference(&image));
    let differences: Vec<Option<String>> = differences.collect();
    if differences.iter().any(Option::is_none) {
        return Ok(());
    }
    let lines: Vec<String> = differences.into_iter().flatten().collect();
    Err(format!("{when}:\n{}", lines.join("  or\n")))
}

/// Crashes once keeping everything that was not flushed, and once keeping nothing
/// of it.
pub(crate) fn crash_and_expect(disk: &SimDisk, allowed: &[&Expected], when: &str) -> Outcome<()> {
    for keeps_all in [false, true] {
        let crashed = SimDisk::boot(disk.crash(keeps_all), Ordering::Least);
        open(&crashed).map_err(|error| format!("{when} ({keeps_all}): {error}"))?;
        expect(&crashed, allowed, &format!("{when} ({keeps_all})"))?;
    }
    Ok(())
}

/// Starts the program again while the machine goes on; then the machine stops
/// during that recovery or after it.
fn restart_and_expect(disk: &SimDisk, allowed: &[&Expected]) -> Outcome<()> {
    let expected: Vec<Expected> = allowed.iter().map(|one| (*one).clone()).collect();
    let bounds = Bounds {
        exhaustive: 0,
        random: 0,
    };
    let plan = Plan {
        levels: vec![bounds],
        deeper_one_in: Vec::new(),
        deeper_max: 0,
        seed: 0,
        skipped: None,
        only: None,
    };
    restart(disk, &expected, &plan).map_err(|reason| format!("started again: {reason}"))
}

/// The message must say what could not be done, to which object, and why.
fn check_message(message: &str, fault: Fault, sides: &Sides) -> Outcome<()> {
    let cause = match fault {
        Fault::Fails { errno, .. } => atomdir_disk::reason(errno),
        Fault::Full { .. } => "no space left".to_owned(),
        Fault::Clock { .. } => return Ok(()),
    };
    if !message.contains(&cause) {
        return Err(format!("it is not said that '{cause}': {message}"));
    }
    let flushes = ["the log", "the base", "the staged files"];
    let names_flush = |what| message.contains(&format!("flushing {what} failed"));
    let is_quoted = |name: &str| {
        ['\'', '/']
            .iter()
            .any(|before| message.contains(&format!("{before}{name}'")))
    };
    let names = |tree: &Tree| tree.names().any(|name| is_quoted(&name));
    let in_control = message.contains("'.atomdir/");
    if flushes.into_iter().any(names_flush)
        || in_control
        || names(&sides.before.tree)
        || names(&sides.after.tree)
    {
        return Ok(());
    }
    Err(format!("it is not said what failed: {message}"))
}

fn check_poisoned(store: &SimStore, error: &StoreError) -> Outcome<()> {
    let Some(reason) = store.status().poisoned else {
        return Err(format!("the store goes on after: {error}"));
    };
    match begin(store, Durability::Durable) {
        Ok(_) => return Err(format!("a poisoned store lets begin: {reason}")),
        Err(message)
            if !message.contains(&reason.to_string())
                || !message.contains("until it is recovered") =>
        {
            return Err(format!("it is not said why and how long: {message}"));
        }
        Err(_) => {}
    }
    Ok(())
}

/// After a failure without losses, another transaction can do the same.
fn check_usable(store: &SimStore, operations: &[Operation]) -> Outcome<()> {
    let transaction = begin(store, Durability::Durable)?;
    let staged = try_all(&*transaction, operations);
    staged.map_err(|errno| format!("staged anew: {errno}"))?;
    let committed = store.commit(&transaction);
    committed
        .map(drop)
        .map_err(|error| format!("committed anew: {error}"))
}
