//! What `/proc` says of the programs that make calls.

use atomdir_fuse::Request;
use rustix::fs::{Mode, OFlags};
use std::str::FromStr;

/// The list may be long: the kernel allows 65 536 groups.
const GROUPS_LENGTH_MAX: usize = 1 << 20;

/// The beginning of a text in the directory of a process or thread.
fn text_of(id: u32, file: &str, length_max: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(format!("/proc/{id}/{file}"), flags, Mode::empty()).ok()?;
    let mut text = vec![0; length_max];
    let length = rustix::io::read(&file, &mut text[..]).ok()?;
    text.truncate(length);
    Some(text)
}

/// A line of `status`, without its name.
fn status_of(id: u32, name: &str, length_max: usize) -> Option<String> {
    let text = String::from_utf8_lossy(&text_of(id, "status", length_max)?).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// What proc_pid_stat(5) says of a process or thread.
pub struct Stat {
    pub name: Vec<u8>,
    /// From the third field on.
    rest: String,
}

impl Stat {
    pub fn of(id: u32) -> Option<Stat> {
        let stat = text_of(id, "stat", 1024)?;
        // The name is in parentheses, and may itself contain some.
        let start = stat.iter().position(|byte| *byte == b'(')? + 1;
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        Some(Stat {
            name: stat.get(start..end)?.to_vec(),
            rest: std::str::from_utf8(stat.get(end + 1..)?).ok()?.to_owned(),
        })
    }

    /// A field by its place in the manual page, which is 4 or more.
    pub fn number<T: FromStr>(&self, field: usize) -> Option<T> {
        let mut fields = self.rest.split_ascii_whitespace();
        fields.nth(field.checked_sub(3)?)?.parse().ok()
    }
}

/// The process of a thread.
pub fn process_of(thread: u32) -> u32 {
    let process = status_of(thread, "Tgid:", 4096);
    process.and_then(|id| id.parse().ok()).unwrap_or(thread)
}

/// The groups of the process that asks.
pub fn groups_of(request: &Request) -> Vec<u32> {
    let listed = status_of(request.process, "Groups:", GROUPS_LENGTH_MAX).unwrap_or_default();
    let listed = listed.split_ascii_whitespace();
    let listed = listed.filter_map(|group| group.parse().ok());
    listed.chain([request.group]).collect()
}
