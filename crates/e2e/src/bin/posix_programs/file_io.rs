//! Reads and writes by every call for it, and truncates and extends files.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::{
    Advice, CWD, Mode, OFlags, StatVfsMountFlags, copy_file_range, fadvise, ftruncate, openat,
    sendfile, statvfs, syncfs,
};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, pipe, splice};

use crate::check::{Outcome, pattern, refused, same, shown};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "file_io",
    prepare,
    run,
    child: process::none,
};

const LENGTH: usize = 300_000;

fn prepare() -> Outcome {
    for (seed, name) in ["cut", "grown", "source", "overwritten", "vectors"]
        .iter()
        .enumerate()
    {
        fs::write(name, pattern(seed as u64, LENGTH))?;
    }
    Ok(())
}

fn run() -> Outcome {
    cut()?;
    grown()?;
    emptied()?;
    copied_by_the_kernel()?;
    vectors()?;
    aligned()?;
    overwritten_in_small_pieces()?;
    rights_of_descriptors()?;
    synced()
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// Contents that were cut off stay gone when the file grows again.
fn cut() -> Outcome {
    let file = open("cut")?;
    file.set_len(5000)?;
    file.set_len(20_000)?;
    let mut expected = pattern(0, 5000);
    expected.resize(20_000, 0);
    same("cut and grown", fs::read("cut")? == expected, true)?;
    file.write_all_at(b"far", 30_000)?;
    expected.resize(30_000, 0);
    expected.extend(b"far");
    same("written behind the end", fs::read("cut")? == expected, true)?;
    refused(
        "a negative length",
        ftruncate(&file, u64::MAX),
        Errno::INVAL,
    )
}

fn grown() -> Outcome {
    let mut file = open("grown")?;
    file.set_len(LENGTH as u64 + 10_000)?;
    file.seek(SeekFrom::End(-10))?;
    file.write_all(b"over the end of the file")?;
    same("position", file.stream_position()?, LENGTH as u64 + 10_014)?;
    same("length", file.metadata()?.len(), LENGTH as u64 + 10_014)?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(LENGTH as u64 - 2))?;
    file.read_to_end(&mut tail)?;
    same("tail", tail.len(), 10_016)
}

fn emptied() -> Outcome {
    let reader = File::open("source")?;
    fs::write("emptied", pattern(50, LENGTH))?;
    let other = File::open("emptied")?;
    let mut writer = File::create("emptied")?;
    same(
        "length through an older descriptor",
        other.metadata()?.len(),
        0,
    )?;
    writer.write_all(b"anew")?;
    let mut buffer = [0; 10];
    same(
        "read by an older descriptor",
        other.read_at(&mut buffer, 0)?,
        4,
    )?;
    same("another file", reader.metadata()?.len(), LENGTH as u64)
}

fn copied_by_the_kernel() -> Outcome {
    let source = File::open("source")?;
    let (mut from, mut to) = (1000, 0);
    let ranged = open("ranged")?;
    ranged.set_permissions(fs::Permissions::from_mode(0o4755))?;
    while copy_file_range(&source, Some(&mut from), &ranged, Some(&mut to), LENGTH)? > 0 {}
    same(
        "copy_file_range",
        fs::read("ranged")? == pattern(2, LENGTH)[1000..],
        true,
    )?;
    let keeps_set_id = rustix::process::geteuid().is_root();
    let mode = if keeps_set_id { 0o4755 } else { 0o755 };
    same("its mode", ranged.metadata()?.mode() & 0o7777, mode)?;

    let mut offset = 0;
    let sent = open("sent")?;
    while sendfile(&sent, &source, Some(&mut offset), LENGTH)? > 0 {}
    same("sendfile", fs::read("sent")? == pattern(2, LENGTH), true)?;

    let (read_end, write_end) = pipe()?;
    let spliced = open("spliced")?;
    let mut from = 0;
    loop {
        let moved = splice(
            &source,
            Some(&mut from),
            &write_end,
            None,
            30_000,
            SpliceFlags::empty(),
        )?;
        if moved == 0 {
            break;
        }
        let mut left = moved;
        while left > 0 {
            left -= splice(&read_end, None, &spliced, None, left, SpliceFlags::empty())?;
        }
    }
    same("splice", fs::read("spliced")? == pattern(2, LENGTH), true)
}

