//! The start of a service after the one before was killed: it recovers. Right before the kill, changes
//! were committed lazily, so that they are in the log and not yet in the base; or not committed.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use atomdir::Durability;
use atomdir::client::{BeginOptions, Connection};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::load::pages::{self, PAGE};
use crate::measure::{Side, Sides, in_turns, timed};
use crate::programs::output;
use crate::report::{Row, short};
use crate::workspace::Workspace;

const MIB: u64 = 1 << 20;
/// One page in so many is written. The file is changed in place, and recovery must write these pages
/// again.
const PARTS: u64 = 4;

/// An extended attribute, whose whole value is in the record of its commit. All file systems accept
/// this length.
const ATTRIBUTE: &str = "user.bench";
const ATTRIBUTE_BYTES: u64 = 3584;
/// Files of the store that are not in the log.
const OTHER_FILES: u64 = 200_000;
const DIRECTORY_FILES: u64 = 1000;

/// How much the transactions write. Each has a file of its own.
#[derive(Clone, Copy)]
struct Amount {
    transactions: u64,
    bytes_each: u64,
    is_committed: bool,
}

/// Recovery when several open transactions had changes that were not committed (Valor).
pub fn uncommitted(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for transactions in [2, 3] {
        for size in [8, 16, 32] {
            let bytes_each = bench.scaled(size * MIB / transactions);
            let amount = Amount {
                transactions,
                bytes_each: bytes_each.next_multiple_of(PAGE),
                is_committed: false,
            };
            let mebibytes = (amount.bytes_each * transactions) as f64 / MIB as f64;
            let name = format!("recover uncommitted by {transactions}, {size}x");
            let row = Row::new(&name, recover(bench, amount)?);
            rows.push(row.note(&format!("{} MiB", short(mebibytes))));
        }
    }
    Ok(rows)
}

pub fn recovery(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in [0, 8, 16, 32] {
        let bytes_each = match size {
            0 => 0,
            size => bench.scaled(size * MIB).next_multiple_of(PAGE),
        };
        let amount = Amount {
            transactions: 1,
            bytes_each,
            is_committed: true,
        };
        let mebibytes = short(bytes_each as f64 / MIB as f64);
        let name = format!("recover {mebibytes} MiB committed");
        rows.push(Row::new(&name, recover(bench, amount)?));
    }
    for size in [16, 32, 64, 128] {
        let changed = (bench.scaled(size * MIB) / ATTRIBUTE_BYTES).max(1);
        let mebibytes = (changed * ATTRIBUTE_BYTES) as f64 / MIB as f64;
        let name = format!("recover {} MiB of log", short(mebibytes));
        rows.push(Row::new(&name, recover_log(bench, changed, 0)?));
        if size == 32 {
            let others = bench.scaled(OTHER_FILES).min(OTHER_FILES);
            let name = format!("{name} beside {others} other files");
            rows.push(Row::new(&name, recover_log(bench, changed, others)?));
        }
    }
    Ok(rows)
}

/// Recovery of a commit that sets an attribute of each of `changed` files: all of it is in the log.
fn recover_log(bench: &Bench, changed: u64, others: u64) -> Result<Sides> {
    let measured = in_turns(bench.rounds, &[Side::Exact], |side| {
        let fill = |path: &Path| {
            make_files(&path.join("changed"), changed)?;
            make_files(&path.join("others"), others)
        };
        let workspace = Workspace::fresh(bench, side, "recovery", fill)?;
        let mut connection = workspace.connect()?;
        let transaction = connection.begin(&lazily())?;
        let value = vec![b'n'; ATTRIBUTE_BYTES as usize];
        for number in 0..changed {
            let path = file(&transaction.view_path.join("changed"), number);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, ATTRIBUTE, &value, flags)
                .describe("set an attribute of", &path)?;
        }
        connection.commit(transaction.id, &mut |_| {})?;
        kill_service(connection, &workspace.path)?;
        let last = file(&workspace.path.join("changed"), changed - 1);
        expect_attribute(&last, false)?;
        let mut recover = workspace.store()?.command(["recover"]);
        let (sample, _) = timed(|| output(&mut recover))?;
        expect_attribute(&last, true)?;
        Ok(sample.into())
    })?;
    Ok(measured.whole)
}

