//! A program with more rights than the user who started it does not run what that user's environment
//! names.

use std::fs;

use atomdir_testing::{Fixture, User, binary, capture_output, shell, users_can_mount};

/// Programs that a service may look for by its PATH.
const LOOKED_FOR: [&str; 4] = ["fusermount3", "fusermount", "atomdir", "sh"];

#[test]
fn a_set_user_id_program_runs_nothing_from_its_callers_path() {
    if !users_can_mount("a_set_user_id_program_runs_nothing_from_its_callers_path") {
        return;
    }
    let fixture = Fixture::owned_by("more-rights", User::ordinary, "true");
    let scratch = fixture.scratch.path();
    let (owner, stranger) = (fixture.store.user(), User::stranger(scratch));
    fixture.store.call(["service", "stop", "--abort"]);
    shell(
        scratch,
        "mkdir -m 755 evil; touch ran; chmod 666 ran; chmod 755 .",
    );
    for name in LOOKED_FOR {
        let program = format!(
            "#!/bin/sh\nid >> {}/ran\nexec /usr/bin/{name} \"$@\"\n",
            scratch.display()
        );
        fs::write(scratch.join("evil").join(name), program).expect("written");
    }
    shell(scratch, "chmod 755 evil/*");
    fs::copy(binary(), scratch.join("privileged")).expect("copied");
    let dress = format!("chown {} privileged; chmod 4755 privileged", owner.uid);
    shell(scratch, &dress);
    let path = format!("{}/evil:/usr/bin:/bin", scratch.display());
    let begin = |user: &User, program: &std::path::Path| {
        let mut command = std::process::Command::new(program);
        user.dress(&mut command);
        command
            .env("PATH", &path)
            .arg("-C")
            .arg(&fixture.base)
            .arg("begin");
        capture_output(&mut command)
    };
    let ran = || fs::read_to_string(scratch.join("ran")).expect("read");
    let outcome = begin(&stranger, &scratch.join("privileged"));
    assert_eq!(ran(), "", "{outcome}");
    fixture.store.call(["service", "stop", "--abort"]);
    // The owner's own PATH counts.
    begin(owner, &binary()).expect(0);
    assert_ne!(ran(), "");
    fixture.store.call(["service", "stop", "--abort"]);
}
