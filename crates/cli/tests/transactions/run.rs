use crate::store::{Outcome, Store};
use std::path::Path;

#[test]
fn a_command_that_succeeds_commits_and_one_that_fails_changes_nothing() {
    let store = Store::new("run");
    let outcome = store.call(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo new > file; mkdir d; pwd; cat file",
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.out, format!("{}\nnew\n", store.path.display()));
    assert_eq!(outcome.error, "");
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let outcome = store.call(&["run", "--", "sh", "-c", "rm file; cd d; pwd; exit 9"]);
    assert_eq!(outcome.code, Some(9));
    assert!(
        outcome.error.contains("exited with 9; transaction"),
        "{outcome:?}"
    );
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let outcome = store.call(&["run", "-q", "--", "sh", "-c", "rm file; kill -KILL $$"]);
    assert_eq!((outcome.code, outcome.error.as_str()), (Some(137), ""));
    assert!(store.read("file").is_some());
}

#[test]
fn a_command_starts_in_the_callers_directory() {
    let store = Store::new("directory");
    store.check(&["run", "--", "mkdir", "-p", "a/b"]);
    let inner = store.path.join("a/b");
    let outcome = store.call(&[
        "run",
        "-C",
        "a/b",
        "--",
        "sh",
        "-c",
        "pwd; echo $ATOMDIR_TX > id",
    ]);
    assert_eq!(outcome.out, format!("{}\n", inner.display()));
    let id: u64 = store.read("a/b/id").unwrap().trim().parse().unwrap();
    assert!(id > 0);
}

#[test]
fn on_success_and_on_error_options_are_followed() {
    let store = Store::new("wishes");
    store.check(&["run", "--on-success", "abort", "--", "rm", "file"]);
    assert!(store.read("file").is_some());
    let outcome = store.call(&[
        "run",
        "--on-error",
        "commit",
        "--",
        "sh",
        "-c",
        "touch a; exit 3",
    ]);
    assert_eq!(outcome.code, Some(3));
    assert!(store.read("a").is_some());
    let outcome = store.shell("$ATOMDIR run --on-success keep --status-fd 3 -- touch b 3>&1");
    let id = outcome
        .out
        .strip_prefix("kept ")
        .unwrap_or_else(|| panic!("{outcome:?}"))
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
    let outcome = store.call(&["run", "--dry-run", "-q", "--", "sh", "-c", script]);
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (Some(4), "D file\nA new\n")
    );
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
    let outcome = store.call(&["commit", &id]);
    assert_eq!(outcome.code, Some(75), "{outcome:?}");
    let line = outcome
        .error
        .lines()
        .find(|line| line.starts_with("  file: "));
    assert!(
        line.is_some_and(|line| line.ends_with("(the first)")),
        "{outcome:?}"
    );
    let outcome = store.call(&["commit", &id, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&outcome.error).unwrap();
    assert_eq!(json["error"]["conflicts"][0]["path"], "file");
    assert_eq!(json["error"]["conflicts"][0]["by"], "commit");
    assert_eq!(json["error"]["conflicts"][0]["label"], "the first");
    store.check(&["abort", &id]);
    assert_eq!(store.read("file").as_deref(), Some("first\n"));
}

/// Writes `file` in the view and then, at the first call only, in the base, as an outside writer.
const MEDDLING: &str = "echo tried >> tries; echo mine > file; nsenter -t $PPID -m sh -c \
                        'cd \"$0\"; [ -e meddled ] || { echo theirs $$ > file; touch meddled; }' $PWD";

#[test]
fn run_with_retry_tries_again_after_a_conflict() {
    let store = Store::new("retry");
    let outcome = store.call(&["run", "--retry", "5", "-v", "--", "sh", "-c", MEDDLING]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.error.contains("trying again"), "{outcome:?}");
    assert_eq!(store.read("file").as_deref(), Some("mine\n"));
    assert_eq!(store.read("tries").as_deref(), Some("tried\n"));
    assert_eq!(store.check(&["list"]), "");
}

