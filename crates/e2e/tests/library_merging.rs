//! Texts in conflict are merged by lines: the same in the program's own process, through the service,
//! and by the command.

use atomdir::{
    CommitError, Conflict, Door, Isolation, Permissions, Store, StoreOptions, Take, Transaction,
    WhyNotMerged,
};
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{call_here, for_each_user_of_a_store};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What could not be merged and why, and then the contents and modes of all files.
type Seen = (Vec<(String, String)>, BTreeMap<String, (Vec<u8>, u32)>);

const NAMES: [&str; 9] = [
    "both", "long", "clash", "binary", "mode", "gone", "replaced", "outside", "link",
];

fn short() -> String {
    (1..10).map(|line| format!("{line}\n")).collect()
}

/// A text of two pages.
fn long() -> String {
    (0..1500).map(|line| format!("{line}\n")).collect()
}

fn put(tx: &Transaction, name: &str, change: impl FnOnce(String) -> String) {
    let text = tx.read_to_string(name).expect("it is there");
    tx.write(name, change(text)).expect("written");
}

/// A transaction with conflicts of every kind about files.
fn in_conflict(store: &Store) -> Transaction {
    let tx = store.begin().expect("begun");
    for name in ["new"].iter().chain(&NAMES) {
        if tx.symlink_metadata(name).is_ok() {
            tx.remove_file(name).expect("removed");
        }
    }
    for name in NAMES {
        let text = if name == "long" { long() } else { short() };
        tx.write(name, text).expect("written");
        tx.set_permissions(name, Permissions::from_mode(0o640))
            .expect("set");
    }
    tx.remove_file("link").expect("removed");
    tx.hard_link("both", "link").expect("linked");
    tx.commit().expect("nobody is in the way");

    let mine = store.begin().expect("begun");
    for name in ["both", "gone", "replaced", "outside"] {
        put(&mine, name, |text| text.replace('9', "mine"));
    }
    put(&mine, "long", |text| text.replace("\n1499\n", "\nmine\n"));
    put(&mine, "clash", |text| text.replace('2', "mine"));
    mine.write("binary", b"mine\0").expect("written");
    mine.write("new", "mine\n").expect("written");
    mine.set_permissions("mode", Permissions::from_mode(0o600))
        .expect("set");

    let theirs = store.begin().expect("begun");
    put(&theirs, "both", |text| text.replace('1', "theirs"));
    put(&theirs, "long", |text| {
        text.replacen("\n1400\n", "\ntheirs\nmore\n", 1)
    });
    put(&theirs, "clash", |text| text.replace('2', "theirs"));
    theirs.write("binary", b"theirs\0").expect("written");
    theirs.write("new", "theirs\n").expect("written");
    theirs
        .set_permissions("mode", Permissions::from_mode(0o604))
        .expect("set");
    theirs.remove_file("gone").expect("removed");
    theirs.write("other", "theirs\n").expect("written");
    theirs.rename("other", "replaced").expect("renamed");
    theirs.commit().expect("nobody is in the way");
    std::fs::write(store.root().join("outside"), "outside\n").expect("written");
    mine
}

/// Merges the two texts that can be merged, and takes the other side of all else.
fn side(conflict: &Conflict) -> Take {
    match conflict.path.to_str() {
        Some("both" | "long") => Take::Merge,
        _ => Take::Theirs,
    }
}

fn files(store: &Store) -> BTreeMap<String, (Vec<u8>, u32)> {
    let tx = store.begin().expect("begun");
    let entries = tx.read_dir("").expect("listed").into_iter();
    let found = entries.map(|entry| {
        let name = entry.file_name.to_str().expect("it is text").to_owned();
        let mode = tx.metadata(&name).expect("it is there").mode;
        let contents = tx.read(&name).expect("it is a file");
        (name, (contents, mode))
    });
    found.collect()
}

fn merged_by_library(store: &Store) -> Seen {
    let tx = in_conflict(store);
    let conflicts = tx.conflicts().expect("listed");
    let refused = tx.commit_with_sides(&vec![Take::Merge; conflicts.len()]);
    let refused = refused.expect_err("not all can be merged");
    assert!(refused.error.is_conflict());
    let CommitError::NotMerged { not_merged } = refused.error else {
        panic!("{}", refused.error);
    };
    let why = not_merged.iter().map(|one| {
        let path = one.conflict.path.display().to_string();
        (path, one.why.to_string())
    });
    let why = why.collect();
    let tx = refused.transaction;
    assert_eq!(
        tx.read("both").expect("read"),
        b"1\n2\n3\n4\n5\n6\n7\n8\nmine\n",
        "a refused merge must change nothing in the view"
    );
    assert_eq!(tx.conflicts().expect("listed"), conflicts);
    // Changes that others make after the list are not overwritten.
    let later = store.begin().expect("begun");
    put(&later, "both", |text| text.replace('5', "later"));
    later.commit().expect("nobody is in the way");
    let sides: Vec<Take> = conflicts.iter().map(side).collect();
    let refused = tx
        .commit_with_sides(&sides)
        .expect_err("it has changed since");
    let error = &refused.error;
    assert!(matches!(error, CommitError::Conflict { .. }), "{error}");
    let tx = refused.transaction;
    let conflicts = tx.conflicts().expect("listed");
    let sides: Vec<Take> = conflicts.iter().map(side).collect();
    tx.commit_with_sides(&sides).expect("all are decided");
    (why, files(store))
}

