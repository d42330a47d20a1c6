#![cfg(test)]

//! Services that a restricted process has started, and callers in sandboxes. Nobody suffers from
//! the restrictions of another program, and nobody gets around their own.

use std::fs;
use std::process::Command;

use atomdir_testing::exit_code::{CONFIGURATION, CONFLICT};
use atomdir_testing::{
    Fixture, Outcome, Store, User, binary, capture_output, skip, tools_present, users_can_mount,
};

/// Runs a script as the store's user, with the program as `$A` and the store's root as `$S`.
fn script(store: &Store, text: &str) -> Outcome {
    through(store, &["sh", "-ec", text])
}

fn through(store: &Store, words: &[&str]) -> Outcome {
    let mut command = Command::new(words[0]);
    store.user().dress(&mut command);
    command
        .args(&words[1..])
        .env("A", binary())
        .env("S", store.path())
        .current_dir("/");
    capture_output(&mut command)
}

fn service(store: &Store) -> i32 {
    let services = store.service_processes();
    assert_eq!(services.len(), 1);
    services[0].as_raw_nonzero().get()
}

const LARGE: &str = "head -c 3000000 /dev/zero > large";

#[test]
fn a_service_started_under_limits_serves_others() {
    Fixture::for_each_owner("starter-limits", "echo old > file", |one| {
        let store = &one.store;
        store.call(["service", "stop"]).expect(0);
        let limited = "ulimit -f 100; ulimit -t 60; ulimit -n 300
            trap '' TERM; taskset -pc 0 $$ > /dev/null
            exec nice -n 15 $A -C $S run -- true";
        script(store, limited).expect(0);
        // Some containers let not even root lift limits.
        let lifted = "ulimit -f 100; ulimit -f unlimited && nice -n -1 true";
        if store.user().is_root() && script(store, lifted).code == 0 {
            let process = service(store);
            let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("read");
            let lines = limits.lines().filter(|line| {
                line.starts_with("Max cpu time") || line.starts_with("Max file size")
            });
            for line in lines {
                assert!(line.contains("unlimited"), "{line}");
            }
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("read");
            let fields = stat.rsplit(')').next().expect("it has fields");
            assert_eq!(fields.split_whitespace().nth(16), Some("0"), "niceness");
        }
        let begun = store.begin();
        store.run(LARGE).expect(0);
        store.run_exact(LARGE).expect(0);
        store.exec(&begun, "echo new > file").expect(0);
        store.commit(&begun).expect(0);
        store.assert_at_rest();
    });
}

/// An ordinary user cannot lift the limit.
#[test]
fn a_restricted_service_in_use_takes_no_new_work_from_others_and_says_why() {
    let test = "a_restricted_service_in_use_takes_no_new_work_from_others_and_says_why";
    if !users_can_mount(test) {
        return;
    }
    let one = Fixture::owned_by("starter-in-use", User::ordinary, "echo old > file");
    let store = &one.store;
    store.call(["service", "stop"]).expect(0);
    let begun = script(store, "ulimit -f 1000; $A -C $S begin")
        .expect(0)
        .text();
    let id = begun.lines().next().expect("an id");
    let wanted = ["512000 bytes (ulimit -f)", "service stop --keep"];
    store.call(["begin"]).expect(CONFLICT).says(&wanted);
    store.run("true").expect(CONFLICT).says(&wanted);
    // What is open can be used, and another service can have it.
    store.call(["status", id]).expect(0);
    let write = ["exec", id, "--", "sh", "-c", "echo new > file"];
    store.call(write).expect(0);
    store.call(["service", "stop", "--keep"]).expect(0);
    store.call(["commit", id]).expect(0);
    store.call(["service", "stop"]).expect(0);

    let begun = script(store, "ulimit -f 1000; $A -C $S begin")
        .expect(0)
        .text();
    let mut lines = begun.lines();
    let (id, view) = (lines.next().expect("an id"), lines.next().expect("a view"));
    let restricted = service(store);
    // The service is not killed by its limit.
    script(store, &format!("cd '{view}'; ! {LARGE} 2> /dev/null")).expect(0);
    assert_eq!(service(store), restricted);
    store.call(["abort", id]).expect(0);
    store.run(LARGE).expect(0);
    assert_ne!(service(store), restricted);
    store.assert_at_rest();
}

