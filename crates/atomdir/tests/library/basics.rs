//! Transactions from their begin to their commit or abort.

use crate::support::Place;
use atomdir::{CommitError, Durability, FileError, OpenOptions};
use atomdir_testing::{for_each_user, wait_until};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;

#[test]
fn changes_are_in_the_base_after_the_commit_and_not_before() {
    for_each_user(
        "basics::changes_are_in_the_base_after_the_commit_and_not_before",
        || {
            let place = Place::new("library-commit");
            std::fs::write(place.base.join("b"), "b").expect("written");
            let store = place.open();
            let tx = store.begin().expect("begun");
            tx.create_dir("conf").expect("made");
            tx.write("conf/a.toml", "port = 80\n").expect("written");
            tx.rename("b", "c").expect("renamed");
            assert_eq!(
                tx.read_to_string("conf/a.toml").expect("read"),
                "port = 80\n"
            );
            assert!(!tx.exists("b").expect("looked") && tx.exists("c").expect("looked"));
            assert_eq!(place.read("conf/a.toml"), None);
            assert_eq!(place.read("b").as_deref(), Some("b"));
            let receipt = tx.commit().expect("committed");
            assert_eq!(receipt.changes(), 3);
            assert!(receipt.sequence().is_some() && receipt.stalled().is_none());
            assert_eq!(place.read("conf/a.toml").as_deref(), Some("port = 80\n"));
            assert_eq!(
                (place.read("b"), place.read("c").as_deref()),
                (None, Some("b"))
            );
            store.close().expect("closed");
        },
    );
}

#[test]
fn dropping_a_transaction_aborts_it() {
    let place = Place::new("library-drop");
    let store = place.open();
    {
        let tx = store.begin().expect("begun");
        tx.write("a", "1").expect("written");
        let mut file = tx.create("b").expect("created");
        file.write_all(b"2").expect("written");
    }
    let tx = store.begin().expect("begun");
    assert!(!tx.exists("a").expect("looked") && !tx.exists("b").expect("looked"));
    tx.abort();
    store.close().expect("closed");
    assert_eq!((place.read("a"), place.read("b")), (None, None));
    let staged = std::fs::read_dir(place.base.join(".atomdir/stage")).expect("listed");
    assert_eq!(staged.count(), 0);
}

#[test]
fn a_commit_that_fails_gives_the_transaction_back() {
    let place = Place::new("library-conflict");
    let store = place.open();
    let (first, second) = (store.begin().expect("begun"), store.begin().expect("begun"));
    first.write("a", "1").expect("written");
    second.write("a", "2").expect("written");
    first.commit().expect("committed");
    let uncommitted = second.try_commit().expect_err("both made the name");
    let CommitError::Conflict { conflicts } = &uncommitted.error else {
        panic!("{uncommitted}");
    };
    assert_eq!(conflicts[0].path.to_str(), Some("a"));
    assert!(
        matches!(conflicts[0].by, atomdir::ChangedBy::Commit { .. }),
        "{conflicts:?}"
    );
    let kept = uncommitted.transaction;
    assert_eq!(kept.read_to_string("a").expect("read"), "2");
    kept.abort();
    assert_eq!(place.read("a").as_deref(), Some("1"));
}

#[test]
fn open_files_read_write_and_seek() {
    let place = Place::new("library-file");
    let store = place.open();
    let tx = store.begin().expect("begun");
    let mut file = tx.create("a").expect("created");
    file.write_all(b"hello world").expect("written");
    file.seek(SeekFrom::Start(6)).expect("moved");
    file.write_all(b"there").expect("written");
    assert_eq!(file.seek(SeekFrom::End(-5)).expect("moved"), 6);
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "there");
    file.write_all_at(b"J", 0).expect("written");
    let mut start = [0; 5];
    assert_eq!(file.read_at(&mut start, 0).expect("read"), 5);
    assert_eq!(&start, b"Jello");
    file.set_len(5).expect("cut off");
    assert_eq!(file.metadata().expect("looked").len, 5);
    drop(file);
    let mut end = tx
        .open_with("a", OpenOptions::new().append(true))
        .expect("opened");
    end.write_all(b"!").expect("written");
    let read = end
        .read(&mut start)
        .expect_err("it is not open for reading");
    assert_eq!(read.raw_os_error(), Some(libc::EBADF));
    drop(end);
    let taken = tx.open_with("a", OpenOptions::new().write(true).create_new(true));
    let taken = taken.expect_err("it exists");
    assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    tx.commit().expect("committed");
    assert_eq!(place.read("a").as_deref(), Some("Jello!"));
}

