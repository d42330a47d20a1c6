//! Which changes conflict and which do not: pages of contents, a file's attributes,
//! single directory entries.

use std::fs;
use std::os::unix::fs::MetadataExt;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, shell, tools_present};

const TREE: &str = r#"
head -c 1048576 /dev/zero | tr '\0' a > pages
mkdir dir empty; echo old > file; echo old > dir/file; echo old > other; ln other linked
"#;

fn fixture() -> Fixture {
    Fixture::new("granularity", TREE)
}

/// Both commit, in either order, and the result is as if one had run after the other.
#[track_caller]
fn both_land(first: &str, second: &str) {
    let serial = fixture();
    shell(&serial.base, first);
    shell(&serial.base, second);
    let expected = serial.look();
    for (first, second) in [(first, second), (second, first)] {
        let fixture = fixture();
        let store = &fixture.store;
        let (left, right) = (store.begin(), store.begin());
        store.exec(&left, first).expect(0);
        store.exec(&right, second).expect(0);
        store.commit(&left).expect(0);
        store.commit(&right).expect(0);
        let what = format!("one after the other (left), both at once (right): {first} | {second}");
        assert_equal(&what, &expected, &fixture.look(), &CompareOptions::alike());
        store.assert_at_rest();
    }
}

/// The one that commits first wins. The other conflicts, names the path and changes
/// nothing.
#[track_caller]
fn second_conflicts(first: &str, second: &str, path: &str) {
    for (first, second) in [(first, second), (second, first)] {
        let fixture = fixture();
        let store = &fixture.store;
        let (left, right) = (store.begin(), store.begin());
        store.exec(&left, first).expect(0);
        store.exec(&right, second).expect(0);
        store.commit(&left).expect(0);
        let committed = fixture.look();
        store.commit(&right).expect(CONFLICT).says(&[path]);
        store.abort(&right).expect(0);
        let what = format!(
            "first committer (left), and after the second's conflict (right): {first} | {second}"
        );
        assert_equal(
            &what,
            &committed,
            &fixture.look(),
            &CompareOptions::untouched(),
        );
        store.assert_at_rest();
    }
}

fn page(number: u64, letter: char) -> String {
    format!(
        "head -c 4096 /dev/zero | tr '\\0' {letter} | dd of=pages bs=4096 seek={number} conv=notrunc status=none"
    )
}

#[test]
fn writes_to_different_pages_do_not_conflict() {
    both_land(&page(0, 'x'), &page(100, 'y'));
    both_land(&page(7, 'x'), &page(8, 'y'));
}

#[test]
fn writes_to_the_same_page_conflict() {
    second_conflicts(&page(7, 'x'), &page(7, 'y'), "pages");
    // The bytes differ, but the page is the same.
    let byte =
        |offset| format!("printf z | dd of=pages bs=1 seek={offset} conv=notrunc status=none");
    second_conflicts(&byte(8192), &byte(12287), "pages");
    both_land(&byte(8191), &byte(8192));
}

#[test]
fn appends_truncations_and_rewrites_conflict() {
    second_conflicts("echo left >> file", "echo right >> file", "file");
    second_conflicts("truncate -s 0 pages", &page(200, 'y'), "pages");
    second_conflicts("truncate -s 4096 pages", "truncate -s 8192 pages", "pages");
    // Writing the same bytes again is also a write.
    second_conflicts("echo same > file", "echo same > file", "file");
}

#[test]
fn attributes_conflict_with_attributes_and_not_with_contents() {
    both_land("chmod 600 pages", &page(3, 'y'));
    both_land("chown 5:6 dir", "echo new > dir/new");
    second_conflicts("chmod 600 file", "chmod 640 file", "file");
    second_conflicts("chmod 700 dir", "chmod 711 dir", "dir");
}

#[test]
fn changes_of_different_names_do_not_conflict() {
    both_land("echo l > dir/left", "echo r > dir/right");
    both_land("mkdir dir/left; echo l > dir/left/in", "rm dir/file");
    both_land("mv file dir/left", "mv other dir/right");
    both_land("ln file dir/left", "ln -s file dir/right");
}

