#![cfg(test)]

//! A transaction stays open if its user has not decided whether to commit it.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, OnTerminal, Store, wait_for};

const PROMPT: &str = "[K]eep open: ";

/// Waits until nobody is in the only open transaction, and returns its id.
fn left_open(store: &Store) -> String {
    wait_for("a transaction that nobody is in", || {
        let listed = store.call(["--json", "list"]).expect(0).text();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
        let one = &listed["transactions"][0];
        assert!(one.is_object(), "it has ended: {listed}");
        let is_left = one["holders"].as_array().is_some_and(Vec::is_empty);
        is_left.then(|| one["transaction"].to_string())
    })
}

#[test]
fn without_an_answer_a_transaction_stays_open() {
    Fixture::for_each_owner("undecided", "echo old > file", |fixture| {
        let store = &fixture.store;
        for verb in ["run --ask -- sh -c 'echo new >> file'", "shell"] {
            for answer in ["\n", "\x04"] {
                let mut asked = OnTerminal::start(store, verb);
                if verb == "shell" {
                    asked.wait_for("(transaction ");
                    asked.type_in("echo new >> file; exit\n");
                }
                asked.wait_for(PROMPT);
                asked.type_in(answer);
                let printed = asked.end();
                let id = left_open(store);
                assert!(
                    printed.contains(&format!("atomdir commit {id}")),
                    "{printed}"
                );
                let more = "echo more > file";
                store.call(["exec", &id, "--", "sh", "-c", more]).expect(0);
                store.call(["commit", &id]).expect(0);
                let base = fs::read_to_string(fixture.base.join("file"));
                assert_eq!(base.expect("readable"), "more\n");
            }
        }
    });
}

/// The terminal is closed while the question is open, or while the command still runs.
#[test]
fn a_closed_terminal_leaves_a_transaction_open() {
    Fixture::for_each_view("closed-terminal", "echo old > file", |fixture, view| {
        let store = &fixture.store;
        let wait = "echo new > file; echo waiting; exec sleep 1000";
        for (verb, input, prompt) in [
            ("run --ask", "-- sh -c 'echo new > file'", PROMPT),
            ("run --ask", &*format!("-- sh -c '{wait}'"), "waiting\r\n"),
            ("shell", "", "waiting\r\n"),
        ] {
            let mut asked = OnTerminal::start(store, &format!("{verb} --view {view} {input}"));
            if verb == "shell" {
                asked.wait_for("(transaction ");
                asked.type_in(&format!("{wait}\n"));
            }
            asked.wait_for(prompt);
            asked.close();
            let id = left_open(store);
            let shown = store.call(["diff", "--name-status", &id]).expect(0).text();
            assert_eq!(shown, "M file\n", "{verb}");
            let read = ["exec", &id, "--", "cat", "file"];
            assert_eq!(store.call(read).expect(0).text(), "new\n");
            store.call(["abort", &id]).expect(0);
        }
    });
}

/// The list is longer than the buffers of the terminal and of script(1), so the command is still
/// printing it when the terminal is closed.
#[test]
fn a_terminal_closed_while_the_changes_are_listed_leaves_a_transaction_open() {
    Fixture::for_each_view("closed-early", "", |fixture, view| {
        let store = &fixture.store;
        let name = "n".repeat(150);
        let create = format!("seq -f {name}-%g 3000 | xargs touch");
        let mut asked = OnTerminal::start(
            store,
            &format!("run --ask --view {view} -- sh -c '{create}'"),
        );
        asked.wait_for(&name);
        asked.close();
        let id = left_open(store);
        let listed = store.call(["diff", "--name-only", &id]).expect(0).text();
        assert_eq!(listed.lines().count(), 3000);
        store.call(["abort", &id]).expect(0);
    });
}

/// The shell has ended, and another program is still in the view.
#[test]
fn a_terminal_closed_while_a_shell_waits_for_others_leaves_a_transaction_open() {
    Fixture::for_each_view("closed-first", "echo old > file", |fixture, view| {
        let store = &fixture.store;
        let mut asked = OnTerminal::start(store, &format!("shell --wait --view {view}"));
        asked.wait_for("(transaction ");
        let listed = store.call(["--json", "list"]).expect(0).text();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
        let id = listed["transactions"][0]["transaction"].to_string();
        let mut other = store.command(["exec", &id, "--", "sh", "-c", "echo in; read line"]);
        other.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut other = other.spawn().expect("it starts");
        let mut first = [0; 3];
        let output = other.stdout.as_mut().expect("it is piped");
        output
            .read_exact(&mut first)
            .expect("it says that it is in");
        asked.type_in("echo new > file; exit\n");
        asked.wait_for("waiting");
        asked.close();
        drop(other.stdin.take());
        other.wait().expect("it ends");
        let id = left_open(store);
        let shown = store.call(["diff", "--name-status", &id]).expect(0).text();
        assert_eq!(shown, "M file\n");
        store.call(["abort", &id]).expect(0);
    });
}

#[test]
fn the_service_stops_only_when_nothing_is_open_or_when_it_may_abort() {
    Fixture::for_each_owner("stop-open", "echo old > file", |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store.exec(&view, "echo new > file").expect(0);
        let stop = store.call(["service", "stop"]).expect(CONFLICT);
        stop.says(&["open", "atomdir list", "--keep", "--abort"]);
        store.commit(&view).expect(0);
        let lost = store.begin_with(&["--isolation", "serializable"]);
        let stop = store.call(["service", "stop"]).expect(CONFLICT);
        let stop = stop.says(&["open", "atomdir list", "--abort"]);
        assert!(!stop.error_text().contains("--keep"), "{stop}");
        store.commit(&lost).expect(0);
        let stopped = store.call(["service", "stop"]).expect(0);
        assert!(
            stopped.text().contains("0 transactions aborted"),
            "{stopped}"
        );
        assert!(store.service_processes().is_empty());
        store.begin();
        let stopped = store.call(["service", "stop", "--abort"]).expect(0);
        assert!(
            stopped.text().contains("1 transaction aborted"),
            "{stopped}"
        );
        let base = fs::read_to_string(fixture.base.join("file"));
        assert_eq!(base.expect("readable"), "new\n");
    });
}
