//! Renames over files and directories, exchanges, and refused renames. After each it checks
//! what the names lead to.

use std::fs;

use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "renames",
    prepare,
    run,
    child: process::none,
};

fn prepare() -> Outcome {
    for directory in [
        "full/inner",
        "empty",
        "other",
        "left",
        "right/below",
        "chain",
        "up/down",
    ] {
        fs::create_dir_all(directory)?;
    }
    for file in [
        "file",
        "second",
        "full/inner/file",
        "left/only left",
        "right/below/only right",
        "up/down/file",
    ] {
        fs::write(file, file)?;
    }
    for number in 0..10 {
        fs::write(format!("chain/{number}"), number.to_string())?;
    }
    Ok(())
}

fn rename(from: &str, to: &str) -> Result<(), Errno> {
    renameat(CWD, from, CWD, to)
}

fn rename_with(from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, from, CWD, to, flags)
}

#[track_caller]
fn holds(path: &str, expected: &str) -> Outcome {
    same(path, fs::read_to_string(path)?.as_str(), expected)
}

fn run() -> Outcome {
    refusals()?;
    replacements()?;
    exchanges()?;
    chains()?;
    turned_inside_out()
}

fn refusals() -> Outcome {
    refused(
        "onto a full directory",
        rename("other", "full"),
        Errno::NOTEMPTY,
    )?;
    refused(
        "a directory onto a file",
        rename("other", "file"),
        Errno::NOTDIR,
    )?;
    refused(
        "a file onto a directory",
        rename("file", "empty"),
        Errno::ISDIR,
    )?;
    refused(
        "into itself",
        rename("full", "full/inner/full"),
        Errno::INVAL,
    )?;
    refused(
        "onto its own parent",
        rename("full/inner", "full"),
        Errno::NOTEMPTY,
    )?;
    refused("of nothing", rename("nothing", "something"), Errno::NOENT)?;
    refused("into nothing", rename("file", "nothing/file"), Errno::NOENT)?;
    refused(
        "below a file",
        rename("second", "file/second"),
        Errno::NOTDIR,
    )?;
    refused(
        "to another file system",
        rename("file", "/proc/file"),
        Errno::XDEV,
    )?;
    refused("of `.`", rename(".", "elsewhere"), Errno::BUSY)?;
    refused(
        "no replacing",
        rename_with("file", "second", RenameFlags::NOREPLACE),
        Errno::EXIST,
    )?;
    refused(
        "exchange with nothing",
        rename_with("file", "nothing", RenameFlags::EXCHANGE),
        Errno::NOENT,
    )?;
    refused(
        "exchange with a child",
        rename_with("full", "full/inner", RenameFlags::EXCHANGE),
        Errno::INVAL,
    )?;
    rename("file", "file")?;
    holds("file", "file")
}

fn replacements() -> Outcome {
    rename("other", "empty")?;
    same("other is gone", fs::exists("other")?, false)?;
    rename_with("file", "alone", RenameFlags::NOREPLACE)?;
    rename("alone", "second")?;
    holds("second", "file")?;
    fs::write("third", "third")?;
    rename("third", "empty/third")?;
    rename("empty/third", "second")?;
    holds("second", "third")
}

fn exchanges() -> Outcome {
    let exchange = |left, right| rename_with(left, right, RenameFlags::EXCHANGE);
    exchange("left", "right")?;
    holds("right/only left", "left/only left")?;
    holds("left/below/only right", "right/below/only right")?;
    // The two have different types and depths.
    exchange("second", "left/below")?;
    holds("left/below", "third")?;
    holds("second/only right", "right/below/only right")?;
    exchange("left/below", "full/inner/file")?;
    holds("full/inner/file", "third")?;
    fs::write("left/new", "made after it")?;
    exchange("left/new", "left/below")?;
    holds("left/below", "made after it")
}

/// Each takes the name of the next; the last takes the first's.
fn chains() -> Outcome {
    rename("chain/9", "chain/spare")?;
    for number in (0..9).rev() {
        rename(&format!("chain/{number}"), &format!("chain/{}", number + 1))?;
    }
    rename("chain/spare", "chain/0")?;
    holds("chain/0", "9")?;
    holds("chain/5", "4")?;
    // Rename it there and back, so that nothing has changed.
    rename("chain/7", "chain/away")?;
    rename("chain/away", "chain/7")?;
    holds("chain/7", "6")
}

/// The parent becomes the child of its child.
fn turned_inside_out() -> Outcome {
    rename("up/down", "down")?;
    rename("up", "down/up")?;
    fs::write("down/up/new", "at the new bottom")?;
    holds("down/file", "up/down/file")
}