/// The id of the transaction that is open after a conflict, if one is.
fn kept_after_conflict(store: &Store, outcome: Outcome) -> Option<String> {
    assert_eq!(outcome.code, Some(75), "{outcome:?}");
    let said = outcome.out + &outcome.error;
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
fn after_a_conflict_a_transaction_stays_open_unless_on_conflict_is_abort() {
    let store = Store::new("conflict-end");
    std::fs::write(store.path.join("meddle"), MEDDLING).unwrap();
    let unattended = |options: &[&str]| {
        let run = [&["run"], options, &["--", "sh", "meddle"]].concat();
        store.call(&run)
    };
    let on_terminal = |options: &str| {
        store.shell(&format!(
            "script -qec \"$ATOMDIR run {options} -- sh meddle\" /dev/null"
        ))
    };
    assert!(kept_after_conflict(&store, unattended(&[])).is_some());
    assert!(kept_after_conflict(&store, on_terminal("")).is_some());
    let abort = "--on-conflict=abort";
    assert_eq!(kept_after_conflict(&store, unattended(&[abort])), None);
    assert_eq!(kept_after_conflict(&store, on_terminal(abort)), None);
}

#[test]
fn a_timeout_aborts() {
    let store = Store::new("timeout");
    let outcome = store.call(&[
        "run",
        "--timeout",
        "100ms",
        "--",
        "sh",
        "-c",
        "rm file; sleep 1000",
    ]);
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(store.read("file").is_some());
    assert_eq!(store.check(&["list"]), "");
}

#[test]
fn signals_sent_to_run_reach_the_command() {
    let store = Store::new("signals");
    let script = "sleep 1000 & trap 'echo caught > signal; kill $!; exit 0' TERM; touch \"$READY\"; wait; exit 1";
    let outcome = store.shell(&format!(
        "export READY=\"$PWD.ready\"
        $ATOMDIR run -- sh -c '{}' & process=$!
        wait_until test -e \"$READY\"
        rm \"$READY\"; kill -TERM $process; wait $process",
        script.replace('\'', "'\\''")
    ));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(store.read("signal").as_deref(), Some("caught\n"));
}

#[test]
fn killing_run_aborts_the_transaction() {
    let store = Store::new("killed");
    let outcome = store.shell(
        "READY=\"$PWD.ready\"
        $ATOMDIR run -- sh -c 'rm file; touch \"$0\"; exec sleep 1000' \"$READY\" & process=$!
        wait_until test -e \"$READY\"
        rm \"$READY\"; command=$(pgrep -P $process); kill -KILL $process; kill $command
        wait_until sh -c '[ -z \"$($ATOMDIR list)\" ]'",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(store.read("file").is_some());
}

#[test]
fn asking_on_a_terminal_shows_the_changes_and_heeds_the_answer() {
    let store = Store::new("ask");
    let run = |answers: &str, rest: &str| {
        let line = format!("$ATOMDIR run --ask {rest}");
        store.on_terminal(&line, "[K]eep open: ", answers)
    };
    let outcome = run("d\nn\n", "-- rm file");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.out.contains("D file") && outcome.out.contains("-old"),
        "{outcome:?}"
    );
    assert!(
        outcome.out.contains("Commit 1 change of transaction "),
        "{outcome:?}"
    );
    assert!(store.read("file").is_some());
    run("yes\n", "-- rm file");
    assert!(store.read("file").is_none());
    assert_eq!(store.check(&["list"]), "");
}

/// The command types an answer into the terminal's input and turns line input off.
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
    let outcome = store.on_terminal(
        "$ATOMDIR run --ask -- python3 program",
        "[K]eep open: ",
        "no\n",
    );
    assert!(outcome.out.contains("D file"), "{outcome:?}");
    assert!(store.read("file").is_some(), "{outcome:?}");
}

