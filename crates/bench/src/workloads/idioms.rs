//! The idioms by which programs put small writes in order (TxFS), compared with the same calls in views
//! of transactions, and with the same work by the library, whose guarantees make most flushes
//! unnecessary.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use atomdir::{Door, Durability, Store, StoreOptions};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::load::pages::{self, PAGE};
use crate::measure::{Side, in_turns};
use crate::programs::{self, clear, make_directory};
use crate::report::Row;
use crate::workspace::counted;

const NAME: &str = "idioms";
const SIDES: [Side; 4] = [Side::Plain, Side::Exact, Side::Embedded, Side::Service];
const THREADS: u64 = 6;
const DATA_BYTES: u64 = 4 << 20;
const CONTENTS: [u8; PAGE as usize] = [b'n'; PAGE as usize];

/// The files that are changed together when a user is added.
const CONFIGURATION: [&str; 3] = ["passwd", "shadow", "group"];

pub(super) type Done = std::result::Result<(), atomdir::Error>;

pub fn idioms(bench: &Bench) -> Result<Vec<Row>> {
    let (cancelled, updates) = (bench.scaled(200), bench.scaled(100));
    let offsets = pages::scattered(DATA_BYTES, updates);
    let at = |step: u64| offsets[step as usize % offsets.len()];
    let cancel = measure(
        bench,
        "create, unlink, sync by 6 threads",
        |_| Ok(()),
        |path| at_once(|thread| (0..cancelled).try_for_each(|_| plain_cancel(path, thread))),
        |store| {
            let all =
                |view: &Path, thread| (0..cancelled).try_for_each(|_| plain_cancel(view, thread));
            at_once(|thread| in_view(store, |view| all(view, thread)))
        },
        |store| at_once(|thread| Ok(cancel_in(store, thread, cancelled)?)),
    )?;
    let log = measure(
        bench,
        "log with four fsyncs, then update",
        |_| Ok(()),
        |path| (0..updates).try_for_each(|step| plain_log(path, at(step))),
        |store| {
            let once = |step| in_view(store, |view| plain_log(view, at(step)));
            (0..updates).try_for_each(once)
        },
        |store| (0..updates).try_for_each(|step| Ok(update(store, at(step), Durability::Durable)?)),
    )?;
    let order = measure(
        bench,
        "three ordered creates, then update",
        |_| Ok(()),
        |path| (0..updates).try_for_each(|step| plain_order(path, step, at(step))),
        |store| {
            let once = |step| in_view(store, |view| plain_order(view, step, at(step)));
            (0..updates).try_for_each(once)
        },
        |store| (0..updates).try_for_each(|step| Ok(order_in(store, step, at(step))?)),
    )?;
    let together = measure(
        bench,
        "three files changed together",
        |path| {
            CONFIGURATION
                .into_iter()
                .try_for_each(|name| pages::fill(&path.join(name), PAGE))
        },
        |path| (0..updates).try_for_each(|_| plain_together(path)),
        |store| (0..updates).try_for_each(|_| in_view(store, plain_together)),
        |store| (0..updates).try_for_each(|_| Ok(together_in(store)?)),
    )?;
    clear_sides(bench)?;
    Ok(vec![
        cancel.note(&format!(
            "{cancelled} by each; a transaction for each thread"
        )),
        log.note(&format!(
            "{updates} updates, each a commit, which needs no log"
        )),
        order.note(&format!(
            "{updates} times; three lazy commits, then a durable one"
        )),
        together.note(&format!(
            "{updates} times, as passwd, shadow and group; plain: each is replaced durably"
        )),
    ])
}

/// Measures the plain calls, the same calls in views (`viewed`), and the work by the library
/// (`transactional`). `fill` prepares a directory.
pub(super) fn measure(
    bench: &Bench,
    name: &str,
    fill: impl Fn(&Path) -> Result<()>,
    plain: impl Fn(&Path) -> Result<()>,
    viewed: impl Fn(&Store) -> Result<()>,
    transactional: impl Fn(&Store) -> Result<()>,
) -> Result<Row> {
    let measured = in_turns(bench.rounds, &SIDES, |side| {
        let path = bench.directory.join(format!("{NAME}-{side}"));
        clear(&path)?;
        make_directory(&path)?;
        pages::fill(&path.join("data"), DATA_BYTES)?;
        fill(&path)?;
        let service = match side {
            Side::Service | Side::Exact => Some(programs::Store::warm(&bench.program, &path)?),
            _ => None,
        };
        let store = match side {
            Side::Plain => None,
            _ => Some(open(&path, side)?),
        };
        bench.rest()?;
        let (sample, ()) = counted(bench, &path, || match &store {
            None => plain(&path),
            Some(store) if side == Side::Exact => viewed(store),
            Some(store) => transactional(store),
        })?;
        drop((store, service));
        Ok(sample.into())
    })?;
    Ok(Row::new(name, measured.whole))
}