fn merged_by_command(base: &Path, store: &Store) -> Seen {
    let id = in_conflict(store).keep().expect("kept").to_string();
    call_here(base, &["conflicts", &id]).expect(0);
    let refused = call_here(base, &["commit", &id, "--merge"]).expect(CONFLICT);
    let text = String::from_utf8_lossy(&refused.stderr);
    let lines = text.lines().filter_map(|line| {
        let (number, rest) = line.trim_start().split_once("  ")?;
        let (path, why) = rest.split_once(": ")?;
        number.parse::<u64>().ok()?;
        Some((number.to_owned(), path.to_owned(), why.to_owned()))
    });
    let lines: Vec<_> = lines.collect();
    let theirs: Vec<&str> = lines.iter().map(|(number, ..)| number.as_str()).collect();
    let theirs = theirs.join(",");
    // In place, so that it stays the same file.
    let later = "text=$(sed s/5/later/ both); echo \"$text\" > both";
    call_here(base, &["run", "--view", "exact", "--", "sh", "-c", later]).expect(0);
    let commit = ["commit", &id, "--take-theirs", &theirs, "--merge"];
    call_here(base, &commit).expect(CONFLICT);
    call_here(base, &["conflicts", &id]).expect(0);
    call_here(base, &commit).expect(0);
    let why = lines.into_iter().map(|(_, path, why)| (path, why));
    (why.collect(), files(store))
}

/// A serializable transaction in conflict with a commit that has changed the same text.
fn serializable(store: &Store) -> Transaction {
    let options = store.transaction().isolation(Isolation::Serializable);
    let mine = options.begin().expect("begun");
    mine.write("both", "mine\n").expect("written");
    let theirs = store.begin().expect("begun");
    put(&theirs, "both", |text| format!("{text}theirs\n"));
    theirs.commit().expect("nobody is in the way");
    mine
}

/// The merge is refused and changes nothing.
fn refused_by_library(store: &Store) {
    let tx = serializable(store);
    let conflicts = tx.conflicts().expect("listed");
    let refused = tx.commit_with_sides(&vec![Take::Merge; conflicts.len()]);
    let refused = refused.expect_err("it is serializable");
    let CommitError::NotMerged { not_merged } = refused.error else {
        panic!("{}", refused.error);
    };
    assert_eq!(not_merged.len(), conflicts.len());
    assert!(
        not_merged
            .iter()
            .all(|one| one.why == WhyNotMerged::Serializable)
    );
    let tx = refused.transaction;
    assert_eq!(tx.conflicts().expect("listed"), conflicts);
    assert_eq!(tx.read("both").expect("read"), b"mine\n");
}

fn refused_by_command(base: &Path, store: &Store) {
    let tx = serializable(store);
    let id = tx.id().to_string();
    call_here(base, &["conflicts", &id]).expect(0);
    let refused = call_here(base, &["commit", &id, "--merge"]).expect(CONFLICT);
    refused.says(&["both: a serializable transaction cannot read"]);
}

#[test]
fn texts_are_merged_alike_by_library_and_command() {
    let name = "texts_are_merged_alike_by_library_and_command";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        let open = |door| StoreOptions::new().door(door).open(base);
        let embedded = open(Door::Embedded).expect("opened");
        let seen = merged_by_library(&embedded);
        refused_by_library(&embedded);
        embedded.close().expect("closed");
        call_here(base, &["service", "start"]).expect(0);
        let served = open(Door::Service).expect("it runs");
        assert_eq!(seen, merged_by_library(&served));
        refused_by_library(&served);
        assert_eq!(seen, merged_by_command(base, &served));
        refused_by_command(base, &served);
        drop(served);

        let (why, files) = seen;
        let why: BTreeMap<&str, &str> = why.iter().map(|(path, why)| (&**path, &**why)).collect();
        assert!(why["clash"].contains("same lines") && why["binary"].contains("not text"));
        assert!(why["outside"].contains("same lines") && why["gone"].contains("removed it"));
        assert!(
            !why.contains_key("both") && !why.contains_key("long"),
            "{why:?}"
        );
        let merged = long().replacen("\n1400\n", "\ntheirs\nmore\n", 1);
        let merged = merged.replace("\n1499\n", "\nmine\n");
        assert_eq!(files["long"], (merged.into_bytes(), 0o640));
        assert_eq!(
            files["both"],
            (b"theirs\n2\n3\n4\nlater\n6\n7\n8\nmine\n".to_vec(), 0o640)
        );
        assert_eq!(files["both"], files["link"], "it is one file still");
        assert_eq!(files["clash"].0, b"1\ntheirs\n3\n4\n5\n6\n7\n8\n9\n");
        let mode = base
            .join("mode")
            .metadata()
            .expect("it is there")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o604);
        call_here(base, &["service", "stop"]).expect(0);
    });
}
