//! Transactions of a real store, seen through the kernel.

#![cfg(test)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use support::store;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_transaction_is_a_directory() {
    let Some(mounted) = store::mount() else {
        return;
    };
    fs::create_dir(mounted.base.join("old")).unwrap();
    fs::write(mounted.base.join("old/file"), "old").unwrap();
    let (first, one) = mounted.begin();
    let (second, two) = mounted.begin();
    let mut ids = vec![first.id().to_string(), second.id().to_string()];
    ids.sort();
    assert_eq!(names(&mounted.place), ids);
    assert_eq!(names(one.parent().unwrap()), ["base"]);
    assert_eq!(fs::metadata(&mounted.place).unwrap().mode() & 0o7777, 0o711);
    let wrapper = fs::metadata(one.parent().unwrap()).unwrap();
    assert_eq!(wrapper.mode() & 0o7777, 0o700);
    assert_eq!(wrapper.uid(), first.owner());

    fs::write(one.join("old/file"), "new").unwrap();
    fs::rename(one.join("old"), one.join("moved")).unwrap();
    fs::write(one.join("added"), "added").unwrap();
    assert_eq!(names(&one), ["added", "moved"], "without .atomdir");
    assert_eq!(fs::read(two.join("old/file")).unwrap(), b"old");
    assert_eq!(names(&two), ["old"]);
    let error = fs::rename(one.join("added"), two.join("added")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices);
    let error = fs::write(mounted.place.join("x"), "").unwrap_err();
    assert!(error.raw_os_error().is_some());

    mounted.commit(&first);
    assert_eq!(names(&mounted.base), [".atomdir", "added", "moved"]);
    assert_eq!(fs::read(mounted.base.join("moved/file")).unwrap(), b"new");
    assert_eq!(fs::read(two.join("old/file")).unwrap(), b"old", "snapshot");
    assert_eq!(names(&mounted.place), [second.id().to_string()]);
    mounted.store.abort(&second);
}

#[test]
fn process_in_an_ended_view_gets_errors() {
    let Some(mounted) = store::mount() else {
        return;
    };
    let (transaction, view) = mounted.begin();
    fs::create_dir(view.join("d")).unwrap();
    let inside = fs::File::open(view.join("d")).unwrap();
    let file = fs::File::create(view.join("d/f")).unwrap();
    mounted.store.abort(&transaction);
    mounted.views.remove(transaction.id());
    assert!(!view.exists());
    let stale = Some(rustix::io::Errno::STALE.raw_os_error());
    let error = std::os::unix::fs::FileExt::write_at(&file, b"x", 0).unwrap_err();
    assert_eq!(error.raw_os_error(), stale);

    // Other transactions begin and end; none takes over a slot that is still in use.
    for _ in 0..20 {
        let (other, path) = mounted.begin();
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/g"), "secret").unwrap();
        let flags = rustix::fs::OFlags::RDONLY;
        let mode = rustix::fs::Mode::empty();
        let error = rustix::fs::openat(&inside, "g", flags, mode).unwrap_err();
        assert!([rustix::io::Errno::STALE, rustix::io::Errno::NOENT].contains(&error));
        mounted.store.abort(&other);
        mounted.views.remove(other.id());
    }
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
