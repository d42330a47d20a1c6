//! Modes, owners, times, extended attributes.

use super::{Access, Disk, Errno, Kind, NewNode, Owner, Times, Timestamp};
use super::{Bench, n, nodes, ok, refused};

const MODES: [u32; 6] = [0o777, 0o000, 0o4711, 0o2755, 0o1777, 0o7777];

pub(super) fn modes<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    for parent_mode in [0o755, 0o2755] {
        ok(disk.set_mode(directory, parent_mode));
        for mode in MODES {
            let file = ok(disk.create(directory, &n("file"), mode));
            assert_eq!(ok(disk.stat(&file)).attributes.mode, mode, "{mode:o}");
            ok(disk.unlink(directory, &n("file")));
            for (name, node, kind) in nodes(bench.abilities) {
                ok(disk.make(directory, &n(name), &node, mode));
                if kind == Kind::Directory {
                    assert_eq!(bench.mode(directory, name), mode, "{name} {mode:o}");
                    ok(disk.remove_directory(directory, &n(name)));
                    continue;
                }
                if kind != Kind::Symlink {
                    assert_eq!(bench.mode(directory, name), mode, "{name} {mode:o}");
                }
                ok(disk.unlink(directory, &n(name)));
            }
        }
    }
    let file = bench.write(directory, "file", b"");
    for mode in MODES {
        ok(disk.set_mode(&file, mode));
        assert_eq!(bench.mode(directory, "file"), mode);
        let path = bench.open(directory, "file", Access::Path);
        ok(disk.set_mode(&path, mode ^ 0o707));
        assert_eq!(bench.mode(directory, "file"), mode ^ 0o707);
    }
    bench.symlink(directory, "symlink", "file");
    let symlink = bench.open(directory, "symlink", Access::Path);
    refused(disk.set_mode(&symlink, 0o600), Errno::OPNOTSUPP);

    ok(disk.set_mode(&file, 0o400));
    let path = bench.open(directory, "file", Access::Path);
    for (bits, expected) in [(0, true), (4, true), (2, bench.abilities.privileged)] {
        assert_eq!(ok(disk.may_access(&path, bits)), expected, "{bits}");
    }
    // A file that nobody may execute cannot be executed even by root.
    assert!(!ok(disk.may_access(&file, 1)));
    assert!(ok(disk.may_access(directory, 7)));
    assert!(ok(disk.may_access(&symlink, 4)));
    refused(disk.may_access(&file, 8), Errno::INVAL);
}

pub(super) fn owners<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    let file = bench.write(directory, "file", b"");
    let own = ok(disk.stat(&file)).attributes.owner;
    ok(disk.set_mode(&file, 0o6755));
    ok(disk.set_owner(&file, own));
    assert_eq!(bench.mode(directory, "file"), 0o755);
    if !bench.abilities.privileged {
        let other = Owner {
            user: own.user + 1,
            ..own
        };
        return refused(disk.set_owner(&file, other), Errno::PERM);
    }
    bench.make(directory, "x", &NewNode::Directory);
    ok(disk.remove_directory(directory, &n("x")));
    for (index, (name, node, _)) in (0..).zip(nodes(bench.abilities)) {
        bench.make(directory, name, &node);
        let owner = Owner {
            user: 70_000 + index,
            group: 80_000 + index,
        };
        ok(disk.set_owner(&bench.open(directory, name, Access::Path), owner));
        assert_eq!(
            bench.stat(directory, name).attributes.owner,
            owner,
            "{name}"
        );
    }
    let unchanged = Owner {
        user: u32::MAX,
        group: 0,
    };
    refused(disk.set_owner(&file, unchanged), Errno::INVAL);
}

pub(super) fn times<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    let disk = bench.disk;
    bench.write(directory, "file", b"");
    let mut names = vec!["file"];
    for (name, node, _) in nodes(bench.abilities) {
        bench.make(directory, name, &node);
        names.push(name);
    }
    let times = Times {
        accessed: Timestamp {
            seconds: -1_000_000_000,
            nanoseconds: 999_999_999,
        },
        modified: Timestamp {
            seconds: 5_000_000_000,
            nanoseconds: 1,
        },
    };
    for name in names {
        let before = bench.stat(directory, name);
        let object = bench.open(directory, name, Access::Path);
        ok(disk.set_times(&object, times));
        let after = ok(disk.stat(&object));
        assert_eq!(after.attributes.times, times, "{name}");
        assert!(after.changed >= before.changed);
        assert_eq!(after.identity, before.identity);
    }
    let mut wrong = times;
    wrong.accessed.nanoseconds = 1_000_000_000;
    let file = bench.open(directory, "file", Access::Read);
    refused(disk.set_times(&file, wrong), Errno::INVAL);
    ok(disk.set_times(&file, times));
    // Listing and reading do not change the access time.
    bench.read(&file);
    assert_eq!(ok(disk.stat(&file)).attributes.times, times);
    let made = bench.stat(directory, "file").changed;
    ok(disk.touch(&file));
    let touched = ok(disk.stat(&file)).attributes.times;
    assert!(touched.accessed >= made && touched.accessed < times.modified);
    assert_eq!(touched.modified, touched.accessed);
}

