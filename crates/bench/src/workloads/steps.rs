//! PostMark's steps, each a transaction (Amino): in views, and by the library in this process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use atomdir::client::BeginOptions;
use atomdir::{Durability, Store};

use super::idioms::{Done, open};
use super::postmark::{CONFIGURATIONS, Configuration};
use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Describe, Result};
use crate::load::pages;
use crate::measure::{Side, in_turns};
use crate::report::Row;
use crate::workspace::Workspace;

const SIDES: [Side; 3] = [Side::Plain, Side::Exact, Side::Embedded];
/// The most steps in each configuration. PostMark itself makes as many as there are files.
const STEPS: u64 = 300;
/// How many of the configurations are measured: Amino's.
const MEASURED: usize = 4;

/// Each step reads or appends to one file, and creates or deletes another, as PostMark's steps do. If
/// steps are durable, the plain side flushes after each call, as a file system mounted `sync` does.
pub fn mail(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for configuration in &CONFIGURATIONS[..MEASURED] {
        for durability in [Durability::Durable, Durability::Lazy] {
            rows.push(steps(bench, configuration, durability)?);
        }
    }
    Ok(rows)
}

fn steps(bench: &Bench, configuration: &Configuration, durability: Durability) -> Result<Row> {
    let pool = Pool {
        files: bench.scaled(configuration.files).max(10),
        directories: configuration.directories,
        bytes: configuration.bytes,
    };
    let steps = bench.scaled(configuration.steps.min(STEPS));
    let is_durable = durability == Durability::Durable;
    let measured = in_turns(bench.few_rounds(), &SIDES, |side| {
        let workspace = Workspace::fresh(bench, side, "mail", |path| pool.fill(path))?;
        let path = &workspace.path;
        let each = |perform: &mut dyn FnMut([Action; 2]) -> Result<()>| {
            (0..steps).try_for_each(|step| perform(pool.step(step)))
        };
        let (sample, ()) = match side {
            Side::Exact => {
                let mut connection = workspace.connect()?;
                let options = BeginOptions {
                    durability,
                    ..BeginOptions::default()
                };
                workspace.counted(|| {
                    each(&mut |actions| {
                        let transaction = connection.begin(&options)?;
                        plain(&transaction.view_path, &actions, false)?;
                        connection.commit(transaction.id, &mut |_| {})?;
                        Ok(())
                    })
                })?
            }
            Side::Embedded => {
                let store = open(path, side)?;
                workspace
                    .counted(|| each(&mut |actions| Ok(embedded(&store, &actions, durability)?)))?
            }
            _ => workspace.counted(|| each(&mut |actions| plain(path, &actions, is_durable)))?,
        };
        Ok(sample.into())
    })?;
    compare::sides(bench, "mail", Degree::Contents, &SIDES)?;
    let (kind, plain) = match is_durable {
        true => ("durable", "fsync after each call"),
        false => ("lazy", "no fsync"),
    };
    let name = format!("{}, each step {kind}", configuration.name);
    let note = format!("{} files, {steps} steps; plain: {plain}", pool.files);
    Ok(Row::new(&name, measured.whole).note(&note))
}

/// The files before the first step.
struct Pool {
    files: u64,
    directories: u64,
    bytes: (u64, u64),
}

/// Paths are relative to the directory that is measured.
enum Action {
    Read(PathBuf),
    Append(PathBuf, Vec<u8>),
    Create(PathBuf, Vec<u8>),
    Remove(PathBuf),
}

impl Pool {
    fn directory(&self, number: u64) -> PathBuf {
        match self.directories {
            0 => PathBuf::from("pool"),
            count => Path::new("pool").join(format!("s{}", number % count)),
        }
    }

    fn contents(&self, number: u64) -> Vec<u8> {
        let (least, most) = self.bytes;
        let mut state = number + 1;
        let length = least + pages::random(&mut state) % (most - least);
        vec![b'm'; length as usize]
    }

    fn fill(&self, path: &Path) -> Result<()> {
        for number in 0..self.directories.max(1) {
            let directory = path.join(self.directory(number));
            fs::create_dir_all(&directory).describe("make", &directory)?;
        }
        (0..self.files).try_for_each(|number| {
            let file = path.join(self.directory(number)).join(number.to_string());
            fs::write(&file, self.contents(number)).describe("write", &file)
        })
    }

    /// The two actions of a step. Of three steps, two create a file and the third removes the second of
    /// these, so that every file to be removed exists.
    fn step(&self, step: u64) -> [Action; 2] {
        let number = step * 7 % self.files;
        let touched = self.directory(number).join(number.to_string());
        let first = match step.is_multiple_of(2) {
            true => Action::Read(touched),
            false => {
                let mut data = self.contents(step);
                data.truncate(data.len() / 2);
                Action::Append(touched, data)
            }
        };
        let new = |step: u64| self.directory(step).join(format!("new-{step}"));
        let second = match step % 3 {
            2 => Action::Remove(new(step - 1)),
            _ => Action::Create(new(step), self.contents(step)),
        };
        [first, second]
    }
}

fn plain(directory: &Path, actions: &[Action], sync: bool) -> Result<()> {
    for action in actions {
        let (path, is_entry) = match action {
            Action::Read(path) => {
                let path = directory.join(path);
                std::hint::black_box(fs::read(&path).describe("read", &path)?);
                continue;
            }
            Action::Remove(path) => {
                let path = directory.join(path);
                fs::remove_file(&path).describe("remove", &path)?;
                (path, true)
            }
            Action::Append(path, data) => (write(&directory.join(path), data, sync)?, false),
            Action::Create(path, data) => (write(&directory.join(path), data, sync)?, true),
        };
        if let (true, Some(parent)) = (sync && is_entry, path.parent()) {
            pages::flush(parent)?;
        }
    }
    Ok(())
}

fn write(path: &Path, data: &[u8], sync: bool) -> Result<PathBuf> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).open(path);
    let mut file = opened.describe("open", path)?;
    file.write_all(data).describe("write", path)?;
    if sync {
        file.sync_all().describe("flush", path)?;
    }
    Ok(path.to_owned())
}

fn embedded(store: &Store, actions: &[Action], durability: Durability) -> Done {
    let tx = store.transaction().durability(durability).begin()?;
    for action in actions {
        match action {
            Action::Read(path) => {
                std::hint::black_box(tx.read(path)?);
            }
            Action::Append(path, data) => {
                let mut options = atomdir::OpenOptions::new();
                let file = tx.open_with(path, options.append(true))?;
                file.append(data)?;
            }
            Action::Create(path, data) => tx.write(path, data)?,
            Action::Remove(path) => tx.remove_file(path)?,
        }
    }
    tx.commit()?;
    Ok(())
}
