//! A service that was killed, and the start of the next one, which recovers.

use std::path::Path;
use std::process::Command;

use atomdir::{BeginOptions, Connection};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::load::pages::{self, PAGE};
use crate::measure::{Side, Sides, in_turns, timed};
use crate::place::Place;
use crate::programs::output;
use crate::report::{Row, short};

const MIB: u64 = 1 << 20;
/// Of so many parts of the file one is written: it is changed in place, and
/// its pages are what recovery has to bring there.
const PARTS: u64 = 4;

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
    Ok(rows)
}

fn recover(bench: &Bench, bytes: u64, is_committed: bool) -> Result<Sides> {
    let measured = in_turns(bench.rounds, &[Side::Exact], |side| {
        let fill = |path: &Path| pages::fill(&path.join("data"), bytes * PARTS);
        let place = Place::fresh(bench, side, "recovery", fill)?;
        let mut connection = place.connect()?;
        let transaction = connection.begin(&BeginOptions::default())?;
        let path = transaction.view_path.join("data");
        pages::write_scattered(&pages::open(&path)?, &path, bytes * PARTS, bytes / PAGE)?;
        if is_committed {
            connection.commit(transaction.id, &mut |_| {})?;
        }
        kill_service(connection, &place.path)?;
        let mut recover = place.store()?.command(["run", "--", "true"]);
        let (sample, _) = timed(|| output(&mut recover))?;
        check(&place.path, bytes, is_committed)?;
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
