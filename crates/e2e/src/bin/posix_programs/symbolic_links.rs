//! Symbolic links: relative and absolute, in chains as long as the kernel
//! follows and one longer, dangling, in circles, and with long targets.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "symbolic_links",
    prepare,
    run,
    child: process::none,
};

/// The kernel follows this many links and no more.
const CHAIN_MAX: usize = 40;

fn prepare() -> Outcome {
    let here = std::env::current_dir()?;
    fs::create_dir_all("deep/er")?;
    fs::write("deep/er/file", b"old contents")?;
    symlink("deep/er/file", "relative")?;
    symlink(here.join("deep/er/file"), "absolute")?;
    symlink("../../relative", "deep/er/up and down")?;
    symlink("nowhere", "dangling")?;
    Ok(())
}

fn run() -> Outcome {
    written_through()?;
    chains()?;
    dangling()?;
    long_targets()?;
    changed_themselves()
}

/// An absolute target names the original path, and must lead into this same directory, in
/// the base as in a view.
fn written_through() -> Outcome {
    let here = std::env::current_dir()?;
    fs::write("deep/er/file", b"new contents")?;
    for link in ["relative", "absolute", "deep/er/up and down"] {
        same(link, fs::read(link)?, b"new contents".to_vec())?;
    }
    fs::write("absolute", b"written through an absolute link")?;
    same(
        "target",
        fs::read("relative")?,
        b"written through an absolute link".to_vec(),
    )?;
    symlink(&here, "to all of it")?;
    same(
        "round trip",
        fs::read("to all of it/to all of it/relative")?.len(),
        32,
    )?;
    same(
        "resolved",
        fs::canonicalize("to all of it/absolute")?,
        here.join("deep/er/file"),
    )
}

fn chains() -> Outcome {
    fs::write("chain 0", b"the end of the chain")?;
    for length in 1..=CHAIN_MAX + 1 {
        symlink(format!("chain {}", length - 1), format!("chain {length}"))?;
    }
    same(
        "longest",
        fs::read(format!("chain {CHAIN_MAX}"))?,
        fs::read("chain 0")?,
    )?;
    let longer = format!("chain {}", CHAIN_MAX + 1);
    refused(
        "one longer",
        openat(CWD, longer, OFlags::RDONLY, Mode::empty()),
        Errno::LOOP,
    )?;
    symlink("circle b", "circle a")?;
    symlink("circle a", "circle b")?;
    refused(
        "circle",
        openat(CWD, "circle a", OFlags::RDONLY, Mode::empty()),
        Errno::LOOP,
    )?;
    let not_followed = openat(
        CWD,
        "relative",
        OFlags::RDONLY | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    refused("O_NOFOLLOW", not_followed, Errno::LOOP)
}

fn dangling() -> Outcome {
    same(
        "read",
        fs::read("dangling").map_err(|error| error.kind()),
        Err(ErrorKind::NotFound),
    )?;
    fs::write("dangling", b"made through the link")?;
    same(
        "made",
        fs::read("nowhere")?,
        b"made through the link".to_vec(),
    )?;
    fs::remove_file("nowhere")?;
    let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    refused(
        "O_EXCL",
        openat(CWD, "dangling", exclusive, Mode::RWXU),
        Errno::EXIST,
    )
}

fn long_targets() -> Outcome {
    let longest = "x/".repeat(2047) + "y";
    symlink(&longest, "longest")?;
    same(
        "target",
        fs::read_link("longest")?.as_path(),
        Path::new(&longest),
    )?;
    same("length", fs::symlink_metadata("longest")?.len(), 4095)?;
    let longer = rustix::fs::symlinkat(longest + "z", CWD, "longer");
    refused("one longer", longer, Errno::NAMETOOLONG)?;
    refused(
        "empty",
        rustix::fs::symlinkat("", CWD, "empty"),
        Errno::NOENT,
    )
}

/// Links have an owner, names and times of their own. Only root gives them to others.
fn changed_themselves() -> Outcome {
    if rustix::process::geteuid().is_root() {
        lchown("relative", Some(12), Some(34))?;
        same(
            "the link's owner",
            fs::symlink_metadata("relative")?.uid(),
            12,
        )?;
        same("the file's owner", fs::metadata("relative")?.uid(), 0)?;
    }
    fs::hard_link("dangling", "second name")?;
    same("names", fs::symlink_metadata("dangling")?.nlink(), 2)?;
    fs::rename("relative", "renamed")?;
    same("still leads there", fs::read("renamed")?.len(), 32)?;
    Ok(fs::remove_file("absolute")?)
}
