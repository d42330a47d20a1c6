//! A service inherits nothing from its starter that it does not need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use atomdir_testing::{
    Fixture, User, atomdir_in, binary, capture_output, for_each_owner, wait_until,
};

const SECRET: &str = "a-secret-of-the-starters";

/// Starts the service of a store as root would from a careless script.
fn start(fixture: &Fixture, as_user: &User) -> PathBuf {
    let secret = fixture.scratch.join("open-file");
    fs::write(&secret, SECRET).expect("written");
    let script = format!(
        "trap '' USR1 HUP CHLD; umask 077; exec 7< '{}'; exec \"$@\"",
        secret.display()
    );
    let mut command = Command::new("sh");
    as_user.dress(&mut command);
    command.args(["-c", &script, "sh"]).arg(binary());
    command
        .args(["service", "start", "--trust"])
        .current_dir(&fixture.base)
        .env("TOKEN", SECRET)
        .env("LD_LIBRARY_PATH", SECRET);
    capture_output(&mut command).expect(0);
    let processes = fixture.store.service_processes();
    let process = processes.first().expect("a service").as_raw_nonzero();
    PathBuf::from(format!("/proc/{process}"))
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.expect(name).trim()
}

/// Asserts that the service has nothing of the starter's environment, directory and files.
fn assert_has_nothing(service: &Path) {
    let environment = fs::read(service.join("environ")).expect("read");
    let text = String::from_utf8_lossy(&environment);
    assert!(!text.contains(SECRET), "{text}");
    for variable in text.split_terminator('\0') {
        let name = variable.split('=').next().expect("a name");
        assert!(
            atomdir::client::SERVICE_ENVIRONMENT.contains(&name),
            "{variable}"
        );
    }
    assert_eq!(
        fs::read_link(service.join("cwd")).expect("read"),
        PathBuf::from("/")
    );
    for descriptor in fs::read_dir(service.join("fd")).expect("read").flatten() {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        assert!(!target.ends_with("open-file"), "{descriptor:?}");
    }
}

#[test]
fn service_inherits_nothing_from_its_starter() {
    for_each_owner("inherited", |owner| {
        let fixture = Fixture::owned_by("inherited", owner, "echo x > file");
        let service = start(&fixture, &User::root(fixture.scratch.path()));
        assert_has_nothing(&service);
        let status = fs::read_to_string(service.join("status")).expect("read");
        assert_eq!(line(&status, "Umask"), "0000");
        let ignored = u64::from_str_radix(line(&status, "SigIgn"), 16).expect("a mask");
        // Rust ignores SIGPIPE, the service the signals of limits, and glibc keeps two for itself.
        let limits = [libc::SIGXFSZ, libc::SIGXCPU].map(|signal| 1_u64 << (signal - 1));
        let beyond_us = 1_u64 << 12 | 0b11_u64 << 31 | limits[0] | limits[1];
        assert_eq!(ignored & !beyond_us, 0, "{status}");
        let session_of = |process: &Path| {
            let status = fs::read_to_string(process.join("stat")).expect("read");
            let after_name = status.rsplit(") ").next().expect("its fields");
            let session = after_name.split(' ').nth(3);
            session.expect("a session").to_owned()
        };
        assert_ne!(session_of(&service), session_of(Path::new("/proc/self")));
        fixture.store.assert_at_rest();
    });
}

/// Root may run the service like this for a user from a terminal, and a supervisor does.
#[test]
fn foreground_service_inherits_nothing_from_its_starter() {
    for_each_owner("foreground", |owner| {
        let fixture = Fixture::owned_by("foreground", owner, "echo x > file");
        let secret = fixture.scratch.join("open-file");
        fs::write(&secret, SECRET).expect("written");
        let script = format!("exec 7< '{}'; exec \"$@\"", secret.display());
        let mut command = Command::new("sh");
        User::root(fixture.scratch.path()).dress(&mut command);
        command
            .args(["-c", &script, "sh"])
            .arg(binary())
            .args(["service", "run", "--trust"])
            .current_dir(&fixture.base)
            .env("TOKEN", SECRET);
        let mut running = command.spawn().expect("started");
        let user = fixture.store.user();
        wait_until("the service", || {
            assert_eq!(running.try_wait().expect("waited"), None, "it serves");
            let status = ["--json", "service", "status"];
            let status = atomdir_in(user, &fixture.base, status).expect(0).text();
            let status = serde_json::from_str::<serde_json::Value>(&status);
            status.expect("it is JSON")["process"] == running.id()
        });
        assert_has_nothing(&PathBuf::from(format!("/proc/{}", running.id())));
        let status = fs::read_to_string(format!("/proc/{}/status", running.id())).expect("read");
        let user_ids = line(&status, "Uid").split_whitespace().next();
        assert_eq!(user_ids, Some(&*user.uid.to_string()));
        fixture.store.assert_at_rest();
        assert!(running.wait().expect("waited").success());
    });
}

/// The service's memory holds what transactions of several users read and write.
#[test]
fn a_service_is_closed_to_other_processes_of_its_user() {
    for_each_owner("not-dumpable", |owner| {
        let fixture = Fixture::owned_by("not-dumpable", owner, "echo x > file");
        let service = start(&fixture, &User::root(fixture.scratch.path()));
        fixture.store.run("echo y > file").expect(0);
        let user = fixture.store.user();
        if user.is_root() {
            return;
        }
        for part in ["environ", "mem", "fd", "maps"] {
            let mut command = Command::new("cat");
            user.dress(&mut command);
            let path = service.join(part);
            let outcome = capture_output(command.arg(&path));
            assert_ne!(outcome.code, 0, "{}\n{outcome}", path.display());
            assert!(outcome.text().is_empty(), "{outcome}");
        }
        fixture.store.assert_at_rest();
    });
}
