//! inotify: a process that watches gets events for what another process does here.

use std::ffi::CStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::check::{Outcome, ensure};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "notifications";

fn prepare() -> Outcome {
    fs::create_dir("watched")?;
    fs::create_dir("elsewhere")?;
    fs::write("watched/old", b"old")?;
    fs::write("watched/to move", b"moves away")?;
    Ok(())
}

fn run() -> Outcome {
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let events = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVE
        | WatchFlags::DELETE
        | WatchFlags::ATTRIB;
    inotify::add_watch(&queue, "watched", events)?;
    process::call(NAME, "change", &[])?;
    let seen = read(&queue)?;
    for line in &seen {
        println!("{line}");
    }
    ensure(!seen.is_empty(), "no event was seen")
}

/// Reads all events. The process that caused them has ended, so all are queued by now.
fn read(queue: &impl AsFd) -> Outcome<Vec<String>> {
    let mut seen: Vec<String> = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    loop {
        let event = match reader.next() {
            Err(Errno::AGAIN) => return Ok(seen),
            event => event?,
        };
        let name = event
            .file_name()
            .map(CStr::to_string_lossy)
            .unwrap_or_default();
        let line = format!("{:?} {name}", event.events());
        // How many equal events follow one another depends on how writes are split.
        if seen.last() != Some(&line) {
            seen.push(line);
        }
    }
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    if role != "change" {
        return process::none(role, arguments);
    }
    fs::write("watched/new", b"new")?;
    OpenOptions::new()
        .append(true)
        .open("watched/old")?
        .write_all(b" and more")?;
    fs::create_dir("watched/directory")?;
    fs::rename("watched/new", "watched/renamed")?;
    fs::rename("watched/to move", "elsewhere/moved")?;
    fs::rename("elsewhere/moved", "watched/back")?;
    fs::set_permissions("watched/back", Permissions::from_mode(0o600))?;
    fs::hard_link("watched/back", "watched/linked")?;
    fs::remove_file("watched/old")?;
    fs::remove_dir("watched/directory")?;
    Ok(())
}
