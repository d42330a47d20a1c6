//! The command line without a store: help, usage errors and exit codes.
//!
//! `ATOMDIR_UPDATE=1 cargo test -p atomdir-cli` writes the help texts anew.

use atomdir_testing::fresh_directory;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const VERBS: [&str; 39] = [
    "init",
    "deinit",
    "config",
    "run",
    "begin",
    "exec",
    "shell",
    "status",
    "diff",
    "conflicts",
    "refresh",
    "commit",
    "confirm",
    "abort",
    "lock",
    "unlock",
    "savepoint",
    "rollback",
    "list",
    "log",
    "show",
    "relabel",
    "undo",
    "restore",
    "at",
    "pin",
    "prune",
    "sync",
    "recover",
    "check",
    "mount",
    "umount",
    "service",
    "completions",
    "make",
    "unpack",
    "profile",
    "man",
    "mcp",
];

/// Runs the command outside any store, with only `PATH` in its environment.
fn atomdir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomdir"));
    command
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    atomdir(arguments).output().expect("atomdir starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

fn check_exit(arguments: &[&str], code: i32, message: &str) {
    let output = output(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn help_matches_the_stored_texts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut pages: Vec<(String, Vec<&str>)> = vec![("atomdir".into(), vec!["--help"])];
    pages.extend(VERBS.map(|verb| (verb.to_owned(), vec![verb, "--help"])));
    pages.push(("service-run".into(), vec!["service", "run", "--help"]));
    pages.push(("profile-add".into(), vec!["profile", "add", "--help"]));
    for (name, arguments) in pages {
        let output = output(&arguments);
        assert_eq!(output.status.code(), Some(0), "{name}");
        let path: PathBuf = folder.join(format!("{name}.txt"));
        if std::env::var_os("ATOMDIR_UPDATE").is_some() {
            fs::write(&path, &output.stdout).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text(&output.stdout), expected, "{} differs", path.display());
    }
}

#[test]
fn every_verb_gives_an_example() {
    for verb in VERBS {
        let output = output(&[verb, "--help"]);
        assert!(text(&output.stdout).contains("Example"), "{verb}");
    }
}

#[test]
fn usage_errors_exit_with_64() {
    check_exit(&[], 64, "Usage");
    check_exit(&["comit", "12"], 64, "exist: 'commit', 'comp");
    check_exit(&["run"], 64, "<CMD>");
    check_exit(
        &["run", "--isolaton", "snapshot", "--", "true"],
        64,
        "--isolation",
    );
    check_exit(
        &["run", "--isolation", "strict", "--", "true"],
        64,
        "serializable",
    );
    check_exit(&["run", "--timeout", "soon", "--", "true"], 64, "unit");
    check_exit(&["run", "--status-fd", "9", "--", "true"], 64, "9>outcome");
    check_exit(&["run", "--dry-run", "--ask", "--", "true"], 64, "--ask");
    check_exit(&["commit", "first"], 64, "atomdir list");
    check_exit(&["abort", "12", "--all"], 64, "--all");
    check_exit(&["diff", "--stat", "--name-only"], 64, "--name-only");
    check_exit(&["shell", "12", "--ask"], 64, "--ask");
    check_exit(&["man", "comit"], 64, "comit");
}

/// Removed when dropped.
struct Empty(PathBuf);

impl Drop for Empty {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn verbs_outside_a_store_are_refused() {
    let empty = Empty(fresh_directory(&std::env::temp_dir(), "none"));
    check_exit(
        &["-C", &empty.0.to_string_lossy(), "list"],
        66,
        "atomdir init",
    );
    check_exit(&["run", "--", "true"], 66, "no store");
    check_exit(
        &["-C", "/proc/self/nowhere", "list"],
        66,
        "/proc/self/nowhere",
    );
    check_exit(
        &["list", "-C", "/proc/self/nowhere"],
        66,
        "/proc/self/nowhere",
    );
}

#[test]
fn proc_cannot_become_a_store() {
    for message in ["proc shows the kernel's state", "make the store on ext4"] {
        check_exit(&["init", "/proc"], 73, message);
    }
}

#[test]
fn run_inside_a_transaction_is_refused() {
    let output = atomdir(&["run", "--", "true"])
        .env("ATOMDIR_TX", "12")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("already inside transaction 12"));
}

#[test]
fn ask_requires_a_terminal() {
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(env!("CARGO_BIN_EXE_atomdir"));
    let output = command
        .args(["run", "--ask", "--", "true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("no terminal"));
}

#[test]
fn failures_are_json_with_the_json_option() {
    let output = output(&["config", "--json", "colour"]);
    assert_eq!(output.status.code(), Some(66));
    let json: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(json["error"]["exit_code"], 66);
}

#[test]
fn failure_without_a_store_goes_to_the_status_descriptor() {
    let script = format!(
        "'{}' run --status-fd 3 -- true 3>&1",
        env!("CARGO_BIN_EXE_atomdir")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(66));
    assert!(
        text(&output.stdout).starts_with("failed 66 no store"),
        "{output:?}"
    );
}

#[test]
fn closed_output_pipe_exits_141_without_a_message() {
    for arguments in [&["man"][..], &["completions", "bash"], &["--help"]] {
        // Close on exec: a child process of another test must not keep the reader open.
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
        drop(reader);
        let output = atomdir(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

const FOOTER: &str = concat!("\"atomdir ", env!("CARGO_PKG_VERSION"), "\"");

#[test]
fn manual_pages_cover_every_verb() {
    let folder = fresh_directory(&std::env::temp_dir(), "man");
    let written = output(&["man", "--directory", folder.to_str().unwrap()]);
    let page_of = |verb: &str| fs::read_to_string(folder.join(format!("atomdir-{verb}.1")));
    let pages = VERBS.map(page_of);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(written.status.code(), Some(0));
    for (verb, page) in VERBS.iter().zip(pages) {
        let page = page.unwrap();
        assert!(page.contains("EXTRA"), "{verb}");
        assert!(page.contains(r"[\-C DIR]"), "{verb}: {page}");
        assert!(page.contains(FOOTER), "{verb}: {page}");
    }
    let printed = output(&["man", "run"]).stdout;
    assert!(text(&printed).contains(FOOTER), "{}", text(&printed));
}

#[test]
fn the_manual_shows_the_values_of_options_and_operands() {
    let synopsis = |arguments: &[&str]| {
        let page = text(&output(&[&["man"], arguments].concat()).stdout).replace('\\', "");
        let (_, rest) = page.split_once("SYNOPSIS\n").unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let undo = synopsis(&["undo"]);
    for part in [
        "[--dry-run]",
        "[-m|--message TEXT]",
        "[COMMIT|TIME...]",
        "[-- PATH...]",
    ] {
        assert!(undo.contains(part), "{part}: {undo}");
    }
    let all = synopsis(&[]);
    assert!(all.ends_with("VERB") && all.contains("[-C DIR]"), "{all}");
}

#[test]
fn usage_errors_are_explained() {
    check_exit(&["show", "first"], 64, "it is not a whole number");
    for wrong in ["x", "1..x", "1..2..3"] {
        let why = "it is a commit's number, a range such as 10..12";
        check_exit(&["undo", wrong], 64, why);
    }
    check_exit(&["log", "-n", "-1"], 64, "it is not a whole number");
    check_exit(
        &["run", "--status-fd", "x", "--", "true"],
        64,
        "it is not a whole number",
    );
    let nowhere = output(&["-C", "/proc/self/nowhere", "list"]);
    let error = text(&nowhere.stderr);
    assert!(error.contains("': No such file or directory\n"), "{error}");
}

#[test]
fn verbs_of_other_programs_are_answered_with_ours() {
    for (verb, ours) in [
        ("revert", "undo"),
        ("checkout", "begin"),
        ("stash", "--on-success keep"),
        ("ls", "list"),
        ("rm", "run -- rm"),
        ("worktree", "shell"),
        ("checkot", "begin"),
        ("merge", "commit TX --merge"),
        ("rebase", "refresh TX"),
        ("push", "commit TX"),
        ("branch", "list"),
        ("tag", "savepoint NAME"),
        ("reflog", "atomdir log"),
        ("cat", "at COMMIT -- cat FILE"),
    ] {
        check_exit(&[verb], 64, ours);
    }
}

#[test]
fn the_help_lists_every_verb() {
    let output = output(&["--help"]);
    for verb in VERBS {
        let line = format!("\n  {verb} ");
        assert!(text(&output.stdout).contains(&line), "{verb}");
    }
}