#[test]
fn no_path_leaves_the_store() {
    let place = Place::new("library-outside");
    std::fs::write(place.scratch.join("secret"), "s").expect("written");
    let (base, secret) = (&place.base, place.scratch.join("secret"));
    symlink(&secret, base.join("absolute")).expect("linked");
    symlink("../secret", base.join("relative")).expect("linked");
    symlink("..", base.join("up")).expect("linked");
    std::fs::create_dir(base.join("in")).expect("made");
    symlink("../in/../target", base.join("in/fine")).expect("linked");
    std::fs::write(base.join("target"), "t").expect("written");
    let store = place.open();
    let tx = store.begin().expect("begun");
    let secret = secret.to_str().expect("it is text");
    for path in [
        "../secret",
        "absolute",
        "relative",
        "up/secret",
        "in/../../secret",
        secret,
    ] {
        let read = tx.read(path).expect_err(path);
        assert!(matches!(read, FileError::Outside { .. }), "{path}: {read}");
        let written = tx.write(path, "x").expect_err(path);
        assert!(
            matches!(written, FileError::Outside { .. }),
            "{path}: {written}"
        );
    }
    assert_eq!(tx.read("in/fine").expect("it stays inside"), b"t");
    assert_eq!(tx.read("in/../target").expect("it stays inside"), b"t");
    for hidden in [".atomdir", ".atomdir/log"] {
        assert!(tx.read(hidden).expect_err(hidden).is_not_found());
    }
    assert!(tx.write(".atomdir/x", "x").is_err() && tx.create_dir(".atomdir").is_err());
    let names = tx.read_dir("").expect("listed");
    assert!(names.iter().all(|entry| entry.file_name != ".atomdir"));
}

#[test]
fn a_lazy_commit_becomes_durable_by_itself_and_on_request() {
    let place = Place::new("library-lazy");
    let store = place.open();
    let begin = || {
        let options = store.transaction().durability(Durability::Lazy);
        options.begin().expect("begun")
    };
    let tx = begin();
    tx.write("a", "1").expect("written");
    let receipt = tx.commit().expect("committed");
    receipt.wait_until_durable().expect("durable");
    assert_eq!(place.read("a").as_deref(), Some("1"));
    let tx = begin();
    tx.write("b", "2").expect("written");
    tx.commit().expect("committed");
    // The library's own thread brings it into the base.
    wait_until("the file in the base", || place.read("b").is_some());
}

#[test]
fn several_threads_use_one_transaction() {
    let place = Place::new("library-threads");
    let store = place.open();
    let tx = store.begin().expect("begun");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tx = &tx;
            scope.spawn(move || {
                for number in 0..50 {
                    let name = format!("d{}/{thread}-{number}", number % 3);
                    tx.create_dir_all(format!("d{}", number % 3)).expect("made");
                    tx.write(&name, &name).expect("written");
                    let line = OpenOptions::new().append(true).create(true).clone();
                    let mut log = tx.open_with("log", &line).expect("opened");
                    log.write_all(b"one line\n").expect("written");
                }
            });
        }
    });
    tx.commit().expect("committed");
    for thread in 0..4 {
        for number in 0..50 {
            let name = format!("d{}/{thread}-{number}", number % 3);
            assert_eq!(place.read(&name), Some(name));
        }
    }
    assert_eq!(place.read("log"), Some("one line\n".repeat(200)));
}

macro_rules! see {
    ($seen:ident, $call:expr) => {
        $seen.push(
            $call
                .map(|done| format!("{done:?}"))
                .map_err(|error| error.kind()),
        )
    };
}

/// The same code, once with `std::fs` and once with a transaction.
macro_rules! rearrange {
    ($seen:ident, $at:expr, $($fs:tt)+) => {
        let at = $at;
        see!($seen, $($fs)+ create_dir_all(at("a/b/c")));
        see!($seen, $($fs)+ create_dir(at("a")));
        see!($seen, $($fs)+ write(at("a/file"), "text"));
        see!($seen, $($fs)+ hard_link(at("a/file"), at("a/b/second")));
        see!($seen, $($fs)+ hard_link(at("a/file"), at("a/b/second")));
        see!($seen, $($fs)+ copy(at("a/file"), at("a/b/copy")));
        see!($seen, $($fs)+ rename(at("a/b/copy"), at("a/moved")));
        see!($seen, $($fs)+ read_to_string(at("a/moved")));
        see!($seen, $($fs)+ read(at("a/none")));
        see!($seen, $($fs)+ exists(at("a/none")));
        see!($seen, $($fs)+ read_link(at("a/moved")));
        see!($seen, $($fs)+ remove_dir(at("a/b")));
        see!($seen, $($fs)+ remove_dir_all(at("a/file")));
        see!($seen, $($fs)+ remove_file(at("a/b")));
        see!($seen, $($fs)+ remove_dir_all(at("a/b")));
        see!($seen, $($fs)+ remove_dir_all(at("a/none")));
        see!($seen, $($fs)+ remove_file(at("a/file")));
    };
}

#[test]
fn transactions_do_what_the_functions_of_std_do_by_the_same_names() {
    let place = Place::new("library-std");
    let plain = place.scratch.join("plain");
    std::fs::create_dir(&plain).expect("made");
    let (mut by_std, mut by_transaction) = (Vec::new(), Vec::new());
    rearrange!(by_std, |path: &str| plain.join(path), std::fs::);
    let store = place.open();
    let tx = store.begin().expect("begun");
    rearrange!(by_transaction, |path: &str| path.to_owned(), tx.);
    assert_eq!(by_transaction, by_std);
}
