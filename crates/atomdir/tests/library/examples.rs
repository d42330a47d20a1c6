//! The example programs do what they say.

use crate::support::Place;
use atomdir_testing::{capture_output, skip, this_program, wait_for, wait_until};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

#[allow(dead_code, reason = "the tests call what `main` calls")]
#[path = "../../examples/add_user.rs"]
mod add_user;

#[allow(dead_code, reason = "the tests call what `main` calls")]
#[path = "../../examples/switch_configuration.rs"]
mod switch_configuration;

#[test]
fn add_user_changes_all_three_files_or_none() {
    let place = Place::new("library-add-user");
    let files = [
        ("passwd", "root:x:0:0::/root:/bin/sh\n", 0o644),
        ("shadow", "root:*:::::::\n", 0o600),
        ("group", "root:x:0:\n", 0o644),
    ];
    for (name, contents, mode) in files {
        let path = place.base.join(name);
        std::fs::write(&path, contents).expect("written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("set");
    }
    let base = place.base.to_str().expect("it is text");
    add_user::add_user(base, "ann", 1001).expect("added");
    let lines = |name: &str| place.read(name).expect("read").lines().count();
    let counts = || files.map(|(name, ..)| lines(name));
    assert_eq!(counts(), [2, 2, 2]);
    for (name, _, mode) in files {
        let found = std::fs::metadata(place.base.join(name)).expect("found");
        assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
    }
    // The group file refuses it after the other two were written.
    let path = place.base.join("group");
    let group = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, group + "staff:x:1002:\n").expect("written");
    let refused = add_user::add_user(base, "bob", 1002).expect_err("the id is taken");
    let message = refused.to_string();
    assert!(message.contains("staff:x:1002:"), "{message}");
    assert_eq!(counts(), [2, 2, 3]);
}

/// `cargo test` builds them beside the tests.
#[test]
fn the_programs_themselves_run() {
    let tests = std::env::current_exe().expect("this program's path");
    let target = tests
        .ancestors()
        .nth(2)
        .expect("it is in a target directory");
    let programs =
        ["add_user", "switch_configuration"].map(|name| target.join("examples").join(name));
    if let Some(missing) = programs.iter().find(|program| !program.exists()) {
        let why = format!("{} is not built", missing.display());
        return skip("examples::the_programs_themselves_run", &why);
    }
    let place = Place::new("library-programs");
    let base = place.base.to_str().expect("it is text");
    for name in ["passwd", "shadow", "group"] {
        std::fs::write(place.base.join(name), "").expect("written");
    }
    let new = place.scratch.join("new");
    std::fs::create_dir(&new).expect("made");
    std::fs::write(new.join("port"), "80").expect("written");
    std::fs::create_dir(place.base.join("conf")).expect("made");
    let run = |program: &Path, arguments: &[&str]| {
        capture_output(Command::new(program).args(arguments)).expect(0);
    };
    run(&programs[0], &[base, "ann", "1001"]);
    run(
        &programs[1],
        &[base, "conf", new.to_str().expect("it is text")],
    );
    assert!(place.read("group").expect("read").contains("ann"));
    assert_eq!(place.read("conf/port").as_deref(), Some("80"));
}

const ADD: &str = "ATOMDIR_TEST_ADD";

/// Not a test by itself: the program that is killed.
#[test]
fn add_users_until_killed() {
    let Ok(how) = std::env::var(ADD) else {
        return;
    };
    match how.split_once(' ').expect("two words") {
        ("plainly", base) => {
            add_user::add_user_plainly(Path::new(base), "ann", 1001).expect("added");
        }
        (_, base) => {
            for id in 2000.. {
                add_user::add_user(base, &format!("user{id}"), id).expect("added");
            }
        }
    }
}

