//! Files that stay open while their names change, are removed, or pass to other files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, linkat, openat};
use rustix::io::Errno;

use crate::check::{Outcome, pattern, refused, same, shown};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "open_files",
    prepare,
    run,
    child: process::none,
};

const LENGTH: usize = 200_000;

fn prepare() -> Outcome {
    fs::write("replaced", pattern(1, LENGTH))?;
    fs::write("unlinked", pattern(2, LENGTH))?;
    fs::create_dir_all("directory/inner")?;
    fs::write("directory/inner/file", pattern(3, LENGTH))?;
    fs::create_dir("emptied")?;
    fs::write("emptied/file", b"")?;
    fs::write("reused", pattern(4, LENGTH))?;
    Ok(())
}

fn run() -> Outcome {
    replaced()?;
    unlinked()?;
    made_and_unlinked()?;
    moved_with_its_directory()?;
    removed_directory()?;
    name_reused()
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn contents(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut found = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut found)?;
    Ok(found)
}

/// Replaces a file as editors do. A process that has the old file open keeps it.
fn replaced() -> Outcome {
    let mut old = open("replaced")?;
    fs::write("replacement", b"new contents")?;
    fs::rename("replacement", "replaced")?;
    same("old", contents(&mut old)? == pattern(1, LENGTH), true)?;
    same("names of the old", old.metadata()?.nlink(), 0)?;
    same("new", fs::read("replaced")?, b"new contents".to_vec())?;
    old.write_all_at(b"written to the old one", 0)?;
    same("new still", fs::read("replaced")?, b"new contents".to_vec())
}

fn unlinked() -> Outcome {
    let mut file = open("unlinked")?;
    fs::remove_file("unlinked")?;
    same("names", file.metadata()?.nlink(), 0)?;
    file.write_all_at(&pattern(5, 5000), 100_000)?;
    file.set_len(150_000)?;
    let mut expected = pattern(2, 150_000);
    expected[100_000..105_000].copy_from_slice(&pattern(5, 5000));
    same("still whole", contents(&mut file)? == expected, true)?;
    // The file can be opened again through /proc, although it has no name.
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    same("again", fs::read(&place)? == expected, true)?;
    same(
        "target of the descriptor's link",
        fs::read_link(&place)?
            .to_string_lossy()
            .ends_with("/unlinked (deleted)"),
        true,
    )?;
    let linked = linkat(CWD, &*place, CWD, "linked again", AtFlags::SYMLINK_FOLLOW);
    println!("a name for an unlinked file {}", shown(linked));
    Ok(())
}

fn made_and_unlinked() -> Outcome {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open("scratch")?;
    fs::remove_file("scratch")?;
    file.write_all(&pattern(6, LENGTH))?;
    same("contents", contents(&mut file)? == pattern(6, LENGTH), true)?;
    fs::write("scratch", b"the next of that name")?;
    same(
        "contents still",
        contents(&mut file)? == pattern(6, LENGTH),
        true,
    )?;
    Ok(fs::remove_file("scratch")?)
}

fn moved_with_its_directory() -> Outcome {
    let mut file = open("directory/inner/file")?;
    fs::rename("directory", "moved")?;
    fs::rename("moved/inner", "inner")?;
    file.write_all_at(b"after the move", 0)?;
    same(
        "by its new name",
        fs::read("inner/file")?[..14].to_vec(),
        b"after the move".to_vec(),
    )?;
    same("length", contents(&mut file)?.len(), LENGTH)?;
    Ok(fs::remove_dir("moved")?)
}

fn removed_directory() -> Outcome {
    let directory = openat(
        CWD,
        "emptied",
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    fs::remove_file("emptied/file")?;
    fs::remove_dir("emptied")?;
    let names = Dir::read_from(&directory)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name() != c"." && entry.file_name() != c"..");
    same("names in it", names.count(), 0)?;
    let flags = OFlags::CREATE | OFlags::WRONLY;
    refused(
        "a name in it",
        openat(&directory, "file", flags, Mode::RWXU),
        Errno::NOENT,
    )?;
    fs::create_dir("emptied")?;
    fs::write("emptied/other", b"of a directory of the same name")?;
    refused(
        "a name in it again",
        openat(&directory, "file", flags, Mode::RWXU),
        Errno::NOENT,
    )
}

/// A file, a directory and a file again, under one name, each of them open.
fn name_reused() -> Outcome {
    let mut old = open("reused")?;
    fs::remove_file("reused")?;
    fs::create_dir("reused")?;
    fs::write("reused/inner", b"in a directory now")?;
    let mut inner = open("reused/inner")?;
    fs::remove_dir_all("reused")?;
    let mut new = File::create_new("reused")?;
    new.write_all(b"a file once more")?;
    same("first", contents(&mut old)? == pattern(4, LENGTH), true)?;
    same(
        "second",
        contents(&mut inner)?,
        b"in a directory now".to_vec(),
    )?;
    same("third", fs::read("reused")?, b"a file once more".to_vec())
}
