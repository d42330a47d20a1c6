//! Names, and the objects that they name.

use super::{Access, Disk, Errno, Kind, Name, NewNode, RenameMode};
use super::{Bench, LOOP_DEVICE, NULL_DEVICE, assert_sorted, n, nodes, ok, refused};

pub(super) fn every_kind<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    bench.write(directory, "file", b"12345");
    let mut expected = vec![(n("file"), Kind::File)];
    for (name, node, kind) in nodes(bench.abilities) {
        bench.make(directory, name, &node);
        expected.push((n(name), kind));
    }
    for (name, kind) in &expected {
        let stat = ok(disk.stat_at(directory, name));
        assert_eq!(stat.kind, *kind, "{name:?}");
        assert!(!stat.immutable);
        assert_eq!(stat.links, if *kind == Kind::Directory { 2 } else { 1 });
        let handle = ok(disk.open(directory, name, Access::Path));
        assert_eq!(ok(disk.stat(&handle)), stat, "{name:?}");
        assert_eq!(stat.device, ok(disk.stat(directory)).device);
    }
    let entries = ok(disk.list(directory));
    for entry in &entries {
        let stat = ok(disk.stat_at(directory, &entry.name));
        assert_eq!(entry.inode, stat.identity.inode);
        assert!(entry.kind.is_none_or(|kind| kind == stat.kind));
    }
    let listed: Vec<Name> = entries.into_iter().map(|entry| entry.name).collect();
    let made: Vec<Name> = expected.into_iter().map(|(name, _)| name).collect();
    assert_sorted(&listed, &made);

    assert_eq!(bench.stat(directory, "file").length, 5);
    assert_eq!(ok(disk.read_link(directory, &n("symlink"))), b"no/where");
    assert_eq!(bench.stat(directory, "symlink").length, 8);
    if bench.abilities.privileged {
        assert_eq!(bench.stat(directory, "null").device_number, NULL_DEVICE);
        assert_eq!(bench.stat(directory, "loop").device_number, LOOP_DEVICE);
    }
    // Opening a FIFO for reading never waits for a writer.
    bench.open(directory, "fifo", Access::Read);
    for access in [Access::Read, Access::ReadWrite, Access::Directory] {
        refused(disk.open(directory, &n("symlink"), access), Errno::LOOP);
    }
    refused(
        disk.open(directory, &n("file"), Access::Directory),
        Errno::NOTDIR,
    );
    refused(
        disk.open(directory, &n("directory"), Access::ReadWrite),
        Errno::ISDIR,
    );
    refused(
        disk.open(directory, &n("socket"), Access::Read),
        Errno::NXIO,
    );
}

pub(super) fn odd_names<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let longest = [b'x'; Name::LENGTH_MAX];
    let longest_too = [0xff; Name::LENGTH_MAX];
    let all: [&[u8]; 8] = [
        &longest,
        &longest_too,
        b"new\nline",
        b" ",
        b"-rf",
        b"...",
        b"\x01\xfe",
        b"\\",
    ];
    let names: Vec<Name> = all
        .iter()
        .map(|bytes| Name::new(bytes).expect("valid"))
        .collect();
    for (index, name) in names.iter().enumerate() {
        let file = ok(disk.create(directory, name, 0o600));
        ok(disk.write_at(&file, &[index as u8], 0));
    }
    let listed: Vec<Name> = ok(disk.list(directory))
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_sorted(&listed, &names);
    for (index, name) in names.iter().enumerate() {
        let file = ok(disk.open(directory, name, Access::Read));
        assert_eq!(bench.read(&file), [index as u8]);
    }
    let long_target = vec![b'y'; 4000];
    ok(disk.make(
        directory,
        &n("long"),
        &NewNode::Symlink(long_target.clone()),
        0o777,
    ));
    assert_eq!(ok(disk.read_link(directory, &n("long"))), long_target);
}

