//! Names: any bytes but NUL and the slash, up to 255 of them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "names",
    prepare,
    run,
    child: process::none,
};

const ODD: &[&[u8]] = &[
    b"two\nlines",
    b"\n",
    b" ",
    b" leading and trailing ",
    b"-rf",
    b"--",
    b"*",
    b"~",
    b"...",
    b"tab\there",
    b"back\\slash",
    b"quote\"and'",
    b"$(echo) `echo`",
    b"\x01\x7f\x1b[31m",
    b"\xff\xfe not UTF-8",
    b"\xed\xa0\x80 a lone surrogate",
    "caf\u{e9}".as_bytes(),
    "cafe\u{301}".as_bytes(),
    b"CASE",
    b"case",
    b"a.wh.b",
    b".wh.whiteout",
    b".wh..wh..opq",
    b".fuse_hidden0000000100000001",
    b"000000",
];

fn name(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn longest(first: u8) -> PathBuf {
    let mut bytes = vec![b'n'; 255];
    bytes[0] = first;
    name(&bytes).to_owned()
}

/// Makes half of the names before the program runs.
fn prepare() -> Outcome {
    for bytes in ODD.iter().step_by(2) {
        fs::write(name(bytes), bytes)?;
    }
    fs::write(longest(b'o'), b"an old one of 255 bytes")?;
    fs::create_dir(longest(b'd'))?;
    fs::write(
        longest(b'd').join(longest(b'd')),
        b"in a directory of 255 bytes",
    )?;
    Ok(())
}

fn run() -> Outcome {
    odd()?;
    long()?;
    directories()
}

fn odd() -> Outcome {
    for (index, bytes) in ODD.iter().enumerate() {
        if index % 2 == 0 {
            same("old contents", fs::read(name(bytes))?, bytes.to_vec())?;
            fs::write(name(bytes), b"changed")?;
        } else {
            fs::write(name(bytes), bytes)?;
        }
    }
    let mut found = listed(".")?;
    found.retain(|found| found.len() < 255);
    let mut expected: Vec<OsString> = ODD
        .iter()
        .map(|bytes| OsStr::from_bytes(bytes).to_owned())
        .collect();
    expected.sort();
    same("listed", found, expected)
}

fn long() -> Outcome {
    same(
        "old",
        fs::read(longest(b'o'))?,
        b"an old one of 255 bytes".to_vec(),
    )?;
    fs::write(longest(b'w'), b"a new one of 255 bytes")?;
    fs::rename(longest(b'o'), longest(b'r'))?;
    let mut too_long = longest(b't').into_os_string();
    too_long.push("n");
    let made = openat(CWD, &too_long, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    refused("256 bytes", made, Errno::NAMETOOLONG)?;
    refused(
        "256 bytes",
        mkdirat(CWD, &too_long, Mode::RWXU),
        Errno::NAMETOOLONG,
    )?;
    let found = openat(CWD, &too_long, OFlags::RDONLY, Mode::empty());
    refused("256 bytes looked up", found, Errno::NAMETOOLONG)
}

fn directories() -> Outcome {
    let directory = name(b"a\ndirectory\xff");
    fs::create_dir(directory)?;
    for bytes in ODD {
        fs::create_dir(directory.join(name(bytes)))?;
        fs::write(directory.join(name(bytes)).join(name(bytes)), b"")?;
    }
    same("listed", listed(directory)?.len(), ODD.len())?;
    fs::rename(directory, "plain directory")?;
    for bytes in ODD.iter().step_by(3) {
        fs::remove_dir_all(Path::new("plain directory").join(name(bytes)))?;
    }
    Ok(())
}

fn listed(path: impl AsRef<Path>) -> Outcome<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name());
    }
    names.sort();
    Ok(names)
}