#[test]
fn changes_of_the_same_name_conflict() {
    second_conflicts("echo l > dir/new", "echo r > dir/new", "dir/new");
    second_conflicts("mkdir dir/new", "mkdir -m 700 dir/new", "dir/new");
    second_conflicts("mkdir dir/new", "ln -s . dir/new", "dir/new");
    second_conflicts("mv file new", "mv other new", "new");
    second_conflicts("rm file", "mv file moved", "file");
    second_conflicts("rm file", "rm file", "file");
    second_conflicts("mv dir left", "mv dir right", "dir");
}

#[test]
fn removing_a_directory_conflicts_with_filling_it() {
    second_conflicts("rmdir empty", "echo new > empty/new", "empty");
    second_conflicts("rm -r dir", "echo new > dir/new", "dir");
    second_conflicts("rm -r dir", "mv file dir/", "dir");
}

#[test]
fn removing_a_file_conflicts_with_writing_it() {
    second_conflicts("rm file", "echo more >> file", "file");
    second_conflicts("rm pages", &page(9, 'x'), "pages");
    second_conflicts("echo new > t; mv t file", "echo more >> file", "file");
}

/// A file with two names is one file.
#[test]
fn writes_through_two_names_of_a_file_conflict() {
    second_conflicts("echo left > other", "echo right > linked", "");
    for deed in [
        "chmod 600 other",
        "echo more >> other",
        "setfattr -n user.k -v v other",
    ] {
        both_land("rm linked", deed);
        both_land("mv linked moved", deed);
        both_land("ln linked dir/third", deed);
    }
}

/// They conflict only if `first` commits first; in the other order both commit.
#[track_caller]
fn conflicts_only_after(first: &str, second: &str, path: &str) {
    let fixture = fixture();
    let store = &fixture.store;
    let (left, right) = (store.begin(), store.begin());
    store.exec(&left, first).expect(0);
    store.exec(&right, second).expect(0);
    store.commit(&left).expect(0);
    let committed = fixture.look();
    store.commit(&right).expect(CONFLICT).says(&[path]);
    store.abort(&right).expect(0);
    let what = format!("after the conflict (right): {first} | {second}");
    let (now, options) = (fixture.look(), CompareOptions::untouched());
    assert_equal(&what, &committed, &now, &options);
    store.assert_at_rest();
}

const WRITES_OF_A_FILE: [&str; 7] = [
    "echo more >> file",
    "echo new > file",
    "truncate -s 2 file",
    "chmod 600 file",
    "setfattr -n user.k -v v file",
    "mv file moved",
    "mv file moved; echo more >> moved",
];

/// One transaction writes through the name it knows; another adds a second name. All
/// names then lead to one file.
#[test]
fn linking_a_file_does_not_conflict_with_writing_it() {
    for write in WRITES_OF_A_FILE {
        both_land("ln file dir/linked", write);
    }
    both_land("ln pages linked2", &page(3, 'x'));
    both_land("ln pages linked2", "truncate -s 5000 pages");
}

/// The same in native views, in which the kernel's overlay copies the file.
#[test]
fn linking_a_file_does_not_conflict_with_writing_it_in_native_views() {
    if !tools_present(
        "linking_a_file_does_not_conflict_with_writing_it_in_native_views",
        &["setfattr"],
    ) {
        return;
    }
    let native = ["--view", "native"];
    for write in WRITES_OF_A_FILE {
        let link = "ln file dir/linked";
        let serial = fixture();
        shell(&serial.base, link);
        shell(&serial.base, write);
        for (first, second) in [(link, write), (write, link)] {
            let fixture = fixture();
            let meanwhile = || {
                fixture.store.run_with(&native, second).expect(0);
            };
            let outcome = fixture.run_and_meanwhile(&native, first, meanwhile);
            outcome.expect(0);
            let what =
                format!("one after the other (left), both at once (right): {first} | {second}");
            let (expected, found) = (serial.look(), fixture.look());
            assert_equal(&what, &expected, &found, &CompareOptions::alike());
            fixture.store.assert_at_rest();
        }
    }
}