pub(super) fn refusals<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    use RenameMode::{Exchange, NoReplace, Replace};
    let disk = bench.disk;
    bench.write(directory, "file", b"");
    bench.make(directory, "full", &NewNode::Directory);
    bench.make(directory, "empty", &NewNode::Directory);
    let full = bench.directory(directory, "full");
    bench.write(&full, "inside", b"");
    let (file, none, empty) = (n("file"), n("none"), n("empty"));
    let rename =
        |from: &str, to: &str, mode| disk.rename((directory, &n(from)), (directory, &n(to)), mode);

    refused(disk.create(directory, &file, 0o644), Errno::EXIST);
    for (_, node, _) in nodes(bench.abilities) {
        refused(disk.make(directory, &file, &node, 0o644), Errno::EXIST);
    }
    refused(
        disk.link((directory, &file), (&full, &n("inside"))),
        Errno::EXIST,
    );
    refused(rename("file", "empty", NoReplace), Errno::EXIST);
    for access in [
        Access::Path,
        Access::Directory,
        Access::Read,
        Access::ReadWrite,
    ] {
        refused(disk.open(directory, &none, access), Errno::NOENT);
    }
    refused(disk.stat_at(directory, &none), Errno::NOENT);
    refused(disk.read_link(directory, &none), Errno::NOENT);
    refused(disk.read_link(directory, &file), Errno::INVAL);
    refused(disk.unlink(directory, &none), Errno::NOENT);
    refused(disk.remove_directory(directory, &none), Errno::NOENT);
    refused(
        disk.link((directory, &none), (directory, &n("other"))),
        Errno::NOENT,
    );
    for mode in [Replace, NoReplace, Exchange] {
        refused(rename("none", "other", mode), Errno::NOENT);
    }
    refused(rename("file", "none", Exchange), Errno::NOENT);

    refused(disk.unlink(directory, &empty), Errno::ISDIR);
    refused(disk.remove_directory(directory, &file), Errno::NOTDIR);
    refused(
        disk.remove_directory(directory, &n("full")),
        Errno::NOTEMPTY,
    );
    refused(
        disk.link((directory, &empty), (directory, &none)),
        Errno::PERM,
    );
    refused(rename("file", "empty", Replace), Errno::ISDIR);
    refused(rename("empty", "file", Replace), Errno::NOTDIR);
    refused(rename("empty", "full", Replace), Errno::NOTEMPTY);
    for (to, mode) in [("new", Replace), ("new", NoReplace), ("inside", Exchange)] {
        let moved = disk.rename((directory, &n("full")), (&full, &n(to)), mode);
        refused(moved, Errno::INVAL);
    }
    refused(
        disk.stat_at(&bench.open(directory, "file", Access::Path), &none),
        Errno::NOTDIR,
    );
    assert_eq!(bench.names(directory), ["empty", "file", "full"]);
    assert_eq!(bench.names(&full), ["inside"]);
}

pub(super) fn links<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let file = bench.write(directory, "file", b"contents");
    bench.symlink(directory, "symlink", "file");
    bench.make(directory, "below", &NewNode::Directory);
    let below = bench.directory(directory, "below");

    ok(disk.link((directory, &n("file")), (&below, &n("second"))));
    assert_eq!(ok(disk.stat(&file)).links, 2);
    assert_eq!(bench.stat(&below, "second"), ok(disk.stat(&file)));
    ok(disk.link((directory, &n("symlink")), (&below, &n("symlink"))));
    assert_eq!(
        bench.stat(&below, "symlink"),
        bench.stat(directory, "symlink")
    );
    assert_eq!(bench.stat(&below, "symlink").kind, Kind::Symlink);

    // If both names are of one object, rename leaves both, as POSIX requires.
    let (from, to) = ((directory, &n("file")), (&below, &n("second")));
    ok(disk.rename(from, to, RenameMode::Replace));
    assert_eq!(ok(disk.stat(&file)).links, 2);

    ok(disk.unlink(directory, &n("file")));
    ok(disk.unlink(&below, &n("second")));
    let last = ok(disk.stat(&file));
    assert_eq!((last.links, last.length), (0, 8));
    assert_eq!(bench.read(&file), b"contents");
    // A new object has another identity, even under the same name.
    bench.write(directory, "file", b"");
    assert_ne!(bench.stat(directory, "file").identity, last.identity);
}

pub(super) fn renames<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    bench.make(directory, "one", &NewNode::Directory);
    bench.make(directory, "two", &NewNode::Directory);
    let (one, two) = (
        bench.directory(directory, "one"),
        bench.directory(directory, "two"),
    );
    bench.write(&one, "a", b"of a");
    bench.write(&two, "b", b"of b");
    let before = bench.stat(&one, "a");

    ok(disk.rename((&one, &n("a")), (&two, &n("b")), RenameMode::Replace));
    assert_eq!(bench.stat(&two, "b").identity, before.identity);
    assert_eq!(bench.read_at(&two, "b"), b"of a");
    assert!(bench.names(&one).is_empty());
    ok(disk.rename((&two, &n("b")), (&one, &n("c")), RenameMode::NoReplace));
    assert_eq!(bench.names(&one), ["c"]);

    // A file and a directory are exchanged; an open handle stays with its directory.
    ok(disk.rename(
        (&one, &n("c")),
        (directory, &n("two")),
        RenameMode::Exchange,
    ));
    assert_eq!(bench.read_at(directory, "two"), b"of a");
    bench.write(&two, "kept", b"");
    assert_eq!(bench.names(&bench.directory(&one, "c")), ["kept"]);
    // Exchanging keeps both even when a non-empty directory is in the way.
    bench.make(directory, "three", &NewNode::Directory);
    ok(disk.rename(
        (&one, &n("c")),
        (directory, &n("three")),
        RenameMode::Exchange,
    ));
    assert_eq!(bench.names(&bench.directory(directory, "three")), ["kept"]);
    // A non-empty directory may replace an empty one.
    ok(disk.rename(
        (directory, &n("three")),
        (&one, &n("c")),
        RenameMode::Replace,
    ));
    assert_eq!(bench.names(&bench.directory(&one, "c")), ["kept"]);
    assert_eq!(bench.names(directory), ["one", "two"]);
    // Renaming an object to its own name does nothing.
    ok(disk.rename((&one, &n("c")), (&one, &n("c")), RenameMode::Replace));
    assert_eq!(bench.names(&one), ["c"]);
}
