use crate::store::{Store, Told};
use std::path::Path;

#[test]
fn a_command_that_succeeds_commits_and_one_that_fails_changes_nothing() {
    let store = Store::new("run");
    let told = store.tell(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo new > file; mkdir d; pwd; cat file",
    ]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(told.out, format!("{}\nnew\n", store.path.display()));
    assert_eq!(told.error, "");
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let told = store.tell(&["run", "--", "sh", "-c", "rm file; cd d; pwd; exit 9"]);
    assert_eq!(told.code, Some(9));
    assert!(
        told.error.contains("exited with 9; transaction"),
        "{told:?}"
    );
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let told = store.tell(&["run", "-q", "--", "sh", "-c", "rm file; kill -KILL $$"]);
    assert_eq!((told.code, told.error.as_str()), (Some(137), ""));
    assert!(store.read("file").is_some());
}

#[test]
fn a_command_starts_in_the_callers_directory() {
    let store = Store::new("directory");
    store.check(&["run", "--", "mkdir", "-p", "a/b"]);
    let inner = store.path.join("a/b");
    let told = store.tell(&[
        "run",
        "-C",
        "a/b",
        "--",
        "sh",
        "-c",
        "pwd; echo $ATOMDIR_TX > id",
    ]);
    assert_eq!(told.out, format!("{}\n", inner.display()));
    let id: u64 = store.read("a/b/id").unwrap().trim().parse().unwrap();
    assert!(id > 0);
}

#[test]
fn what_is_wished_is_done() {
    let store = Store::new("wishes");
    store.check(&["run", "--on-success", "abort", "--", "rm", "file"]);
    assert!(store.read("file").is_some());
    let told = store.tell(&[
        "run",
        "--on-error",
        "commit",
        "--",
        "sh",
        "-c",
        "touch a; exit 3",
    ]);
    assert_eq!(told.code, Some(3));
    assert!(store.read("a").is_some());
    let told = store.shell("$ATOMDIR run --on-success keep --status-fd 3 -- touch b 3>&1");
    let id = told
        .out
        .strip_prefix("kept ")
        .unwrap_or_else(|| panic!("{told:?}"))
        .trim();
    assert!(store.read("b").is_none());
    assert_eq!(store.check(&["diff", id, "--name-status"]), "A b\n");
    store.check(&["commit", id]);
    assert!(store.read("b").is_some());
}

#[test]
fn a_dry_run_prints_the_changes_and_makes_none() {
    let store = Store::new("dry");
    let script = "echo x > new; rm file; exit 4";
    let told = store.tell(&["run", "--dry-run", "-q", "--", "sh", "-c", script]);
    assert_eq!((told.code, told.out.as_str()), (Some(4), "D file\nA new\n"));
    assert!(store.read("file").is_some() && store.read("new").is_none());
    assert_eq!(store.check(&["list"]), "");
}

#[test]
fn the_outcome_goes_to_the_status_descriptor_and_not_to_the_command() {
    let store = Store::new("outcome");
    let run = |rest: &str| {
        store
            .shell(&format!("$ATOMDIR run --status-fd 3 {rest} 3>&1 >&2"))
            .out
    };
    assert_eq!(run("-- touch a"), "committed 1\n");
    assert_eq!(run("-- true"), "committed -\n");
    assert_eq!(run("-- false"), "aborted\n");
    assert_eq!(run("-- sh -c '[ ! -e /proc/self/fd/3 ]'"), "committed -\n");
    assert!(run("-- ./nothing").starts_with("failed 127 "));
    let json: serde_json::Value = serde_json::from_str(&run("--json -- touch b")).unwrap();
    assert_eq!(json["outcome"], "committed");
    assert_eq!(
        (&json["commit"], &json["changes_count"]),
        (&2.into(), &1.into())
    );
}

