//! Damaged bytes in the control directory are found, except in the newest record. No later record
//! proves that it was durable, so if it is damaged, it looks torn.

use atomdir_disk::{Access, Disk, Errno, Name};
use atomdir_engine::{Inspection, Recovery, Store, StoreError};

use crate::disk::{Handle, SimDisk};
use crate::effect::Ordering;
use crate::image::Image;
use crate::opening::{SimStore, log_at, open};
use crate::workload::Workload;

/// Only this many of the zeros behind the last record are tried, from its last byte on.
const ZEROS: usize = 24;

/// A store as a workload leaves it when the machine dies.
pub struct AtRest {
    image: Image,
    newest: u64,
}

impl AtRest {
    /// Runs the workload; the crash keeps or loses what was not flushed.
    pub fn after(workload: &Workload, keeps_all: bool) -> AtRest {
        let mut driver = workload.driver(Ordering::Least, None);
        driver.open();
        for (number, step) in workload.steps.iter().enumerate() {
            driver.step(step, 1 + number as u64);
        }
        AtRest {
            image: driver.disk.crash(keeps_all),
            newest: driver.expected.last().map_or(0, |last| last.sequence),
        }
    }

    /// The bytes of a file of the control directory, with only a few of the
    /// zeros at the log's end.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let disk = SimDisk::boot(self.image.clone(), Ordering::Least);
        let read = || -> Result<Vec<u8>, Errno> {
            let file = control_file(&disk, name)?;
            let mut bytes = vec![0; disk.stat(&file)?.length as usize];
            disk.read_at(&file, &mut bytes, 0)?;
            if name == "log" {
                let end = bytes.iter().rposition(|byte| *byte != 0);
                bytes.truncate(end.map_or(0, |end| end + ZEROS));
            }
            Ok(bytes)
        };
        read().unwrap_or_default()
    }

    /// Overwrites a file of the control directory, then inspects and opens the store. What the
    /// inspection reports must agree with what opening does.
    pub fn open_with(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        self.look_and_open(name, bytes).map(drop)
    }

    fn look_and_open(&self, name: &str, bytes: &[u8]) -> Result<Opened, String> {
        let disk = SimDisk::boot(self.image.clone(), Ordering::Least);
        let file = control_file(&disk, name);
        let write = file.and_then(|file| {
            disk.set_length(&file, 0)?;
            disk.write_at(&file, bytes, 0)
        });
        write.map_err(|errno| errno.to_string())?;
        look_and_open(&disk)
    }
}

type Opened = Result<(SimStore, Recovery), StoreError>;

/// Checks that opening agrees with what inspecting reports, and that inspecting changes nothing.
fn look_and_open(disk: &SimDisk) -> Result<Opened, String> {
    let untouched = disk.image().hash();
    let inspected = inspect(disk).map_err(|error| error.to_string())?;
    if disk.image().hash() != untouched {
        return Err("looking has changed something".to_owned());
    }
    let reported = inspected.damage.first();
    let reported = reported.map(|damage| damage.error.to_string());
    let opened = open(disk);
    match &opened {
        Err(StoreError::Apply { .. } | StoreError::Control { .. }) if reported.is_none() => {}
        Err(error) if reported.as_ref() != Some(&error.to_string()) => {
            return Err(format!("a look reports {reported:?}, recovery {error}"));
        }
        Err(_) if disk.image().hash() != untouched => {
            return Err("what is damaged was changed".to_owned());
        }
        Err(_) => {}
        Ok((_, recovery)) => {
            let torn = inspected.torn_tail.map_or(0, |tail| tail.bytes);
            if reported.is_some()
                || torn != recovery.report.torn_tail_bytes
                || inspected.commits.len() as u64 != recovery.report.commits_replayed
            {
                return Err(format!(
                    "a look reports {inspected:?}, recovery {recovery:?}"
                ));
            }
        }
    }
    Ok(opened)
}

/// Flips one bit of each byte, in turn, of the header and of the log that the
/// workload leaves when the machine dies. Returns how many bytes there were, or
/// what went wrong. Only the applied mark, which is not flushed, shows that the
/// newest record was durable: without it, damage to that record looks like a
/// torn end.
pub fn damage_each_byte(workload: &Workload, keeps_mark: bool) -> Result<u64, String> {
    let store = AtRest::after(workload, keeps_mark);
    let before = (store.newest - 1, store.newest);
    let whole = SimDisk::boot(store.image.clone(), Ordering::Least);
    let log_bytes = inspect(&whole)
        .map_err(|error| error.to_string())?
        .log_bytes;
    let mut bytes = 0;
    for file in ["header", "log"] {
        let whole = store.file(file);
        for at in 0..whole.len() {
            bytes += 1;
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            let wrong = |what: &str| format!("byte {at} of {file}: {what}");
            let opened = store.look_and_open(file, &damaged);
            match opened.map_err(|reason| wrong(&reason))? {
                Err(StoreError::Header { .. }) if file == "header" => {}
                Err(StoreError::Damaged {
                    file: "log",
                    offset,
                    ..
                }) if file == "log" && offset <= at as u64 => {}
                Ok((store, recovery)) if file == "log" && recovery.report.torn_tail_bytes > 0 => {
                    let is_behind = at as u64 >= log_bytes;
                    if is_behind && store.status().sequence.0 == before.1 {
                        continue;
                    }
                    if keeps_mark || store.status().sequence.0 != before.0 {
                        return Err(wrong("a durable commit is gone, and nothing reported it"));
                    }
                }
                Err(error) => return Err(wrong(&error.to_string())),
                Ok(_) => return Err(wrong("it was not found")),
            }
        }
    }
    // A damaged applied mark only makes recovery do more work.
    for at in 0..store.file("applied").len() {
        let mut damaged = store.file("applied");
        damaged[at] ^= 1 << (at % 8);
        match store.look_and_open("applied", &damaged)? {
            Ok((store, _)) if store.status().sequence.0 == before.1 => {}
            _ => return Err(format!("byte {at} of the applied mark matters")),
        }
    }
    Ok(bytes)
}

fn control_file(disk: &SimDisk, name: &str) -> Result<Handle, Errno> {
    let control = disk.directory_at(".atomdir")?;
    let name = Name::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    disk.open(&control, &name, Access::ReadWrite)
}

fn inspect(disk: &SimDisk) -> Result<Inspection, StoreError> {
    let control = disk.directory_at(".atomdir");
    let control = control.map_err(|errno| StoreError::Control {
        step: "find",
        errno,
    })?;
    Store::inspect_with_log(disk, &disk.root(), (control, log_at(disk)))
}
