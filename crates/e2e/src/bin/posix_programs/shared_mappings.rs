//! Files written through memory, with and without msync, with and without the
//! descriptor still open, by one process and by two, and to the very end of
//! the process.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use rustix::mm::MapFlags;

use crate::check::{Outcome, ensure, pattern, same};
use crate::map::Map;
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: NAME,
    prepare,
    run,
    child,
};
const NAME: &str = "shared_mappings";

const PAGE: usize = 4096;
const PAGES: usize = 8;
const INCREMENTS: u32 = 2000;
const SIGBUS: i32 = 7;

fn prepare() -> Outcome {
    fs::write("synced", pattern(1, PAGES * PAGE))?;
    fs::write("unsynced", pattern(2, PAGES * PAGE))?;
    fs::write("untouched", pattern(3, PAGES * PAGE))?;
    fs::write("odd length", pattern(4, PAGE + 904))?;
    fs::write("counter", vec![0; PAGE])?;
    fs::write("kept", pattern(5, PAGES * PAGE))?;
    Ok(())
}

fn run() -> Outcome {
    synced()?;
    unsynced()?;
    private()?;
    odd_length()?;
    hole()?;
    two_processes()?;
    beyond_the_end()?;
    kept_until_exit()
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The map and the descriptor show the same pages at every moment.
fn synced() -> Outcome {
    let file = open("synced")?;
    let map = Map::new(&file, PAGES * PAGE, MapFlags::SHARED)?;
    same(
        "first read of the map",
        map.read(0, PAGES * PAGE),
        pattern(1, PAGES * PAGE),
    )?;
    map.write(PAGE + 10, b"through the map");
    map.sync(PAGE, PAGE)?;
    same(
        "read after msync",
        read_at(&file, PAGE + 10, 15)?,
        b"through the map".to_vec(),
    )?;
    map.write(3 * PAGE - 4, b"over two pages");
    same(
        "read before msync",
        read_at(&file, 3 * PAGE - 4, 14)?,
        b"over two pages".to_vec(),
    )?;
    file.write_all_at(b"through the descriptor", 5 * PAGE as u64)?;
    same(
        "map after write",
        map.read(5 * PAGE, 22),
        b"through the descriptor".to_vec(),
    )?;
    file.sync_all()?;
    map.sync(0, PAGES * PAGE)?;
    Ok(())
}

/// A map outlives its descriptor.
fn unsynced() -> Outcome {
    let file = open("unsynced")?;
    let map = Map::new(&file, PAGES * PAGE, MapFlags::SHARED)?;
    drop(file);
    for page in (0..PAGES).step_by(2) {
        map.write(page * PAGE + page, &pattern(100 + page as u64, 500));
    }
    drop(map);
    let found = fs::read("unsynced")?;
    same(
        "after munmap",
        found[2 * PAGE + 2..][..500].to_vec(),
        pattern(102, 500),
    )
}

fn private() -> Outcome {
    let map = Map::new(open("untouched")?, PAGES * PAGE, MapFlags::PRIVATE)?;
    map.write(0, &pattern(9, PAGES * PAGE));
    same(
        "the file of a private map",
        fs::read("untouched")?,
        pattern(3, PAGES * PAGE),
    )
}

/// Bytes written in the last page, behind the end of the file, are lost.
fn odd_length() -> Outcome {
    let map = Map::new(open("odd length")?, 2 * PAGE, MapFlags::SHARED)?;
    same(
        "behind the end",
        map.read(PAGE + 904, PAGE - 904),
        vec![0; PAGE - 904],
    )?;
    map.write(PAGE + 900, b"last, and lost");
    drop(map);
    let found = fs::read("odd length")?;
    same("length", found.len(), PAGE + 904)?;
    same("end", found[PAGE + 900..].to_vec(), b"last".to_vec())
}

fn hole() -> Outcome {
    let file = File::create_new("hole").and_then(|_| open("hole"))?;
    file.set_len((256 * PAGE) as u64)?;
    let map = Map::new(&file, 256 * PAGE, MapFlags::SHARED)?;
    same("in the hole", map.read(99 * PAGE, PAGE), vec![0; PAGE])?;
    map.write(100 * PAGE, &pattern(6, PAGE));
    drop(map);
    same(
        "beside it",
        read_at(&file, 101 * PAGE, PAGE)?,
        vec![0; PAGE],
    )
}

/// Two processes count in one word. No increment is lost only if both map the same page.
fn two_processes() -> Outcome {
    let map = Map::new(open("counter")?, PAGE, MapFlags::SHARED)?;
    let second = process::spawn(NAME, "count", &[])?;
    count(&map);
    process::finish(second)?;
    same(
        "counted by two",
        map.counter().load(Ordering::SeqCst),
        2 * INCREMENTS,
    )
}

fn count(map: &Map) {
    for _ in 0..INCREMENTS {
        map.counter().fetch_add(1, Ordering::SeqCst);
    }
}

fn beyond_the_end() -> Outcome {
    let status = process::command(NAME, "read beyond the end", &[])?
        .stdin(Stdio::null())
        .status()?;
    same("killed by", status.signal(), Some(SIGBUS))
}

/// The process calls no munmap, msync or close: its end must be enough.
fn kept_until_exit() -> Outcome {
    let map = Map::new(open("kept")?, PAGES * PAGE, MapFlags::SHARED)?;
    for page in 0..PAGES {
        map.write(page * PAGE + 7, &pattern(200 + page as u64, 900));
    }
    map.keep_until_exit();
    Ok(())
}

fn child(role: &str, arguments: &[String]) -> Outcome {
    match role {
        "count" => {
            count(&Map::new(open("counter")?, PAGE, MapFlags::SHARED)?);
            Ok(())
        }
        "read beyond the end" => {
            rustix::process::setrlimit(
                rustix::process::Resource::Core,
                rustix::process::Rlimit {
                    current: Some(0),
                    maximum: Some(0),
                },
            )?;
            let map = Map::new(open("counter")?, 3 * PAGE, MapFlags::SHARED)?;
            let found = map.read(2 * PAGE, 1);
            ensure(false, format!("read {found:?} behind the end of the file"))
        }
        _ => process::none(role, arguments),
    }
}

fn read_at(file: &File, offset: usize, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset as u64)?;
    Ok(bytes)
}