#[test]
fn a_conflict_names_what_was_changed_and_by_whom() {
    let store = Store::new("conflict");
    let (id, view) = store.begin();
    std::fs::write(view.join("file"), "late\n").unwrap();
    store.check(&[
        "run",
        "-m",
        "the first",
        "--",
        "sh",
        "-c",
        "echo first > file",
    ]);
    let told = store.tell(&["commit", &id]);
    assert_eq!(told.code, Some(75), "{told:?}");
    let line = told.error.lines().find(|line| line.starts_with("  file: "));
    assert!(
        line.is_some_and(|line| line.ends_with("(the first)")),
        "{told:?}"
    );
    let told = store.tell(&["commit", &id, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&told.error).unwrap();
    assert_eq!(json["error"]["conflicts"][0]["path"], "file");
    assert_eq!(json["error"]["conflicts"][0]["by"], "commit");
    assert_eq!(json["error"]["conflicts"][0]["label"], "the first");
    store.check(&["abort", &id]);
    assert_eq!(store.read("file").as_deref(), Some("first\n"));
}

/// Writes `file` in the view, then, outside, as an outside writer.
const MEDDLING: &str = "echo tried >> tries; echo mine > file; nsenter -t $PPID -m sh -c \
                        'cd \"$0\"; [ -e meddled ] || { echo theirs > file; touch meddled; }' $PWD";

#[test]
fn a_conflict_is_retried_as_often_as_asked() {
    let store = Store::new("retry");
    let told = store.tell(&["run", "--retry", "5", "-v", "--", "sh", "-c", MEDDLING]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.error.contains("trying again"), "{told:?}");
    assert_eq!(store.read("file").as_deref(), Some("mine\n"));
    assert_eq!(store.read("tries").as_deref(), Some("tried\n"));
    assert_eq!(store.check(&["list"]), "");
}

/// The id of the transaction that is open after a conflict, if one is.
fn kept_after_conflict(store: &Store, told: Told) -> Option<String> {
    assert_eq!(told.code, Some(75), "{told:?}");
    let said = told.out + &told.error;
    assert!(said.contains("by an outside writer"), "{said}");
    std::fs::remove_file(store.path.join("meddled")).expect("removed");
    let open = store.json(&["list"]);
    let Some(kept) = open["transactions"].get(0) else {
        assert!(said.contains("was aborted"), "{said}");
        return None;
    };
    let id = kept["transaction"].to_string();
    assert!(said.contains("is still open"), "{said}");
    assert!(store.check(&["diff", &id]).contains("+mine"));
    store.check(&["abort", &id]);
    Some(id)
}

#[test]
fn after_a_conflict_a_transaction_stays_open_for_a_person_only() {
    let store = Store::new("conflict-end");
    let told = store.tell(&["run", "--", "sh", "-c", MEDDLING]);
    assert_eq!(kept_after_conflict(&store, told), None, "nobody was there");
    let told = store.tell(&["run", "--on-conflict", "keep", "--", "sh", "-c", MEDDLING]);
    assert!(kept_after_conflict(&store, told).is_some());
    std::fs::write(store.path.join("meddle"), MEDDLING).unwrap();
    let on_terminal = |options: &str| {
        store.shell(&format!(
            "script -qec \"$ATOMDIR run {options} -- sh meddle\" /dev/null"
        ))
    };
    let told = on_terminal("");
    assert!(kept_after_conflict(&store, told).is_some());
    let told = on_terminal("--on-conflict abort");
    assert_eq!(kept_after_conflict(&store, told), None);
}

#[test]
fn a_timeout_aborts() {
    let store = Store::new("timeout");
    let told = store.tell(&[
        "run",
        "--timeout",
        "100ms",
        "--",
        "sh",
        "-c",
        "rm file; sleep 1000",
    ]);
    assert_eq!(told.code, Some(124), "{told:?}");
    assert!(store.read("file").is_some());
    assert_eq!(store.check(&["list"]), "");
}

#[test]
fn signals_sent_to_us_reach_the_command() {
    let store = Store::new("signals");
    let script =
        "trap 'echo caught > signal; exit 0' TERM; touch \"$READY\"; while :; do sleep 0.01; done";
    let told = store.shell(&format!(
        "export READY=\"$PWD.ready\"
        $ATOMDIR run -- sh -c '{}' & process=$!
        until [ -e \"$READY\" ]; do sleep 0.01; done
        rm \"$READY\"; kill -TERM $process; wait $process",
        script.replace('\'', "'\\''")
    ));
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(store.read("signal").as_deref(), Some("caught\n"));
}

#[test]
fn when_we_are_killed_the_transaction_is_aborted() {
    let store = Store::new("killed");
    let told = store.shell(
        "READY=\"$PWD.ready\"
        $ATOMDIR run -- sh -c 'rm file; touch \"$0\"; exec sleep 1000' \"$READY\" & process=$!
        until [ -e \"$READY\" ]; do sleep 0.01; done
        rm \"$READY\"; command=$(pgrep -P $process); kill -KILL $process; kill $command
        until [ \"$($ATOMDIR list)\" = '' ]; do sleep 0.01; done",
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(store.read("file").is_some());
}

#[test]
fn asking_on_a_terminal_shows_the_changes_and_heeds_the_answer() {
    let store = Store::new("ask");
    let run = |answers: &str, rest: &str| {
        let line = format!("$ATOMDIR run --ask {rest}");
        store.on_terminal(&line, "[k]eep open: ", answers)
    };
    let told = run("d\nn\n", "-- rm file");
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.out.contains("D file") && told.out.contains("-old"),
        "{told:?}"
    );
    assert!(told.out.contains("Commit 1 change?"), "{told:?}");
    assert!(store.read("file").is_some());
    run("yes\n", "-- rm file");
    assert!(store.read("file").is_none());
    assert_eq!(store.check(&["list"]), "");
}

/// The command puts an answer into the terminal's input, and makes it unreadable.
#[test]
fn a_command_does_not_answer_the_question_about_itself() {
    let store = Store::new("ask-itself");
    let program = "import fcntl, os, termios
terminal = os.open('/dev/tty', os.O_RDWR)
settings = termios.tcgetattr(terminal)
settings[3] &= ~(termios.ICANON | termios.ISIG)
termios.tcsetattr(terminal, termios.TCSANOW, settings)
for byte in b'yes\\n':
    try:
        fcntl.ioctl(terminal, termios.TIOCSTI, bytes([byte]))
    except OSError:
        pass # The kernel may refuse it to everybody.
os.remove('file')
";
    std::fs::write(store.path.join("program"), program).expect("written");
    let told = store.on_terminal(
        "$ATOMDIR run --ask -- python3 program",
        "[k]eep open: ",
        "no\n",
    );
    assert!(told.out.contains("D file"), "{told:?}");
    assert!(store.read("file").is_some(), "{told:?}");
}

/// Between the list and the answer somebody who can enter the view tries to change it.
#[test]
fn nothing_but_what_was_shown_is_committed() {
    for line in [
        "$ATOMDIR run --ask -- ./script",
        "SHELL=./script $ATOMDIR shell",
    ] {
        let store = Store::new("ask-shown");
        let script = store.path.join("script");
        std::fs::write(&script, "#!/bin/sh\necho shown > file\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("made a program");
        let told = store.on_terminal_when(line, "[k]eep open: ", || {
            let open = &store.json(&["list"])["transactions"][0];
            let (id, view) = (open["transaction"].to_string(), open["view"].as_str());
            let file = Path::new(view.expect("it has one")).join("file");
            let refused = std::fs::write(file, "late\n").expect_err("it is frozen");
            assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
            let nested = store.tell(&["begin", "--in", &id]);
            assert!(matches!(nested.code, Some(75 | 77)), "{nested:?}");
            "yes\n".to_owned()
        });
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(store.read("file").as_deref(), Some("shown\n"), "{told:?}");
    }
}

#[test]
fn a_transaction_that_is_kept_after_the_question_can_be_changed_again() {
    let store = Store::new("ask-keep");
    let line = "$ATOMDIR run --ask -- rm file";
    let told = store.on_terminal(line, "[k]eep open: ", "k\n");
    assert_eq!(told.code, Some(0), "{told:?}");
    let transactions = store.json(&["list"]);
    let id = transactions["transactions"][0]["transaction"].to_string();
    store.check(&["exec", &id, "--", "sh", "-c", "echo again > file"]);
    store.check(&["commit", &id]);
    assert_eq!(store.read("file").as_deref(), Some("again\n"));
}

/// Runs `atomdir` where no namespace can be made: in a user namespace without
/// any more of them, and without the right to make mounts.
fn without_namespaces(store: &Store, arguments: &str) -> Told {
    store.shell(&format!(
        "setpriv --bounding-set -sys_admin --inh-caps -sys_admin unshare --user --map-root-user \
         sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set \
         -sys_admin --inh-caps -sys_admin \"$ATOMDIR\" {arguments}'"
    ))
}

#[test]
fn without_the_right_to_namespaces_a_command_is_refused_unless_allowed() {
    let store = Store::new("forbidden");
    store.check(&["service", "start"]);
    let (id, view) = store.begin();
    let remove = format!("-- rm {}", store.path.join("file").display());
    for arguments in [
        format!("run {remove}"),
        format!("run --dry-run {remove}"),
        format!("exec {id} {remove}"),
        format!("shell {id}"),
    ] {
        let told = without_namespaces(&store, &arguments);
        assert_eq!(told.code, Some(78), "{arguments}: {told:?}");
        assert!(told.error.contains("--allow-unbound"), "{told:?}");
        assert!(store.read("file").is_some(), "{arguments}: {told:?}");
    }
    let script = "-- sh -c \"pwd; echo new > file\"";
    let told = without_namespaces(&store, &format!("run -q --allow-unbound {script}"));
    assert_eq!(told.code, Some(0), "{told:?}");
    let root = store.path.display().to_string();
    assert!(told.error.contains("warning: "), "{told:?}");
    assert!(told.error.contains(&root), "{told:?}");
    assert!(!told.out.starts_with(&root), "{told:?}");
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let told = without_namespaces(&store, &format!("exec --allow-unbound {id} {script}"));
    assert_eq!(told.out.trim(), view.display().to_string(), "{told:?}");
    assert!(told.error.contains("warning: "), "{told:?}");
}

/// What the command leaves behind is then found and killed.
#[test]
fn without_a_process_namespace_a_sealed_command_leaves_nothing_behind_either() {
    let store = Store::new("no-processes");
    store.check(&["service", "start"]);
    let script = "(setsid sh -c 'while :; do echo late > file; done' &); echo shown > shown";
    std::fs::write(store.path.join("script"), script).expect("written");
    let told = store.shell(
        "unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_pid_namespaces &&
             exec \"$ATOMDIR\" run -v --sealed -- sh script'",
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.error.contains("no process namespace"), "{told:?}");
    assert_eq!(store.read("shown").as_deref(), Some("shown\n"));
    let left = store.shell("pgrep -f 'echo [l]ate > file'");
    assert_eq!(left.out, "", "it still runs");
}

/// A nested transaction that is still open stops the question, not only the commit,
/// and the work is not lost.
#[test]
fn a_shell_that_leaves_something_nested_keeps_its_transaction() {
    let store = Store::new("ask-nested");
    let told = store.shell(
        "{ echo 'echo new > file; $ATOMDIR begin > /dev/null'; echo exit; } |
         NO_COLOR=1 SHELL=/bin/sh script -qec \"$ATOMDIR shell --view exact --on-conflict keep\" /dev/null",
    );
    assert!(told.out.contains("is nested in transaction"), "{told:?}");
    let listed = store.json(&["list"]);
    let count = listed["transactions"].as_array().map(Vec::len);
    assert_eq!(count, Some(2), "{listed}");
    store.check(&["abort", "--all"]);
}

#[test]
fn a_terminal_that_is_closed_aborts_what_the_command_did() {
    let store = Store::new("hang-up");
    // script(1) makes a terminal, whose session `atomdir` leads.
    let on_terminal = |run: &str| {
        let told = store.shell(&format!(
            "export READY=\"$PWD.ready\" GO=\"$PWD.go\"
            script -qec \"exec {run} -- sh -c '
                trap \\\"exit 0\\\" HUP; rm file; touch \\\"\\$READY\\\"
                until [ -e \\\"\\$GO\\\" ]; do sleep 0.01; done'\" /dev/null & script=$!
            until [ -e \"$READY\" ]; do sleep 0.01; done
            kill -KILL $script; wait $script
            touch \"$GO\"; rm \"$READY\"
            until [ \"$($ATOMDIR list)\" = '' ]; do sleep 0.01; done
            rm \"$GO\""
        ));
        assert_eq!(told.code, Some(0), "{told:?}");
        store.read("file").is_some()
    };
    // Whoever runs the tests may ignore SIGHUP.
    assert!(
        on_terminal("env --default-signal=HUP $ATOMDIR run"),
        "it was committed"
    );
    assert!(
        !on_terminal("env --ignore-signal=HUP $ATOMDIR run"),
        "who ignores SIGHUP goes on"
    );
}

#[test]
fn with_json_every_line_of_our_own_is_json() {
    let store = Store::new("json-lines");
    for arguments in [
        &["run", "-v", "--", "false"][..],
        &["run", "--", "./nothing"],
        &["exec", "77", "--", "true"],
        &["unlock", "--nonsense"],
        &["nonsense"],
    ] {
        let told = store.tell(&[&["--json"], arguments].concat());
        assert_ne!(told.code, Some(0), "{told:?}");
        assert!(!told.error.is_empty(), "{arguments:?}");
        assert_eq!(told.out, "");
        for line in told.error.lines() {
            let parsed = serde_json::from_str::<serde_json::Value>(line);
            assert!(parsed.is_ok(), "{arguments:?}: {told:?}");
        }
    }
}

#[test]
fn on_a_terminal_a_commit_is_summarized_in_one_line() {
    let store = Store::new("summary");
    let run = |options: &str| {
        let line =
            format!("$ATOMDIR run {options} -- sh -c 'echo x >> file; touch new; mkdir d$$'");
        store.on_terminal(&line, "unused", "").out
    };
    assert_eq!(run("").trim_end(), "committed 1: 1 changed, 2 new");
    assert_eq!(run("-q"), "");
    assert_eq!(store.tell(&["run", "--", "touch", "quiet"]).error, "");
}
