#![cfg(test)]

//! Notes and hints: what they name exists, and what they advise helps.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use atomdir_testing::exit_code::{NOT_PERMITTED, USAGE};
use atomdir_testing::{Fixture, Store, User, binary, capture_output, wait_until};

#[test]
fn processes_that_a_command_leaves_behind_are_named() {
    Fixture::for_each_view("left-behind", "echo old > file", |one, view| {
        let fifo = one.store.user().home().join("fifo");
        let program = format!(
            "mkfifo -m 666 '{fifo}'; (cat < '{fifo}' > /dev/null) > /dev/null 2>&1 & echo new > file",
            fifo = fifo.display()
        );
        let options = ["--view", view];
        one.store
            .run_with(&options, &program)
            .expect(0)
            .says(&["left processes running", "--sealed"]);
        // It ends when its input does.
        let writer = fs::OpenOptions::new().write(true).open(&fifo);
        drop(writer.expect("opened"));
        fs::remove_file(&fifo).expect("removed");
        for options in [&["--sealed", "--view", view][..], &["--view", view, "-q"]] {
            let quiet = one.store.run_with(options, "sleep 0.1 & true").expect(0);
            assert_eq!(quiet.error_text(), "", "{quiet}");
        }
        // A view that stays has not ended.
        let kept = ["--view", view, "--on-success", "keep"];
        let kept = one
            .store
            .run_with(&kept, "sleep 0.1 & echo newer > file")
            .expect(0);
        assert!(!kept.error_text().contains("left processes"), "{kept}");
        one.store.call(["abort", "--all"]).expect(0);
    });
}

#[test]
fn a_run_in_another_stores_run_says_that_it_commits_by_itself() {
    let (outer, inner) = (Fixture::new("outer", "true"), Fixture::new("inner", "true"));
    let of_inner = |options: &str| {
        format!(
            "{} -C '{}' run {options} -- sh -c 'echo new >> file'; exit 3",
            binary().display(),
            inner.base.display()
        )
    };
    let told = outer.store.run_exact(&of_inner("")).expect(3);
    told.says(&["takes effect at once", "--in none"]);
    let meant = outer.store.run_exact(&of_inner("--in none")).expect(3);
    assert!(!meant.error_text().contains("at once"), "{meant}");
    assert_eq!(
        fs::read(inner.base.join("file")).expect("read"),
        b"new\nnew\n"
    );
    // What is nested in the outer one says nothing.
    let nested = format!("{} run -- sh -c 'echo new > file'", binary().display());
    let nested = outer.store.run_exact(&nested).expect(0);
    assert!(!nested.error_text().contains("at once"), "{nested}");
    inner.store.assert_at_rest();
    outer.store.assert_at_rest();
}

#[test]
fn hints_name_options_that_the_verb_has() {
    let one = Fixture::new("hints", "echo old > file");
    let begun = one.store.begin();
    one.store
        .exec(&begun, "echo new > file; echo x > other")
        .expect(0);
    let mut patch = Command::new("setsid");
    one.store.user().dress(&mut patch);
    let inner = one.store.command(["commit", "--patch", &begun.id]);
    patch
        .arg("--wait")
        .arg(inner.get_program())
        .args(inner.get_args());
    let refused = capture_output(&mut patch).expect(USAGE);
    for foreign in ["--ask", "--on-success"] {
        assert!(!refused.error_text().contains(foreign), "{refused}");
    }
    refused.says(&["atomdir commit TX -- PATH"]);
    one.store
        .call(["commit", &begun.id, "--", "file"])
        .expect(0);
    assert_eq!(fs::read(one.base.join("file")).expect("read"), b"new\n");
    one.store.abort(&begun).expect(0);
}

#[test]
fn a_control_directory_that_others_can_write_is_closed_by_the_hint() {
    Fixture::for_each_owner("hint-chmod", "echo old > file", |one| {
        let control = one.base.join(".atomdir");
        fs::set_permissions(&control, fs::Permissions::from_mode(0o777)).expect("opened up");
        let refused = one.store.call(["log"]).expect(NOT_PERMITTED);
        let cure = format!("chmod go-w {}", control.display());
        refused.says(&[&cure, "--trust"]);
        let mut chmod = Command::new("sh");
        one.store.user().dress(&mut chmod);
        capture_output(chmod.args(["-c", &cure])).expect(0);
        one.store.call(["log"]).expect(0);
    });
}

#[test]
fn begin_prints_the_path_of_a_view_as_it_is_into_a_pipe() {
    let scratch = atomdir_testing::Scratch::new("begin-raw");
    let name = std::ffi::OsString::from_vec(b"a \"quoted\" \\ \x01\xff name".to_vec());
    let base = scratch.join(&name);
    fs::create_dir(&base).expect("made");
    let store = Store::init(&base, &User::root(scratch.path()));
    let begun = store.begin();
    wait_until("the view", || begun.path.is_dir());
    fs::write(begun.path.join("file"), "new").expect("written");
    store.commit(&begun).expect(0);
    assert_eq!(fs::read(base.join("file")).expect("read"), b"new");
    store.assert_at_rest();
}
