#![cfg(test)]

//! A refresh brings an open transaction's snapshot up to date, under its own changes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, Store, View, binary, capture_output};

const PREPARE: &str = "seq 20000 > pages; echo old > file; echo mine > mine; mkdir dir moving
    echo in > dir/in; echo m > moving/m; echo gone > gone; echo r > replaced";

const MINE: &str = "echo more >> mine; echo new > new; mkdir made; mv dir/in made/; rm -r dir";

const THEIRS: &str = "echo other > file; echo x > missing; rm gone; mv moving moved
    echo again > renewed; mv renewed replaced; printf XX | dd of=pages conv=notrunc bs=1 \
    seek=50000 status=none; chmod 600 pages";

/// Fills the kernel's caches, also with names that are missing.
const LOOK: &str = "find . -type f | sort | xargs md5sum; find . -printf '%P %y %m %s\\n' | sort
    ls missing moved || true";

fn shown(store: &Store, view: &View) -> String {
    store.exec(view, LOOK).expect(0).text()
}

#[test]
fn refreshed_view_shows_what_others_have_committed_and_its_own_changes() {
    Fixture::for_each_owner("refresh", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, MINE).expect(0);
        let before = shown(store, &view);
        store.run(THEIRS).expect(0);
        assert_eq!(shown(store, &view), before, "a snapshot never changes");
        let refreshed = store.call(["--json", "refresh", &view.id]).expect(0).text();
        let refreshed: serde_json::Value = serde_json::from_str(&refreshed).expect("it is JSON");
        assert_eq!(
            (&refreshed["from"], &refreshed["to"]),
            (&0.into(), &1.into())
        );
        let after = shown(store, &view);
        assert_ne!(after, before);
        // The same by the view's path.
        let script = format!("cd \"$VIEW\"; {LOOK}");
        let mut by_path = Command::new("/bin/sh");
        store.user().dress(&mut by_path);
        by_path.args(["-ec", &script]).env("VIEW", &view.path);
        assert_eq!(capture_output(&mut by_path).expect(0).text(), after);
        // The transaction can now change what others had changed, and survives with its new
        // snapshot.
        store
            .exec(&view, "echo mine >> file; echo y > moved/y")
            .expect(0);
        let last = shown(store, &view);
        assert!(store.kill_service());
        assert_eq!(shown(store, &view), last);
        store.commit(&view).expect(0);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "other\nmine\n");
        for (path, is_there) in [("made/in", true), ("moved/y", true), ("dir", false)] {
            assert_eq!(one.base.join(path).exists(), is_there, "{path}");
        }
    });
}

#[test]
fn conflicting_refresh_changes_nothing_until_the_changes_are_dropped() {
    Fixture::for_each_owner("refresh-conflict", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store
            .exec(&view, "echo inside >> file; echo inside > new")
            .expect(0);
        store.run(THEIRS).expect(0);
        fs::write(one.base.join("mine"), "outside\n").expect("written");
        let before = shown(store, &view);
        let refused = store.call(["refresh", &view.id]).expect(CONFLICT);
        let ways = ["file: its contents were changed", "atomdir conflicts"];
        refused.says(&ways);
        assert_eq!(shown(store, &view), before);
        store
            .commit(&view)
            .expect(CONFLICT)
            .says(&["atomdir refresh"]);
        store.call(["abort", &view.id, "--", "file"]).expect(0);
        store.call(["refresh", &view.id]).expect(0);
        store
            .exec(&view, "grep -q outside mine; echo again >> file")
            .expect(0);
        store.commit(&view).expect(0);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "other\nagain\n");
    });
}