/// How long the replaced service was to stay counts for its successor.
#[test]
fn a_service_under_no_new_privileges_is_replaced() {
    let test = "a_service_under_no_new_privileges_is_replaced";
    if !users_can_mount(test) || !tools_present(test, &["setpriv"]) {
        return;
    }
    let one = Fixture::owned_by("starter-privileges", User::ordinary, "echo old > file");
    let store = &one.store;
    store.call(["service", "stop"]).expect(0);
    script(store, "setpriv --no-new-privs $A -C $S service start").expect(0);
    store.run("echo new > file").expect(0);
    let status = store.call(["--json", "service", "status"]).expect(0).text();
    assert!(status.contains(r#""idle_seconds":null"#), "{status}");
    store.assert_at_rest();
}

#[test]
fn a_service_started_in_a_mount_namespace_serves_all_namespaces() {
    let test = "a_service_started_in_a_mount_namespace_serves_all_namespaces";
    if !tools_present(test, &["unshare"]) {
        return;
    }
    Fixture::for_each_owner("starter-namespace", "echo old > file", |one| {
        let store = &one.store;
        store.call(["service", "stop"]).expect(0);
        let is_root = store.user().is_root();
        let apart: &[&str] = match is_root {
            true => &["unshare", "-m", "--propagation", "private"],
            false => &["unshare", "-Urm", "--propagation", "private"],
        };
        let apart = |text: &str| through(store, &[apart, &["sh", "-ec", text]].concat());
        apart("$A -C $S service start").expect(0);
        for view in ["exact", "native"] {
            store
                .run_with(&["--view", view], "echo outside > file")
                .expect(0);
        }
        if !is_root {
            return store.assert_at_rest();
        }
        // A mount that is made later does not appear there by itself, and is brought.
        let text = "
            for view in native exact; do
                $A -C $S run --view $view -- sh -c 'echo inside > file'
            done
            $A -C $S begin > $HOME/begun
            id=$(head -n 1 $HOME/begun); view=$(tail -n 1 $HOME/begun)
            test $(cat $view/file) = inside; echo begun > $view/file
            $A -C $S exec $id -- sh -c 'test $(cat file) = begun'
            $A -C $S commit $id";
        apart(text).expect(0);
        let begun = store.begin();
        assert_eq!(fs::read(begun.path.join("file")).expect("read"), b"begun\n");
        // The mount of a service that has ended is in the way.
        let again = "$A -C $S begin > /dev/null; $A -C $S service stop --abort
            $A -C $S begin > /dev/null; $A -C $S run -- cat file; $A -C $S service stop --abort";
        apart(again).expect(0);
        store.assert_at_rest();
    });
}

/// In a process namespace, since the machine's first process may be closed even to root.
#[test]
fn roots_service_enters_the_mount_namespace_of_the_first_process() {
    let test = "roots_service_enters_the_mount_namespace_of_the_first_process";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may make a process namespace");
    }
    let one = Fixture::new("starter-first", "echo old > file");
    let store = &one.store;
    store.call(["service", "stop"]).expect(0);
    let text = r#"
        unshare -m --propagation private sh -ec 'mount -t tmpfs none /mnt; $A -C $S service start'
        process=$($A -C $S --json service status | sed 's/.*"process": *\([0-9]*\).*/\1/')
        test "$(readlink /proc/$process/ns/mnt)" = "$(readlink /proc/1/ns/mnt)"
        $A -C $S run -- sh -c 'echo new > file'
        # A store that is visible in its starter's namespace alone is served there.
        mkdir $S/../other
        unshare -m --propagation private sh -ec '
            mount -t tmpfs none $S/../other; cd $S/../other; mkdir s; $A init s
            $A -C s run -- sh -c "echo there > file"; test $(cat s/file) = there; $A -C s service stop'
        $A -C $S service stop
    "#;
    let pid = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "-m",
    ];
    through(store, &[&pid[..], &["sh", "-ec", text]].concat()).expect(0);
    assert_eq!(fs::read(one.base.join("file")).expect("read"), b"new\n");
    store.assert_at_rest();
}

/// Each hides `secret` or keeps `kept` from changing, for a shell whose first argument is the
/// script.
const SANDBOXES: [(&str, &[&str]); 3] = [
    (
        "bwrap",
        &[
            "bwrap",
            "--dev-bind",
            "/",
            "/",
            "--ro-bind",
            "/dev/null",
            "$S/secret",
        ],
    ),
    (
        "bwrap",
        &[
            "bwrap",
            "--dev-bind",
            "/",
            "/",
            "--ro-bind",
            "$S/kept",
            "$S/kept",
        ],
    ),
    (
        "bwrap",
        &["bwrap", "--dev-bind", "/", "/", "--ro-bind", "$S", "$S"],
    ),
];

