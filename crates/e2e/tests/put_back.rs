//! If a transaction changes a file and puts back its contents, attributes and times, that
//! is no change: it is neither shown nor committed.

use std::fs;

use atomdir_testing::{Fixture, shell};

/// A file of 8 pages with a mode, an extended attribute and a second name.
const PREPARE: &str = "seq 1 6400 > file; chmod 640 file; setfattr -n user.kept -v old file
    seq 1 6400 > other; touch -d 2020-01-01 file other; mkdir directory";

/// `$1` names the file that is changed in place and put back.
const PUT_BACK: &str = "
    put_back() {
        touch -r \"$1\" $HOME/times; cp \"$1\" $HOME/saved; echo more >> \"$1\"; echo first | dd of=\"$1\" conv=notrunc status=none
        chmod 777 \"$1\"; setfattr -n user.new -v x \"$1\"; setfattr -n user.kept -v y \"$1\"
        cat $HOME/saved > \"$1\"; setfattr -x user.new \"$1\"; setfattr -n user.kept -v old \"$1\"
        chmod 640 \"$1\"; touch -r $HOME/times \"$1\"
    }
";

fn put_back(rest: &str) -> String {
    format!("{PUT_BACK} put_back file; chmod 700 directory; chmod 755 directory; {rest}")
}

fn open(fixture: &Fixture, options: &[&str], script: &str) -> String {
    let kept = ["--on-success", "keep"];
    let options = [&kept[..], options].concat();
    fixture.store.run_with(&options, script).expect(0);
    let list = fixture.store.call(["--json", "list"]).expect(0);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    list["transactions"][0]["transaction"].to_string()
}

#[test]
fn restored_file_is_neither_shown_nor_committed() {
    Fixture::for_each_view("put-back", PREPARE, |fixture, view| {
        let id = open(fixture, &["--view", view], &put_back(""));
        assert_eq!(fixture.store.call(["diff", &id]).expect(0).text(), "");
        let names = ["diff", &id, "--name-status"];
        assert_eq!(fixture.store.call(names).expect(0).text(), "");
        // Another transaction writes the same file, which is no conflict.
        fixture.store.run("echo theirs > file").expect(0);
        let committed = fixture.store.call(["--json", "commit", &id]).expect(0);
        let committed: serde_json::Value = serde_json::from_slice(&committed.stdout).expect("JSON");
        assert_eq!(committed["changes_count"], 0);
        assert_eq!(committed["commit"], serde_json::Value::Null);
        let file = fs::read(fixture.base.join("file")).expect("read");
        assert_eq!(file, b"theirs\n");
    });
}

#[test]
fn one_changed_byte_is_a_change_despite_equal_times() {
    Fixture::for_each_view("one-byte", PREPARE, |fixture, view| {
        let change = put_back(
            "touch -r other $HOME/times; printf x | dd of=other bs=1 seek=20000 conv=notrunc status=none
             touch -r $HOME/times other",
        );
        let id = open(fixture, &["--view", view], &change);
        let names = ["diff", &id, "--name-status"];
        assert_eq!(fixture.store.call(names).expect(0).text(), "M other\n");
        fixture.store.call(["commit", &id]).expect(0);
        shell(
            &fixture.base,
            "test \"$(dd if=other bs=1 skip=20000 count=1 status=none)\" = x",
        );
    });
}

/// Under serializable isolation a file that was put back counts as read.
#[test]
fn restored_file_counts_as_read() {
    Fixture::for_each_view("put-back-read", PREPARE, |fixture, view| {
        let options = ["--view", view, "--isolation", "serializable"];
        let id = open(fixture, &options, &put_back("echo new > new"));
        fixture.store.run("echo theirs > file").expect(0);
        let outcome = fixture.store.call(["commit", &id]).expect(75);
        assert!(
            outcome.error_text().contains("file: it was read"),
            "{outcome}"
        );
    });
}

/// All forms of `diff`, and `status`, must list the same paths.
fn lists(fixture: &Fixture, id: &str, names: &[&str]) {
    let text = |arguments: &[&str]| fixture.store.call(arguments).expect(0).text();
    let patch = text(&["diff", id]);
    let shown = patch.lines().filter_map(|line| {
        let of_file = line.strip_prefix("diff --git a/");
        let of_file = of_file.and_then(|names| names.split(' ').next());
        of_file.or_else(|| line.strip_prefix("# ")?.split(": ").next())
    });
    let mut shown: Vec<&str> = shown.collect();
    // A file in place of a directory has a note and a patch.
    shown.dedup();
    let paths: Vec<&str> = names.iter().map(|name| &name[2..]).collect();
    assert_eq!(shown, paths, "{patch}");
    let named = text(&["diff", id, "--name-status"]);
    assert_eq!(named.lines().collect::<Vec<_>>(), names);
    let status = text(&["status", id]);
    let (_, listed) = status.split_once("\n\n").expect("a list of changes");
    let expected = match names.is_empty() {
        true => "no changes\n",
        false => &named,
    };
    assert_eq!(listed, expected);
    let stat = text(&["diff", id, "--stat"]);
    let files = stat.lines().filter_map(|line| line.split_once(" | "));
    let files: Vec<&str> = files.map(|(path, _)| path.trim()).collect();
    assert_eq!(files, paths, "{stat}");
}

#[test]
fn directory_made_again_lists_each_path_once() {
    let prepare = "mkdir d d/old; echo 1 > d/1; echo 2 > d/2; echo same > d/same";
    Fixture::for_each_view("made-again", prepare, |fixture, view| {
        let script = "cp -p d/same $HOME/same; rm -r d; mkdir d; echo new > d/1; echo 3 > d/3
            echo file > d/old; cp -p $HOME/same d/same";
        let id = open(fixture, &["--view", view], script);
        let names = ["M d/1", "D d/2", "A d/3", "T d/old"];
        lists(fixture, &id, &names);
        fixture.store.call(["commit", &id]).expect(0);
        let shown = fixture.store.call(["show", "1"]).expect(0).text();
        let (_, listed) = shown.split_once("\n\n").expect("a list of changes");
        assert_eq!(listed.lines().collect::<Vec<_>>(), names);
    });
}

#[test]
fn file_replaced_by_its_like_is_not_shown() {
    let prepare = "echo t > t; setfattr -n user.kept -v old t; mkdir d; echo in > d/in
        ln -s t link; echo other > other";
    Fixture::for_each_view("like", prepare, |fixture, view| {
        for script in [
            "cp -a t t.bak; echo more >> t; mv t.bak t",
            "cp -a t $HOME/t; rm t; cp -a $HOME/t t",
            "cp -a d $HOME/d; rm -r d; cp -a $HOME/d d; rm link; ln -s t link",
        ] {
            let id = open(fixture, &["--view", view], script);
            lists(fixture, &id, &[]);
            fixture.store.call(["abort", &id]).expect(0);
        }
        let script = "cp -a t t.bak; chmod 600 t.bak; mv t.bak t; rm link; ln -s other link
            cp -a other $HOME/other; rm other; sed s/o/u/ $HOME/other > other; touch -r $HOME/other other";
        let id = open(fixture, &["--view", view], script);
        lists(fixture, &id, &["M link", "M other", "M t"]);
    });
}
