//! Damaged bytes in the control directory are found. Only the newest record has
//! none after it that proves that it was durable: damaged, it looks torn.

use atomdir_disk::{Access, Disk, Errno, Name};
use atomdir_engine::{Inspection, Store, StoreError};

use crate::disk::SimDisk;
use crate::effect::Ordering;
use crate::workload::{Workload, open};

/// Flips one bit of each byte of the header and of the log that the workload
/// leaves, in turn. Answers how many bytes there were, or what went wrong.
pub fn damage_each_byte(workload: &Workload) -> Result<u64, String> {
    let mut driver = workload.driver(Ordering::Least, None);
    driver.open();
    for (number, step) in workload.steps.iter().enumerate() {
        driver.step(step, 1 + number as u64);
    }
    let expected = &driver.expected;
    let [.., before, _] = expected.as_slice() else {
        return Err("there are no two commits".to_owned());
    };
    let image = driver.disk.crash(false);
    let mut bytes = 0;
    for file in ["header", "log"] {
        for at in 0.. {
            let disk = SimDisk::boot(image.clone(), Ordering::Least);
            let flipped = flip(&disk, file, at).map_err(|errno| errno.to_string())?;
            if !flipped {
                break;
            }
            bytes += 1;
            let untouched = disk.image().hash();
            let inspected = inspect(&disk).map_err(|error| error.to_string())?;
            if disk.image().hash() != untouched {
                return Err(format!(
                    "byte {at} of {file}: looking has changed something"
                ));
            }
            let wrong = |what: &str| Err(format!("byte {at} of {file}: {what}"));
            let told = inspected
                .damage
                .first()
                .map(|damage| damage.message.clone());
            let opened = open(&disk);
            if told != opened.as_ref().err().map(StoreError::to_string) {
                return wrong(&format!("a look tells {told:?}, recovery something else"));
            }
            match opened {
                Err(StoreError::Header { .. }) if file == "header" => {}
                Err(StoreError::Damaged {
                    file: "log",
                    offset,
                    ..
                }) if file == "log" && offset <= at => {}
                Ok((store, report)) if file == "log" && report.torn_tail_bytes > 0 => {
                    let torn = inspected.torn_tail.map(|tail| tail.bytes);
                    if torn != Some(report.torn_tail_bytes)
                        || inspected.commits.len() as u64 != report.commits_replayed
                    {
                        return wrong("a look tells of another torn tail than recovery");
                    }
                    if store.status().sequence.0 != before.sequence {
                        return wrong("more than the newest commit is gone");
                    }
                    continue;
                }
                Err(error) => return wrong(&error.to_string()),
                Ok(_) => return wrong("it was not found"),
            }
            if disk.image().hash() != untouched {
                return wrong("what is damaged was changed");
            }
        }
    }
    Ok(bytes)
}

/// False beyond the end of the file.
fn flip(disk: &SimDisk, file: &str, at: u64) -> Result<bool, Errno> {
    let control = disk.directory_at(".atomdir")?;
    let name = Name::new(file.as_bytes()).map_err(|_| Errno::INVAL)?;
    let file = disk.open(&control, &name, Access::ReadWrite)?;
    let mut byte = [0];
    if disk.read_at(&file, &mut byte, at)? == 0 {
        return Ok(false);
    }
    disk.write_at(&file, &[byte[0] ^ 1 << (at % 8)], at)?;
    Ok(true)
}

fn inspect(disk: &SimDisk) -> Result<Inspection, StoreError> {
    let control = disk.directory_at(".atomdir");
    let control = control.map_err(|errno| StoreError::Control {
        step: "find",
        errno,
    })?;
    Store::inspect(disk, control)
}
