//! The setting `guard`: each service mounts one. Guards that a killed or stopped service leaves.

use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::{Fixture, Guard, User, users_can_mount, wait_until};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::Guarded;

fn is_over(guarded: &Guarded) -> bool {
    Guard::is_over(&guarded.fixture)
}

/// The kernel knows the answers to other questions.
fn is_dead(base: &Path) -> bool {
    let flags = AtFlags::STATX_FORCE_SYNC;
    let asked = statx(CWD, base, flags, StatxFlags::BASIC_STATS);
    matches!(asked, Err(Errno::NOTCONN))
}

#[test]
fn each_service_mounts_the_guard_that_the_settings_want() {
    let test = "each_service_mounts_the_guard_that_the_settings_want";
    let Some(guarded) = Guarded::new(test, "echo old > a") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let stop = || {
        store.call(["service", "stop"]).expect(0);
        store.wait_until_ended();
    };
    stop();
    store.run("echo plain > a").expect(0);
    assert!(!is_over(&guarded));
    stop();
    store.call(["config", "guard", "on"]).expect(0);
    store.run("echo first > a").expect(0);
    assert!(is_over(&guarded));
    // After a kill, calls fail until a command needs the service.
    for command in [&["list"][..], &["mount"], &["run", "--", "true"]] {
        store.outside("echo outside > b");
        store.run("echo committed > a").expect(0);
        assert!(store.kill_service());
        wait_until("the end of the connection", || is_dead(base));
        store.call(command).expect(0);
        assert!(is_over(&guarded) && !is_dead(base));
        assert_eq!(guarded.read("a"), "committed\n");
        assert_eq!(guarded.read("b"), "outside\n");
    }
    // One mount, and not one over another.
    let umount = store.call(["umount"]).expect(0);
    umount.says(&["next service", "umount --always"]);
    assert!(!is_over(&guarded));
    stop();
    store.call(["list"]).expect(0);
    store.call(["service", "start"]).expect(0);
    assert!(is_over(&guarded));
    store.call(["umount", "--always"]).expect(0);
    assert_eq!(store.call(["config", "guard"]).expect(0).text(), "off\n");
    stop();
    store.run("true").expect(0);
    assert!(!is_over(&guarded));
    store.call(["mount", "--always", "--sync"]).expect(0);
    assert_eq!(store.call(["config", "guard"]).expect(0).text(), "sync\n");
    stop();
    let syncs = || {
        store.call(["mount"]).expect(0);
        let status = store.call(["--json", "service", "status"]).expect(0).text();
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        status["guard"]["sync"] == true
    };
    assert!(syncs(), "as the setting says");
    store.call(["config", "guard", "on"]).expect(0);
    assert!(!syncs());
    // Without a service the guard can be cleared away for good.
    assert!(store.kill_service());
    wait_until("the end of the connection", || is_dead(base));
    store.call(["umount", "--always"]).expect(0);
    store.run("echo last > a").expect(0);
    assert!(!is_over(&guarded));
    store.assert_at_rest();
}

