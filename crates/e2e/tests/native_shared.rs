#![cfg(test)]

//! Several programs in one native view: all of them work in it, and a commit lands what all of
//! them have written, or is refused.

use std::fs;
use std::path::PathBuf;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, NOT_PERMITTED};
use atomdir_testing::{
    Fixture, Store, User, WAIT_UNTIL, Waiting, binary, for_each_owner, skip, wait_for, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

/// The exit code of a command that was killed when its view ended.
const KILLED: Option<i32> = Some(137);

/// For root, and for an ordinary user, each with a store of their own.
fn for_each_native_owner(test: &str, check: impl Fn(&Fixture)) {
    for_each_owner(test, |owner| {
        let prepare = "echo old > file; mkdir dir; echo d > dir/d";
        let fixture = Fixture::owned_by(test, owner, prepare);
        let possible = fixture.store.run_with(&["--view", "native"], "true");
        if possible.code != 0 {
            return skip(test, &format!("no native views here: {possible}"));
        }
        check(&fixture);
        fixture.store.assert_at_rest();
    });
}

/// A `run` whose command first prints the transaction's id and then does `first`.
fn run(store: &Store, options: &[&str], first: &str, then: &str) -> Waiting {
    let verb = [&["run", "--view", "native"], options].concat();
    Waiting::start(store, &verb, &format!("{first}; echo $ATOMDIR_TX"), then)
}

fn exec(store: &Store, id: &str, script: &str) -> String {
    store
        .call(["exec", id, "--", "sh", "-ec", script])
        .expect(0)
        .text()
}

fn base(one: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(one.base.join(name)).ok()
}

/// Empty as well if the process has ended.
fn open_files(process: &str) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    let files = open.into_iter().flatten().flatten();
    let target = |file: fs::DirEntry| fs::read_link(file.path()).ok();
    files.filter_map(target).collect()
}

fn status(store: &Store, id: &str) -> String {
    store.call(["--json", "status", id]).expect(0).text()
}

fn wait_until_ended(store: &Store, id: &str) {
    wait_until("the end of the transaction", || {
        store.call(["status", id]).code == NO_SUCH
    });
}

#[test]
fn others_work_in_a_running_native_view_and_its_commit_has_all() {
    for_each_native_owner("native-joined", |one| {
        let store = &one.store;
        let mut run = run(
            store,
            &[],
            "echo run > run; mv dir/d moved",
            "cat file > seen",
        );
        let id = &run.said.clone();
        assert_eq!(
            exec(store, id, "cat run moved; echo exec > file; rm moved"),
            "run\nd\n"
        );
        // `exec` shows the view at the store's own path.
        let path = format!("cd /; cat '{}/file'", one.base.display());
        assert_eq!(exec(store, id, &path), "exec\n");
        // One `exec` stays in the view for long, and calls another from inside.
        let program = binary();
        let program = program.display();
        let within = format!("'{program}' exec -- sh -c 'echo within > within'; echo in");
        let mut long = Waiting::start(store, &["exec", id], &within, "echo late >> file");
        let holders = status(store, id);
        for process in [long.child.id(), run.child.id()] {
            assert!(holders.contains(&process.to_string()), "{holders}");
        }
        // A nested transaction commits into it.
        exec(
            store,
            id,
            &format!("'{program}' run -- sh -c 'cat within run; echo n > nested'"),
        );
        let names = store.call(["diff", "--name-status", id]).expect(0).text();
        assert_eq!(names, "D dir/d\nM file\nA nested\nA run\nA within\n");
        let patch = store.call(["diff", id, "--", "file"]).expect(0).text();
        assert!(patch.contains("-old\n+exec\n"), "{patch}");
        assert!(
            store
                .call(["status", id])
                .expect(0)
                .text()
                .contains("M file")
        );
        assert_eq!(base(one, "file").as_deref(), Some("old\n"));
        assert_eq!(long.end(), Some(0));
        assert_eq!(run.end(), Some(0));
        let now = |name| base(one, name).unwrap_or_default();
        assert_eq!(
            [
                now("file"),
                now("seen"),
                now("run"),
                now("nested"),
                now("within"),
                now("moved")
            ],
            [
                "exec\nlate\n",
                "exec\nlate\n",
                "run\n",
                "n\n",
                "within\n",
                ""
            ]
        );
    });
}

