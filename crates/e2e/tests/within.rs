#![cfg(test)]

//! What a program inside a transaction may do through the inner socket. Others may do
//! nothing through it.

use std::fs;
use std::process::Command;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, NOT_PERMITTED, USAGE};
use atomdir_testing::{Fixture, User, View, binary, capture_output, script};

#[test]
fn a_command_acts_on_its_own_transaction_and_those_nested_in_it_only() {
    Fixture::for_each_owner("within-own", "echo old > file", |one| {
        let other = one.store.begin();
        one.store.exec(&other, "echo other > other").expect(0);
        let refused = |command: &str| {
            format!(
                "$A {command} 2> said && exit 9 || test $? = {NO_SUCH}\n\
                 grep -q 'no open transaction' said\n"
            )
        };
        let id = &other.id;
        let mut text = String::new();
        for command in [
            format!("commit {id}"),
            format!("commit --force {id}"),
            format!("abort {id}"),
            format!("diff {id}"),
            format!("status {id}"),
            format!("savepoint s {id}"),
            format!("exec {id} -- true"),
            format!("run --in {id} -- true"),
            format!("lock {id} file"),
        ] {
            text.push_str(&refused(&command));
        }
        text.push_str(&format!(
            r#"
            test "$($A list | grep -c "^ *{id} ")" = 0
            # It may look at its own transaction and those nested in it, and end the nested ones.
            $A status > /dev/null; $A savepoint s -q
            $A run -- sh -ec "echo nested > nested; $A run -- sh -c 'echo inner > inner'"
            nested=$($A begin | head -n 1); $A exec $nested -- sh -c 'echo more > more'; $A commit $nested
            nested=$($A begin | head -n 1); $A abort $nested
            # It may not stop the service.
            $A service stop 2> said && exit 8 || test $? = {NOT_PERMITTED}
            rm said
            "#
        ));
        one.store.run_exact(&script(&text)).expect(0);
        for name in ["nested", "inner", "more"] {
            assert!(one.base.join(name).exists(), "{name}");
        }
        // `abort --all` aborts all transactions that it can reach.
        one.store
            .run(&script("$A abort --all > /dev/null"))
            .expect(NO_SUCH);
        assert!(!one.base.join("other").exists());
        one.store.commit(&other).expect(0);
        assert!(one.base.join("other").exists());
    });
}

#[test]
fn a_command_does_not_commit_the_transaction_it_runs_in() {
    Fixture::for_each_owner("within-commit", "", |one| {
        let outcome = one.store.run(&script(
            r#"
            echo x > x
            $A commit && exit 8 || test $? = 75
            $A commit --force && exit 8 || test $? = 77
            exit 3
            "#,
        ));
        outcome
            .expect(3)
            .says(&["the program that started the command"]);
        assert!(!one.base.join("x").exists());
    });
}

/// The variables that a program finds in its environment.
fn variables(one: &Fixture, view: &View) -> Vec<(String, String)> {
    let listed = one.store.exec(view, "env | grep ^ATOMDIR_").expect(0);
    let text = listed.text();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .filter(|(name, _)| name != "ATOMDIR_VIEW")
        .collect()
}

/// Runs `atomdir` with these variables, but outside the view.
fn call_with(
    one: &Fixture,
    user: &User,
    variables: &[(String, String)],
    arguments: &[&str],
) -> atomdir_testing::Outcome {
    let mut command = Command::new(binary());
    user.dress(&mut command);
    let variables = variables.iter().map(|(name, value)| (name, value));
    command.envs(variables).args(arguments);
    capture_output(command.current_dir(one.scratch.path()))
}

/// Anybody can find the socket, but not the store, whose directory is closed.
#[test]
fn inner_socket_serves_no_stranger() {
    let one = Fixture::new("within-stranger", "echo secret > file; chmod 700 .");
    let stranger = User::stranger(one.scratch.path());
    let root = User::root(one.scratch.path());
    // Without this the service would refuse the stranger's connections anyway.
    one.store.call(["config", "allow", "games"]).expect(0);
    let view = one.store.begin();
    let known = variables(&one, &view);
    let change = |name: &str, to: Option<&str>| {
        let mut changed = known.clone();
        changed.retain(|(of, _)| of != name);
        changed.extend(to.map(|to| (name.to_owned(), to.to_owned())));
        changed
    };
    // The secret itself opens nothing for another user.
    for arguments in [
        &["status"][..],
        &["begin"],
        &["begin", "--in", "none"],
        &["list"],
    ] {
        let outcome = call_with(&one, &stranger, &known, arguments);
        outcome.expect(NO_SUCH).says(&["no open transaction"]);
    }
    // A wrong secret gives the owner no access either.
    let wrong = "00000000000000000000000000000000";
    for (variables, code) in [
        (change("ATOMDIR_SECRET", Some(wrong)), NO_SUCH),
        (change("ATOMDIR_SECRET", Some("00")), NO_SUCH),
        (change("ATOMDIR_SECRET", Some("")), NO_SUCH),
        (change("ATOMDIR_TX", Some("999")), NO_SUCH),
        (change("ATOMDIR_SECRET", None), USAGE),
    ] {
        for user in [&stranger, &root] {
            call_with(&one, user, &variables, &["begin", "--in", "none"]).expect(code);
        }
    }
    // Inside another transaction the secret of this one is of no use.
    let other = one.store.begin();
    let others = variables(&one, &other);
    let of = |name: &str| {
        let found = others.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.clone()).expect("it is set")
    };
    let mixed = change("ATOMDIR_SECRET", Some(&of("ATOMDIR_SECRET")));
    call_with(&one, &root, &mixed, &["begin", "--in", "none"]).expect(NO_SUCH);
    one.store.abort(&other).expect(0);
    one.store.abort(&view).expect(0);
    // The secret ends with its transaction.
    call_with(&one, &root, &known, &["begin", "--in", "none"]).expect(NO_SUCH);
    assert_eq!(
        fs::read_to_string(one.base.join("file")).expect("read"),
        "secret\n"
    );
    one.store.assert_at_rest();
}

#[test]
fn command_can_use_the_transaction_it_began() {
    Fixture::for_each_owner("within-none", "", |one| {
        let outcome = one.store.run(&script(
            r#"
            log=$($A begin --in none | head -n 1)
            $A exec $log -- sh -c 'echo logged > log'
            $A commit $log
            exit 1
            "#,
        ));
        outcome.expect(1);
        assert!(one.base.join("log").exists());
        let busy = one.store.run_exact(&script(
            "$A begin > /dev/null; $A commit --force && exit 1 || test $? = 77; $A begin; exit 0",
        ));
        busy.expect(CONFLICT);
        one.store.call(["abort", "--all"]).expect(0);
    });
}
