//! Processes read and write two databases through the service. A checker then looks for a serial
//! order that explains what they read and wrote: see `atomdir_testing::history`.

use crate::programs::{SERVICE, program, python, python_loads_extensions};
use atomdir_testing::history::{History, Key, Level, Operation, Outcome, Transaction, check};
use atomdir_testing::{Fixture, Random, User, capture_output, pick, users_can_mount};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;

const PROCESSES: usize = 4;

fn key(text: &str) -> Key {
    let (kind, number) = text.split_at(1);
    let number = number.parse().expect("a number");
    match kind {
        "R" => Key::Register(number),
        _ => Key::List(number),
    }
}

/// Parses `rR3=17`, `rL0=1,2` or `wR3=18`.
fn operation(text: &str) -> Operation {
    let (what, values) = text.split_once('=').expect("an operation");
    let (sign, name) = what.split_at(1);
    let values = values.split(',').filter(|value| !value.is_empty());
    let values: Vec<u64> = values
        .map(|value| value.parse().expect("a value"))
        .collect();
    match sign {
        "r" => Operation::Read(key(name), values),
        _ => Operation::Write(key(name), values[0]),
    }
}

/// Parses `BEGAN ENDED OUTCOME OPERATION...`.
fn transaction(line: &str) -> Transaction {
    let mut words = line.split_whitespace();
    let mut moment = || words.next().and_then(|word| word.parse().ok()).expect(line);
    let (began, ended) = (moment(), moment());
    let outcome = match words.next() {
        Some("committed") => Outcome::Committed,
        Some("aborted") => Outcome::Aborted,
        Some("unknown") => Outcome::Unknown,
        _ => panic!("no outcome: {line}"),
    };
    Transaction {
        name: format!("the transaction that ended at {ended}"),
        operations: words.map(operation).collect(),
        outcome,
        began,
        ended,
    }
}

/// Starts a process, and sends the lines that it prints to `sender`.
fn start(fixture: &Fixture, seed: u64, process: usize, sender: mpsc::Sender<String>) -> Child {
    let mut command = program(fixture.store.user(), "history.py", &fixture.base);
    command.args([SERVICE, "run"]);
    command.args([
        process.to_string(),
        pick(60, 400).to_string(),
        seed.to_string(),
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("python runs");
    let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    child
}

/// Runs the processes. Kills and starts the service after each `interval` transactions.
fn run(test: &str, owner: fn(&Path) -> User, interval: Option<usize>) -> History {
    let seed = Random::for_test(test).number() >> 1;
    let fixture = Fixture::owned_by("sqlite-histories", owner, "true");
    let store = &fixture.store;
    store.call(["service", "start"]).expect(0);
    python(
        store.user(),
        "history.py",
        &fixture.base,
        &[SERVICE, "create"],
    );
    let (sender, receiver) = mpsc::channel();
    let processes = 1..=PROCESSES;
    let children: Vec<Child> = processes
        .map(|process| start(&fixture, seed, process, sender.clone()))
        .collect();
    drop(sender);
    let mut transactions = Vec::new();
    for line in receiver {
        transactions.push(transaction(&line));
        if interval.is_some_and(|interval| transactions.len() % interval == 0) {
            store.kill_service();
            store.call(["service", "start"]).expect(0);
        }
    }
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let mut last = program(store.user(), "history.py", &fixture.base);
    let found = capture_output(last.args([SERVICE, "last"]))
        .expect(0)
        .text();
    let last = found.lines().map(|line| match operation(line) {
        Operation::Read(key, values) => (key, values),
        Operation::Write(..) => panic!("not a line of the last state: {line}"),
    });
    let last: BTreeMap<Key, Vec<u64>> = last.collect();
    store.assert_at_rest();
    History { transactions, last }
}

#[track_caller]
fn explain(history: &History) {
    let count = |outcome| {
        let all = history.transactions.iter();
        all.filter(|transaction| transaction.outcome == outcome)
            .count()
    };
    let committed = count(Outcome::Committed);
    println!(
        "{committed} committed, {} aborted, {} unknown",
        count(Outcome::Aborted),
        count(Outcome::Unknown)
    );
    assert!(
        committed > history.transactions.len() / 10,
        "fewer than a tenth of the transactions have committed"
    );
    if let Err(anomaly) = check(history, Level::Serializable) {
        panic!("no serial order: {anomaly}");
    }
}

fn can_run(test: &str) -> bool {
    python_loads_extensions(test) && users_can_mount(test)
}

#[test]
fn processes_have_a_serial_order() {
    let test = "processes_have_a_serial_order";
    if can_run(test) {
        explain(&run(test, User::root, None));
    }
}

#[test]
fn processes_have_a_serial_order_when_the_service_is_killed() {
    let test = "processes_have_a_serial_order_when_the_service_is_killed";
    if can_run(test) {
        explain(&run(test, User::root, Some(pick(40, 30))));
    }
}

#[test]
fn processes_of_an_ordinary_user_have_a_serial_order_when_the_service_is_killed() {
    let test = "processes_of_an_ordinary_user_have_a_serial_order_when_the_service_is_killed";
    if can_run(test) {
        explain(&run(test, User::ordinary, Some(pick(40, 30))));
    }
}