#[test]
fn nothing_is_committed_while_others_are_in_a_native_view() {
    for_each_native_owner("native-busy", |one| {
        let store = &one.store;
        let mut run = run(store, &[], "echo run > run", "true");
        let id = &run.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late > file");
        let process = inside.child.id().to_string();
        let says = ["working in it", &process];
        store.call(["commit", id]).expect(CONFLICT).says(&says);
        store
            .call(["commit", "--force", id])
            .expect(CONFLICT)
            .says(&says);
        store.call(["refresh", id]).expect(CONFLICT).says(&says);
        store.call(["conflicts", id]).expect(CONFLICT).says(&says);
        // The command ends, but the transaction stays open until the other has left, too.
        assert_eq!(run.end(), Some(CONFLICT));
        assert_eq!(
            run.rest(),
            "",
            "the process that keeps the view has closed the output"
        );
        assert!(status(store, id).contains(&process));
        store.call(["commit", id]).expect(CONFLICT).says(&says);
        assert_eq!(exec(store, id, "cat run file"), "run\nold\n");
        let mut commit = store.command(["commit", "--wait", id]);
        let mut commit = commit.spawn().expect("the commit starts");
        assert_eq!(base(one, "run"), None);
        assert_eq!(inside.end(), Some(0));
        assert!(commit.wait().expect("it ends").success());
        assert_eq!(base(one, "run").as_deref(), Some("run\n"));
        assert_eq!(base(one, "file").as_deref(), Some("late\n"));

        // With `--force` the other is killed.
        let mut forced = self::run(store, &[], "echo two > run", "true");
        let id = &forced.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo lost > file");
        assert_eq!(forced.end(), Some(CONFLICT));
        store.call(["commit", "--force", id]).expect(0);
        assert_eq!(inside.code(), KILLED);
        assert_eq!(base(one, "run").as_deref(), Some("two\n"));
        assert_eq!(base(one, "file").as_deref(), Some("late\n"));
    });
}

#[test]
fn run_waits_for_others_in_its_native_view_or_kills_them_by_force() {
    for_each_native_owner("native-wait", |one| {
        let store = &one.store;
        let mut first = run(store, &["--wait"], "true", "echo over >> file");
        let id = &first.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late >> file");
        first.let_go();
        wait_until("what the first command writes", || {
            exec(store, id, "cat file") == "old\nover\n"
        });
        // The waiting process carries out commits into the view.
        let nested = format!("'{}' run -- sh -c 'echo n > nested'", binary().display());
        exec(store, id, &nested);
        assert_eq!(first.child.try_wait().expect("it can be asked"), None);
        assert_eq!(inside.end(), Some(0));
        assert_eq!(first.code(), Some(0));
        assert_eq!(base(one, "file").as_deref(), Some("old\nover\nlate\n"));
        assert_eq!(base(one, "nested").as_deref(), Some("n\n"));

        let mut second = run(store, &["--force"], "true", "true");
        let id = &second.said.clone();
        // The background process of this `exec` writes until it is killed.
        let writer = "echo early > early; (while :; do echo x >&3; done) 3>> log & echo $!";
        let mut inside = Waiting::start(store, &["exec", id], writer, "echo late > late");
        let writes = |id: &str| open_files(id).iter().any(|file| file.ends_with("log"));
        wait_until("the background process", || writes(&inside.said));
        assert_eq!(second.end(), Some(0));
        // It could write as long as it has the file open.
        assert!(!writes(&inside.said));
        assert_eq!(inside.code(), KILLED);
        assert_eq!(base(one, "early").as_deref(), Some("early\n"));
        assert_eq!(base(one, "late"), None);
        assert_ne!(base(one, "log"), None);
    });
}

#[test]
fn background_processes_of_exec_write_nothing_after_it_has_ended() {
    for_each_native_owner("native-background", |one| {
        let store = &one.store;
        let mut run = run(store, &[], "true", "cp log seen");
        let id = &run.said.clone();
        let left = "exec 3>> log; (while :; do echo x >&3; done) &
            (while :; do touch made 2> /dev/null || exit; done) & wait_until test -s log";
        exec(store, id, &format!("{WAIT_UNTIL}{left}"));
        assert_eq!(run.end(), Some(0));
        assert_eq!(base(one, "log"), base(one, "seen"));
        assert_ne!(base(one, "log"), None);
    });
}

#[test]
fn a_native_view_ends_with_the_process_that_mounted_it() {
    for_each_native_owner("native-killed", |one| {
        let store = &one.store;
        // The run is killed.
        let mut run_one = run(store, &[], "echo run > file", "true");
        let id = &run_one.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late > file");
        run_one.kill();
        assert_eq!(inside.code(), KILLED);
        wait_until_ended(store, id);
        // Its command fails, so the transaction is aborted.
        let mut run_two = run(store, &[], "echo run > file", "exit 3");
        let id = &run_two.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late > file");
        assert_eq!(run_two.end(), Some(3));
        assert_eq!(inside.code(), KILLED);
        wait_until_ended(store, id);
        // Another command aborts the transaction.
        let mut run_three = run(store, &[], "echo run > file", "true");
        let id = &run_three.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late > file");
        store.call(["abort", id]).expect(0);
        assert_eq!(inside.code(), KILLED);
        assert_eq!(run_three.end(), Some(NO_SUCH));
        // The process that the run has left behind to keep the view is killed.
        let mut run_four = run(store, &["--on-error", "keep"], "echo run > file", "exit 3");
        let id = &run_four.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "echo late > file");
        assert_eq!(run_four.end(), Some(3));
        kill_process(heir(one), Signal::KILL).expect("it is there");
        assert_eq!(inside.code(), KILLED);
        wait_until_ended(store, id);
        assert_eq!(base(one, "file").as_deref(), Some("old\n"));
    });
}

