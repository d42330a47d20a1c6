//! The service is killed at random instants while programs write into a detached view. Afterwards
//! every call that had returned has its effect, and so may the one call that was under way.

#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use atomdir_testing::{Fixture, Random, Store, pick};

const WRITERS: usize = 4;
/// How many files each writes before the service may be killed.
const FILES_MAX: usize = 60;

/// Appends a record, makes a file under another name and renames it, again and again, until a call
/// fails. Prints each number once all its calls have returned.
const WRITER: &str = "number=0
    while echo \"$1 $number\" >> $1.records && echo $number > $1.new && mv $1.new $1.$number
    do echo $number; number=$((number + 1)); done 2> /dev/null";

struct Writer {
    name: String,
    process: Child,
    done: BufReader<ChildStdout>,
    /// How many numbers it has printed.
    count: usize,
}

impl Writer {
    fn start(store: &Store, view: &Path, name: String) -> Writer {
        let mut command = Command::new("sh");
        store.user().dress(&mut command);
        command.args(["-c", WRITER, "sh", &name]).current_dir(view);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let done = BufReader::new(process.stdout.take().expect("a pipe"));
        let count = 0;
        Writer {
            name,
            process,
            done,
            count,
        }
    }

    /// Reads the next number; false if the writer has ended.
    fn next(&mut self) -> bool {
        let mut line = String::new();
        self.done.read_line(&mut line).expect("it is read");
        if line.is_empty() {
            return false;
        }
        assert_eq!(line.trim(), self.count.to_string());
        self.count += 1;
        true
    }

    fn end(&mut self) {
        while self.next() {}
        self.process.wait().expect("it ends");
    }

    /// Checks this writer's files in `directory`.
    fn verify(&self, directory: &Path, context: &str) {
        let Writer { name, count, .. } = self;
        let context = format!("{name} after {count}, {context}");
        let read = |name: String| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let whole = |count: usize| -> String {
            let numbers = 0..count;
            numbers.map(|number| format!("{name} {number}\n")).collect()
        };
        let records = read(format!("{name}.records"));
        assert!(records.starts_with(&whole(*count)), "{context}: {records}");
        assert!(
            whole(count + 1).starts_with(&records),
            "{context}: {records}"
        );
        for number in 0..*count {
            let text = read(format!("{name}.{number}"));
            assert_eq!(text, format!("{number}\n"), "{context}");
        }
        // The file of the next number may be there, under either name.
        let last = [format!("{name}.new"), format!("{name}.{count}")].map(read);
        let last = last.concat();
        assert!(format!("{count}\n").starts_with(&last), "{context}: {last}");
        assert!(!directory.join(format!("{name}.{}", count + 1)).exists());
    }
}

#[test]
fn calls_that_returned_before_a_kill_have_their_effect() {
    let test = "calls_that_returned_before_a_kill_have_their_effect";
    let mut random = Random::for_test(test);
    let random = std::cell::RefCell::new(&mut random);
    Fixture::for_each_owner("survive-load", "echo old > file", |one| {
        let store = &one.store;
        let view = store.begin();
        let mut ended: Vec<Writer> = Vec::new();
        for round in 0..pick(6, 100) {
            let context = format!("round {round}");
            let names = (0..WRITERS).map(|number| format!("{round}-{number}"));
            let start = |name| Writer::start(store, &view.path, name);
            let mut writers: Vec<Writer> = names.map(start).collect();
            let files = random.borrow_mut().below(FILES_MAX);
            for writer in &mut writers {
                while writer.count <= files && writer.next() {}
            }
            // A flush writes the view log anew now and then.
            if random.borrow_mut().chance(2) {
                store.call(["sync", &view.id]).expect(0);
            }
            assert!(store.kill_service());
            writers.iter_mut().for_each(Writer::end);
            assert!(writers.iter().all(|writer| writer.count > files));
            // The next command starts a service, which opens the view again.
            store.call(["status", &view.id]).expect(0);
            let script = format!("rm -rf '{0}'; cp -r . '{0}'", copy(one).display());
            store.exec(&view, &script).expect(0);
            for writer in &writers {
                writer.verify(&copy(one), &context);
            }
            ended.extend(writers);
        }
        store.commit(&view).expect(0);
        for writer in &ended {
            writer.verify(&one.base, "committed");
        }
    });
}

/// A directory that the store's user can make.
fn copy(one: &Fixture) -> std::path::PathBuf {
    one.store.user().home().join("copy")
}
