//! A model test: random operations in a transaction, and the same ones in a plain directory by
//! the kernel. Each must have the same outcome, errors included, and after each commit the base
//! must be the same tree as the plain directory.

use super::Embedded;
use crate::api::session::{AttributeChange, Files, Links};
use crate::api::{Begin, OpenOptions};
use crate::served::directory::Directory;
use crate::{Kind, StoreLocation};
use atomdir_disk::{Errno, LinuxDisk, RenameMode};
use atomdir_engine::SetTime;
use atomdir_testing::{Random, Scratch, for_each_user, pick};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAMES: [&str; 5] = ["a", "b", "c", "link", "dir"];
const MODES: [u32; 10] = [
    0o644, 0o755, 0o777, 0o600, 0o400, 0o200, 0o100, 0o000, 0o4755, 0o1777,
];
/// Ids of other users, for root.
const USERS: [u32; 3] = [0, 1, 65534];

#[derive(Debug, Clone)]
enum Operation {
    Write(PathBuf, OpenOptions, u64, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Read(PathBuf),
    SetLength(PathBuf, u64),
    CreateDirectory(PathBuf, u32),
    Symlink(PathBuf, PathBuf),
    ReadLink(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf, RenameMode),
    RemoveFile(PathBuf),
    RemoveDirectory(PathBuf),
    List(PathBuf),
    Metadata(PathBuf, Links),
    SetMode(PathBuf, u32),
    SetOwner(PathBuf, u32, u32),
    SetTimes(PathBuf, Links, i64),
    SetXattr(PathBuf, &'static str, Vec<u8>),
    Xattr(PathBuf, &'static str),
    RemoveXattr(PathBuf, &'static str),
    XattrNames(PathBuf),
}

fn path(random: &mut Random) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..1 + random.below(3) {
        match random.below(24) {
            0 => path.push(".."),
            1 => path.push("."),
            _ => path.push(random.choose(&NAMES)),
        }
    }
    path
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let length = *random.choose(&[0, 1, 100, 4096, 5000, 9000]);
    let byte = random.below(256) as u8;
    vec![byte; length]
}

fn links(random: &mut Random) -> Links {
    *random.choose(&[Links::Follow, Links::Keep])
}

fn operation(random: &mut Random) -> Operation {
    let xattr = |random: &mut Random| *random.choose(&["user.a", "user.b", "trusted.c"]);
    match random.below(26) {
        0..=4 => {
            let mut options = OpenOptions::new();
            options
                .read(random.chance(3))
                .write(!random.chance(20))
                .create(!random.chance(3))
                .create_new(random.chance(6))
                .truncate(random.chance(3))
                .follow(!random.chance(4))
                .in_place(random.chance(2))
                .mode(*random.choose(&[0o666, 0o600, 0o444]));
            let offset = *random.choose(&[0, 0, 0, 10, 4096, 20_000]);
            Operation::Write(path(random), options, offset, bytes(random))
        }
        5 => Operation::Append(path(random), bytes(random)),
        6 => Operation::Read(path(random)),
        7 => Operation::SetLength(path(random), *random.choose(&[0, 5, 4096, 10_000])),
        8..=10 => Operation::CreateDirectory(path(random), *random.choose(&MODES)),
        11 => Operation::Symlink(path(random), path(random)),
        12 => Operation::ReadLink(path(random)),
        13 => Operation::Link(path(random), path(random)),
        14 | 15 => {
            let modes = [
                RenameMode::Replace,
                RenameMode::NoReplace,
                RenameMode::Exchange,
            ];
            Operation::Rename(path(random), path(random), *random.choose(&modes))
        }
        16 => Operation::RemoveFile(path(random)),
        17 => Operation::RemoveDirectory(path(random)),
        18 => Operation::List(path(random)),
        19 => Operation::Metadata(path(random), links(random)),
        20 => Operation::SetMode(path(random), *random.choose(&MODES)),
        21 => Operation::SetOwner(path(random), *random.choose(&USERS), *random.choose(&USERS)),
        22 => Operation::SetTimes(path(random), links(random), random.below(1 << 30) as i64),
        23 => Operation::SetXattr(path(random), xattr(random), bytes(random)[..0].to_vec()),
        24 => match random.below(2) {
            0 => Operation::RemoveXattr(path(random), xattr(random)),
            _ => Operation::XattrNames(path(random)),
        },
        _ => Operation::Xattr(path(random), xattr(random)),
    }
}

/// The result of the operation, in a form that can be compared.
fn perform(files: &dyn Files, operation: &Operation) -> Result<String, Errno> {
    let done = |result: Result<(), Errno>| result.map(|()| String::new());
    match operation {
        Operation::Write(path, options, offset, data) => {
            let file = files.open(path, options)?;
            done(file.write_at(data, *offset))
        }
        Operation::Append(path, data) => {
            let mut options = OpenOptions::new();
            let file = files.open(path, options.append(true).create(true))?;
            let end = file.append(data)?;
            // The kernel does not say where the file ends if nothing was written.
            Ok(match data.is_empty() {
                true => String::new(),
                false => end.to_string(),
            })
        }
        Operation::Read(path) => contents(files, path).map(|read| format!("{read:?}")),
        Operation::SetLength(path, length) => {
            let mut options = OpenOptions::new();
            let file = files.open(path, options.write(true))?;
            done(file.set_attributes(&AttributeChange {
                length: Some(*length),
                ..AttributeChange::default()
            }))
        }
        Operation::CreateDirectory(path, mode) => done(files.create_directory(path, *mode)),
        Operation::Symlink(target, path) => done(files.symlink(target, path)),
        Operation::ReadLink(path) => Ok(format!("{:?}", files.read_link(path)?)),
        Operation::Link(from, to) => done(files.link(from, to)),
        Operation::Rename(from, to, mode) => done(files.rename(from, to, *mode)),
        Operation::RemoveFile(path) => done(files.remove_file(path)),
        Operation::RemoveDirectory(path) => done(files.remove_directory(path)),
        Operation::List(path) => Ok(format!("{:?}", list(files, path)?)),
        Operation::Metadata(path, links) => describe(files, path, *links),
        Operation::SetMode(path, mode) => done(files.set_attributes(
            path,
            Links::Follow,
            &AttributeChange {
                mode: Some(*mode),
                ..AttributeChange::default()
            },
        )),
        Operation::SetOwner(path, user, group) => done(files.set_attributes(
            path,
            Links::Keep,
            &AttributeChange {
                user: Some(*user),
                group: Some(*group),
                ..AttributeChange::default()
            },
        )),
        Operation::SetTimes(path, links, seconds) => done(files.set_attributes(
            path,
            *links,
            &AttributeChange {
                modified: Some(SetTime::At(atomdir_disk::Timestamp {
                    seconds: *seconds,
                    nanoseconds: 0,
                })),
                ..AttributeChange::default()
            },
        )),
        Operation::SetXattr(path, name, value) => {
            done(files.set_xattr(path, Links::Follow, name.as_bytes(), value))
        }
        Operation::Xattr(path, name) => {
            let value = files.xattr(path, Links::Follow, name.as_bytes())?;
            Ok(format!("{value:?}"))
        }
        Operation::RemoveXattr(path, name) => {
            done(files.remove_xattr(path, Links::Follow, name.as_bytes()))
        }
        Operation::XattrNames(path) => {
            let mut names = files.xattr_names(path, Links::Follow)?;
            // The system adds such labels to what it creates.
            names.retain(|name| !name.starts_with(b"security."));
            names.sort();
            Ok(format!("{names:?}"))
        }
    }
}

fn contents(files: &dyn Files, path: &Path) -> Result<Vec<(u8, usize)>, Errno> {
    let file = files.open(path, OpenOptions::new().read(true))?;
    let mut contents = vec![0; file.metadata()?.len as usize];
    let count = file.read_at(&mut contents, 0)?;
    contents.truncate(count);
    let runs = contents.chunk_by(|one, other| one == other);
    Ok(runs.map(|run| (run[0], run.len())).collect())
}

fn list(files: &dyn Files, path: &Path) -> Result<Vec<(String, Kind)>, Errno> {
    let entries = files.list(path)?.into_iter();
    let mut entries: Vec<(String, Kind)> = entries
        .map(|entry| (entry.file_name.to_string_lossy().into_owned(), entry.kind))
        .filter(|(name, _)| name != ".atomdir")
        .collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(entries)
}

fn describe(files: &dyn Files, path: &Path, links: Links) -> Result<String, Errno> {
    let metadata = files.metadata(path, links)?;
    // File systems count the links of directories, and their lengths, differently.
    let own = match metadata.kind {
        Kind::Directory => (0, 0),
        _ => (metadata.len, metadata.links),
    };
    let of = (metadata.user, metadata.group);
    Ok(format!(
        "{:?} {:o} {own:?} {of:?}",
        metadata.kind, metadata.mode
    ))
}

/// Everything below a path that can be seen, with what each attempt to look returns.
fn look(files: &dyn Files, path: &Path, seen: &mut Vec<String>) {
    let kind = files.metadata(path, Links::Keep).map(|found| found.kind);
    let described = describe(files, path, Links::Keep);
    let own = match kind {
        Ok(Kind::Directory) => format!("{:?}", list(files, path)),
        Ok(Kind::Symlink) => format!("{:?}", files.read_link(path)),
        _ => format!("{:?}", contents(files, path)),
    };
    seen.push(format!("{}: {described:?} {own}", path.display()));
    // A symbolic link may lead to a directory above.
    if kind == Ok(Kind::Directory) {
        for (name, _) in list(files, path).unwrap_or_default() {
            look(files, &path.join(name), seen);
        }
    }
}

fn tree(files: &dyn Files) -> Vec<String> {
    let mut seen = Vec::new();
    look(files, Path::new(""), &mut seen);
    seen
}

#[test]
fn a_transaction_does_what_the_kernel_does() {
    for_each_user(
        "embedded::tests::a_transaction_does_what_the_kernel_does",
        || {
            let mut random = Random::for_test("a_transaction_does_what_the_kernel_does");
            for _ in 0..pick(8, 100) {
                run(&mut random);
            }
        },
    );
}

fn run(random: &mut Random) {
    let scratch = Scratch::new("library-model");
    let make = |name: &str| {
        let path = scratch.join(name);
        rustix::fs::mkdir(&path, 0o755.into()).expect("a new directory");
        path
    };
    let (base, plain) = (make("base"), make("plain"));
    crate::init(&base, None).expect("a store");
    let location = StoreLocation::at(&base).expect("it is one");
    let store = Arc::new(Embedded::open(&location, || Ok(())).expect("opened"));
    let directory = |path: &Path| Directory::new(LinuxDisk::open_root(path).expect("opened"));
    let model = directory(&plain);
    for _ in 0..6 {
        let transaction = store.begin(&Begin::default()).expect("begun");
        for _ in 0..40 {
            let operation = operation(random);
            if closes_root(&model, &operation) {
                continue;
            }
            let theirs = perform(&model, &operation);
            let ours = perform(transaction.files(), &operation);
            // If two things are wrong with two paths, the order of the checks shows.
            let has_two_paths = matches!(operation, Operation::Link(..) | Operation::Rename(..));
            if !(has_two_paths && ours.is_err() && theirs.is_err()) {
                assert_eq!(ours, theirs, "{operation:?}");
            }
        }
        assert_eq!(tree(transaction.files()), tree(&model), "before the commit");
        if !rustix::process::geteuid().is_root() {
            // What the base keeps from its owner stays closed to them in the next transaction,
            // even if that changes the mode: it reads the base as this user.
            for files in [transaction.files(), &model] {
                open_up(files, Path::new(""));
            }
        }
        transaction.commit().expect("nobody else is here");
        assert_eq!(tree(&directory(&base)), tree(&model), "after the commit");
    }
    drop(store);
    // So that it can be removed.
    open_up(&model, Path::new(""));
    open_up(&directory(&base), Path::new(""));
}

#[test]
fn pages_of_a_short_file_are_written_in_place_on_request() {
    let scratch = Scratch::new("library-in-place");
    crate::init(scratch.path(), None).expect("a store");
    let store = crate::Store::open(scratch.path()).expect("opened");
    let tx = store.begin().expect("begun");
    tx.write("file", vec![1; 40_000]).expect("written");
    tx.commit().expect("committed");
    let inode = || {
        let found = std::fs::metadata(scratch.join("file")).expect("it is there");
        std::os::unix::fs::MetadataExt::ino(&found)
    };
    let mut wanted = vec![1; 40_000];
    for (in_place, page) in [(true, 2), (false, 3), (true, 4)] {
        let before = inode();
        let tx = store.begin().expect("begun");
        let mut options = OpenOptions::new();
        let file = tx.open_with("file", options.write(true).in_place(in_place));
        let file = file.expect("opened");
        file.write_all_at(&[page; 4096], u64::from(page) * 4096)
            .expect("written");
        drop(file);
        tx.commit().expect("committed");
        wanted[usize::from(page) * 4096..][..4096].fill(page);
        let found = std::fs::read(scratch.join("file")).expect("read");
        assert!(found == wanted, "page {page}");
        assert_eq!(inode() == before, in_place, "page {page}");
    }
}

/// The model could not reach a closed root, since it begins each path there.
fn closes_root(files: &dyn Files, operation: &Operation) -> bool {
    let (Operation::SetMode(path, _) | Operation::SetOwner(path, ..)) = operation else {
        return false;
    };
    let inode = |path| {
        let metadata = files.metadata(path, Links::Follow);
        metadata.map(|found| found.inode)
    };
    inode(path) == inode(Path::new(""))
}

/// Lets the owner use everything.
fn open_up(files: &dyn Files, path: &Path) {
    let Ok(found) = files.metadata(path, Links::Keep) else {
        return;
    };
    if found.kind == Kind::Symlink {
        return;
    }
    let change = AttributeChange {
        mode: Some(found.mode | 0o700),
        ..AttributeChange::default()
    };
    files
        .set_attributes(path, Links::Follow, &change)
        .expect("it is ours");
    if found.kind == Kind::Directory {
        for (name, _) in list(files, path).expect("it is open now") {
            open_up(files, &path.join(name));
        }
    }
}
