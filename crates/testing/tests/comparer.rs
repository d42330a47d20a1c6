//! The comparer must report every single change, and no difference in a faithful copy. All other
//! tests rely on it.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use atomdir_testing::tree::{
    CaptureOptions, CompareOptions, Difference, Moment, Times, Tree, capture, compare,
};
use atomdir_testing::{Scratch, capture_output, copy_tree, shell, skip, tools_present};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};

const EVERYTHING: CompareOptions = CompareOptions {
    file_times: Times::Exact,
    directory_times: Times::Exact,
    access_times: false,
    holes: true,
    link_counts: true,
    inodes: false,
    root: true,
};

/// One object of each type, with every attribute set to something unusual.
const SAMPLE: &str = r#"
mkdir -p dir/sub empty
printf 'hello\n' > file
seq 20000 > dir/numbers
ln dir/numbers dir/sub/again
ln -s ../file dir/link
mkfifo dir/fifo
mknod dir/null c 1 3
mknod dir/loop b 7 0
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("dir/socket")'
truncate -s 1M sparse
printf data | dd of=sparse bs=1 seek=409600 conv=notrunc status=none
: > zero
chmod 04711 file
chmod 01770 dir
chown 12:34 dir/numbers
chown -h 56:78 dir/link
setfattr -n user.colour -v blue dir/numbers
setfattr -n trusted.secret -v x dir
setfacl -m u:games:r file
setfacl -d -m g:games:rwx dir
cp /bin/true capable
setcap cap_net_raw+ep capable
printf odd > "$(printf 'new\nline')"
touch -d '2001-02-03 04:05:06.123456789' file dir/sub empty
touch -h -d '2002-02-03 04:05:06.987654321' dir/link
"#;

fn look(path: &Path) -> Tree {
    capture(path, &CaptureOptions::default()).expect("the tree can be captured")
}

fn sample(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.join("sample");
    fs::create_dir(&path).expect("a fresh directory");
    shell(&path, SAMPLE);
    path
}

/// Captures, changes one thing, and captures again. The comparer must report `what` for `path`.
fn sees(path: &str, what: &str, options: &CompareOptions, change: impl Fn(&Path)) {
    let scratch = Scratch::new("comparer");
    let root = sample(&scratch);
    let before = look(&root);
    change(&root);
    let found = compare(&before, &look(&root), options);
    let expected = found
        .iter()
        .any(|difference| difference.path == Path::new(path) && difference.what.contains(what));
    assert!(
        expected,
        "wanted {path}: {what}, found:\n{}",
        listed(&found)
    );
}

/// Like `sees`, with every kind of comparison: this must be the only difference.
fn sees_only(path: &str, what: &str, change: impl Fn(&Path)) {
    let scratch = Scratch::new("comparer");
    let root = sample(&scratch);
    let before = look(&root);
    change(&root);
    let found = compare(&before, &look(&root), &EVERYTHING);
    assert_eq!(found.len(), 1, "{}", listed(&found));
    assert_eq!(found[0].path, Path::new(path));
    assert!(found[0].what.contains(what), "{}", listed(&found));
}

fn listed(found: &[Difference]) -> String {
    found
        .iter()
        .map(|difference| format!("{difference}\n"))
        .collect()
}

fn set_times(path: &Path, accessed: Option<i64>, modified: Option<(i64, i64)>) {
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT,
    };
    let times = Timestamps {
        last_access: accessed.map_or(omit, |tv_sec| Timespec { tv_sec, tv_nsec: 0 }),
        last_modification: modified.map_or(omit, |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec }),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times can be set");
}

fn modified_at(path: &Path) -> Moment {
    look(path.parent().expect("not the root")).entries[Path::new(path.file_name().expect("a name"))]
        .modified
}

/// Changes the object at the path, and puts its modification time back.
fn keeping_time(path: &Path, change: impl Fn()) {
    let Moment {
        seconds,
        nanoseconds,
    } = modified_at(path);
    change();
    set_times(path, None, Some((seconds, nanoseconds.into())));
}

fn ready() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip("comparer", "only root may make the sample's devices");
        return false;
    }
    tools_present(
        "comparer",
        &["setfacl", "setfattr", "setcap", "python3", "rsync"],
    )
}

#[test]
fn faithful_copies_are_equal() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("comparer");
    let root = sample(&scratch);
    let original = look(&root);
    assert!(original.entries.len() > 15, "the sample is whole");
    let same = compare(&original, &look(&root), &CompareOptions::untouched());
    assert!(
        same.is_empty(),
        "a tree differs from itself:\n{}",
        listed(&same)
    );

    let by_cp = scratch.join("by-cp");
    copy_tree(&root, &by_cp);
    let found = compare(&original, &look(&by_cp), &EVERYTHING);
    assert!(found.is_empty(), "cp -a:\n{}", listed(&found));

    // rsync gives new times to special files, and to directories with hard links or special
    // files in them. It also makes holes in blocks of its own size.
    shell(&root, "rm dir/socket dir/fifo dir/null dir/loop");
    let original = look(&root);
    let by_rsync = scratch.join("by-rsync");
    let source = format!("{}/", root.display());
    capture_output(
        Command::new("rsync")
            .args(["-aHAXS", &source])
            .arg(&by_rsync),
    )
    .expect(0);
    let options = CompareOptions {
        holes: false,
        directory_times: Times::Ignored,
        ..EVERYTHING
    };
    let found = compare(&original, &look(&by_rsync), &options);
    assert!(found.is_empty(), "rsync -aHAX:\n{}", listed(&found));
}

