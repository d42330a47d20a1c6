//! Which kind of view a command gets if it requests none, and what is reported if the kind
//! it requests is impossible.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::chown;

use atomdir_testing::exit_code::{CONFIGURATION, USAGE};
use atomdir_testing::{
    Fixture, Outcome, User, binary, capture_output, native_views_possible, shell, users_can_mount,
};

const KIND: &str = "stat -f -c %T .";
const NATIVE: &str = "overlayfs";
const EXACT: &str = "fuseblk";

/// Whether native views are possible here. If not, this reports the test as skipped.
fn is_possible(test: &str) -> bool {
    native_views_possible(test) && users_can_mount(test)
}

fn run(fixture: &Fixture, options: &[&str]) -> Outcome {
    let words = ["-v", "run"].iter().chain(options);
    fixture.store.call(words.chain(&["--", "sh", "-c", KIND]))
}

#[track_caller]
fn assert_kind(outcome: &Outcome, kind: &str) {
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(outcome.text().lines().last(), Some(kind), "{outcome}");
}

#[test]
fn a_command_gets_a_native_view_unless_an_option_needs_an_exact_one() {
    if !is_possible("a_command_gets_a_native_view_unless_an_option_needs_an_exact_one") {
        return;
    }
    Fixture::for_each_owner("choice", "echo old > file", |one| {
        assert_kind(&run(one, &[]), NATIVE);
        assert_kind(&run(one, &["--sealed"]), NATIVE);
        // This shell runs only the probe.
        let program = one.scratch.join("shell");
        fs::write(&program, format!("#!/bin/sh\n{KIND}\n")).expect("written");
        shell(one.scratch.path(), "chmod 755 shell");
        let mut shell = one.store.command(["shell", "--on-success", "commit"]);
        shell.env("SHELL", &program);
        assert_kind(&capture_output(&mut shell), NATIVE);
        for (options, reason) in [
            (&["--isolation", "serializable"][..], "serializable"),
            (&["--conflicts", "early"], "early conflicts"),
        ] {
            let outcome = run(one, options);
            assert_kind(&outcome, EXACT);
            outcome.says(&["the view is exact, not native", reason]);
        }
        let early = run(one, &["--conflicts", "early", "--view", "native"]);
        early
            .expect(CONFIGURATION)
            .says(&["early conflicts", "--view exact"]);
    });
}

#[test]
fn environment_and_settings_choose_the_kind_of_view() {
    if !is_possible("environment_and_settings_choose_the_kind_of_view") {
        return;
    }
    Fixture::for_each_owner("choice-settings", "echo old > file", |one| {
        let config = |value| one.store.call(["config", "view", value]);
        config("exact").expect(0);
        assert_eq!(one.store.call(["config", "view"]).text(), "exact\n");
        assert_kind(&run(one, &[]), EXACT);
        assert_kind(&run(one, &["--view", "auto"]), NATIVE);
        let mut in_environment = one.store.command(["run", "--", "sh", "-c", KIND]);
        in_environment.env("ATOMDIR_VIEW", "auto");
        assert_kind(&capture_output(&mut in_environment), NATIVE);
        in_environment.env("ATOMDIR_VIEW", "both");
        capture_output(&mut in_environment)
            .expect(USAGE)
            .says(&["ATOMDIR_VIEW is 'both'"]);
        config("both").expect(USAGE);
        config("native").expect(0);
        run(one, &["--conflicts", "early"]).expect(CONFIGURATION);
        config("").expect(0);
        assert_kind(&run(one, &[]), NATIVE);
        // The variable is for new transactions: an open one has a view already.
        let view = one.store.begin();
        let mut shell = one.store.command(["shell", &view.id]);
        shell
            .env("ATOMDIR_VIEW", "native")
            .env("SHELL", "/bin/true");
        capture_output(&mut shell).expect(0);
        one.store
            .call(["shell", &view.id, "--view", "exact"])
            .expect(USAGE);
        one.store.call(["abort", &view.id]).expect(0);
    });
}

/// The service detects this before a command starts, and the message gives the reason.
#[test]
fn store_unfit_for_native_views_gets_exact_views() {
    let test = "store_unfit_for_native_views_gets_exact_views";
    if !is_possible(test) {
        return;
    }
    let one = Fixture::owned_by("choice-unfit", User::ordinary, "echo old > file");
    chown(&one.base, None, Some(60)).expect("given to another group");
    let outcome = run(&one, &[]);
    assert_kind(&outcome, EXACT);
    outcome.says(&["the view is exact, not native", "another owner or group"]);
    run(&one, &["--view", "native"])
        .expect(CONFIGURATION)
        .says(&["another owner or group", "--view exact"]);
    one.store.assert_at_rest();
}

/// Features that a native view lacks are refused, and the message says which view has them.
#[test]
fn verbs_that_need_an_exact_view_say_so() {
    if !is_possible("verbs_that_need_an_exact_view_say_so") {
        return;
    }
    Fixture::for_each_owner("choice-needs", "echo old > file", |one| {
        let atomdir = binary();
        let atomdir = atomdir.display();
        for (inner, code) in [
            (
                format!("{atomdir} run --view native -- true"),
                CONFIGURATION,
            ),
            (format!("{atomdir} savepoint here"), CONFIGURATION),
        ] {
            let outcome = one.store.run_with(&["--view", "native"], &inner);
            outcome.expect(code).says(&["--view exact"]);
            let outcome = one.store.run_exact(&inner);
            assert!(outcome.code == 0 || inner.contains("native"), "{outcome}");
        }
        // A transaction that is not nested may begin inside a native view.
        let outcome = one.store.run(&format!("{atomdir} run --in none -- {KIND}"));
        assert_kind(&outcome, EXACT);
        one.store.call(["abort", "--all"]).expect(0);
    });
}