#[test]
fn linking_a_file_conflicts_only_after_its_removal() {
    // If the link is committed first, the file lives on.
    for (remove, path) in [
        ("rm dir/file", "kept"),
        ("rm -r dir", "kept"),
        ("echo new > t; mv t dir/file", "kept"),
        ("mv dir/file moved; rm -r dir; rm moved", "kept"),
    ] {
        conflicts_only_after(remove, "ln dir/file kept", path);
        let fixture = fixture();
        let store = &fixture.store;
        let (left, right) = (store.begin(), store.begin());
        store.exec(&left, "ln dir/file kept").expect(0);
        store.exec(&right, remove).expect(0);
        store.commit(&left).expect(0);
        let later = store.begin();
        store.exec(&later, "echo more >> kept").expect(0);
        store.commit(&right).expect(0);
        store.commit(&later).expect(0);
        let kept = fixture.base.join("kept");
        assert_eq!(fs::read_to_string(&kept).expect("kept"), "old\nmore\n");
        store.assert_at_rest();
        assert_eq!(fs::metadata(&kept).expect("kept").nlink(), 1, "{remove}");
    }
}

/// `sed -i` and editors replace files in this way. Only the file is in conflict.
#[test]
fn replacing_a_file_twice_conflicts_only_about_that_file() {
    for file in ["file", "dir/file"] {
        let fixture = fixture();
        let store = &fixture.store;
        let (left, right) = (store.begin(), store.begin());
        for view in [&left, &right] {
            let script = format!("echo $$ > {file}.new; mv {file}.new {file}");
            store.exec(view, &script).expect(0);
        }
        store.commit(&left).expect(0);
        let refused = store.commit(&right).expect(CONFLICT);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        let conflicts = message.lines().filter(|line| line.contains("by commit"));
        assert_eq!(conflicts.count(), 1, "{message}");
        store.abort(&right).expect(0);
        store.assert_at_rest();
    }
}

/// An outside change counts from its own moment: transactions that began later have seen
/// it.
#[test]
fn an_outside_change_conflicts_only_with_older_transactions() {
    let fixture = fixture();
    let (store, file) = (&fixture.store, fixture.base.join("file"));
    let older = store.begin();
    store.run("echo inside > file").expect(0);
    fs::write(&file, "outside").expect("it is written");
    for text in ["one", "two"] {
        store.run(&format!("printf {text} > file")).expect(0);
        assert_eq!(fs::read_to_string(&file).expect("it is read"), text);
    }
    store.exec(&older, "echo more >> file").expect(0);
    store.commit(&older).expect(CONFLICT).says(&["file"]);
    store.abort(&older).expect(0);
    store.assert_at_rest();
}

#[test]
fn moving_a_directory_does_not_conflict_with_writes_below_it() {
    both_land("mv dir moved", "echo more >> file");
    // An entry of the root and contents of a file are different parts. The write must reach
    // the file, wherever that is by then.
    for (first, second) in [
        ("mv dir moved", "echo more >> dir/file"),
        ("echo more >> dir/file", "mv dir moved"),
    ] {
        let fixture = fixture();
        let store = &fixture.store;
        let (left, right) = (store.begin(), store.begin());
        store.exec(&left, first).expect(0);
        store.exec(&right, second).expect(0);
        store.commit(&left).expect(0);
        store.commit(&right).expect(0);
        let text = fs::read_to_string(fixture.base.join("moved/file")).expect("moved");
        assert_eq!(text, "old\nmore\n");
        assert!(!fixture.base.join("dir").exists());
        store.assert_at_rest();
    }
}

#[test]
fn moves_that_together_would_form_a_cycle_conflict() {
    // Each rename alone is allowed. Both together would cut a directory off the tree.
    let fixture = fixture();
    let store = &fixture.store;
    let (left, right) = (store.begin(), store.begin());
    store.exec(&left, "mv dir empty/").expect(0);
    store.exec(&right, "mv empty dir/").expect(0);
    store.commit(&left).expect(0);
    store.commit(&right).expect(CONFLICT);
    store.abort(&right).expect(0);
    assert!(fixture.base.join("empty/dir/file").exists());
    store.assert_at_rest();
}

#[test]
fn reading_never_conflicts_under_snapshot_isolation() {
    both_land(
        "cat file pages > /dev/null; ls dir; echo l > left",
        "echo r > file; chmod 700 dir; rm pages",
    );
}