#[test]
fn changes_of_contents_and_sizes_are_reported() {
    if !ready() {
        return;
    }
    sees_only(
        "sparse",
        "contents differ in 1 pages, first in that at byte 409600",
        |root| {
            keeping_time(&root.join("sparse"), || {
                let file = File::options()
                    .write(true)
                    .open(root.join("sparse"))
                    .expect("a file");
                file.write_all_at(b"D", 409_600).expect("written");
            });
        },
    );
    sees(
        "dir/numbers",
        "first in that at byte 8192",
        &EVERYTHING,
        |root| {
            let file = File::options()
                .write(true)
                .open(root.join("dir/numbers"))
                .expect("a file");
            file.write_all_at(b"x", 8200).expect("written");
        },
    );
    sees_only("zero", "size 0, 1", |root| {
        keeping_time(&root.join("zero"), || {
            // This adds a hole: the pages are the same, the size is not.
            File::options()
                .write(true)
                .open(root.join("zero"))
                .expect("a file")
                .set_len(1)
                .expect("longer");
        });
    });
    sees_only(
        "sparse",
        "holes in pages 0..100 101..256, 0..50 51..100 101..256",
        |root| {
            keeping_time(&root.join("sparse"), || {
                let file = File::options()
                    .write(true)
                    .open(root.join("sparse"))
                    .expect("a file");
                file.write_all_at(&[0; 4096], 50 * 4096).expect("written");
            });
        },
    );
}

#[test]
fn changes_of_modes_owners_and_types_are_reported() {
    if !ready() {
        return;
    }
    sees_only("zero", "mode 0644, 4644", |root| {
        fs::set_permissions(root.join("zero"), PermissionsExt::from_mode(0o4644)).expect("mode");
    });
    sees_only("dir", "mode 1770, 0770", |root| {
        fs::set_permissions(root.join("dir"), PermissionsExt::from_mode(0o770)).expect("mode");
    });
    sees_only("zero", "user 0, 7", |root| {
        chown(root.join("zero"), Some(7), None).expect("chown")
    });
    sees_only("dir/link", "group 78, 7", |root| {
        std::os::unix::fs::lchown(root.join("dir/link"), None, Some(7)).expect("lchown");
    });
    sees("zero", "type file, directory", &EVERYTHING, |root| {
        fs::remove_file(root.join("zero")).expect("removed");
        fs::create_dir(root.join("zero")).expect("made");
    });
    sees("dir/fifo", "type fifo, socket", &EVERYTHING, |root| {
        shell(root, "mv dir/socket dir/fifo");
    });
    sees("dir/null", "device number", &EVERYTHING, |root| {
        shell(root, "rm dir/null; mknod dir/null c 1 5");
    });
    sees("dir/loop", "device number", &EVERYTHING, |root| {
        shell(root, "rm dir/loop; mknod dir/loop b 7 1");
    });
    sees(
        "dir/link",
        "link target ../file, ../File",
        &EVERYTHING,
        |root| {
            fs::remove_file(root.join("dir/link")).expect("removed");
            symlink("../File", root.join("dir/link")).expect("linked");
        },
    );
    sees("", "mode 0755, 0700", &EVERYTHING, |root| {
        fs::set_permissions(root, PermissionsExt::from_mode(0o700)).expect("mode");
    });
}

#[test]
fn changes_of_names_and_hard_links_are_reported() {
    if !ready() {
        return;
    }
    sees("new\nline", "only left, a file", &EVERYTHING, |root| {
        fs::remove_file(root.join("new\nline")).expect("removed");
    });
    sees(
        "empty/new",
        "only right, a directory",
        &EVERYTHING,
        |root| {
            fs::create_dir(root.join("empty/new")).expect("made");
        },
    );
    sees(
        "dir/sub/again",
        "hard link of dir/numbers, dir/sub/again",
        &EVERYTHING,
        |root| {
            shell(root, "cp -a dir/numbers copy; mv copy dir/sub/again");
        },
    );
    sees("file", "hard link of file, copy", &EVERYTHING, |root| {
        fs::hard_link(root.join("file"), root.join("copy")).expect("linked");
    });
    // A link from outside the tree shows only in the link count.
    sees_only("zero", "link count 1, 2", |root| {
        fs::hard_link(root.join("zero"), root.with_file_name("outside")).expect("linked");
    });
    // Two pairs of links exchange partners, so no link count differs.
    let scratch = Scratch::new("comparer");
    let root = scratch.path();
    shell(
        root,
        "mkdir l r; for d in l r; do cd $d; : > a; : > b; cd ..; done",
    );
    shell(root, "ln l/a l/c; ln l/b l/d; ln r/a r/d; ln r/b r/c");
    let found = compare(
        &look(&root.join("l")),
        &look(&root.join("r")),
        &CompareOptions::alike(),
    );
    let text = listed(&found);
    assert!(
        text.contains("c: hard link of a, b") && text.contains("d: hard link of b, a"),
        "{text}"
    );
}