/// What systemd does: it waits for the news that the service is ready, and ends it by a signal.
#[test]
fn a_supervised_service_is_ready_once_the_guard_stands() {
    let test = "a_supervised_service_is_ready_once_the_guard_stands";
    let Some(guarded) = Guarded::new(test, "echo old > a") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    store.call(["mount", "--always"]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.wait_until_ended();
    let path = guarded.fixture.scratch.join("notify");
    let name = format!("atomdir-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
    let sockets = [
        (
            path.clone().into_os_string(),
            UnixDatagram::bind(&path).expect("bound"),
        ),
        (
            format!("@{name}").into(),
            UnixDatagram::bind_addr(&abstract_name).expect("bound"),
        ),
    ];
    for (number, (address, socket)) in sockets.into_iter().enumerate() {
        socket
            .set_read_timeout(Some(std::time::Duration::from_secs(60)))
            .expect("set");
        // The second one finds a dead guard.
        let mut service = Command::new(atomdir_testing::binary());
        store.user().dress(&mut service);
        let service = service.args(["service", "run", "--idle", "never", "--store"]);
        let service = service.arg(base).env("NOTIFY_SOCKET", address);
        let mut service = service.current_dir("/").spawn().expect("started");
        let mut news = [0; 64];
        let length = socket.recv(&mut news).expect("the service is ready");
        assert_eq!(&news[..length], b"READY=1");
        assert!(is_over(&guarded) && !is_dead(base));
        store.run(&format!("echo {number} > a")).expect(0);
        assert_eq!(guarded.read("a"), format!("{number}\n"));
        let process = Pid::from_child(&service);
        if number == 0 {
            // As after a crash, it is restarted. A program still has a file open.
            let mut open = fs::File::open(base.join("a")).expect("opened");
            kill_process(process, Signal::KILL).expect("killed");
            service.wait().expect("it ends");
            wait_until("the end of the connection", || is_dead(base));
            assert!(open.read(&mut [0; 4]).is_err() || is_dead(base));
            continue;
        }
        kill_process(process, Signal::TERM).expect("asked to end");
        assert!(service.wait().expect("it ends").success());
        assert!(!is_over(&guarded));
        assert_eq!(guarded.read("a"), format!("{number}\n"));
    }
    store.call(["config", "guard", "off"]).expect(0);
    store.assert_at_rest();
}

#[test]
fn a_guard_whose_service_hangs_can_be_forced_away() {
    let test = "a_guard_whose_service_hangs_can_be_forced_away";
    let Some(guarded) = Guarded::new(test, "echo old > a; mkdir d; echo old > d/f") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    // In processes of their own: a close would wait for the service, also that of a child process.
    let program = |script: &str| {
        let mut command = Command::new("/bin/sh");
        store.user().dress(&mut command);
        command.args(["-c", script]).current_dir("/");
        command.stdin(std::process::Stdio::piped());
        command.spawn().expect("started")
    };
    let (file, opened) = (base.join("a"), guarded.fixture.scratch.join("opened"));
    let hold = format!(
        "exec 3< {}; : > {}; read line",
        file.display(),
        opened.display()
    );
    let mut holder = program(&hold);
    wait_until("the open file", || opened.exists());
    let services = store.service_processes();
    for service in &services {
        kill_process(*service, Signal::STOP).expect("stopped");
    }
    // Its call waits for an answer, or comes after the guard has gone.
    let mut caller = program(&format!("ls {} > /dev/null", base.join("d").display()));
    let mut umount = Command::new(atomdir_testing::binary());
    store.user().dress(&mut umount);
    let umount = umount
        .current_dir("/")
        .args(["umount", "--force"])
        .arg(base);
    atomdir_testing::capture_output(umount).expect(0);
    caller.wait().expect("it ends");
    assert!(!is_over(&guarded));
    assert_eq!(guarded.read("d/f"), "old\n");
    store.outside("echo outside > d/f");
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    for service in &services {
        kill_process(*service, Signal::CONT).expect("goes on");
    }
    store.run("echo committed > a").expect(0);
    assert_eq!(guarded.read("a"), "committed\n");
    assert_eq!(guarded.read("d/f"), "outside\n");
    store.call(["mount"]).expect(0);
    assert_eq!(guarded.read("d/f"), "outside\n");
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

#[test]
fn a_store_of_an_ordinary_user_cannot_be_set_to_have_a_guard() {
    let test = "a_store_of_an_ordinary_user_cannot_be_set_to_have_a_guard";
    if !rustix::process::geteuid().is_root() || !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by("guard", User::ordinary, "echo old > a");
    let refused = fixture.store.call(["config", "guard", "on"]);
    refused.expect(CONFIGURATION).says(&["is not root's"]);
    fixture.store.call(["config", "guard", "off"]).expect(0);
    // The settings can be changed by hand, or the store can have been root's.
    fs::write(fixture.store.control().join("settings"), "guard on\n").expect("written");
    let refused = fixture.store.call(["run", "--", "true"]);
    assert_ne!(refused.code, 0);
    refused.says(&["setting 'guard'", "ordinary user", "umount --always"]);
    fixture.store.call(["umount", "--always"]).expect(0);
    fixture.store.run("true").expect(0);
    fixture.store.assert_at_rest();
}

/// The setting does not hide that the store cannot be recovered.
#[test]
fn a_guard_stays_dead_if_its_store_cannot_be_served() {
    let test = "a_guard_stays_dead_if_its_store_cannot_be_served";
    let Some(guarded) = Guarded::new(test, "echo old > a") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    store.call(["mount", "--always"]).expect(0);
    let header = store.control().join("header");
    let sound = fs::read(&header).expect("read");
    fs::write(&header, "damaged").expect("written");
    assert!(store.kill_service());
    wait_until("the end of the connection", || is_dead(base));
    let failed = store.call(["list"]);
    assert!(
        failed.code != 0 && is_over(&guarded) && is_dead(base),
        "{failed}"
    );
    failed.says(&["header"]);
    // The base can be had all the same.
    store.call(["umount"]).expect(0);
    assert_eq!(guarded.read("a"), "old\n");
    fs::write(&header, sound).expect("written");
    store.call(["list"]).expect(0);
    store.call(["service", "start"]).expect(0);
    assert!(is_over(&guarded));
    store.call(["umount", "--always"]).expect(0);
    store.assert_at_rest();
}
