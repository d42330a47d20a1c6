//! Random reads, writes through calls and maps, truncations, holes, copies and
//! replacements, each checked against a model in memory: in the manner of fsx,
//! the file system exerciser that came with NeXTSTEP.
//!
//! A test may also do single rounds of it, each in a transaction of its own:
//!
//!     posix_programs child random_file_io write SEED ROUND
//!     posix_programs child random_file_io check SEED ROUNDS

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::mm::MapFlags;

use crate::check::{Failure, Outcome, pattern, same};
use crate::map::Map;
use crate::process;
use crate::random_operations::{FILES, Model, Operation, Through};

pub const PROGRAM: crate::Program = crate::Program {
    name: "random_file_io",
    prepare,
    run,
    child,
};

const SEED: u64 = 1;
const ROUNDS: u64 = 60;

fn prepare() -> Outcome {
    prepare_with(SEED)
}

fn prepare_with(seed: u64) -> Outcome {
    for (file, contents) in Model::start(seed).files.iter().enumerate() {
        fs::write(file.to_string(), contents)?;
    }
    Ok(())
}

fn run() -> Outcome {
    let mut model = Model::start(SEED);
    (0..ROUNDS).try_for_each(|round| write(&mut model, SEED, round))
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    let numbers: Vec<u64> = arguments
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    match (role, &numbers[..]) {
        ("prepare", &[seed]) => prepare_with(seed),
        ("write", &[seed, round]) => write(&mut Model::after(seed, round), seed, round),
        ("check", &[seed, rounds]) => check(&Model::after(seed, rounds)),
        _ => process::none(role, arguments),
    }
}

/// Does one round on files for which the earlier rounds are done.
fn write(model: &mut Model, seed: u64, round: u64) -> Outcome {
    check(model)?;
    let mut files: Vec<File> = (0..FILES).map(open).collect::<Result<_, _>>()?;
    model.play(seed, round, |operation, before| {
        perform(operation, &mut files, before).map_err(|failure| {
            Failure::new(format!(
                "seed {seed}, round {round}, {operation:?}: {failure}"
            ))
        })
    })?;
    // Check once through the descriptors that were open all the time, and once anew.
    for (file, contents) in files.iter().zip(&model.files) {
        let mut found = vec![0; contents.len() + 1];
        let length = read_full(file, &mut found)?;
        found.truncate(length);
        agree(
            &format!("seed {seed}, round {round}, through what was open"),
            &found,
            contents,
        )?;
    }
    check(model)
}

fn check(model: &Model) -> Outcome {
    for (file, contents) in model.files.iter().enumerate() {
        agree(
            &format!("file {file}"),
            &fs::read(file.to_string())?,
            contents,
        )?;
    }
    Ok(())
}

fn open(file: usize) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(file.to_string())
}

fn perform(operation: Operation, files: &mut [File], before: &Model) -> Outcome {
    match operation {
        Operation::Read {
            file,
            offset,
            length,
            through,
        } => {
            let expected = &before.files[file][offset..offset + length];
            agree(
                "read",
                &read(&files[file], offset, length, through)?,
                expected,
            )
        }
        Operation::Write {
            file,
            offset,
            length,
            seed,
            through,
        } => put(&files[file], file, offset, &pattern(seed, length), through),
        Operation::Truncate { file, length } => Ok(files[file].set_len(length as u64)?),
        Operation::Punch {
            file,
            offset,
            length,
        } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(
                &files[file],
                flags,
                offset as u64,
                length as u64,
            )?)
        }
        Operation::Zero {
            file,
            offset,
            length,
        } => {
            let flags = FallocateFlags::ZERO_RANGE;
            Ok(fallocate(
                &files[file],
                flags,
                offset as u64,
                length as u64,
            )?)
        }
        Operation::Copy {
            from,
            to,
            from_offset,
            to_offset,
            length,
        } => copy(&files[from], &files[to], from_offset, to_offset, length),
        Operation::Replace { file, length, seed } => {
            fs::write("new", pattern(seed, length))?;
            fs::rename("new", file.to_string())?;
            files[file] = open(file)?;
            Ok(())
        }
        Operation::Sync { file } => Ok(files[file].sync_all()?),
    }
}

fn read(file: &File, offset: usize, length: usize, through: Through) -> Outcome<Vec<u8>> {
    if let (Through::Map, 1..) = (through, length) {
        return Ok(Map::new(file, offset + length, MapFlags::SHARED)?.read(offset, length));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset as u64)?;
    Ok(bytes)
}

fn put(file: &File, name: usize, offset: usize, bytes: &[u8], through: Through) -> Outcome {
    match through {
        Through::Descriptor => file.write_all_at(bytes, offset as u64)?,
        Through::Append => {
            let mut appended = OpenOptions::new().append(true).open(name.to_string())?;
            appended.write_all(bytes)?;
        }
        // A map cannot be empty.
        Through::Map if bytes.is_empty() => {}
        Through::Map => {
            Map::new(file, offset + bytes.len(), MapFlags::SHARED)?.write(offset, bytes)
        }
    }
    Ok(())
}

fn copy(from: &File, to: &File, from_offset: usize, to_offset: usize, length: usize) -> Outcome {
    let (mut from_offset, mut to_offset) = (from_offset as u64, to_offset as u64);
    let mut left = length;
    while left > 0 {
        let copied = copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), left)?;
        same("copied something", copied > 0, true)?;
        left -= copied;
    }
    Ok(())
}

fn read_full(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    loop {
        match file.read_at(&mut buffer[filled..], filled as u64)? {
            0 => return Ok(filled),
            count => filled += count,
        }
    }
}

/// Fails with the place where they begin to differ.
#[track_caller]
fn agree(what: &str, found: &[u8], expected: &[u8]) -> Outcome {
    same(&format!("{what}: length"), found.len(), expected.len())?;
    if found == expected {
        return Ok(());
    }
    let pairs = found.iter().zip(expected);
    let place = pairs
        .take_while(|(found, expected)| found == expected)
        .count();
    let end = (place + 16).min(found.len());
    same(
        &format!("{what}: at byte {place}"),
        &found[place..end],
        &expected[place..end],
    )
}