pub(super) fn xattrs<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    if !bench.abilities.user_xattrs {
        return;
    }
    let disk = bench.disk;
    bench.write(directory, "file", b"");
    bench.make(directory, "directory", &NewNode::Directory);
    let handles = [
        bench.open(directory, "file", Access::Path),
        bench.open(directory, "file", Access::ReadWrite),
        bench.open(directory, "file", Access::Read),
        bench.directory(directory, "directory"),
        bench.open(directory, "directory", Access::Path),
    ];
    let large = vec![b'v'; 3000];
    for object in &handles {
        refused(disk.xattr(object, b"user.one"), Errno::NODATA);
        refused(disk.remove_xattr(object, b"user.one"), Errno::NODATA);
        ok(disk.set_xattr(object, b"user.one", b""));
        assert_eq!(ok(disk.xattr(object, b"user.one")), b"");
        ok(disk.set_xattr(object, b"user.one", &large));
        ok(disk.set_xattr(object, b"user.\xfftwo", b"\0second\0"));
        assert_eq!(ok(disk.xattr(object, b"user.one")), large);
        assert_eq!(ok(disk.xattr(object, b"user.\xfftwo")), b"\0second\0");
        let mut names = ok(disk.xattr_names(object));
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [&b"user.one"[..], b"user.\xfftwo"]);
        let all = ok(disk.xattrs(object));
        assert!(all.contains(&(b"user.one".to_vec(), large.clone())));
        assert!(all.contains(&(b"user.\xfftwo".to_vec(), b"\0second\0".to_vec())));
        ok(disk.remove_xattr(object, b"user.one"));
        ok(disk.remove_xattr(object, b"user.\xfftwo"));
    }
    let many: Vec<Vec<u8>> = (10..60)
        .map(|index| format!("user.a name of some length {index}").into())
        .collect();
    for name in &many {
        ok(disk.set_xattr(&handles[0], name, b"1"));
    }
    let names = ok(disk.xattr_names(&handles[0]));
    assert!(many.iter().all(|name| names.contains(name)));
    assert_eq!(ok(disk.xattr_names_at(directory, &n("file"))), names);
    assert!(!ok(disk.xattr_names_at(directory, &n("directory"))).contains(&many[0]));
    refused(disk.xattr_names_at(directory, &n("absent")), Errno::NOENT);
    let longer = vec![b'v'; 300];
    ok(disk.set_xattr(&handles[0], b"user.longer", &longer));
    let by_name = ok(disk.xattrs_at(directory, &n("file")));
    assert_eq!(by_name, ok(disk.xattrs(&handles[0])));
    assert!(by_name.contains(&(b"user.longer".to_vec(), longer)));
    refused(disk.xattrs_at(directory, &n("absent")), Errno::NOENT);
    refused(
        disk.set_xattr(&handles[0], b"nonsense.one", b""),
        Errno::OPNOTSUPP,
    );
}

/// Extended attributes of a symbolic link belong to the link itself, even if it leads to an
/// existing object.
pub(super) fn symlink_xattrs<D: Disk>(bench: &Bench<'_, D>, directory: &D::Handle) {
    if !bench.abilities.privileged {
        return;
    }
    let disk = bench.disk;
    let file = bench.write(directory, "file", b"");
    bench.symlink(directory, "symlink", "file");
    bench.make(directory, "fifo", &NewNode::Fifo);
    for name in ["symlink", "fifo"] {
        let object = bench.open(directory, name, Access::Path);
        ok(disk.set_xattr(&object, b"trusted.own", name.as_bytes()));
        assert_eq!(ok(disk.xattr(&object, b"trusted.own")), name.as_bytes());
        assert!(ok(disk.xattr_names(&object)).contains(&b"trusted.own".to_vec()));
        let names = ok(disk.xattr_names_at(directory, &n(name)));
        assert!(names.contains(&b"trusted.own".to_vec()));
        let own = (b"trusted.own".to_vec(), name.as_bytes().to_vec());
        assert!(ok(disk.xattrs_at(directory, &n(name))).contains(&own));
        refused(disk.xattr(&file, b"trusted.own"), Errno::NODATA);
    }
    ok(disk.set_xattr(&file, b"trusted.own", b"file"));
    let symlink = bench.open(directory, "symlink", Access::Path);
    ok(disk.remove_xattr(&symlink, b"trusted.own"));
    refused(disk.xattr(&symlink, b"trusted.own"), Errno::NODATA);
    assert_eq!(ok(disk.xattr(&file, b"trusted.own")), b"file");
}
