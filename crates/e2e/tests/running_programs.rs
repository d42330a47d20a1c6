//! Files from which programs run while transactions change them. The kernel lets
//! nobody write to such a file (ETXTBSY).

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use atomdir_testing::exit_code::INPUT_OUTPUT;
use atomdir_testing::{Fixture, for_each_owner, shell};

/// A program so long that a commit would change its file in place, if it did not run.
const PROGRAM: &str = "cp /bin/sleep program; chmod 755 program
    head -c 3000000 /dev/zero | tr '\\0' x >> program";
const CHANGE: &str = "printf changed | dd of=program bs=1 seek=2000000 conv=notrunc status=none";

/// A program that runs until this is dropped.
struct Running(Child);

impl Running {
    fn start(fixture: &Fixture) -> Running {
        let started = Command::new(fixture.base.join("program"))
            .arg("infinity")
            .stdin(Stdio::null())
            .spawn();
        Running(started.expect("it is a program"))
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_each_view(test: &str, prepare: &str, check: impl Fn(&Fixture, &str)) {
    for_each_owner(test, |owner| {
        for view in ["exact", "native"] {
            let fixture = Fixture::owned_by("running", owner, prepare);
            check(&fixture, view);
            fixture.store.assert_at_rest();
        }
    });
}

#[test]
fn a_program_that_runs_is_replaced_by_its_changed_copy() {
    let test = "a_program_that_runs_is_replaced_by_its_changed_copy";
    in_each_view(test, PROGRAM, |fixture, view| {
        let program = fixture.base.join("program");
        shell(&fixture.base, "cp -p program ../expected");
        shell(
            fixture.scratch.path(),
            &CHANGE.replace("program", "expected"),
        );
        let inode = || fs::metadata(&program).expect("it is there").ino();
        let before = inode();
        let mut running = Running::start(fixture);
        let older = fixture.store.begin();
        fixture.store.run_with(&["--view", view], CHANGE).expect(0);
        assert!(running.is_alive());
        assert_ne!(inode(), before);
        shell(&fixture.base, "cmp program ../expected; test -x program");
        let status = Command::new(&program).arg("0").status();
        assert!(status.expect("it is a program").success());
        fixture.store.abort(&older).expect(0);
    });
}

/// If the file were replaced, its other names would still lead to the old contents.
#[test]
fn a_program_that_runs_and_has_several_names_is_not_changed() {
    let test = "a_program_that_runs_and_has_several_names_is_not_changed";
    let prepare = format!("{PROGRAM}; ln program same; cp program ../before");
    in_each_view(test, &prepare, |fixture, view| {
        if view == "native" && !fixture.store.user().is_root() {
            // In such a view no file with several names can be changed.
            return;
        }
        let running = Running::start(fixture);
        let change = format!("echo new > new; {CHANGE}");
        let refused = fixture.store.run_with(&["--view", view], &change);
        refused
            .expect(INPUT_OUTPUT)
            .says(&["'program'", "Text file busy", "nothing was changed"]);
        shell(&fixture.base, "cmp program ../before; test ! -e new");
        drop(running);
        fixture.store.run_with(&["--view", view], &change).expect(0);
        shell(
            &fixture.base,
            "! cmp -s program ../before; cmp program same",
        );
    });
}
