//! Single calls, each a transaction, as in Amino, where every call of a program is one.

use std::fs;
use std::path::Path;

use atomdir::{Durability, Store};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::load::{self, pages};
use crate::report::Row;

use super::idioms::{Done, clear_sides, measure};

const FILES: u64 = 200;
const CONTENTS: [u8; 1024] = [b'f'; 1024];

pub fn calls(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(FILES);
    let mut rows = Vec::new();
    for (durability, kind) in [(Durability::Durable, "durable"), (Durability::Lazy, "lazy")] {
        let is_durable = durability == Durability::Durable;
        let note = match is_durable {
            true => format!("{files} files; plain: fsync of file and directory"),
            false => format!("{files} files; plain: no fsync"),
        };
        let created = measure(
            bench,
            &format!("create, each {kind}"),
            |_| Ok(()),
            |path| each(files, |file| create(path, file, is_durable)),
            |store| {
                each(files, |file| {
                    in_view(store, durability, |view| create(view, file, false))
                })
            },
            |store| each(files, |file| Ok(create_in(store, durability, file)?)),
        )?;
        let removed = measure(
            bench,
            &format!("unlink, each {kind}"),
            |path| load::files::create(path, files),
            |path| each(files, |file| unlink(path, file, is_durable)),
            |store| {
                each(files, |file| {
                    in_view(store, durability, |view| unlink(view, file, false))
                })
            },
            |store| each(files, |file| Ok(unlink_in(store, durability, file)?)),
        )?;
        rows.extend([created.note(&note), removed.note(&note)]);
    }
    clear_sides(bench)?;
    Ok(rows)
}

fn each(files: u64, action: impl Fn(&str) -> Result<()>) -> Result<()> {
    (0..files).try_for_each(|number| action(&number.to_string()))
}

fn create(directory: &Path, name: &str, sync: bool) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, CONTENTS).describe("write", &path)?;
    if sync {
        pages::flush(&path)?;
        pages::flush(directory)?;
    }
    Ok(())
}

fn unlink(directory: &Path, name: &str, sync: bool) -> Result<()> {
    let path = directory.join(name);
    fs::remove_file(&path).describe("remove", &path)?;
    match sync {
        true => pages::flush(directory),
        false => Ok(()),
    }
}

fn in_view(
    store: &Store,
    durability: Durability,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let begun = store.transaction().durability(durability).begin();
    let tx = begun.map_err(atomdir::Error::from)?;
    work(tx.view().ok_or(Error::NoSide("have a view"))?)?;
    tx.commit().map_err(atomdir::Error::from)?;
    Ok(())
}

fn create_in(store: &Store, durability: Durability, name: &str) -> Done {
    let tx = store.transaction().durability(durability).begin()?;
    tx.write(name, CONTENTS)?;
    tx.commit()?;
    Ok(())
}

fn unlink_in(store: &Store, durability: Durability, name: &str) -> Done {
    let tx = store.transaction().durability(durability).begin()?;
    tx.remove_file(name)?;
    tx.commit()?;
    Ok(())
}