/// Only a commit of the whole transaction merges pages.
#[test]
fn refused_refresh_of_different_pages_of_a_file_offers_a_commit() {
    let write =
        |at: &str| format!("printf {at} | dd of=pages conv=notrunc bs=1 seek={at} status=none");
    Fixture::for_each_owner("refresh-pages", PREPARE, |one| {
        let store = &one.store;
        for drops in [false, true] {
            let view = store.begin();
            store.exec(&view, &write("10")).expect(0);
            store.exec(&view, "echo more >> mine").expect(0);
            store.run_exact(&write("90000")).expect(0);
            let refused = store.call(["refresh", &view.id]).expect(CONFLICT);
            let way = format!("atomdir commit {}`", view.id);
            let refused = refused.says(&["pages", &way, "atomdir abort"]);
            // There are no sides to choose from, and this file cannot be committed alone.
            let alone = format!("atomdir commit {} --", view.id);
            for useless in ["conflicts", &alone] {
                assert!(!refused.error_text().contains(useless), "{refused}");
            }
            let part = store
                .call(["commit", &view.id, "--", "pages"])
                .expect(CONFLICT);
            let part = part.says(&["pages: another part of it", &way]);
            assert!(!part.error_text().contains("--merge"), "{part}");
            if drops {
                store.call(["abort", &view.id, "--", "pages"]).expect(0);
                store.call(["refresh", &view.id]).expect(0);
            }
            store.commit(&view).expect(0);
            let pages = fs::read(one.base.join("pages")).expect("it is there");
            assert_eq!(&pages[90000..90005], b"90000");
            assert_eq!(&pages[10..12], b"10");
        }
    });
}

/// A program that uses the view by its path alone does not keep it from being refreshed. Its open
/// files then give errors, and never another file's contents.
#[test]
fn programs_in_the_view_refuse_a_refresh_or_find_their_files_gone() {
    Fixture::for_each_owner("refresh-open", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        let mut exec = store.command(["exec", &view.id, "--", "sh", "-c", "echo in; read line"]);
        let mut inside = exec
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = inside.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it is read");
        assert_eq!(line, "in\n");
        let refused = store.call(["refresh", &view.id]).expect(CONFLICT);
        refused.says(&["in use", "--wait"]);
        let waiting = store.command(["refresh", "--wait", &view.id]).spawn();
        let mut waiting = waiting.expect("it starts");
        let input = inside.stdin.take().expect("it is piped");
        (&input).write_all(b"end\n").expect("it reads");
        assert!(inside.wait().expect("it ends").success());
        assert!(waiting.wait().expect("it ends").success());

        let script = "cd \"$VIEW\"; exec 3<file 4>>mine; echo more >&4; cat pages >/dev/null
            \"$ATOMDIR\" -C \"$STORE\" refresh \"$TX\" >&2
            echo lost >&4 && exit 9; cat <&3 && exit 9; cat file && exit 9; cat \"$VIEW/file\" \"$VIEW/mine\"";
        let mut by_path = Command::new("/bin/sh");
        store.user().dress(&mut by_path);
        by_path.args(["-c", script]).current_dir("/");
        by_path.env("VIEW", &view.path).env("TX", &view.id);
        by_path.env("ATOMDIR", binary()).env("STORE", &one.base);
        store.run("echo other > file").expect(0);
        let read = capture_output(&mut by_path).expect(0);
        assert_eq!(read.text(), "other\nmine\nmore\n");
        store.commit(&view).expect(0);
    });
}

#[test]
fn kept_run_is_refreshed_whichever_view_it_ran_in() {
    Fixture::for_each_view("refresh-kept", PREPARE, |one, kind| {
        let store = &one.store;
        let options = ["--view", kind, "--on-success", "keep"];
        store.run_with(&options, MINE).expect(0);
        store.run(THEIRS).expect(0);
        store.call(["refresh"]).expect(0);
        store.call(["commit"]).expect(0);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "other\n");
        assert!(one.base.join("made/in").exists() && one.base.join("moved/m").exists());
    });
}

#[test]
fn nested_transactions_and_views_of_the_past_are_not_refreshed() {
    Fixture::for_each_owner("refresh-not", PREPARE, |one| {
        let store = &one.store;
        store.run("echo first > file").expect(0);
        let outer = store.begin();
        let nested = store.begin_with(&["--in", &outer.id]);
        store
            .call(["refresh", &outer.id])
            .expect(CONFLICT)
            .says(&["nested"]);
        store
            .call(["refresh", &nested.id])
            .expect(USAGE)
            .says(&["nested"]);
        store.abort(&outer).expect(0);
    });
}
