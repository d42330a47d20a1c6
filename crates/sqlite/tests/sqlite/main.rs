//! The extension as programs use it: in the sqlite3 shell, in Python (`programs/`), and in Rust. A
//! test is skipped where the shell, or a Python that loads extensions, is missing.

mod histories;
mod programs;
mod rust;

use atomdir_testing::{
    Fixture, Random, Scratch, User, capture_output, full_tier, skip, tools_present, users_can_mount,
};
use programs::{SERVICE, extension, program, python, python_loads_extensions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn database_used_from_the_sqlite3_shell_stays_a_plain_file() {
    let test = "database_used_from_the_sqlite3_shell_stays_a_plain_file";
    if !tools_present(test, &["sqlite3"]) {
        return;
    }
    Fixture::for_each_owner("sqlite-shell", "true", |fixture| {
        let uri = format!("file:{}/db?vfs=atomdir", fixture.base.display());
        let shell = |arguments: &[&str]| {
            let mut command = Command::new("sqlite3");
            fixture.store.user().dress(&mut command);
            capture_output(command.current_dir("/").args(arguments))
        };
        let load = format!(".load {}", extension().display());
        let open = format!(".open {uri}");
        let extended = |statements: &str| shell(&[":memory:", &load, &open, statements]);
        extended("create table t(v); insert into t values(1);").expect(0);
        extended("begin; insert into t values(2); commit;").expect(0);
        extended("begin; insert into t values(3); rollback;").expect(0);
        let refused = extended("pragma locking_mode = exclusive").expect(1);
        assert!(refused.error_text().contains("atomdir: "), "{refused:?}");
        // A program that asks for a write-ahead log gets no error, but a line in SQLite's error log.
        let wal = "pragma journal_mode = WAL; insert into t values(4); delete from t where v = 4;";
        let went_on = shell(&[":memory:", &load, ".log stderr", &open, wal]).expect(0);
        assert_eq!(went_on.text(), "delete\n");
        let logged = went_on.error_text();
        let line = "(27) atomdir: journal_mode=WAL has no effect: a transaction of the store";
        assert_eq!(logged.matches(line).count(), 1, "{logged}");
        // The journal of a plain program that was killed is not ignored.
        let journal = fixture.base.join("db-journal");
        std::fs::write(&journal, "a journal").expect("written");
        assert_ne!(extended("select * from t").code, 0);
        std::fs::remove_file(&journal).expect("removed");
        let plain = fixture.base.join("db");
        let plain = plain.to_str().expect("UTF-8");
        let found = shell(&[plain, "select v from t; pragma integrity_check;"]);
        assert_eq!(found.expect(0).text(), "1\n2\nok\n");
    });
}

/// Runs the test twice, as root and as an ordinary user each: in a store that the test's process
/// opens by itself, and through a service.
fn through_each_door(test: &str, name: &str, run: impl Fn(&Fixture, &[&str])) {
    Fixture::for_each_owner(name, "true", |fixture| run(fixture, &[]));
    if users_can_mount(test) {
        Fixture::for_each_owner(name, "true", |fixture| {
            fixture.store.call(["service", "start"]).expect(0);
            run(fixture, &[SERVICE]);
            fixture.store.assert_at_rest();
        });
    }
}

#[test]
fn writers_of_different_pages_commit_and_others_conflict() {
    let test = "writers_of_different_pages_commit_and_others_conflict";
    if !python_loads_extensions(test) {
        return;
    }
    through_each_door(test, "sqlite-conflicts", |fixture, door| {
        python(fixture.store.user(), "conflicts.py", &fixture.base, door);
    });
}

#[test]
fn reading_statement_goes_on_after_its_connection_commits_another() {
    let test = "reading_statement_goes_on_after_its_connection_commits_another";
    if !python_loads_extensions(test) {
        return;
    }
    through_each_door(test, "sqlite-statements", |fixture, door| {
        python(fixture.store.user(), "statements.py", &fixture.base, door);
    });
}

#[test]
fn rollback_works_when_the_journal_is_too_long_for_memory() {
    let test = "rollback_works_when_the_journal_is_too_long_for_memory";
    if python_loads_extensions(test) {
        through_each_door(test, "sqlite-long-journal", |fixture, door| {
            python(fixture.store.user(), "long_journal.py", &fixture.base, door);
        });
    }
}

#[test]
fn statements_run_again_after_a_conflict() {
    let test = "statements_run_again_after_a_conflict";
    if python_loads_extensions(test) {
        through_each_door(test, "sqlite-retry", |fixture, door| {
            python(fixture.store.user(), "retry.py", &fixture.base, door);
        });
    }
}

#[test]
fn one_transaction_spans_connections_databases_and_files() {
    let test = "one_transaction_spans_connections_databases_and_files";
    if python_loads_extensions(test) {
        through_each_door(test, "sqlite-outer", |fixture, door| {
            python(fixture.store.user(), "outer.py", &fixture.base, door);
            let log = fixture.store.call(["log"]).expect(0).text();
            assert!(log.contains("the first order"), "{log}");
        });
    }
}

#[test]
fn random_statements_give_the_same_results_as_in_memory() {
    let test = "random_statements_give_the_same_results_as_in_memory";
    if !python_loads_extensions(test) {
        return;
    }
    let mut random = Random::for_test(test);
    let mut run = |fixture: &Fixture, door: &[&str]| {
        let seed = random.number().to_string();
        let arguments = [&[seed.as_str(), "400"], door].concat();
        let user = fixture.store.user();
        python(user, "differential.py", &fixture.base, &arguments);
    };
    for _ in 0..if full_tier() { 100 } else { 3 } {
        run(&Fixture::new("sqlite-differential", "true"), &[]);
    }
    if users_can_mount(test) {
        for _ in 0..if full_tier() { 30 } else { 1 } {
            let fixture = Fixture::owned_by("sqlite-differential", User::ordinary, "true");
            fixture.store.call(["service", "start"]).expect(0);
            run(&fixture, &[SERVICE]);
            fixture.store.assert_at_rest();
        }
    }
}

/// `abi.rs` gives each function's position in SQLite's table.
#[test]
fn function_positions_match_the_installed_header() {
    let test = "function_positions_match_the_installed_header";
    if !Path::new("/usr/include/sqlite3ext.h").exists() || !tools_present(test, &["cc"]) {
        skip(test, "no sqlite3ext.h");
        return;
    }
    let source = include_str!("../../src/abi.rs");
    let mut wanted: Vec<(usize, &str)> = vec![(69, "mprintf"), (167, "log")];
    for line in source.lines() {
        let words = line.trim().split_once(' ');
        let position = words.and_then(|(first, rest)| Some((first.parse().ok()?, rest)));
        if let Some((position, rest)) = position {
            wanted.push((position, rest.split('(').next().expect("a name")));
        }
    }
    assert!(wanted.len() > 15, "{wanted:?}");
    let checks = wanted.iter().map(|(position, name)| {
        format!("_Static_assert(offsetof(sqlite3_api_routines, {name}) == {position} * sizeof(void *), \"{name}\");\n")
    });
    let checks: String = checks.collect();
    let program =
        format!("#define SQLITE_CORE 1\n#include <stddef.h>\n#include <sqlite3ext.h>\n{checks}");
    let scratch = Scratch::new("sqlite-positions");
    let file = scratch.join("positions.c");
    std::fs::write(&file, program).expect("written");
    capture_output(Command::new("cc").arg("-fsyntax-only").arg(file)).expect(0);
}

#[test]
fn threads_transfer_between_two_databases() {
    let test = "threads_transfer_between_two_databases";
    if !python_loads_extensions(test) {
        return;
    }
    Fixture::for_each_owner("sqlite-threads", "true", |fixture| {
        let bank =
            |arguments: &[&str]| python(fixture.store.user(), "bank.py", &fixture.base, arguments);
        bank(&["create", ""]);
        bank(&["run", "", "0,1,2,3", "40", "1"]);
        let counts = counts(&bank(&["verify", ""]));
        assert_eq!(counts, [40, 40, 40, 40, 0, 0, 0, 0]);
    });
}

#[test]
fn processes_transfer_between_two_databases_through_the_service() {
    let test = "processes_transfer_between_two_databases_through_the_service";
    if !python_loads_extensions(test) || !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::new("sqlite-processes", "true");
    let bank =
        |arguments: &[&str]| python(fixture.store.user(), "bank.py", &fixture.base, arguments);
    fixture.store.call(["service", "start"]).expect(0);
    bank(&["create", SERVICE]);
    std::thread::scope(|scope| {
        for thread in ["0", "1", "2"] {
            scope.spawn(move || bank(&["run", SERVICE, thread, "15", "1"]));
        }
    });
    let counts = counts(&bank(&["verify", SERVICE]));
    assert_eq!(counts, [15, 15, 15, 0, 0, 0, 0, 0]);
    fixture.store.call(["service", "stop"]).expect(0);
}

#[test]
fn processes_that_write_different_pages_never_conflict() {
    let test = "processes_that_write_different_pages_never_conflict";
    if !python_loads_extensions(test) || !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::new("sqlite-writers", "true");
    fixture.store.call(["service", "start"]).expect(0);
    let user = fixture.store.user();
    print!("{}", python(user, "writers.py", &fixture.base, &[SERVICE]));
    fixture.store.assert_at_rest();
}

/// How many transfers each thread has committed, from lines `THREAD COUNT`. The last line of a
/// thread counts.
fn counts(lines: &str) -> [u64; 8] {
    let mut counts = [0; 8];
    for line in lines.lines() {
        let (thread, count) = line.split_once(' ').expect("two numbers");
        let thread: usize = thread.parse().expect("a number");
        counts[thread] = count.parse().expect("a number");
    }
    counts
}

/// Runs transfers without end, in one process for each of `threads`. Calls `kill` after `reports`
/// transfers. Returns all lines that the processes have printed.
fn run_until_killed(
    fixture: &Fixture,
    (options, threads, seed): (&str, &[&str], u64),
    reports: usize,
    kill: impl FnOnce(&mut Vec<Child>),
) -> String {
    let mut children: Vec<Child> = Vec::new();
    let (sender, receiver) = mpsc::channel();
    for thread in threads {
        let mut command = program(fixture.store.user(), "bank.py", &fixture.base);
        command.args(["run", options, thread, "0", &seed.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python runs");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        children.push(child);
    }
    drop(sender);
    let mut lines: Vec<String> = receiver.iter().take(reports).collect();
    assert_eq!(lines.len(), reports, "the processes ended too early");
    kill(&mut children);
    lines.extend(receiver);
    for mut child in children {
        child.wait().expect("it ends");
    }
    lines.join("\n")
}

/// Asserts that every transfer that was reported as committed is there, and at most one more for
/// each thread.
fn assert_kept(before: &mut [u64; 8], reported: &str, found: &str) {
    let (reported, found) = (counts(reported), counts(found));
    for ((before, reported), found) in before.iter().zip(reported).zip(found) {
        let least = reported.max(*before);
        assert!((least..=least + 1).contains(&found), "{least} and {found}");
    }
    *before = found;
}

#[test]
fn killed_program_leaves_whole_transactions() {
    let test = "killed_program_leaves_whole_transactions";
    if !python_loads_extensions(test) {
        return;
    }
    let mut random = Random::for_test(test);
    let rounds = if full_tier() { 60 } else { 8 };
    let fixture = Fixture::new("sqlite-kills", "true");
    let bank =
        |arguments: &[&str]| python(fixture.store.user(), "bank.py", &fixture.base, arguments);
    bank(&["create", ""]);
    let mut counted = [0; 8];
    for _ in 0..rounds {
        let what = ("", &["0,1,2,3"][..], random.number());
        let reports = random.below(60);
        let pause = Duration::from_micros(random.number() % 5000);
        let reported = run_until_killed(&fixture, what, reports, |children| {
            std::thread::sleep(pause);
            for child in children {
                child.kill().expect("it runs");
            }
        });
        assert_kept(&mut counted, &reported, &bank(&["verify", ""]));
    }
}

#[test]
fn killed_service_leaves_whole_transactions() {
    let test = "killed_service_leaves_whole_transactions";
    if !python_loads_extensions(test) || !users_can_mount(test) {
        return;
    }
    let mut random = Random::for_test(test);
    let rounds = if full_tier() { 40 } else { 6 };
    let fixture = Fixture::new("sqlite-service", "true");
    let bank =
        |arguments: &[&str]| python(fixture.store.user(), "bank.py", &fixture.base, arguments);
    bank(&["create", ""]);
    let mut counted = [0; 8];
    for round in 0..rounds {
        fixture.store.call(["service", "start"]).expect(0);
        let what = (SERVICE, &["0", "1", "2"][..], random.number());
        let reports = random.below(30);
        let reported = run_until_killed(&fixture, what, reports, |children| {
            if round % 2 == 0 {
                assert!(fixture.store.kill_service());
            }
            for child in children {
                child.kill().expect("it runs or has not been waited for");
            }
        });
        assert_kept(&mut counted, &reported, &bank(&["verify", ""]));
    }
    fixture.store.call(["service", "stop"]);
}
