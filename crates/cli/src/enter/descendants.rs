//! The processes that a command has started, found in /proc.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::HashMap;
use std::io;

struct Process {
    parent: i32,
    living: bool,
}

/// Our own children, living or not yet waited for.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    // Reading the table of all processes takes milliseconds, and waits for each
    // process that is stuck in the kernel.
    match crate::files::read_at(CWD, "/proc/thread-self/children") {
        // A kernel without CONFIG_PROC_CHILDREN.
        Err(Errno::NOENT) => children_in_table(),
        list => Ok(parse_children(&list?)),
    }
}

/// Parses the list of our only thread.
fn parse_children(list: &[u8]) -> Vec<Pid> {
    let list = String::from_utf8_lossy(list);
    let ids = list.split_ascii_whitespace();
    ids.filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect()
}

fn children_in_table() -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let processes = processes()?;
    let children = processes
        .iter()
        .filter(|(_, process)| process.parent == own);
    Ok(children.filter_map(|(id, _)| Pid::from_raw(*id)).collect())
}

/// The living children of ours that are not among `others`, with their names. Those that a command
/// has left behind become our children when it ends.
pub(super) fn left(others: &[Pid]) -> io::Result<Vec<(Pid, Vec<u8>)>> {
    let mut left = Vec::new();
    for child in children()? {
        if others.contains(&child) {
            continue;
        }
        let path = format!("/proc/{}/stat", child.as_raw_nonzero());
        // It may have ended since.
        let Ok(status) = crate::files::read_at(CWD, path) else {
            continue;
        };
        if parse(&status).is_some_and(|process| process.living) {
            left.push((child, name(&status).to_vec()));
        }
    }
    Ok(left)
}

fn name(status: &[u8]) -> &[u8] {
    let begin = status.iter().position(|byte| *byte == b'(');
    let end = status.iter().rposition(|byte| *byte == b')');
    match (begin, end) {
        (Some(begin), Some(end)) if begin < end => &status[begin + 1..end],
        _ => b"",
    }
}

/// All living processes below us, except `others` and their descendants.
pub(super) fn living(others: &[Pid]) -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let others: Vec<i32> = others
        .iter()
        .map(|pid| pid.as_raw_nonzero().get())
        .collect();
    let processes = processes()?;
    let descends = |id: i32| {
        let mut at = id;
        // The table is read while it changes, so it may contain loops. A chain
        // longer than the table must be one.
        for _ in 0..processes.len() {
            match processes.get(&at) {
                Some(_) if others.contains(&at) => return false,
                Some(process) if process.parent == own => return true,
                Some(process) => at = process.parent,
                None => return false,
            }
        }
        false
    };
    let living = processes
        .iter()
        .filter(|(id, process)| process.living && descends(**id));
    Ok(living.filter_map(|(id, _)| Pid::from_raw(*id)).collect())
}

fn processes() -> io::Result<HashMap<i32, Process>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, c"/proc", flags, Mode::empty())?;
    let mut processes = HashMap::new();
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        let Some(id) = name.and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        match crate::files::read_at(&directory, format!("{id}/stat")) {
            Ok(status) => processes.extend(parse(&status).map(|process| (id, process))),
            // It has ended since the directory was read.
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(processes)
}

/// Parses `id (name) state parent ...`; the name may contain anything, even
/// parentheses.
fn parse(status: &[u8]) -> Option<Process> {
    let name_end = status.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&status[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Process {
        parent: fields.next()?.parse().ok()?,
        living: state != "Z" && state != "X",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_alike_in_the_table_and_by_thread() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("started");
        let id = Pid::from_child(&child);
        let listed = [children(), children_in_table()];
        child.kill().and_then(|()| child.wait()).expect("ended");
        for children in listed {
            assert!(children.expect("read").contains(&id));
        }
    }

    #[test]
    fn a_process_name_cannot_forge_its_parent() {
        let process = parse(b"12 (a) Z 1 (b)) S 34 12 12 0").unwrap();
        assert_eq!(process.parent, 34);
        assert!(process.living);
        assert!(!parse(b"12 (x) Z 34 12").unwrap().living);
        assert!(parse(b"12 (x").is_none());
        assert_eq!(name(b"12 (a) Z 1 (b)) S 34 12 12 0"), b"a) Z 1 (b)");
        assert_eq!(name(b"12 (x"), b"");
    }
}
