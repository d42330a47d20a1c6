//! Privileges that root gives to a file while a user's transaction has new contents for it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, User, shell, tools_present, users_can_mount};

/// A commit replaces the first by a new file, and changes the second in place.
const FILES: [&str; 2] = ["small", "large"];
const PREPARE: &str = "truncate -s 9000 small; truncate -s 2M large; chmod 777 small large";
const WRITE: &str =
    "for file in small large; do printf new | dd of=$file conv=notrunc status=none; done
echo written; read go || true";

/// Returns the exit code of a run by a user whom root lets use the store. Root commits something
/// after the user has written to the files, and before the run ends.
fn run_while_root_commits(fixture: &Fixture, script: &str) -> i32 {
    let store = &fixture.store;
    store.call(["config", "allow", "games"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let stranger = User::stranger(fixture.scratch.path());
    let arguments = ["run", "--", "sh", "-ec", WRITE];
    let mut command = store.command_as(&stranger, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = command.spawn().expect("started");
    let mut line = String::new();
    let output = run.stdout.take().expect("piped");
    let read = BufReader::new(output).read_line(&mut line);
    read.expect("read until the run has written");
    assert_eq!(line, "written\n");
    store.run(script).expect(0);
    drop(run.stdin.take());
    let status = run.wait().expect("ended");
    status.code().expect("not killed")
}

fn is_new(file: &Path) -> bool {
    fs::read(file).expect("read").starts_with(b"new")
}

fn has_capability(file: &Path) -> bool {
    rustix::fs::getxattr(file, "security.capability", &mut [0; 64]).is_ok()
}

#[test]
fn concurrent_capabilities_from_root_are_dropped() {
    let test = "concurrent_capabilities_from_root_are_dropped";
    if !tools_present(test, &["setcap"]) {
        return;
    }
    let fixture = Fixture::new("capabilities", PREPARE);
    let give = "for file in small large; do setcap cap_net_raw+ep $file; done";
    let code = run_while_root_commits(&fixture, give);
    assert_eq!(code, 0, "contents and attributes do not conflict");
    for file in FILES.map(|name| fixture.base.join(name)) {
        assert!(is_new(&file), "{}", file.display());
        assert!(!has_capability(&file), "{}", file.display());
    }
    fixture.store.assert_at_rest();
}

#[test]
fn a_user_cannot_commit_to_a_file_that_root_has_made_set_id() {
    let fixture = Fixture::new("set-id", PREPARE);
    let code = run_while_root_commits(&fixture, "chmod u+s small large");
    assert_eq!(code, CONFLICT);
    for file in FILES.map(|name| fixture.base.join(name)) {
        assert!(!is_new(&file), "{}", file.display());
    }
    fixture.store.assert_at_rest();
}

/// An ordinary user's overlay cannot copy the capabilities, so it refuses every change of the file.
#[test]
fn a_user_changes_attributes_of_a_file_with_capabilities() {
    let test = "a_user_changes_attributes_of_a_file_with_capabilities";
    if !tools_present(test, &["setcap", "setfattr"]) || !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by(test, User::ordinary, "echo old > file");
    shell(&fixture.base, "setcap cap_net_raw+ep file");
    let file = fixture.base.join("file");
    let before = fixture.look();
    for change in ["chmod 700 file", "mv file moved", "echo new > file"] {
        let outcome = fixture.store.run_with(&["-v", "--view", "native"], change);
        assert_ne!(outcome.code, 0, "{outcome}");
        outcome.says(&["--view exact"]);
    }
    let untouched = CompareOptions::untouched();
    assert_equal("refused", &before, &fixture.look(), &untouched);
    let change = "setfattr -n user.colour -v blue file; chmod 700 file";
    let outcome = fixture.store.run_with(&["--view", "exact"], change);
    outcome.expect(0);
    assert!(has_capability(&file));
    let colour = rustix::fs::getxattr(&file, "user.colour", &mut [0; 64]);
    assert_eq!(colour.expect("it was set"), 4);
    fixture.store.assert_at_rest();
}
