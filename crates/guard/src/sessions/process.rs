//! What `/proc` says of processes that have files open in sessions.

use crate::processes::Stat;
use atomdir_disk::{Disk, LinuxDisk};
use rustix::fs::{Mode, OFlags};

/// How a process is while it closes a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Process {
    Lives,
    Ends,
    IsKilled,
}

/// How a process is that closes a descriptor and waits for our answer.
pub fn process_that_closes(thread: u32) -> Process {
    /// PF_EXITING.
    const ENDS: u64 = 4;
    let Some(stat) = Stat::of(thread) else {
        return Process::Lives;
    };
    let (flags, code): (u64, u64) = (stat.number(9).unwrap_or(0), stat.number(52).unwrap_or(0));
    match flags & ENDS {
        0 => Process::Lives,
        _ if code & 0x7f != 0 => Process::IsKilled,
        _ => Process::Ends,
    }
}

/// Whether a process has not ended, or is about to end.
pub fn is_there(process: u32) -> bool {
    Stat::of(process).is_some() && process_that_closes(process) == Process::Lives
}

/// Whether a process has a descriptor of the file that has this inode number in the guard. If it has one
/// of another file with the same number, the file lands later: at the end of the session.
pub fn has_descriptor(process: u32, inode: u64) -> bool {
    let line = format!("ino:\t{inode}");
    let directory = format!("/proc/{process}/fdinfo");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(directory, flags, Mode::empty()) else {
        return false;
    };
    let disk = LinuxDisk::new();
    let names = disk.list(&directory).unwrap_or_default();
    names.iter().any(|entry| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name = entry.name.as_bytes();
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty());
        let mut text = vec![0; 1024];
        let length = file.and_then(|file| rustix::io::read(&file, &mut text[..]));
        let text = String::from_utf8_lossy(&text[..length.unwrap_or(0)]).into_owned();
        text.lines().any(|found| found == line)
    })
}
