//! Named pipes between two processes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, mknodat, openat,
    utimensat,
};
use rustix::io::Errno;

use crate::check::{Outcome, pattern, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "fifos";

const NOW: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
    last_modification: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
};

fn make(path: &str) -> Result<(), Errno> {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o622), 0)
}

fn prepare() -> Outcome {
    Ok(make("old")?)
}

fn run() -> Outcome {
    make("new")?;
    refused("a name in use", make("new"), Errno::EXIST)?;
    for fifo in ["old", "new"] {
        let writer = process::spawn(NAME, "write", &[fifo])?;
        let reader = process::spawn(NAME, "read", &[fifo])?;
        process::finish_all(vec![writer, reader])?;
        same("length", fs::metadata(fifo)?.len(), 0)?;
    }
    let unread = openat(CWD, "new", OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    refused("nobody reads", unread, Errno::NXIO)?;
    // Whether data through a pipe changes its time depends on the file system; on FUSE it
    // does not.
    for fifo in ["old", "new"] {
        utimensat(CWD, fifo, &NOW, AtFlags::empty())?;
    }
    fs::rename("new", "renamed")?;
    same(
        "still one",
        fs::metadata("renamed")?.file_type().is_fifo(),
        true,
    )?;
    make("gone")?;
    Ok(fs::remove_file("gone")?)
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    match (role, arguments) {
        ("write", [fifo]) => {
            let mut fifo = File::options().write(true).open(fifo)?;
            Ok(fifo.write_all(&pattern(7, 1_000_000))?)
        }
        ("read", [fifo]) => {
            let mut received = Vec::new();
            File::open(fifo)?.read_to_end(&mut received)?;
            same("received", received == pattern(7, 1_000_000), true)
        }
        _ => process::none(role, arguments),
    }
}