fn lazily() -> BeginOptions {
    BeginOptions {
        durability: Durability::Lazy,
        ..BeginOptions::default()
    }
}

fn file(directory: &Path, number: u64) -> std::path::PathBuf {
    let within = directory.join((number / DIRECTORY_FILES).to_string());
    within.join(number.to_string())
}

fn make_files(directory: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        let path = file(directory, number);
        if let (0, Some(within)) = (number % DIRECTORY_FILES, path.parent()) {
            fs::create_dir_all(within).describe("make", within)?;
        }
        File::create(&path).describe("make", &path)?;
    }
    Ok(())
}

fn expect_attribute(path: &Path, expected: bool) -> Result<()> {
    let mut value = vec![0; ATTRIBUTE_BYTES as usize];
    let found = rustix::fs::getxattr(path, ATTRIBUTE, &mut value).is_ok();
    if found == expected {
        return Ok(());
    }
    Err(Error::Recovered {
        expected: u64::from(expected),
        found: u64::from(found).to_string(),
    })
}

fn recover(bench: &Bench, amount: Amount) -> Result<Sides> {
    let Amount { bytes_each, .. } = amount;
    let name = |number: u64| format!("data-{number}");
    let measured = in_turns(bench.rounds, &[Side::Exact], |side| {
        let fill = |path: &Path| {
            let fill = |number| pages::fill(&path.join(name(number)), bytes_each * PARTS);
            (0..amount.transactions).try_for_each(fill)
        };
        let workspace = Workspace::fresh(bench, side, "recovery", fill)?;
        // A transaction ends when its connection closes, so keep the connections.
        let mut connections = Vec::new();
        for number in 0..amount.transactions {
            let mut connection = workspace.connect()?;
            let transaction = connection.begin(&lazily())?;
            let path = transaction.view_path.join(name(number));
            let changed = pages::scattered(bytes_each * PARTS, bytes_each / PAGE);
            pages::write_pages(&pages::open(&path)?, &path, &changed)?;
            if amount.is_committed {
                connection.commit(transaction.id, &mut |_| {})?;
            }
            connections.push(connection);
        }
        kill_service(workspace.connect()?, &workspace.path)?;
        let mut recover = workspace.store()?.command(["recover"]);
        let (sample, _) = timed(|| output(&mut recover))?;
        let expected = if amount.is_committed { bytes_each } else { 0 };
        (0..amount.transactions)
            .try_for_each(|number| check(&workspace.path.join(name(number)), expected))?;
        Ok(sample.into())
    })?;
    Ok(measured.whole)
}

fn kill_service(mut connection: Connection, store: &Path) -> Result<()> {
    let process = connection.service_status()?.process;
    let pid = Pid::from_raw(process.cast_signed()).ok_or(Error::NoSide("be killed"))?;
    let service = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .describe("watch the service of", store)?;
    kill_process(pid, Signal::KILL).describe("kill the service of", store)?;
    let mut ended = [rustix::event::PollFd::new(
        &service,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut ended, None).describe("await the service of", store)?;
    Ok(())
}

/// Checks that so many bytes of the file are new.
fn check(path: &Path, expected: u64) -> Result<()> {
    let count = format!("tr -cd n < '{}' | wc -c", path.display());
    let found = output(Command::new("/bin/sh").args(["-ec", &count]))?;
    if found.trim() == expected.to_string() {
        return Ok(());
    }
    Err(Error::Recovered {
        expected,
        found: found.trim().to_owned(),
    })
}
