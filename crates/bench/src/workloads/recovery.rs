//! A service that was killed, and the start of the next one, which recovers. What
//! it finds was committed lazily a moment before: it is in the log, and not yet in
//! the base.

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
/// Of so many parts of the file one is written: it is changed in place, and
/// its pages are what recovery has to bring there.
const PARTS: u64 = 4;

/// An extended attribute is in the record of its commit as a whole. As long as
/// any file system takes it.
const ATTRIBUTE: &str = "user.bench";
const ATTRIBUTE_BYTES: u64 = 3584;
/// Beside the files that the log speaks of.
const OTHER_FILES: u64 = 200_000;
const DIRECTORY_FILES: u64 = 1000;

pub fn recovery(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (is_committed, kind) in [(true, "committed"), (false, "uncommitted")] {
        for size in [0, 8, 16, 32] {
            let bytes = match size {
                0 => 0,
                size => bench.scaled(size * MIB).next_multiple_of(PAGE),
            };
            let mebibytes = bytes as f64 / MIB as f64;
            rows.push(
                Row::new(
                    &format!("recover {} MiB {kind}", short(mebibytes)),
                    recover(bench, bytes, is_committed)?,
                )
                .paper(if is_committed {
                    ""
                } else {
                    "Valor 1.5 to 2.3x per doubling"
                })
                .point(&format!("Recovery, {kind}"), "MiB", mebibytes),
            );
        }
    }
    for size in [16, 32, 64, 128] {
        let changed = (bench.scaled(size * MIB) / ATTRIBUTE_BYTES).max(1);
        let mebibytes = (changed * ATTRIBUTE_BYTES) as f64 / MIB as f64;
        let name = format!("recover {} MiB of log", short(mebibytes));
        let row = Row::new(&name, recover_log(bench, changed, 0)?);
        rows.push(row.point("Recovery, log", "MiB", mebibytes));
        if size == 32 {
            let others = bench.scaled(OTHER_FILES).min(OTHER_FILES);
            let name = format!("{name} beside {others} other files");
            rows.push(Row::new(&name, recover_log(bench, changed, others)?));
        }
    }
    Ok(rows)
}

/// All of it in the log's records: an attribute for each of so many files.
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

fn recover(bench: &Bench, bytes: u64, is_committed: bool) -> Result<Sides> {
    let measured = in_turns(bench.rounds, &[Side::Exact], |side| {
        let fill = |path: &Path| pages::fill(&path.join("data"), bytes * PARTS);
        let workspace = Workspace::fresh(bench, side, "recovery", fill)?;
        let mut connection = workspace.connect()?;
        let transaction = connection.begin(&lazily())?;
        let path = transaction.view_path.join("data");
        let changed = pages::scattered(bytes * PARTS, bytes / PAGE);
        pages::write_pages(&pages::open(&path)?, &path, &changed)?;
        if is_committed {
            connection.commit(transaction.id, &mut |_| {})?;
        }
        kill_service(connection, &workspace.path)?;
        let mut recover = workspace.store()?.command(["recover"]);
        let (sample, _) = timed(|| output(&mut recover))?;
        check(&workspace.path, bytes, is_committed)?;
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

/// Every page is as it must be: committed and there, or never been.
fn check(store: &Path, bytes: u64, is_committed: bool) -> Result<()> {
    let path = store.join("data");
    let expected = if is_committed { bytes } else { 0 };
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
