//! The current directory of a process: getcwd, /proc/self/cwd, changing it, moving it, and
//! removing it.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::{fchdir, getcwd};

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "working_directory",
    prepare,
    run,
    child: process::none,
};

fn prepare() -> Outcome {
    fs::create_dir_all("old/inner")?;
    fs::create_dir_all("doomed/inner")?;
    fs::write("old/inner/file", b"contents")?;
    Ok(())
}

fn run() -> Outcome {
    let start = env::current_dir()?;
    println!("started in {}", start.display());
    stands_in(&start)?;
    other_programs_agree(&start)?;
    moves_about(&start)?;
    is_moved(&start)?;
    stands_in_nothing(&start)?;
    above(&start)
}

/// Checks the current directory by every way to ask for it.
fn stands_in(place: &Path) -> Outcome {
    let asked = PathBuf::from(getcwd(Vec::new())?.into_string()?);
    same("getcwd", asked.as_path(), place)?;
    same(
        "/proc/self/cwd",
        fs::read_link("/proc/self/cwd")?.as_path(),
        place,
    )?;
    let (here, there) = (fs::metadata(".")?, fs::metadata(place)?);
    same(
        "identity",
        (here.dev(), here.ino()),
        (there.dev(), there.ino()),
    )
}

fn other_programs_agree(start: &Path) -> Outcome {
    let output = Command::new("/bin/pwd").arg("-P").output()?;
    same(
        "pwd",
        String::from_utf8(output.stdout)?.trim_end(),
        &*start.to_string_lossy(),
    )
}

fn moves_about(start: &Path) -> Outcome {
    env::set_current_dir("old/inner")?;
    stands_in(&start.join("old/inner"))?;
    env::set_current_dir("..")?;
    stands_in(&start.join("old"))?;
    fs::create_dir("new")?;
    env::set_current_dir("new")?;
    stands_in(&start.join("old/new"))?;
    fs::write("file", b"made where this process stands")?;
    env::set_current_dir(start)?;
    let directory = openat(
        CWD,
        "old/inner",
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    fchdir(&directory)?;
    stands_in(&start.join("old/inner"))?;
    Ok(env::set_current_dir(start)?)
}

fn is_moved(start: &Path) -> Outcome {
    env::set_current_dir("old/inner")?;
    let here = openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    fs::rename(start.join("old"), start.join("moved"))?;
    stands_in(&start.join("moved/inner"))?;
    same("file beside", fs::read("file")?, b"contents".to_vec())?;
    let file = statat(&here, "file", AtFlags::empty())?;
    same("through a descriptor", file.st_size, 8)?;
    fs::write("second", b"made after the move")?;
    fs::write("../third", b"made above")?;
    Ok(env::set_current_dir(start)?)
}

fn stands_in_nothing(start: &Path) -> Outcome {
    env::set_current_dir("doomed/inner")?;
    fs::remove_dir(start.join("doomed/inner"))?;
    fs::remove_dir(start.join("doomed"))?;
    refused("getcwd", getcwd(Vec::new()), Errno::NOENT)?;
    let link = fs::read_link("/proc/self/cwd")?;
    same("/proc/self/cwd", link, start.join("doomed/inner (deleted)"))?;
    let made = openat(CWD, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    refused("made in a removed directory", made, Errno::NOENT)?;
    println!(
        "links of what is no more: {}",
        fstat(openat(CWD, ".", OFlags::PATH, Mode::empty())?)?.st_nlink
    );
    Ok(env::set_current_dir(start)?)
}

/// The parent is outside the view. `..` leads to the same directory as the parent's path.
fn above(start: &Path) -> Outcome {
    let Some(parent) = start.parent() else {
        return Ok(());
    };
    let (up, parent) = (fs::metadata("..")?, fs::metadata(parent)?);
    same("..", (up.dev(), up.ino()), (parent.dev(), parent.ino()))
}
