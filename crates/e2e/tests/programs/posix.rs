//! The small programs of `src/bin/posix_programs`. Each checks its own results, and the
//! harness compares its output and the tree it left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Action, Fixture, Scenario, Scratch, Store, User, capture_output, helper, look,
    only_in_full_tier, users_can_mount,
};

fn scenario(program: &str) -> Scenario {
    let call = |verb: &str| {
        Action::Program(
            [&*helper("posix_programs").to_string_lossy(), verb, program]
                .map(str::to_owned)
                .to_vec(),
        )
    };
    Scenario::new(program, call("run"))
        .prepare_by(call("prepare"))
        .same_output()
}

/// One test for each program, and the list of them.
macro_rules! programs {
    ($($check:ident { $($name:ident $(. $option:ident)*;)* })*) => {
        $($(
            #[test]
            fn $name() {
                scenario(stringify!($name))$(.$option())*.$check();
            }
        )*)*

        const TESTED: &[&str] = &["deep_directories", "link_limit", $($(stringify!($name),)*)*];
    };
}

// `exact`: in native views the program meets an exception that docs/views.md names.
//
// `check` runs a program as root only. Only root can make device nodes, and `large_files` has
// another test for an ordinary user. `limits.rs` runs the rest as a
// user.
programs! {
    check_for_each_owner {
        appending;
        attributes.explicit_times;
        directory_reading.runs_long;
        executing;
        fifos;
        file_io.exact;
        locks;
        names;
        notifications.without_directory_times;
        random_file_io;
        shared_mappings;
        sockets;
        sparse_files.exact;
        symbolic_links;
        temporary_files;
        threads;
        working_directory.exact;
    }
    check {
        device_nodes;
        hard_links;
        large_files.holes;
        open_files;
        renames.without_directory_times;
    }
}

/// Without a comparison of holes: if an ordinary user moves an old file, holes of less than 1 MiB
/// in it are filled.
#[test]
fn large_files_of_an_ordinary_user() {
    if users_can_mount("large_files_of_an_ordinary_user") {
        scenario("large_files").as_ordinary_user().check();
    }
}

#[test]
fn every_program_has_its_test() {
    let mut command = Command::new(helper("posix_programs"));
    let listed = capture_output(command.arg("list")).expect(0).text();
    let listed: BTreeSet<&str> = listed.lines().collect();
    assert_eq!(listed, TESTED.iter().copied().collect());
}

/// The other way into a transaction is by its view's path, which any program may use.
/// Programs that depend on their own path are left out.
#[test]
fn programs_work_by_the_views_path() {
    const PROGRAMS: &[&str] = &[
        "directory_reading",
        "executing",
        "hard_links",
        "locks",
        "random_file_io",
        "shared_mappings",
        "sockets",
        "temporary_files",
    ];
    for program in PROGRAMS {
        let action = |verb: &'static str| {
            Action::Code(Box::new(move |directory: &Path| {
                let mut command = Command::new(helper("posix_programs"));
                command.args([verb, program]).current_dir(directory);
                capture_output(&mut command).expect(0);
            }))
        };
        let name = format!("path-{program}");
        Scenario::new(&name, action("run"))
            .prepare_by(action("prepare"))
            .check();
    }
}

/// A file can have as many names as the file system under the store allows. One more is
/// refused at once, not only at the commit.
#[test]
fn link_limit() {
    if only_in_full_tier("link_limit") {
        // Overlayfs does not ask the file system, and allows more.
        scenario("link_limit").exact().check();
    }
}

/// If overlayfs lets a program make more names, nothing is committed, and the store keeps
/// working.
#[test]
fn commit_beyond_the_link_limit_is_refused() {
    if !only_in_full_tier("commit_beyond_the_link_limit_is_refused") {
        return;
    }
    let program = helper("posix_programs");
    let program = program.display();
    let fixture = Fixture::new("names-beyond", &format!("{program} prepare link_limit"));
    let script = format!("{program} run link_limit || true");
    let run = fixture.store.run_with(&["--view", "native"], &script);
    run.expect(exit_code::INPUT_OUTPUT)
        .says(&["Too many links"]);
    fixture.store.run("echo more > more").expect(0);
}

/// No tool can copy a tree that is deeper than the longest path, so each run gets a tree
/// made for it.
#[test]
fn deep_directories() {
    let scratch = Scratch::new("deep_directories");
    let helper = helper("posix_programs");
    let call = |verb: &str, directory: &Path| {
        let mut command = Command::new(&helper);
        command
            .args([verb, "deep_directories"])
            .current_dir(directory);
        capture_output(&mut command).expect(0).text()
    };
    let (plain, base) = (scratch.join("plain"), scratch.join("base"));
    for directory in [&plain, &base] {
        fs::create_dir(directory).expect("the scratch directory is ours");
        call("prepare", directory);
    }
    let said = call("run", &plain);

    let store = Store::init(&base, &User::root(scratch.path()));
    let before = look(&base);
    let run = |end: &str| {
        let command = [
            helper.as_os_str(),
            "run".as_ref(),
            "deep_directories".as_ref(),
        ];
        let options = ["run", "--view", "exact", "--on-success", end, "--"].map(OsStr::new);
        store.call(options.iter().chain(&command)).expect(0).text()
    };
    run("abort");
    assert_equal(
        "aborted",
        &before,
        &look(&base),
        &CompareOptions::untouched(),
    );
    assert_eq!(run("commit"), said);
    assert_equal(
        "committed",
        &look(&plain),
        &look(&base),
        &CompareOptions::alike(),
    );
    store.assert_at_rest();
}
