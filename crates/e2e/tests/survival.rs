#![cfg(test)]

//! Open transactions that survive their service.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Store, shell};

/// The transactions that `list --json` shows.
fn listed(store: &Store) -> Vec<serde_json::Value> {
    let text = store.call(["--json", "list"]).expect(0).text();
    let listed: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    listed["transactions"].as_array().expect("a list").clone()
}

/// What the view of a transaction shows, as its user sees it.
fn shown(store: &Store, id: &str) -> String {
    let script = "find . ! -type d -printf '%P %y %m %s %n %T@ %l\\n' | sort
        find . -type d -printf '%P %m\\n' | sort; find . -type f | sort | xargs md5sum";
    let shown = store
        .call(["exec", id, "--", "sh", "-ec", script])
        .expect(0);
    shown.text()
}

fn view_of(listed: &serde_json::Value) -> PathBuf {
    PathBuf::from(listed["view"].as_str().expect("its view has a path"))
}

#[test]
fn the_rest_survives_after_parts_have_landed() {
    Fixture::for_each_owner("survive-part", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, CHANGES).expect(0);
        let seen = shown(store, &view.id);
        store
            .call(["commit", &view.id, "--", "new", "moved"])
            .expect(0);
        store.kill_service();
        assert_eq!(shown(store, &view.id), seen);
        // Others commit before the next part, so the snapshot is brought up to date by hand.
        store.run("echo theirs > theirs").expect(0);
        store.call(["commit", &view.id, "--", "pages"]).expect(0);
        let listed = |what: &str| store.call(["list"]).expect(0).text().contains(what);
        assert!(listed(&view.id));
        store.call(["refresh", &view.id]).expect(0);
        store.kill_service();
        store
            .exec(&view, "grep -q theirs theirs && grep -q more file")
            .expect(0);
        store.commit(&view).expect(0);
        shell(
            &one.base,
            "grep -q more file && test -L link && grep -q in moved/in",
        );
        store.kill_service();
        assert!(!listed(&view.id), "it has been committed");
        store.assert_at_rest();
    });
}

const PREPARE: &str =
    "seq 20000 > pages; echo old > file; mkdir dir; echo in > dir/in; ln file again";

/// Many kinds of changes.
const CHANGES: &str = "echo new > new; echo more >> file; printf XX | dd of=pages conv=notrunc bs=1 \
    seek=50000 status=none; mkdir made; mv dir/in made/; rmdir dir; ln -s new link; rm again; \
    truncate -s 30000 pages; chmod 600 new; touch -d @1000 made/in; mv made moved";

#[test]
fn begun_transaction_survives_kill_and_stop_with_its_id_and_view() {
    Fixture::for_each_owner("survive", PREPARE, |one| {
        let store = &one.store;
        let before = one.look();
        let view = store.begin_with(&["-m", "long work"]);
        store.exec(&view, CHANGES).expect(0);
        let seen = shown(store, &view.id);
        for (step, ends) in ["kill", "stop", "recover"].iter().zip([true, false, true]) {
            if ends {
                store.kill_service();
            } else {
                store.call(["service", "stop"]).expect(CONFLICT);
                let kept = store.call(["service", "stop", "--keep"]).expect(0);
                assert!(kept.text().contains("1 kept"), "{kept}");
            }
            if *step == "recover" {
                store.call(["recover"]).expect(0);
            }
            let open = listed(store);
            assert_eq!(open.len(), 1, "after {step}");
            assert_eq!(open[0]["transaction"].to_string(), view.id);
            assert_eq!(open[0]["label"], "long work");
            assert_eq!(open[0]["survives"], true);
            assert_eq!(view_of(&open[0]), view.path);
            assert_eq!(seen, shown(store, &view.id), "after {step}");
            assert_equal(step, &before, &one.look(), &CompareOptions::untouched());
            store.call(["sync", &view.id]).expect(0);
        }
        store.exec(&view, "echo last >> new").expect(0);
        store.commit(&view).expect(0);
        let new = fs::read_to_string(one.base.join("new")).expect("it has landed");
        assert_eq!(new, "new\nlast\n");
        assert!(one.base.join("moved/in").exists() && !one.base.join("dir").exists());
        assert_eq!(listed(store).len(), 0);
    });
}

/// The kernel's overlay, as ordinary users have it, does not write to files with several names.
const PREPARE_OF_RUN: &str =
    "seq 20000 > pages; echo old > file; mkdir dir; echo in > dir/in; echo again > again";
const EXACT: [&str; 2] = ["--view", "exact"];

/// A transaction that `run` keeps survives as well, whichever view it ran in.
#[test]
fn kept_run_survives_a_kill() {
    Fixture::for_each_view("survive-kept", PREPARE_OF_RUN, |one, view| {
        let store = &one.store;
        let script = format!("{CHANGES}; exit 3");
        let options = ["--view", view, "--on-error", "keep"];
        store.run_with(&options, &script).expect(3);
        let open = listed(store);
        let id = open[0]["transaction"].to_string();
        let seen = shown(store, &id);
        store.kill_service();
        let open = listed(store);
        assert_eq!(open[0]["transaction"].to_string(), id);
        assert_eq!(seen, shown(store, &id), "{view}");
        store.call(["commit", &id]).expect(0);
        assert!(one.base.join("moved/in").exists() && !one.base.join("again").exists());
    });
}

