//! The contract of [`Disk`], as a test that any implementation can run. It does not test what is
//! durable when; the simulated disk does.

mod attributes;
mod contents;
mod entries;
mod listings;

use std::fmt::Debug;

// Not by `crate`: the tests of other disks include this folder.
use super::{
    Access, Disk, Errno, Extent, Kind, Name, NewNode, Owner, RenameMode, Result, Stat, Times,
    Timestamp,
};

/// The abilities of the tested disk and of the user that runs the test.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// May change owners, make device nodes and set `trusted.*` attributes.
    pub privileged: bool,
    /// Has `user.*` extended attributes.
    pub user_xattrs: bool,
    pub large_directory_entries: u32,
}

/// Tests every method below an empty directory, and leaves that empty.
///
/// # Panics
/// If any promise is broken.
pub fn check<D: Disk>(disk: &D, directory: &D::Handle, abilities: Abilities) {
    let bench = Bench { disk, abilities };
    let within = |name: &str, check: &dyn Fn(&Bench<'_, D>, &D::Handle)| {
        ok(disk.make(directory, &n(name), &NewNode::Directory, 0o755));
        check(&bench, &bench.directory(directory, name));
        remove_tree(disk, directory, &n(name));
    };
    within("kinds", &entries::every_kind);
    within("names", &entries::odd_names);
    within("refusals", &entries::refusals);
    within("links", &entries::links);
    within("renames", &entries::renames);
    within("contents", &contents::reads_and_writes);
    within("holes", &contents::holes);
    within("copies", &contents::copies);
    within("modes", &attributes::modes);
    within("owners", &attributes::owners);
    within("times", &attributes::times);
    within("xattrs", &attributes::xattrs);
    within("xattrs of symlinks", &attributes::symlink_xattrs);
    within("listings", &listings::large_and_concurrent);
    within("syncs", &contents::syncs_and_locks);
    assert_eq!(ok(disk.list(directory)), []);
}

/// Removes `name` of `directory`, whatever it is, with everything below it.
pub fn remove_tree<D: Disk>(disk: &D, directory: &D::Handle, name: &Name) {
    if ok(disk.stat_at(directory, name)).kind != Kind::Directory {
        return ok(disk.unlink(directory, name));
    }
    let handle = ok(disk.open(directory, name, Access::Directory));
    for entry in ok(disk.list(&handle)) {
        if entry.kind.is_none_or(|kind| kind == Kind::Directory) {
            remove_tree(disk, &handle, &entry.name);
        } else {
            ok(disk.unlink(&handle, &entry.name));
        }
    }
    ok(disk.remove_directory(directory, name));
}

struct Bench<'a, D: Disk> {
    disk: &'a D,
    abilities: Abilities,
}

impl<D: Disk> Bench<'_, D> {
    #[track_caller]
    fn open(&self, directory: &D::Handle, name: &str, access: Access) -> D::Handle {
        ok(self.disk.open(directory, &n(name), access))
    }

    #[track_caller]
    fn directory(&self, directory: &D::Handle, name: &str) -> D::Handle {
        self.open(directory, name, Access::Directory)
    }

    #[track_caller]
    fn make(&self, directory: &D::Handle, name: &str, node: &NewNode) {
        ok(self.disk.make(directory, &n(name), node, 0o755));
    }

    #[track_caller]
    fn symlink(&self, directory: &D::Handle, name: &str, target: &str) {
        self.make(directory, name, &NewNode::Symlink(target.into()));
    }

    #[track_caller]
    fn write(&self, directory: &D::Handle, name: &str, contents: &[u8]) -> D::Handle {
        let file = ok(self.disk.create(directory, &n(name), 0o644));
        ok(self.disk.write_at(&file, contents, 0));
        file
    }

    #[track_caller]
    fn read(&self, file: &D::Handle) -> Vec<u8> {
        let mut contents = vec![0; 1 << 20];
        let length = ok(self.disk.read_at(file, &mut contents, 0));
        assert!(length < contents.len());
        contents.truncate(length);
        contents
    }

    #[track_caller]
    fn read_at(&self, directory: &D::Handle, name: &str) -> Vec<u8> {
        self.read(&self.open(directory, name, Access::Read))
    }

    #[track_caller]
    fn stat(&self, directory: &D::Handle, name: &str) -> Stat {
        ok(self.disk.stat_at(directory, &n(name)))
    }

    #[track_caller]
    fn mode(&self, directory: &D::Handle, name: &str) -> u32 {
        self.stat(directory, name).attributes.mode
    }

    #[track_caller]
    fn names(&self, directory: &D::Handle) -> Vec<String> {
        let entries = ok(self.disk.list(directory));
        let name = |name: Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let mut names: Vec<String> = entries.into_iter().map(|entry| name(entry.name)).collect();
        names.sort();
        names
    }
}

#[track_caller]
fn n(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a valid name")
}

#[track_caller]
fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("failed: {error}"),
    }
}

#[track_caller]
fn refused<T>(result: Result<T>, with: Errno) {
    match result {
        Ok(_) => panic!("succeeded instead of: {with}"),
        Err(error) => assert_eq!(error, with),
    }
}

/// Every kind of object that the user can make, except a regular file.
fn nodes(abilities: Abilities) -> Vec<(&'static str, NewNode, Kind)> {
    let mut nodes = vec![
        ("regular", NewNode::File, Kind::File),
        ("directory", NewNode::Directory, Kind::Directory),
        (
            "symlink",
            NewNode::Symlink(b"no/where".to_vec()),
            Kind::Symlink,
        ),
        ("fifo", NewNode::Fifo, Kind::Fifo),
        ("socket", NewNode::Socket, Kind::Socket),
    ];
    if abilities.privileged {
        nodes.push((
            "null",
            NewNode::CharacterDevice(NULL_DEVICE),
            Kind::CharacterDevice,
        ));
        nodes.push(("loop", NewNode::BlockDevice(LOOP_DEVICE), Kind::BlockDevice));
    }
    nodes
}

/// `makedev(1, 3)`
const NULL_DEVICE: u64 = 0x103;
/// `makedev(7, 300)`: a minor number of more than eight bits.
const LOOP_DEVICE: u64 = 0x10_072c;

fn assert_sorted<T: Debug + PartialEq + Ord + Clone>(actual: &[T], expected: &[T]) {
    let (mut actual, mut expected) = (actual.to_vec(), expected.to_vec());
    actual.sort();
    expected.sort();
    assert_eq!(actual, expected);
}