/// The process that a run of this store has left behind to keep the view. It leads a session of its
/// own and has the run's command line. So does the process that looks after renames, which ends with
/// the command, but a moment later.
fn heir(one: &Fixture) -> Pid {
    let heir = wait_for("a single process that stays behind", || {
        let [heir] = left_behind(one)[..] else {
            return None;
        };
        Some(heir)
    });
    Pid::from_raw(heir).expect("not 0")
}

fn left_behind(one: &Fixture) -> Vec<i32> {
    let scratch = one.scratch.path().display().to_string();
    let processes = fs::read_dir("/proc").expect("read").filter_map(|entry| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let session = stat.rsplit(')').next()?.split_ascii_whitespace().nth(3)?;
        let is_run = String::from_utf8_lossy(&line).contains("on-error");
        let is_ours = String::from_utf8_lossy(&[line, environment].concat()).contains(&scratch);
        (is_run && is_ours && session == id.to_string()).then_some(id)
    });
    processes.collect()
}

/// When the transaction is aborted, another command is in the view, or one whose `exec` was killed
/// still has a file of the view open for writing.
#[test]
fn process_that_keeps_a_view_ends_with_the_transaction() {
    for_each_native_owner("native-heir", |one| {
        let store = &one.store;
        let keep = ["--on-error", "keep"];
        let mut waited_for = run(store, &keep, "true", "exit 3");
        let id = &waited_for.said.clone();
        let mut inside = Waiting::start(store, &["exec", id], "echo in", "true");
        assert_eq!(waited_for.end(), Some(3));
        let stat = format!("/proc/{}/stat", heir(one).as_raw_nonzero());
        store.call(["commit", id]).expect(CONFLICT);
        wait_until("the process that waits", || is_in_poll(&stat));
        store.call(["abort", id]).expect(0);
        assert_eq!(inside.code(), KILLED);
        wait_until_gone(&stat);

        let mut run = run(store, &keep, "true", "exit 3");
        let id = &run.said.clone();
        let writer = "exec 3>> log; echo first >&3; echo in";
        let mut inside = Waiting::start(store, &["exec", id], writer, "true");
        inside.kill();
        assert_eq!(run.end(), Some(3));
        let stat = format!("/proc/{}/stat", heir(one).as_raw_nonzero());
        store.call(["abort", id]).expect(0);
        wait_until_gone(&stat);
        inside.let_go();
        assert_eq!(base(one, "log"), None);
    });
}

/// Whether the process with this file `stat` waits for a message.
fn is_in_poll(stat: &str) -> bool {
    let place = fs::read_to_string(stat.replace("stat", "wchan"));
    place.is_ok_and(|place| place.contains("poll"))
}