const PREPARE: &str = "echo hidden > secret; mkdir kept; echo old > kept/file; echo old > file";

/// In a user namespace that does not map root, nobody's files would look like root's.
fn for_each_sandboxed_owner(name: &str, check: impl Fn(&Fixture)) {
    if rustix::process::geteuid().is_root() {
        check(&Fixture::new(name, PREPARE));
    }
    if users_can_mount(name) {
        check(&Fixture::owned_by(name, User::stranger, PREPARE));
    }
}

/// What a sandboxed program tries, and what it must not see or change.
const TRIES: &str = r#"
    for view in exact native; do
        $A -C $S run --view $view -- sh -c 'cat secret; echo evil > kept/file' && exit 9
        test $? = 77
    done
    $A -C $S begin && exit 9
    $A -C $S undo 1 && exit 9
    $A -C $S service stop && exit 9
    $A -C $S list
    $A -C $S service status > /dev/null
"#;

#[test]
fn a_sandboxed_caller_gets_no_view_around_its_walls() {
    let test = "a_sandboxed_caller_gets_no_view_around_its_walls";
    for_each_sandboxed_owner("sandboxed", |one| {
        let store = &one.store;
        store.run("echo secret > secret").expect(0);
        store.call(["service", "start"]).expect(0);
        for (tool, sandbox) in SANDBOXES {
            if !tools_present(test, &[tool]) {
                continue;
            }
            let path = store.path().display().to_string();
            let words: Vec<String> = sandbox
                .iter()
                .map(|word| word.replace("$S", &path))
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let outcome = through(store, &[&words[..], &["sh", "-ec", TRIES]].concat()).expect(0);
            assert!(!outcome.text().contains("secret\n"), "{outcome}");
            outcome.says(&["in a sandbox", "atomdir run -- bwrap"]);
            // A sandbox inside of a command: the nested transaction is behind the same walls.
            let nested =
                "$A begin && exit 9; $A run -- sh -c 'cat secret; echo evil > kept/file' && exit 9
                 exit 0";
            let inner = [
                &["run", "--view", "exact", "--"],
                &words[..],
                &["sh", "-c", nested],
            ]
            .concat();
            let mut command = store.command(&inner);
            command.env("A", binary());
            let outcome = capture_output(&mut command).expect(0);
            assert!(!outcome.text().contains("secret\n"), "{outcome}");
        }
        assert_eq!(
            fs::read(one.base.join("kept/file")).expect("read"),
            b"old\n"
        );
        store.call(["service", "stop"]).expect(0);
        store.assert_at_rest();
    });
}

/// As in a container: another namespace that shows the whole store. For ordinary users a view is
/// visible there only if it was mounted before.
#[test]
fn a_sandbox_that_shows_the_whole_store_is_no_wall() {
    let test = "a_sandbox_that_shows_the_whole_store_is_no_wall";
    if !tools_present(test, &["bwrap"]) {
        return;
    }
    for_each_sandboxed_owner("sandboxed-whole", |one| {
        let store = &one.store;
        store.call(["service", "start"]).expect(0);
        let begun = store.begin();
        let text = "$A -C $S diff; $A -C $S run --view exact -- sh -c 'echo new > file'";
        through(store, &["bwrap", "--dev-bind", "/", "/", "sh", "-ec", text]).expect(0);
        assert_eq!(fs::read(one.base.join("file")).expect("read"), b"new\n");
        store.abort(&begun).expect(0);
        store.call(["service", "stop"]).expect(0);
        store.assert_at_rest();
    });
}

#[test]
fn a_view_that_does_not_appear_in_a_sandbox_names_the_cause() {
    let test = "a_view_that_does_not_appear_in_a_sandbox_names_the_cause";
    if !users_can_mount(test) || !tools_present(test, &["unshare"]) {
        return;
    }
    let one = Fixture::owned_by("sandboxed-unseen", User::stranger, PREPARE);
    let store = &one.store;
    store.call(["sync"]).expect(0);
    let apart = ["unshare", "-Ucm", "--propagation", "private"];
    // The exact view is mounted for the first time while the namespace is there.
    let text = "$A -C $S run --view exact -- true";
    through(store, &[&apart[..], &["sh", "-ec", text]].concat())
        .expect(CONFIGURATION)
        .says(&["mount namespace", "atomdir run -- bwrap"]);
    store.call(["service", "stop"]).expect(0);
    store.assert_at_rest();
}
