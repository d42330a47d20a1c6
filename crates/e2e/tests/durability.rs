//! When commits are durable, and when a flush inside a transaction reaches the disk.
#![cfg(test)]

use std::process::{Command, Stdio};

use atomdir_testing::{Fixture, Store, is_traced, tools_present, wait_until};

/// Counts the flushes that the store's service requests while `act` runs, except those of its
/// notes of open transactions.
fn flushes_during(store: &Store, fixture: &Fixture, act: impl FnOnce()) -> usize {
    let control = store.control().display().to_string();
    let of_notes = [format!("<{control}/transactions>"), format!("<{control}>")];
    let trace = flushes(store, fixture, |_| act());
    let is_of_notes = |line: &&str| of_notes.iter().any(|file| line.contains(file));
    trace.lines().filter(|line| !is_of_notes(line)).count()
}

/// The flushes that the store's service requests while `act` runs, a line for each. `act` gets a
/// function that returns the flushes so far.
fn flushes(store: &Store, fixture: &Fixture, act: impl FnOnce(&dyn Fn() -> String)) -> String {
    let trace = fixture.scratch.join("trace");
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-q",
        "-y",
        "-e",
        "trace=fsync,fdatasync,syncfs,sync,sync_file_range",
    ]);
    strace.arg("-o").arg(&trace);
    for process in store.service_processes() {
        let number = process.as_raw_nonzero().to_string();
        strace.args(["-p", &number]);
    }
    let mut strace = strace.stderr(Stdio::null()).spawn().expect("it starts");
    let is_traced = || store.service_processes().into_iter().all(is_traced);
    wait_until("strace in the service", || {
        let ended = strace.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "strace cannot trace the service");
        is_traced()
    });
    let read = || {
        let trace = std::fs::read_to_string(&trace).expect("a trace");
        let is_call = |line: &&str| line.contains("sync") && line.contains('(');
        let calls: Vec<&str> = trace.lines().filter(is_call).collect();
        calls.join("\n")
    };
    act(&read);
    let number = i32::try_from(strace.id()).expect("a process id");
    let tracer = rustix::process::Pid::from_raw(number).expect("it has one");
    rustix::process::kill_process(tracer, rustix::process::Signal::INT).expect("it runs");
    strace.wait().expect("it ends");
    read()
}

/// After a power cut, commands can then list the transactions that were lost.
#[test]
fn note_of_a_transaction_that_stays_open_is_flushed() {
    if !tools_present(
        "note_of_a_transaction_that_stays_open_is_flushed",
        &["strace"],
    ) {
        return;
    }
    Fixture::for_each_owner("flushing-notes", "echo old > file", |fixture| {
        let store = &fixture.store;
        store.call(["service", "start"]).expect(0);
        let notes = format!("<{}/transactions>", store.control().display());
        flushes(store, fixture, |read| {
            let view = store.begin_with(&["--isolation", "serializable"]);
            wait_until("the flush of the note", || read().contains(&notes));
            store.abort(&view).expect(0);
        });
        store.call(["service", "stop"]).expect(0);
    });
}

#[test]
fn fsync_flushes_only_transactions_that_survive_the_service() {
    let test = "fsync_flushes_only_transactions_that_survive_the_service";
    if !tools_present(test, &["strace"]) {
        return;
    }
    Fixture::for_each_owner("flushing", "echo old > file; mkdir dir", |fixture| {
        let store = &fixture.store;
        // A serializable transaction does not survive its service.
        let view = store.begin_with(&["--isolation", "serializable"]);
        let flushes = flushes_during(store, fixture, || {
            let script = "for number in 1 2 3 4 5 6 7 8; do
                dd if=/dev/zero of=new$number bs=4096 count=2 conv=fsync status=none
                dd if=/dev/zero of=file bs=4096 count=1 conv=notrunc,fdatasync status=none
                sync file dir; sync -d file; sync -f file
            done";
            store.exec(&view, script).expect(0);
        });
        assert_eq!(flushes, 0, "fsync inside has flushed the disk");
        let flushes = flushes_during(store, fixture, || {
            store.commit(&view).expect(0);
        });
        assert!(flushes > 0, "the trace must show the commit's flushes");
        let view = store.begin();
        let flushes = flushes_during(store, fixture, || {
            let script = "dd if=/dev/zero of=more bs=4096 count=2 conv=fsync status=none";
            store.exec(&view, script).expect(0);
        });
        assert!(flushes > 0, "fsync must flush a transaction that survives");
        store.abort(&view).expect(0);
    });
}

/// A transaction that begins after a lazy commit has returned sees it. The base shows it
/// once it is durable.
#[test]
fn lazy_commit_is_in_later_views_at_once_and_in_the_base_when_durable() {
    Fixture::for_each_owner("lazy", "echo old > file", |fixture| {
        let store = &fixture.store;
        let lazy = &["--durability", "lazy"];
        for number in 0..5 {
            store
                .run_with(lazy, &format!("echo {number} > file"))
                .expect(0);
            store
                .run_with(lazy, &format!("test $(cat file) = {number}"))
                .expect(0);
        }
        store.run_with(lazy, "echo lazy > file").expect(0);
        store.run("echo durable > other").expect(0);
        let file = || std::fs::read_to_string(fixture.base.join("file")).expect("read");
        assert_eq!(
            file(),
            "lazy\n",
            "a durable commit applies earlier lazy ones"
        );
        store.run_with(lazy, "echo last > file").expect(0);
        store.call(["sync"]).expect(0);
        assert_eq!(file(), "last\n");
    });
}
