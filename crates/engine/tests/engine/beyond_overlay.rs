//! Objects that an ordinary user's overlay cannot change are found wherever they are, and whoever made
//! them when.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use atomdir_disk::Owner;
use atomdir_engine::BeyondOverlay;

use crate::support::{Scratch, begin, create, open};

const MANY: usize = 10_000;

fn own(root: &Path) -> Owner {
    let stat = fs::metadata(root).expect("there");
    Owner {
        user: stat.uid(),
        group: stat.gid(),
    }
}

fn several(paths: [&str; 2], found: Option<BeyondOverlay>) {
    let Some(BeyondOverlay::SeveralNames { path }) = found else {
        panic!("{found:?}");
    };
    let path = String::from_utf8(path).expect("text");
    assert!(paths.contains(&&*path), "{path}");
}

#[test]
fn objects_made_between_two_looks_are_found() {
    let scratch = Scratch::new();
    let root = scratch.0.as_path();
    fs::create_dir_all(root.join("a/b/c")).expect("made");
    fs::create_dir(root.join("d")).expect("made");
    fs::write(root.join("a/b/file"), "").expect("written");
    symlink("file", root.join("a/b/link")).expect("linked");
    // A directory's time must be old enough to tell a later change.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    create(root);
    let store = open(root);
    let look = || {
        let view = begin(&store);
        view.beyond_overlay(own(root), MANY).expect("looked")
    };
    assert_eq!(look(), None);
    assert_eq!(look(), None);
    for (from, to) in [("a/b/file", "d/file"), ("a/b/link", "a/b/c/link")] {
        fs::hard_link(root.join(from), root.join(to)).expect("linked");
        several([from, to], look());
        fs::remove_file(root.join(to)).expect("removed");
        assert_eq!(look(), None);
    }
    // A directory that was moved here, and one that took another's place.
    let outside = scratch.0.with_extension("outside");
    fs::create_dir_all(outside.join("c")).expect("made");
    fs::write(outside.join("c/file"), "").expect("written");
    fs::hard_link(outside.join("c/file"), outside.join("file")).expect("linked");
    fs::remove_dir(root.join("a/b/c")).expect("removed");
    fs::rename(outside.join("c"), root.join("a/b/c")).expect("moved");
    several(["a/b/c/file", ""], look());
    fs::remove_dir_all(outside).expect("removed");
    assert_eq!(look(), None);
}

#[test]
fn a_directory_that_may_only_be_listed_is_left_out() {
    let scratch = Scratch::new();
    let root = scratch.0.as_path();
    if own(root).user == 0 {
        eprintln!("skipped: root may search every directory");
        return;
    }
    let closed = root.join("closed");
    fs::create_dir(&closed).expect("made");
    fs::write(closed.join("file"), "").expect("written");
    create(root);
    let store = open(root);
    for mode in [0o400, 0o100, 0o000, 0o700] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("set");
        let found = begin(&store).beyond_overlay(own(root), MANY);
        assert_eq!(found.expect("looked"), None, "{mode:o}");
    }
}

#[test]
fn other_owners_are_found() {
    let scratch = Scratch::new();
    let root = scratch.0.as_path();
    if own(root).user != 0 {
        eprintln!("skipped: only root can give files away");
        return;
    }
    fs::create_dir(root.join("d")).expect("made");
    fs::write(root.join("d/file"), "").expect("written");
    create(root);
    let store = open(root);
    for path in ["d/file", "d"] {
        let given = |owner, group| std::os::unix::fs::chown(root.join(path), owner, group);
        for (owner, group) in [(Some(60), None), (None, Some(60))] {
            given(owner, group).expect("given away");
            let found = begin(&store).beyond_overlay(own(root), MANY);
            let path = path.as_bytes().to_vec();
            assert_eq!(found, Ok(Some(BeyondOverlay::OtherOwner { path })));
            given(Some(0), Some(own(root).group)).expect("given back");
        }
    }
    assert_eq!(begin(&store).beyond_overlay(own(root), MANY), Ok(None));
}

/// A look at a large store is done in pieces.
#[test]
fn each_look_goes_on_where_the_last_one_ended() {
    let scratch = Scratch::new();
    let root = scratch.0.as_path();
    for directory in 0..10 {
        let directory = root.join(directory.to_string());
        fs::create_dir(&directory).expect("made");
        for file in 0..10 {
            fs::write(directory.join(file.to_string()), "").expect("written");
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(1200));
    create(root);
    let store = open(root);
    let mut looks = 1;
    // A directory that was looked at counts as one object.
    while begin(&store).beyond_overlay(own(root), 40) != Ok(None) {
        looks += 1;
        assert!(looks < 20, "it never ends");
    }
    assert!(looks > 2, "{looks}");
}