/// The names in a file.
fn users(base: &Path, file: &str) -> Vec<String> {
    let lines = fs::read_to_string(base.join(file)).expect("read");
    let names = lines
        .lines()
        .map(|line| line.split(':').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}

#[test]
fn a_killed_program_leaves_a_user_in_all_files_and_plainly_it_does_not() {
    let place = Place::new("library-add-killed");
    for (name, contents) in [
        ("passwd", "root:x:0:0::/root:/bin/sh\n"),
        ("shadow", "root:*:::::::\n"),
        ("group", "root:x:0:\n"),
    ] {
        fs::write(place.base.join(name), contents).expect("written");
    }
    let start = |how: &str| {
        let mut command = this_program("examples::add_users_until_killed");
        command.env(ADD, format!("{how} {}", place.base.display()));
        command.stdout(Stdio::null()).spawn().expect("started")
    };
    for more in [1, 2, 5, 11, 3, 7] {
        let reached = users(&place.base, "passwd").len() + more;
        let mut program = start("whole");
        wait_until("more users", || {
            assert_eq!(program.try_wait().expect("looked"), None, "it has ended");
            users(&place.base, "passwd").len() >= reached
        });
        program.kill().expect("killed");
        program.wait().expect("ended");
        // Opening the store recovers it.
        place.open().close().expect("closed");
        let added = users(&place.base, "passwd");
        assert!(added.len() >= reached);
        assert_eq!(users(&place.base, "shadow"), added);
        assert_eq!(users(&place.base, "group"), added);
        // The next program begins with the same users.
        for name in ["passwd", "shadow", "group"] {
            let lines = fs::read_to_string(place.base.join(name)).expect("read");
            let first = lines.lines().next().expect("a line").to_owned();
            fs::write(place.base.join(name), first + "\n").expect("written");
        }
    }
    // Reading a pipe does not end, so the plain program is killed before its third file.
    fs::remove_file(place.base.join("group")).expect("removed");
    let pipe = place.base.join("group");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let cwd = rustix::fs::CWD;
    rustix::fs::mknodat(cwd, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let mut program = start("plainly");
    let writer = open_writer(&pipe, &mut program);
    program.kill().expect("killed");
    program.wait().expect("ended");
    drop(writer);
    for name in ["passwd", "shadow"] {
        assert_eq!(users(&place.base, name), ["root", "ann"]);
    }
    let locked = add_user::add_user_plainly(&place.base, "bob", 1002);
    let locked = locked.expect_err("the lock is left");
    assert_eq!(locked.kind(), std::io::ErrorKind::AlreadyExists);
}

/// Opens a pipe once a program has opened it to read it.
fn open_writer(pipe: &Path, program: &mut Child) -> fs::File {
    let mut options = fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    wait_for("the reader of the pipe", || {
        assert_eq!(program.try_wait().expect("looked"), None, "it has ended");
        let opened = options.open(pipe);
        let refused = |error: &io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        opened.inspect_err(refused).ok()
    })
}

const SWITCH: &str = "ATOMDIR_TEST_SWITCH";

/// Not a test by itself: the program that is killed.
#[test]
fn switch_until_killed() {
    let Ok(how) = std::env::var(SWITCH) else {
        return;
    };
    let [how, base, source]: [&str; 3] = {
        let parts: Vec<&str> = how.split(' ').collect();
        parts.try_into().expect("three words")
    };
    let (base, source) = (Path::new(base), Path::new(source));
    match how {
        "plainly" => {
            switch_configuration::switch_plainly(&base.join("conf"), source).expect("done")
        }
        _ => switch_configuration::switch(base, "conf", source).expect("done"),
    }
}

/// The configuration as one line: names and contents.
fn configuration(base: &Path) -> String {
    let entries = fs::read_dir(base.join("conf")).expect("listed");
    let mut entries: Vec<String> = entries
        .map(|entry| {
            let path = entry.expect("listed").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            format!("{name}={}", fs::read_to_string(&path).expect("read"))
        })
        .collect();
    entries.sort();
    entries.join(" ")
}

#[test]
fn a_configuration_is_switched_whole_and_plainly_it_is_not() {
    let place = Place::new("library-switch");
    let new = place.scratch.join("new");
    fs::create_dir(&new).expect("made");
    fs::create_dir(place.base.join("conf")).expect("made");
    for name in ["a", "b", "c", "gone"] {
        fs::write(place.base.join("conf").join(name), "old").expect("written");
    }
    fs::write(new.join("a"), "new").expect("written");
    fs::write(new.join("c"), "new").expect("written");
    // Reading a pipe does not end, so the program is killed after the first file.
    let pipe = new.join("b");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let cwd = rustix::fs::CWD;
    rustix::fs::mknodat(cwd, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let kill = |how: &str| {
        let mut command = this_program("examples::switch_until_killed");
        let (base, source) = (place.base.display(), new.display());
        command.env(SWITCH, format!("{how} {base} {source}"));
        command.stdout(Stdio::null());
        let mut program = command.spawn().expect("started");
        let writer = open_writer(&pipe, &mut program);
        program.kill().expect("killed");
        program.wait().expect("ended");
        drop(writer);
    };
    kill("whole");
    let old = "a=old b=old c=old gone=old";
    assert_eq!(configuration(&place.base), old);
    kill("plainly");
    assert_eq!(
        configuration(&place.base),
        "a=new b.tmp= b=old c=old gone=old"
    );
    // The plain program does not notice what is left; the transaction replaces it as well.
    fs::remove_file(&pipe).expect("removed");
    fs::write(&pipe, "new").expect("written");
    switch_configuration::switch(&place.base, "conf", &new).expect("switched");
    assert_eq!(configuration(&place.base), "a=new b=new c=new");
}