fn wait_until_gone(stat: &str) {
    wait_until("the end of the process that stayed behind", || {
        fs::read_to_string(stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// A command is not killed with its `exec`. If it has no file open for writing, the run commits
/// without it. Otherwise the commit is refused until the command has ended.
#[test]
fn commit_waits_for_writers_whose_exec_was_killed() {
    for_each_native_owner("native-orphan", |one| {
        let store = &one.store;
        let mut quiet = run(store, &[], "true", "true");
        let id = &quiet.said.clone();
        let first = "echo exec > file; echo in";
        let mut inside = Waiting::start(store, &["exec", id], first, "echo late > file");
        let killed = u64::from(inside.child.id());
        inside.kill();
        wait_until("the service has noticed it", || {
            let status: serde_json::Value =
                serde_json::from_str(&status(store, id)).expect("it is JSON");
            let holders = status["holders"].as_array().expect("a list");
            !holders.iter().any(|holder| holder.as_u64() == Some(killed))
        });
        assert_eq!(quiet.end(), Some(0));
        inside.let_go();
        assert_eq!(base(one, "file").as_deref(), Some("exec\n"));

        let mut busy = run(store, &[], "true", "true");
        let id = &busy.said.clone();
        let writer = "exec 3>> log; echo first >&3; echo in";
        let mut inside = Waiting::start(store, &["exec", id], writer, "echo last >&3");
        inside.kill();
        assert_eq!(busy.end(), Some(CONFLICT));
        store.call(["commit", id]).expect(CONFLICT);
        inside.let_go();
        store.call(["commit", "--wait", id]).expect(0);
        assert_eq!(base(one, "log").as_deref(), Some("first\nlast\n"));
    });
}

/// The process that has mounted the view is stopped, as by Ctrl-Z, so it answers no requests.
#[test]
fn stopped_run_cannot_be_committed_by_others_but_aborted() {
    for_each_native_owner("native-stopped", |one| {
        let store = &one.store;
        let mut goes_on = run(store, &[], "echo run > file", "echo more >> file");
        let id = &goes_on.said.clone();
        kill_process(goes_on.process(), Signal::STOP).expect("it is there");
        for commit in [["commit", id].as_slice(), &["commit", "--force", id]] {
            store.call(commit).expect(CONFLICT).says(&["working in it"]);
        }
        let refused = store.call(["exec", id, "--", "true"]).expect(CONFLICT);
        refused.says(&["does not answer"]);
        assert_eq!(base(one, "file").as_deref(), Some("old\n"));
        kill_process(goes_on.process(), Signal::CONT).expect("it is there");
        assert_eq!(exec(store, id, "cat file"), "run\n");
        assert_eq!(goes_on.end(), Some(0));
        assert_eq!(base(one, "file").as_deref(), Some("run\nmore\n"));

        let mut aborted = run(store, &[], "echo aborted > file", "echo more >> file");
        let id = &aborted.said.clone();
        kill_process(aborted.process(), Signal::STOP).expect("it is there");
        store.call(["abort", id]).expect(0);
        store.call(["status", id]).expect(NO_SUCH);
        store.run("echo other >> dir/d").expect(0);
        kill_process(aborted.process(), Signal::CONT).expect("it is there");
        assert_eq!(aborted.end(), Some(NO_SUCH));
        assert_eq!(base(one, "file").as_deref(), Some("run\nmore\n"));
        assert_eq!(base(one, "dir/d").as_deref(), Some("d\nother\n"));
    });
}

#[test]
fn sealed_runs_and_other_users_runs_cannot_be_entered() {
    for_each_native_owner("native-closed", |one| {
        let store = &one.store;
        let mut run_one = run(store, &["--sealed"], "true", "true");
        let id = &run_one.said.clone();
        let refused = store.call(["exec", id, "--", "true"]);
        refused.expect(NOT_PERMITTED).says(&["sealed"]);
        assert_eq!(run_one.end(), Some(0));

        let mut run_two = run(store, &[], "true", "true");
        let id = &run_two.said.clone();
        if store.user().is_root() {
            let stranger = User::stranger(one.scratch.path());
            store.call(["config", "allow", stranger.name]).expect(0);
            let refused = store.call_as(&stranger, ["exec", id, "--", "true"]);
            refused.expect(NO_SUCH);
        } else {
            let root = User::root(one.scratch.path());
            let refused = store.call_as(&root, ["--trust", "exec", id, "--", "true"]);
            let says = ["only that user can enter its views"];
            refused.expect(NOT_PERMITTED).says(&says);
        }
        assert_eq!(run_two.end(), Some(0));
    });
}

/// Nothing is lost if a command leaves a nested transaction open: the outer one can be committed once
/// the nested one has ended.
#[test]
fn nested_transaction_that_a_command_leaves_open_keeps_the_outer_one_open() {
    Fixture::for_each_view("native-left-nested", "echo old > file", |one, view| {
        let store = &one.store;
        let program = binary();
        let begin = format!("echo outer > file; '{}' begin", program.display());
        let outcome = store.run_with(&["--view", view], &begin).expect(CONFLICT);
        let outcome = outcome.says(&["is nested in", "still open"]);
        let nested = outcome.text().lines().next().expect("an id").to_owned();
        let listed = store.call(["--json", "list"]).expect(0).text();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let outer = listed["transactions"][0]["transaction"].to_string();
        assert_eq!(listed["transactions"][1]["transaction"].to_string(), nested);

        exec(store, &nested, "cat file; echo nested > nested");
        store.call(["commit", &nested]).expect(0);
        // With a native view, its process lets go of the transaction first.
        store.call(["commit", &outer, "--wait"]).expect(0);
        assert_eq!(base(one, "file").as_deref(), Some("outer\n"));
        assert_eq!(base(one, "nested").as_deref(), Some("nested\n"));

        // A forced end of the run aborts the nested one.
        let forced = ["--view", view, "--force"];
        store.run_with(&forced, &begin).expect(0);
        assert_eq!(
            store.call(["list", "-q"]).expect(0).text().lines().count(),
            0
        );
        store.assert_at_rest();
    });
}
