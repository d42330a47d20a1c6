//! Files and directories of other owners in the store of an ordinary user. The user may
//! change them as far as their modes allow, but cannot set their modes and times.

#![cfg(test)]

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED};
use atomdir_testing::{Action, Fixture, Scenario, User, shell, tools_present, users_can_mount};

/// A script that root runs.
const OF_ROOT: &str = "
for f in plain setuid setgid large; do seq 3000 > $f; chmod 666 $f; done
seq 400000 > large; chmod 4777 setuid; chmod 2777 setgid
for f in capable own; do
    seq 3000 > $f; chmod 666 $f
    test $f = capable || chown 65534 $f
    setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 $f
done
: > none; chmod 4777 none
mkdir -p open/below closed/below; chmod 777 open open/below closed/below
echo 1 > open/one; chmod 666 open/one
";

const CHANGES: [(&str, &str); 7] = [
    (
        "contents",
        "for f in plain setuid setgid large capable own; do echo more >> $f; done",
    ),
    ("nothing written", ": > none"),
    (
        "contents written anew",
        "for f in plain setuid setgid large capable own; do seq 7 > $f; done; : > open/one",
    ),
    (
        "present times",
        "touch plain setuid open; touch closed/below",
    ),
    (
        "attributes that a writer may set",
        "setfattr -n user.x -v y plain; echo z >> plain; setfattr -n user.x -v y setuid",
    ),
    (
        "entries",
        "echo new > open/new; rm open/one; mkdir open/made; mv plain open/
         echo 1 > closed/below/f; rmdir open/below",
    ),
    (
        "names in an own directory",
        "mv closed opened; mv setuid other; rm setgid; mkdir made; mv large made/",
    ),
];

#[test]
fn changes_of_objects_of_others_are_as_in_a_plain_directory() {
    let test = "changes_of_objects_of_others_are_as_in_a_plain_directory";
    if !users_can_mount(test) || !tools_present(test, &["setfattr"]) {
        return;
    }
    for (name, script) in CHANGES {
        Scenario::shell(name, script)
            .prepare_by(Action::Code(Box::new(|base| drop(shell(base, OF_ROOT)))))
            .as_ordinary_user()
            .exact()
            .check();
    }
}

/// After the service was killed, the next service writes the contents again.
#[test]
fn recovery_writes_to_files_of_others() {
    let test = "recovery_writes_to_files_of_others";
    if !users_can_mount(test) || !tools_present(test, &["setfattr"]) {
        return;
    }
    let fixture = Fixture::owned_by("others-recovered", User::ordinary, "");
    shell(&fixture.base, OF_ROOT);
    let run = |script| fixture.store.run_exact(script).expect(0);
    run("for f in plain setuid large; do echo more >> $f; done; echo 1 > open/new");
    assert!(fixture.store.kill_service());
    shell(&fixture.base, "chmod 4777 setuid");
    run("for f in plain setuid large; do tail -n 1 $f | grep -x more; done; echo 2 >> open/new");
    fixture.store.assert_at_rest();
    let new = fs::read_to_string(fixture.base.join("open/new")).expect("it is there");
    assert_eq!(new, "1\n2\n");
}

/// The commit fails before anything has changed, and the store keeps working.
#[test]
fn changes_that_only_the_owner_may_make_are_refused() {
    let test = "changes_that_only_the_owner_may_make_are_refused";
    if !users_can_mount(test) || !tools_present(test, &["setfattr"]) {
        return;
    }
    let fixture = Fixture::owned_by("others-refused", User::ordinary, "");
    shell(&fixture.base, OF_ROOT);
    shell(
        &fixture.base,
        "mkdir empty; echo own > own; chown 65534 own",
    );
    let refused = fixture.store.run_exact("rmdir empty");
    refused.expect(NOT_PERMITTED).says(&["empty"]);
    // The file changes its owner while the transaction is open.
    let refused = fixture.run_and_meanwhile(&["--view", "exact"], "chmod 640 own", || {
        shell(&fixture.base, "chown 0 own; chmod 666 own");
    });
    refused.expect(CONFLICT);
    fixture.store.run_exact("echo 1 >> own").expect(0);
    // The kernel lets nobody link what they may not write.
    let refused = fixture.run_and_meanwhile(&["--view", "exact"], "ln own linked", || {
        shell(&fixture.base, "chmod 644 own");
    });
    refused.expect(NOT_PERMITTED).says(&["linked"]);
    fixture.store.run_exact("echo 1 > new").expect(0);
    fixture.store.assert_at_rest();
}