fn vectors() -> Outcome {
    let mut file = open("vectors")?;
    let pieces = [pattern(60, 3000), pattern(61, 5000), pattern(62, 1)];
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    same("written", file.write_vectored(&slices)?, 8001)?;
    file.rewind()?;
    let (mut left, mut right) = (vec![0; 4000], vec![0; 4001]);
    let mut into = [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
    same("read", file.read_vectored(&mut into)?, 8001)?;
    same("together", [left, right].concat() == pieces.concat(), true)
}

/// With O_DIRECT, if the file system offers it, reads and writes give the same bytes.
fn aligned() -> Outcome {
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open("direct");
    let Ok(direct) = direct else {
        // The tree must be the same whether or not O_DIRECT is offered.
        return Ok(fs::write("direct", pattern(70, 16384))?);
    };
    let bytes = pattern(70, 16384);
    let mut buffer = Aligned([0; 16384]);
    buffer.0.copy_from_slice(&bytes);
    direct.write_all_at(&buffer.0, 0)?;
    same("read without it", fs::read("direct")? == bytes, true)?;
    buffer.0.fill(0);
    direct.read_exact_at(&mut buffer.0[..8192], 4096)?;
    same(
        "read with O_DIRECT",
        buffer.0[..8192] == bytes[4096..12288],
        true,
    )
}

#[repr(align(4096))]
struct Aligned([u8; 16384]);

/// Writes that are unaligned, overlapping, across page boundaries and out of order.
fn overwritten_in_small_pieces() -> Outcome {
    let file = open("overwritten")?;
    let mut expected = pattern(3, LENGTH);
    for index in 0..400_usize {
        let offset = (index * 7919) % (LENGTH - 5000);
        let piece = pattern(index as u64 + 80, 1 + (index * 131) % 4500);
        file.write_all_at(&piece, offset as u64)?;
        expected[offset..offset + piece.len()].copy_from_slice(&piece);
    }
    same(
        "contents are right",
        fs::read("overwritten")? == expected,
        true,
    )
}

fn rights_of_descriptors() -> Outcome {
    let reader = openat(CWD, "source", OFlags::RDONLY, Mode::empty())?;
    refused(
        "write to a read-only descriptor",
        rustix::io::pwrite(&reader, b"x", 0),
        Errno::BADF,
    )?;
    refused("truncate it", ftruncate(&reader, 0), Errno::INVAL)?;
    let writer = openat(CWD, "source", OFlags::WRONLY, Mode::empty())?;
    refused(
        "read from a write-only descriptor",
        rustix::io::pread(&writer, &mut [0; 4], 0),
        Errno::BADF,
    )?;
    let path = openat(CWD, "source", OFlags::PATH, Mode::empty())?;
    refused(
        "read from an O_PATH descriptor",
        rustix::io::pread(&path, &mut [0; 4], 0),
        Errno::BADF,
    )?;
    let directory = openat(CWD, ".", OFlags::WRONLY, Mode::empty());
    refused("a directory to write", directory, Errno::ISDIR)?;
    let below = openat(CWD, "source/below", OFlags::RDONLY, Mode::empty());
    refused("below a file", below, Errno::NOTDIR)?;
    // A file made without any permission is writable through the descriptor that made it.
    let made = openat(
        CWD,
        "no rights",
        OFlags::CREATE | OFlags::RDWR,
        Mode::empty(),
    )?;
    same("written", rustix::io::pwrite(&made, b"still", 0)?, 5)
}

fn synced() -> Outcome {
    let file = open("source")?;
    file.write_all_at(b"to be synced", 100)?;
    file.sync_data()?;
    file.sync_all()?;
    File::open(".")?.sync_all()?;
    syncfs(file.as_fd())?;
    rustix::fs::sync();
    println!(
        "advice {}",
        shown(fadvise(&file, 0, None, Advice::DontNeed))
    );
    let found = statvfs(".")?;
    same(
        "free blocks",
        found.f_bavail <= found.f_bfree && found.f_bfree <= found.f_blocks,
        true,
    )?;
    same("name length", found.f_namemax, 255)?;
    same(
        "read-only",
        found.f_flag.contains(StatVfsMountFlags::RDONLY),
        false,
    )?;
    same(
        "after all",
        fs::read("source")?[100..112] == *b"to be synced",
        true,
    )
}
