//! Makes, uses and moves device nodes. Only root can make them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Dev, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "device_nodes",
    prepare,
    run,
    child: process::none,
};

const NULL: (u32, u32) = (1, 3);
const ZERO: (u32, u32) = (1, 5);

fn make(path: &str, kind: FileType, (major, minor): (u32, u32)) -> Result<(), Errno> {
    mknodat(
        CWD,
        path,
        kind,
        Mode::from_raw_mode(0o666),
        makedev(major, minor),
    )
}

fn prepare() -> Outcome {
    fs::create_dir("dev")?;
    make("dev/zero", FileType::CharacterDevice, ZERO)?;
    make("dev/replaced", FileType::CharacterDevice, NULL)?;
    Ok(make("dev/block", FileType::BlockDevice, (7, 200))?)
}

fn run() -> Outcome {
    make("dev/null", FileType::CharacterDevice, NULL)?;
    refused(
        "a name in use",
        make("dev/null", FileType::CharacterDevice, ZERO),
        Errno::EXIST,
    )?;
    File::options()
        .write(true)
        .open("dev/null")?
        .write_all(b"into nothing")?;
    let mut bytes = [1; 100];
    same(
        "read from null",
        File::open("dev/null")?.read(&mut bytes)?,
        0,
    )?;
    File::open("dev/zero")?.read_exact(&mut bytes)?;
    same("read from zero", bytes, [0; 100])?;

    // Each number needs more than a byte.
    make("dev/wide", FileType::BlockDevice, (0x7ff, 0xf_ff01))?;
    let wide: Dev = fs::metadata("dev/wide")?.rdev();
    same("numbers", wide, makedev(0x7ff, 0xf_ff01))?;

    fs::rename("dev/block", "moved block")?;
    fs::remove_file("dev/replaced")?;
    make("dev/replaced", FileType::CharacterDevice, ZERO)?;
    fs::hard_link("dev/zero", "zero too")?;
    same("length", fs::metadata("dev/null")?.len(), 0)
}
