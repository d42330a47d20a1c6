//! The directory in which one side of a workload runs, and its store if it has one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use atomdir::StartService;
use atomdir::client::Connection;

use crate::bench::{Bench, sync};
use crate::error::{Error, Result};
use crate::measure::{Outcome, Sample, Side, timed};
use crate::overlay::Overlay;
use crate::processor;
use crate::programs::{Store, clear, make_directory, output};

pub struct Workspace<'a> {
    bench: &'a Bench,
    side: Side,
    pub path: PathBuf,
    store: Option<Store>,
}

/// Defined in every script: `step NAME` prints that a step has ended, and when.
const PRELUDE: &str = r#"step() { echo "step $1 $(date +%s%N)"; }; "#;

impl<'a> Workspace<'a> {
    /// Makes a fresh directory, and fills it by `fill`. For a view or a tool it is a store with a
    /// running service. No dirty pages are left.
    pub fn fresh(
        bench: &'a Bench,
        side: Side,
        name: &str,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Workspace<'a>> {
        let path = bench.directory.join(format!("{name}-{side}"));
        clear(&path)?;
        make_directory(&path)?;
        fill(&path)?;
        let store = match side.has_store() {
            true => Some(Store::warm(&bench.program, &path)?),
            false => None,
        };
        bench.rest()?;
        Ok(Workspace {
            bench,
            side,
            path,
            store,
        })
    }

    /// Runs a script, which must succeed, and makes its changes durable.
    ///
    /// The script prints a line `step NAME NANOSECONDS` at the end of each step. A step called `-` is
    /// not listed. The time that no listed step has taken is the step `commit`.
    pub fn run(&self, script: &str) -> Result<Outcome> {
        self.run_with(&[], script)
    }

    /// Like [`run`](Self::run); an exact view gets further options of `atomdir run`.
    pub fn run_with(&self, options: &[&str], script: &str) -> Result<Outcome> {
        if let Some(store) = &self.store {
            store.start()?;
        }
        let (whole, printed) = self.counted(|| self.perform(options, script))?;
        let steps = steps(&printed, whole.milliseconds);
        Ok(Outcome { whole, steps })
    }

    /// Stops the service and runs a script, so that the start of the service counts as well.
    pub fn run_cold(&self, script: &str) -> Result<Outcome> {
        if let Some(store) = &self.store {
            store.stop()?;
        }
        Ok(timed(|| self.perform(&[], script))?.0.into())
    }

    /// Runs a script and makes its changes durable. Returns what it has printed.
    fn perform(&self, options: &[&str], script: &str) -> Result<String> {
        let script = format!("{PRELUDE}{script}");
        let shell = ["/bin/sh", "-ec", script.as_str()];
        match (self.side, &self.store) {
            (Side::Exact, Some(store)) => {
                let view: &[&str] = match self.bench.views.len() {
                    1 => &[],
                    _ => &["--view", "exact"],
                };
                let mut command = store.command(["run"]);
                output(command.args(view).args(options).arg("--").args(shell))
            }
            (Side::Native, Some(store)) => {
                output(store.command(["run", "--view", "native", "--"]).args(shell))
            }
            (Side::Exclusive, Some(store)) => {
                let options = ["run", "--exclusive", "--"];
                output(store.command(options).args(shell))
            }
            (Side::Overlay | Side::Bare, None) => {
                let overlay = match self.side {
                    Side::Bare => Overlay::mount_for_bulk(&self.path)?,
                    _ => Overlay::mount(&self.path)?,
                };
                let printed = output(
                    Command::new(shell[0])
                        .args(&shell[1..])
                        .current_dir(overlay.merged()),
                )?;
                match self.side {
                    Side::Bare => overlay.leave()?,
                    _ => overlay.land()?,
                }
                sync(&self.path)?;
                Ok(printed)
            }
            (Side::Plain, None) | (Side::Tool, Some(_)) => {
                let printed = output(
                    Command::new(shell[0])
                        .args(&shell[1..])
                        .current_dir(&self.path),
                )?;
                sync(&self.path)?;
                Ok(printed)
            }
            _ => Err(Error::NoSide("run a script")),
        }
    }

    /// Like [`counted`], and counts the requests to the service as well.
    pub fn counted<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<(Sample, T)> {
        let service = match self.store {
            Some(_) => Some(self.connect()?.service_status()?.process),
            None => None,
        };
        let requests = self.view_requests()?;
        let processor = processor::used(service);
        let (mut sample, value) = counted(self.bench, &self.path, action)?;
        sample.processor_milliseconds = processor::used(service)
            .zip(processor)
            .map(|(after, before)| after.saturating_sub(before));
        let requests_after = self.view_requests()?;
        sample.requests = requests_after
            .zip(requests)
            .map(|(after, before)| after - before);
        Ok((sample, value))
    }

    fn view_requests(&self) -> Result<Option<u64>> {
        match self.store {
            Some(_) => Ok(Some(self.connect()?.service_status()?.view_requests)),
            None => Ok(None),
        }
    }

    pub fn store(&self) -> Result<&Store> {
        self.store.as_ref().ok_or(Error::NoSide("be a store"))
    }

    pub fn connect(&self) -> Result<Connection> {
        let location = atomdir::find(&self.path)?;
        Ok(Connection::open(&location, &StartService::Never)?)
    }
}

/// Times an action, and counts flushes up to its end, and bytes until all dirty pages are written, so
/// that no side gains by leaving writes for later.
pub fn counted<T>(
    bench: &Bench,
    path: &Path,
    action: impl FnOnce() -> Result<T>,
) -> Result<(Sample, T)> {
    let before = bench.device.written();
    let (mut sample, value) = timed(action)?;
    let mut written = bench.device.written();
    sync(path)?;
    let at_rest = bench.device.written();
    if let (Some(before), Some(written), Some(at_rest)) = (before, &mut written, at_rest) {
        written.flushes -= before.flushes;
        written.bytes = at_rest.bytes - before.bytes;
    }
    sample.written = written;
    Ok((sample, value))
}

fn steps(printed: &str, whole_milliseconds: f64) -> Vec<(String, Duration)> {
    let mut steps: Vec<(String, Duration)> = Vec::new();
    let mut before: Option<u64> = None;
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["step", name, moment] = words.as_slice() else {
            continue;
        };
        let Ok(moment) = moment.parse::<u64>() else {
            continue;
        };
        if let Some(before) = before.filter(|_| *name != "-") {
            let took = Duration::from_nanos(moment.saturating_sub(before));
            steps.push(((*name).to_owned(), took));
        }
        before = Some(moment);
    }
    let listed: Duration = steps.iter().map(|(_, took)| *took).sum();
    let whole = Duration::from_secs_f64(whole_milliseconds / 1000.0);
    steps.push(("commit".to_owned(), whole.saturating_sub(listed)));
    steps
}