#[test]
fn change_from_outside_while_no_service_runs_is_a_conflict() {
    Fixture::for_each_owner("survive-outside", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo inside >> file").expect(0);
        store.kill_service();
        fs::write(one.base.join("file"), "outside\n").expect("written");
        store.commit(&view).expect(CONFLICT).says(&["file"]);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "outside\n");
        store.abort(&view).expect(0);
    });
}

/// Others commit all kinds of changes, and the service is killed after each of them.
#[test]
fn transaction_survives_commits_of_others_and_kills() {
    Fixture::for_each_owner("survive-older", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo inside > mine").expect(0);
        let seen = shown(store, &view.id);
        let others = [
            "echo other > theirs",
            "echo new >> file",
            "rm -r dir again",
            "printf XX | dd of=pages conv=notrunc bs=1 seek=50000 status=none",
            "mv theirs dir; chmod 600 pages",
            "echo newer > new; mv new file",
        ];
        for (number, other) in (1..).zip(others) {
            store.run_with(&EXACT, other).expect(0);
            store.kill_service();
            assert_eq!(shown(store, &view.id), seen, "after {other}");
            assert_eq!(listed(store)[0]["kept_commits"], number);
        }
        store.commit(&view).expect(0);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "newer\n");
        assert!(one.base.join("mine").exists() && one.base.join("dir").is_file());
    });
}

/// The history keeps what the undo may still show, and nothing older.
#[test]
fn an_undo_that_is_kept_open_holds_the_history_from_the_first_undone_commit_on() {
    Fixture::for_each_owner("survive-undo", PREPARE, |one| {
        let store = &one.store;
        for change in ["echo 1 > file", "echo 2 > file", "echo 3 > file"] {
            store.run_with(&EXACT, change).expect(0);
        }
        assert_eq!(listed(store).len(), 0);
        store.call(["undo", "--keep", "3"]).expect(0);
        let open = listed(store);
        assert_eq!((open.len(), &open[0]["kept_commits"]), (1, &1.into()));
        let id = open[0]["transaction"].to_string();
        let said = store.call(["list"]).expect(0).text();
        assert!(said.contains("1 commit kept for it"), "{said}");
        // Twice, since the first service that opens the transaction again writes its log anew.
        for _ in 0..2 {
            assert!(store.kill_service());
            assert_eq!(listed(store)[0]["kept_commits"], 1);
        }
        store.call(["commit", &id]).expect(0);
        let file = fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "2\n");
    });
}

/// A program keeps files of the view open while the service is killed.
#[test]
fn files_of_a_view_that_were_open_at_a_kill_fail_and_open_again() {
    let prepare = "head -c 300000 /dev/urandom > file";
    Fixture::for_each_owner("survive-open", prepare, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo mine > mine").expect(0);
        let script = "exec 3< \"$1/file\" 4>> \"$1/mine\"; md5sum < \"$1/mine\"; echo opened
            read line
            cat <&3 && echo READ; env echo late >&4 && echo WRITTEN
            md5sum < \"$1/file\"; cat \"$1/mine\"";
        let mut program = std::process::Command::new("sh");
        store.user().dress(&mut program);
        program.args(["-c", script, "sh"]).arg(&view.path);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut printed = BufReader::new(program.stdout.take().expect("piped")).lines();
        let mut next = || printed.next().map(|line| line.expect("text"));
        while next().expect("it opens the files") != "opened" {}
        assert!(store.kill_service());
        assert_eq!(
            listed(store).len(),
            1,
            "the next service has opened it again"
        );
        drop(program.stdin.take());
        let sum = shell(&one.base, "md5sum < file").text();
        assert_eq!(next().as_deref(), Some(sum.trim_end()));
        assert_eq!(next().as_deref(), Some("mine"));
        assert_eq!(next(), None);
        let said = program.wait_with_output().expect("it ends").stderr;
        let said = String::from_utf8_lossy(&said);
        let errors = said.matches("Transport endpoint is not connected").count();
        assert_eq!(errors, 2, "{said}");
        store.commit(&view).expect(0);
        let mine = fs::read_to_string(one.base.join("mine"));
        assert_eq!(mine.expect("it is there"), "mine\n");
    });
}