pub(super) fn clear_sides(bench: &Bench) -> Result<()> {
    let place = |side| bench.directory.join(format!("{NAME}-{side}"));
    SIDES.into_iter().try_for_each(|side| clear(&place(side)))
}

pub(super) fn open(path: &Path, side: Side) -> Result<Store> {
    let door = match side {
        Side::Service | Side::Exact => Door::Service,
        _ => {
            atomdir::init(path, None)?;
            Door::Embedded
        }
    };
    let store = StoreOptions::new().door(door).open(path);
    Ok(store.map_err(atomdir::Error::from)?)
}

/// Runs plain calls in the view of a transaction.
fn in_view(store: &Store, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let tx = store.begin().map_err(atomdir::Error::from)?;
    work(tx.view().ok_or(Error::NoSide("have a view"))?)?;
    tx.commit().map_err(atomdir::Error::from)?;
    Ok(())
}

fn at_once(action: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let action = &action;
        let spawn = |thread| scope.spawn(move || action(thread));
        let running: Vec<_> = (0..THREADS).map(spawn).collect();
        running.into_iter().try_for_each(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn plain_cancel(directory: &Path, thread: u64) -> Result<()> {
    let path = directory.join(format!("temporary-{thread}"));
    fs::write(&path, b"x").describe("write", &path)?;
    fs::remove_file(&path).describe("remove", &path)?;
    pages::flush(directory)
}

fn cancel_in(store: &Store, thread: u64, count: u64) -> Done {
    let name = format!("temporary-{thread}");
    let tx = store.begin()?;
    for _ in 0..count {
        tx.write(&name, b"x")?;
        tx.remove_file(&name)?;
    }
    tx.commit()?;
    Ok(())
}

/// Writes a log and flushes it and its directory, makes the update, and removes the log.
fn plain_log(directory: &Path, offset: u64) -> Result<()> {
    let log = directory.join("log");
    fs::write(&log, CONTENTS).describe("write", &log)?;
    pages::flush(&log)?;
    pages::flush(directory)?;
    plain_update(directory, offset)?;
    fs::remove_file(&log).describe("remove", &log)?;
    pages::flush(directory)
}

fn plain_update(directory: &Path, offset: u64) -> Result<()> {
    let path = directory.join("data");
    let data = pages::open(&path)?;
    data.write_all_at(&CONTENTS, offset)
        .and_then(|()| data.sync_data())
        .describe("write", &path)
}

fn update(store: &Store, offset: u64, durability: Durability) -> Done {
    let tx = store.transaction().durability(durability).begin()?;
    let mut options = atomdir::OpenOptions::new();
    let data = tx.open_with("data", options.write(true))?;
    data.write_all_at(&CONTENTS, offset)?;
    drop(data);
    tx.commit()?;
    Ok(())
}

fn plain_order(directory: &Path, step: u64, offset: u64) -> Result<()> {
    for number in 0..3 {
        let path = directory.join(format!("{step}-{number}"));
        let mut file = OpenOptions::new();
        let file = file.write(true).create_new(true).open(&path);
        let mut file = file.describe("make", &path)?;
        file.write_all(&CONTENTS)
            .and_then(|()| file.sync_all())
            .describe("write", &path)?;
        pages::flush(directory)?;
    }
    plain_update(directory, offset)
}

fn order_in(store: &Store, step: u64, offset: u64) -> Done {
    for number in 0..3 {
        let tx = store.transaction().durability(Durability::Lazy).begin()?;
        tx.write(format!("{step}-{number}"), CONTENTS)?;
        tx.commit()?;
    }
    update(store, offset, Durability::Durable)
}

fn plain_together(directory: &Path) -> Result<()> {
    CONFIGURATION
        .into_iter()
        .try_for_each(|name| pages::replace(&directory.join(name), PAGE))
}

fn together_in(store: &Store) -> Done {
    let tx = store.begin()?;
    for name in CONFIGURATION {
        tx.write(name, CONTENTS)?;
    }
    tx.commit()?;
    Ok(())
}
