//! Processes that outlive the command they belong to. The transaction ends with the
//! command, so their later writes fail and change nothing.
//!
//! These tests use exact views: with a native view, processes that would still write are
//! killed.

use std::fs;
use std::path::Path;

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, WAIT_UNTIL, shell, wait_until};

/// Starts a process that outlives the script. It waits for the file `go` outside and then
/// tries to write in every way it knows. The results are in the file `tried`, which
/// appears complete.
const SURVIVOR: &str = r#"
mkdir directory && echo written in time > directory/file && echo in time > kept
(
    exec 3>> kept
    cd directory
    : > OUTSIDE/ready
    wait_until test -e OUTSIDE/go
    {
        { echo late >&3; } && echo "an open file was written"
        echo late > late && echo "a file was made"
        echo late > ../kept && echo "a file was replaced"
        rm file && echo "a file was removed"
        mv file moved && echo "a file was moved"
        cat file && echo "a file was read"
        echo end
    } > OUTSIDE/trying 2> OUTSIDE/errors
    mv OUTSIDE/trying OUTSIDE/tried
) < /dev/null > /dev/null 2>&1 &
wait_until test -e OUTSIDE/ready
"#;

fn survivor(outside: &Path) -> String {
    WAIT_UNTIL.to_owned() + &SURVIVOR.replace("OUTSIDE", &outside.to_string_lossy())
}

/// Lets the survivor go on, and returns what it managed to do.
fn let_go(outside: &Path) -> Vec<String> {
    fs::write(outside.join("go"), "").expect("the scratch directory can be written");
    let tried = outside.join("tried");
    wait_until("the survivor's end", || tried.exists());
    let text = fs::read_to_string(&tried).expect("it is there");
    text.lines().map(str::to_owned).collect()
}

/// Reading is harmless: the survivor may read pages that the kernel still has cached.
fn assert_no_writes(did: &[String]) {
    let harm: Vec<&String> = did
        .iter()
        .filter(|line| !line.contains("was read") && !line.contains("in time") && *line != "end")
        .collect();
    assert!(harm.is_empty(), "after the end of the transaction {harm:?}");
}

#[test]
fn survivors_cannot_change_what_was_committed() {
    let fixture = Fixture::new("survivors-commit", "echo old > kept");
    let outside = fixture.scratch.path();
    fixture.store.run_exact(&survivor(outside)).expect(0);
    let committed = fixture.look();
    assert_eq!(
        fs::read_to_string(fixture.base.join("kept")).expect("committed"),
        "in time\n"
    );
    assert_no_writes(&let_go(outside));
    fixture.store.run("echo the next > next").expect(0);
    shell(&fixture.base, "rm next");
    let mut options = CompareOptions::untouched();
    options.root = false;
    assert_equal(
        "after the survivor's writes",
        &committed,
        &fixture.look(),
        &options,
    );
    fixture.store.assert_at_rest();
}

#[test]
fn survivors_cannot_revive_what_was_aborted() {
    let fixture = Fixture::new("survivors-abort", "echo old > kept");
    let outside = fixture.scratch.path();
    let before = fixture.look();
    fixture
        .store
        .run_exact(&format!("{}\nexit 3", survivor(outside)))
        .expect(3);
    assert_no_writes(&let_go(outside));
    assert_equal(
        "after an abort",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    fixture.store.assert_at_rest();
}

/// The service must end and its mounts must go, even if a process's current directory is
/// in a view.
#[test]
fn survivors_do_not_keep_the_service_from_ending() {
    let fixture = Fixture::new("survivors-stop", "echo old > kept");
    let outside = fixture.scratch.path();
    fixture.store.run_exact(&survivor(outside)).expect(0);
    fixture.store.assert_at_rest();
    assert_no_writes(&let_go(outside));
    assert_eq!(
        fs::read_to_string(fixture.base.join("kept")).expect("committed"),
        "in time\n"
    );
}