/// With the default limits of the history, with a small limit of space, and without a history.
#[test]
fn list_says_what_a_transaction_keeps_beyond_the_limits() {
    let prepare = "head -c 1000000 /dev/urandom > big; echo small > small";
    Fixture::for_each_owner("survive-cost", prepare, |one| {
        let store = &one.store;
        let view = store.begin();
        let kept = || listed(store)[0]["kept_bytes"].clone();
        assert!(kept().is_null(), "nobody has committed");
        store.run_with(&EXACT, "rm big").expect(0);
        // A checkpoint.
        store.call(["service", "stop", "--keep"]).expect(0);
        assert_eq!(kept(), 0, "the history keeps it for a week");
        for (key, value) in [("history-space", "10K"), ("history-age", "off")] {
            store.call(["config", key, value]).expect(0);
            assert!(store.kill_service());
            let bytes = kept().as_u64().expect("a number");
            assert!((1_000_000..1_020_000).contains(&bytes), "{key}: {bytes}");
            let said = format!("1 commit kept for it, {bytes} bytes of it beyond the limits");
            let list = store.call(["list"]).expect(0).text();
            assert!(list.contains(&said), "{list}");
            let status = store.call(["status", &view.id]).expect(0).text();
            assert!(status.contains(&said), "{status}");
        }
        store.abort(&view).expect(0);
    });
}

#[test]
fn transaction_conflicts_after_a_kill_with_what_others_have_committed() {
    Fixture::for_each_owner("survive-conflict", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo inside >> file").expect(0);
        store.run_with(&EXACT, "echo other >> file").expect(0);
        store.kill_service();
        store.commit(&view).expect(CONFLICT).says(&["file"]);
        store.abort(&view).expect(0);
    });
}

/// The past is gone, and the list reports it until the transaction is aborted.
#[test]
fn transaction_is_stranded_if_its_snapshot_cannot_be_restored() {
    Fixture::for_each_owner("survive-stranded", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo inside > mine").expect(0);
        store.run("echo other > theirs").expect(0);
        store.call(["service", "stop", "--keep"]).expect(0);
        fs::remove_file(one.base.join(".atomdir/past")).expect("it is there");
        let open = listed(store);
        assert_eq!(open[0]["transaction"].to_string(), view.id);
        let stranded = open[0]["stranded"].as_str().expect("it says why");
        assert!(stranded.contains("commit 1"), "{stranded}");
        store.commit(&view).expect(NO_SUCH);
        store.abort(&view).expect(0);
        assert_eq!(listed(store).len(), 0);
    });
}

/// All history is forgotten, except what the transaction's snapshot needs.
#[test]
fn snapshot_survives_though_all_history_is_forgotten() {
    Fixture::for_each_owner("survive-prune", PREPARE, |one| {
        let store = &one.store;
        store.run_exact("echo first > file").expect(0);
        let view = store.begin();
        store.exec(&view, "echo mine > mine").expect(0);
        let seen = shown(store, &view.id);
        store
            .run_exact("rm again; mv dir moved; echo other > file")
            .expect(0);
        let page = "printf XX | dd of=pages conv=notrunc bs=1 seek=50000 status=none";
        store.run_exact(page).expect(0);
        store.call(["prune", "--all"]).expect(0);
        store.call(["undo", "1"]).expect(NO_SUCH);
        assert_eq!(shown(store, &view.id), seen);
        assert!(store.kill_service());
        assert_eq!(shown(store, &view.id), seen);
        store.call(["prune", "--all"]).expect(0);
        store.call(["service", "stop", "--keep"]).expect(0);
        assert_eq!(shown(store, &view.id), seen);
        store.commit(&view).expect(0);
        shell(
            &one.base,
            "grep -q mine mine && grep -q other file && test -e moved/in",
        );
    });
}

/// The store keeps no history, and others have committed before the transaction was kept.
#[test]
fn status_and_stop_say_that_what_was_kept_too_late_does_not_survive() {
    Fixture::for_each_view("survive-late", PREPARE_OF_RUN, |one, view| {
        let store = &one.store;
        store.call(["config", "history-age", "off"]).expect(0);
        let options = ["--view", view, "--on-success", "keep"];
        let kept = one.run_and_meanwhile(&options, "echo mine > mine", || {
            store.run_with(&EXACT, "echo other > theirs").expect(0);
        });
        kept.expect(0);
        let open = &listed(store)[0];
        let id = open["transaction"].to_string();
        assert_eq!(open["survives"], false);
        let why = open["ends_because"].as_str().expect("it says why");
        assert!(why.contains("commit"), "{why}");
        for said in [
            store.call(["list"]).expect(0).text(),
            store.call(["status", &id]).expect(0).text(),
            store
                .call(["service", "stop", "--keep"])
                .expect(CONFLICT)
                .error_text(),
        ] {
            assert!(said.contains(why), "{said}");
        }
        store.call(["refresh", &id]).expect(0);
        assert_eq!(listed(store)[0]["survives"], true);
        store.call(["service", "stop", "--keep"]).expect(0);
        store.call(["commit", &id]).expect(0);
        assert!(one.base.join("mine").exists());
    });
}

#[test]
fn stop_with_keep_refuses_to_end_what_does_not_survive() {
    Fixture::for_each_owner("survive-not", PREPARE, |one| {
        let store = &one.store;
        let view = store.begin_with(&["--isolation", "serializable"]);
        let refused = store.call(["service", "stop", "--keep"]).expect(CONFLICT);
        assert!(refused.error_text().contains(&view.id), "{refused}");
        store.call(["sync", &view.id]).expect(USAGE);
        store.abort(&view).expect(0);
    });
}
