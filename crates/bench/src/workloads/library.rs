//! Small durable transactions by the library in the program's own process, beside what programs
//! do without it: for each file a temporary file, fsync, rename and fsync of the directory; and the
//! least that makes the same bytes durable, which is to append them to a file and flush it once.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread::ScopedJoinHandle;

use atomdir::{Door, Store, StoreOptions};

use crate::bench::Bench;
use crate::error::{Describe, Result};
use crate::load::pages::PAGE;
use crate::measure::{Side, in_turns};
use crate::programs::clear;
use crate::report::Row;
use crate::workspace::Workspace;

const NAME: &str = "library";
const SIDES: [Side; 3] = [Side::Plain, Side::Append, Side::Embedded];
/// How many times each thread commits.
const COMMITS: u64 = 50;

#[derive(Clone, Copy)]
struct Shape {
    files: u64,
    is_new: bool,
    threads: u64,
}

pub fn library(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for threads in [1, 4] {
        for is_new in [true, false] {
            for files in [1, 4, 16] {
                let shape = Shape {
                    files,
                    is_new,
                    threads,
                };
                rows.push(measure(bench, shape)?);
            }
        }
    }
    for side in SIDES {
        clear(&bench.directory.join(format!("{NAME}-{side}")))?;
    }
    Ok(rows)
}

fn measure(bench: &Bench, shape: Shape) -> Result<Row> {
    let measured = in_turns(bench.rounds, &SIDES, |side| {
        let workspace = Workspace::fresh(bench, side, NAME, |path| fill(path, shape))?;
        let store = match side {
            Side::Embedded => Some(open(&workspace.path)?),
            _ => None,
        };
        let (sample, ()) = workspace.counted(|| {
            std::thread::scope(|scope| {
                let spawn = |thread| {
                    let (path, store) = (&workspace.path, &store);
                    scope.spawn(move || commits(path, store.as_ref(), side, shape, thread))
                };
                let running: Vec<_> = (0..shape.threads).map(spawn).collect();
                running.into_iter().try_for_each(|thread| join(thread))
            })
        })?;
        Ok(sample.into())
    })?;
    let Shape { files, threads, .. } = shape;
    let kind = if shape.is_new { "new" } else { "overwritten" };
    let name = format!("{files} {kind}, {threads} threads");
    let note = format!("{COMMITS} commits a thread, files of 4 KiB; plain: renames");
    Ok(Row::new(&name, measured.whole)
        .reference(Side::Append)
        .note(&note))
}

fn join(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    let joined = thread.join();
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn open(path: &Path) -> Result<Store> {
    atomdir::init(path, None)?;
    let store = StoreOptions::new().door(Door::Embedded).open(path);
    Ok(store.map_err(atomdir::Error::from)?)
}

/// Makes the files that the commits overwrite.
fn fill(path: &Path, shape: Shape) -> Result<()> {
    for thread in 0..shape.threads {
        let directory = path.join(thread.to_string());
        fs::create_dir(&directory).describe("make", &directory)?;
        if shape.is_new {
            continue;
        }
        for file in 0..shape.files {
            let path = directory.join(file.to_string());
            fs::write(&path, [b'o'; PAGE as usize]).describe("write", &path)?;
        }
    }
    Ok(())
}

fn commits(
    root: &Path,
    store: Option<&Store>,
    side: Side,
    shape: Shape,
    thread: u64,
) -> Result<()> {
    let directory = root.join(thread.to_string());
    let log = root.join(format!("log-{thread}"));
    let mut log = match side {
        Side::Append => {
            let opened = OpenOptions::new().append(true).create(true).open(&log);
            Some((opened.describe("open", &log)?, log))
        }
        _ => None,
    };
    let page = [b'n'; PAGE as usize];
    for commit in 0..COMMITS {
        let names = (0..shape.files).map(|file| match shape.is_new {
            true => (commit * shape.files + file).to_string(),
            false => file.to_string(),
        });
        match (store, &mut log) {
            (Some(store), _) => {
                let tx = store.begin().map_err(atomdir::Error::from)?;
                for name in names {
                    let path = format!("{thread}/{name}");
                    tx.write(path, page).map_err(atomdir::Error::from)?;
                }
                tx.commit().map_err(atomdir::Error::from)?;
            }
            (None, Some((log, path))) => {
                let bytes = page.repeat(shape.files as usize);
                log.write_all(&bytes)
                    .and_then(|()| log.sync_data())
                    .describe("append to", path)?;
            }
            (None, None) => names
                .into_iter()
                .try_for_each(|name| replace(&directory, &name, &page))?,
        }
    }
    Ok(())
}

/// Writes one file as careful programs do.
fn replace(directory: &Path, name: &str, contents: &[u8]) -> Result<()> {
    let path = directory.join(name);
    let temporary = directory.join(format!("{name}.new"));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    write().describe("replace", &path)
}