/// Between the list and the answer somebody who can enter the view tries to change it.
#[test]
fn exactly_the_changes_shown_are_committed() {
    for line in [
        "$ATOMDIR run --ask -- ./script",
        "SHELL=./script $ATOMDIR shell",
    ] {
        let store = Store::new("ask-shown");
        let script = store.path.join("script");
        std::fs::write(&script, "#!/bin/sh\necho shown > file\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("made a program");
        let outcome = store.on_terminal_when(line, "[K]eep open: ", || {
            let open = &store.json(&["list"])["transactions"][0];
            let (id, view) = (open["transaction"].to_string(), open["view"].as_str());
            let file = Path::new(view.expect("it has one")).join("file");
            let refused = std::fs::write(file, "late\n").expect_err("it is frozen");
            assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
            let nested = store.call(&["begin", "--in", &id]);
            assert!(matches!(nested.code, Some(75 | 77)), "{nested:?}");
            "yes\n".to_owned()
        });
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(
            store.read("file").as_deref(),
            Some("shown\n"),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_transaction_that_is_kept_after_the_question_can_be_changed_again() {
    let store = Store::new("ask-keep");
    let line = "$ATOMDIR run --ask -- rm file";
    let outcome = store.on_terminal(line, "[K]eep open: ", "k\n");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let transactions = store.json(&["list"]);
    let id = transactions["transactions"][0]["transaction"].to_string();
    store.check(&["exec", &id, "--", "sh", "-c", "echo again > file"]);
    store.check(&["commit", &id]);
    assert_eq!(store.read("file").as_deref(), Some("again\n"));
}

/// Runs `atomdir` where no namespace can be made: in a user namespace that allows no
/// further ones, and without CAP_SYS_ADMIN.
fn without_namespaces(store: &Store, arguments: &str) -> Outcome {
    store.shell(&format!(
        "setpriv --bounding-set -sys_admin --inh-caps -sys_admin unshare --user --map-root-user \
         sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set \
         -sys_admin --inh-caps -sys_admin \"$ATOMDIR\" {arguments}'"
    ))
}

#[test]
fn run_without_namespaces_requires_allow_unbound() {
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
        let outcome = without_namespaces(&store, &arguments);
        assert_eq!(outcome.code, Some(78), "{arguments}: {outcome:?}");
        assert!(outcome.error.contains("--allow-unbound"), "{outcome:?}");
        assert!(store.read("file").is_some(), "{arguments}: {outcome:?}");
    }
    let script = "-- sh -c \"pwd; echo new > file\"";
    let outcome = without_namespaces(&store, &format!("run -q --allow-unbound {script}"));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let root = store.path.display().to_string();
    assert!(outcome.error.contains("warning: "), "{outcome:?}");
    assert!(outcome.error.contains(&root), "{outcome:?}");
    assert!(!outcome.out.starts_with(&root), "{outcome:?}");
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    let outcome = without_namespaces(&store, &format!("exec --allow-unbound {id} {script}"));
    assert_eq!(
        outcome.out.trim(),
        view.display().to_string(),
        "{outcome:?}"
    );
    assert!(outcome.error.contains("warning: "), "{outcome:?}");
}

/// `run` then finds and kills the background processes that the command has left.
#[test]
fn sealed_run_kills_background_processes_without_a_process_namespace() {
    let store = Store::new("no-processes");
    store.check(&["service", "start"]);
    let script = "(setsid sh -c 'while :; do echo late > file; done' &); echo shown > shown";
    std::fs::write(store.path.join("script"), script).expect("written");
    let outcome = store.shell(
        "unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_pid_namespaces &&
             exec \"$ATOMDIR\" run -v --sealed -- sh script'",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.error.contains("no process namespace"),
        "{outcome:?}"
    );
    assert_eq!(store.read("shown").as_deref(), Some("shown\n"));
    let left = store.shell("pgrep -f 'echo [l]ate > file'");
    assert_eq!(left.out, "", "the background process still runs");
}

/// A nested transaction is still open, so the shell's transaction cannot be committed.
/// Both stay open.
#[test]
fn shell_that_ends_with_an_open_nested_transaction_keeps_both() {
    let store = Store::new("ask-nested");
    let outcome = store.shell(
        "{ echo 'echo new > file; $ATOMDIR begin > /dev/null'; echo exit; } |
         NO_COLOR=1 SHELL=/bin/sh script -qec \"$ATOMDIR shell --view exact --on-conflict keep\" /dev/null",
    );
    assert!(
        outcome.out.contains("is nested in transaction"),
        "{outcome:?}"
    );
    let listed = store.json(&["list"]);
    let count = listed["transactions"].as_array().map(Vec::len);
    assert_eq!(count, Some(2), "{listed}");
    store.check(&["abort", "--all"]);
}

#[test]
fn closing_the_terminal_aborts_the_transaction() {
    let store = Store::new("hang-up");
    // script(1) makes a terminal, whose session `atomdir` leads.
    let on_terminal = |run: &str| {
        let outcome = store.shell(&format!(
            "export READY=\"$PWD.ready\" GO=\"$PWD.go\"
            mkfifo \"$GO\"
            script -qec \"exec {run} -- sh -c '
                trap \\\"exit 0\\\" HUP; rm file
                head -c 1 \\\"\\$GO\\\" > /dev/null & touch \\\"\\$READY\\\"; wait'\" /dev/null & script=$!
            wait_until test -e \"$READY\"
            kill -KILL $script; wait $script
            exec 3<> \"$GO\"; printf x >&3; rm \"$READY\"
            wait_until sh -c '[ -z \"$($ATOMDIR list)\" ]'
            rm \"$GO\""
        ));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        store.read("file").is_some()
    };
    // Set what SIGHUP does: the process that runs the tests may ignore it.
    assert!(
        on_terminal("env --default-signal=HUP $ATOMDIR run"),
        "it was committed"
    );
    assert!(
        !on_terminal("env --ignore-signal=HUP $ATOMDIR run"),
        "a run that ignores SIGHUP must commit"
    );
}

#[test]
fn with_json_every_line_that_atomdir_prints_is_json() {
    let store = Store::new("json-lines");
    for arguments in [
        &["run", "-v", "--", "false"][..],
        &["run", "--", "./nothing"],
        &["exec", "77", "--", "true"],
        &["unlock", "--nonsense"],
        &["nonsense"],
    ] {
        let outcome = store.call(&[&["--json"], arguments].concat());
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(!outcome.error.is_empty(), "{arguments:?}");
        assert_eq!(outcome.out, "");
        for line in outcome.error.lines() {
            let parsed = serde_json::from_str::<serde_json::Value>(line);
            assert!(parsed.is_ok(), "{arguments:?}: {outcome:?}");
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
    assert_eq!(store.call(&["run", "--", "touch", "quiet"]).error, "");
}