#[test]
fn changes_of_extended_attributes_are_reported() {
    if !ready() {
        return;
    }
    let set = |root: &Path, path: &str, name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(root.join(path), name, value, XattrFlags::empty()).expect("set");
    };
    sees_only("zero", "xattr user.new absent, \"\\xff\"", |root| {
        set(root, "zero", "user.new", b"\xff")
    });
    sees(
        "dir/numbers",
        "xattr user.colour \"blue\", \"red\"",
        &EVERYTHING,
        |root| {
            set(root, "dir/numbers", "user.colour", b"red");
        },
    );
    sees_only("dir", "xattr trusted.secret \"x\", absent", |root| {
        rustix::fs::lremovexattr(root.join("dir"), "trusted.secret").expect("removed");
    });
    sees_only("empty", "xattr user.large absent", |root| {
        set(root, "empty", "user.large", &[7; 3000])
    });
    sees(
        "file",
        "xattr system.posix_acl_access",
        &EVERYTHING,
        |root| {
            shell(root, "setfacl -m u:daemon:r file");
        },
    );
    sees(
        "dir",
        "xattr system.posix_acl_default",
        &EVERYTHING,
        |root| {
            shell(root, "setfacl -k dir");
        },
    );
    sees_only("capable", "xattr security.capability", |root| {
        shell(root, "setcap cap_net_raw,cap_net_admin+ep capable");
    });
}

#[test]
fn changes_of_times_and_inodes_are_reported() {
    if !ready() {
        return;
    }
    sees_only(
        "file",
        "modification time 981173106.123456789, 981173106.123456788",
        |root| {
            set_times(&root.join("file"), None, Some((981_173_106, 123_456_788)));
        },
    );
    sees_only("dir/sub", "modification time", |root| {
        set_times(&root.join("dir/sub"), None, Some((1, 1)))
    });
    sees_only("dir/link", "modification time", |root| {
        set_times(&root.join("dir/link"), None, Some((1, 1)))
    });
    let with_access = CompareOptions {
        access_times: true,
        ..EVERYTHING
    };
    sees("zero", "access time", &with_access, |root| {
        set_times(&root.join("zero"), Some(5), None)
    });
    sees("zero", "inode", &CompareOptions::untouched(), |root| {
        shell(root, "cp -a zero copy; mv copy zero");
    });
}

#[test]
fn times_are_compared_relative_to_the_run() {
    let at = |seconds| Moment {
        seconds,
        nanoseconds: 0,
    };
    let times = Times::Since {
        left: at(1000),
        right: at(2000),
    };
    let options = CompareOptions {
        file_times: times,
        ..CompareOptions::alike()
    };
    let scratch = Scratch::new("comparer");
    shell(scratch.path(), "mkdir l r; : > l/f; : > r/f");
    let differ = |left, right| {
        set_times(&scratch.join("l/f"), None, Some((left, 0)));
        set_times(&scratch.join("r/f"), None, Some((right, 0)));
        !compare(
            &look(&scratch.join("l")),
            &look(&scratch.join("r")),
            &options,
        )
        .is_empty()
    };
    assert!(!differ(999, 999), "left alone in both");
    assert!(differ(999, 998), "left alone, yet another time");
    assert!(differ(999, 2001), "left alone, yet renewed");
    assert!(!differ(1001, 2001), "changed by both runs");
    assert!(differ(1001, 1999), "changed by one run alone");
}

#[test]
fn trees_with_too_long_paths_are_captured() {
    let scratch = Scratch::new("comparer");
    if !tools_present("comparer: deep trees", &["python3"]) {
        return;
    }
    let script = "import os\nfor _ in range(30):\n os.mkdir('d'*200); os.chdir('d'*200)\nopen('leaf','w').write('deep')";
    capture_output(
        Command::new("python3")
            .args(["-c", script])
            .current_dir(scratch.path()),
    )
    .expect(0);
    let tree = look(scratch.path());
    let leaf = tree
        .entries
        .keys()
        .find(|path| path.ends_with("leaf"))
        .expect("the leaf is there");
    assert!(leaf.as_os_str().as_bytes().len() > 6000);
}

#[test]
fn the_control_directory_is_left_out_at_the_root_alone() {
    let scratch = Scratch::new("comparer");
    shell(scratch.path(), "mkdir -p .atomdir sub/.atomdir");
    let tree = look(scratch.path());
    assert!(!tree.entries.contains_key(Path::new(".atomdir")));
    assert!(tree.entries.contains_key(Path::new("sub/.atomdir")));
}
