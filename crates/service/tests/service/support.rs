//! A store for each test, and functions to act as other users.

use atomdir::client::{ALLOW, BeginOptions, Connection, Settings};
use atomdir::{ConnectError, StartService, StoreLocation, Trust};
use atomdir_protocol::handshake;
use atomdir_testing::{fresh_directory, skip, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_atomdir-serve");
/// So long that no service under test ends by itself.
pub const NEVER_IDLE: u64 = 3_600_000;

pub struct TestStore {
    pub location: StoreLocation,
    pub idle_milliseconds: u64,
    directory: PathBuf,
}

impl TestStore {
    pub fn new(idle_milliseconds: u64) -> TestStore {
        let directory = fresh_directory(&std::env::temp_dir(), "service");
        let root = directory.join("site");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("index.html"), "old").unwrap();
        let location = atomdir::init(&root, None).unwrap().store;
        TestStore {
            location,
            idle_milliseconds,
            directory,
        }
    }

    /// A store of root that is open to these users as well.
    pub fn shared_with(users: &[u32], idle_milliseconds: u64) -> TestStore {
        let store = TestStore::new(idle_milliseconds);
        let users: Vec<String> = users.iter().map(u32::to_string).collect();
        Settings::change(&store.location, ALLOW, &users.join(",")).unwrap();
        store
    }

    /// A store whose root and control directory belong to another user.
    pub fn of_user(user: u32, idle_milliseconds: u64) -> TestStore {
        let mut store = TestStore::new(idle_milliseconds);
        let mut chown = Command::new("chown");
        chown
            .arg("-R")
            .arg(format!("{user}:{user}"))
            .arg(&store.directory);
        assert!(chown.status().unwrap().success());
        let root = &store.location.root;
        store.location = StoreLocation::at_with(root, Trust::Everyone).unwrap();
        store
    }

    pub fn start_service(&self) -> StartService {
        let idle = self.idle_milliseconds.to_string();
        StartService::IfNeeded {
            program: PROGRAM.into(),
            arguments: vec![
                self.location.root.clone().into(),
                idle.into(),
                "--detach".into(),
            ],
        }
    }

    /// Starts the service with as few descriptors as are enough for clients with more, so that it
    /// keeps few files open.
    pub fn start_service_with_few_descriptors(&self) -> StartService {
        let script = "ulimit -n 4096; exec \"$0\" \"$@\"";
        let StartService::IfNeeded { program, arguments } = self.start_service() else {
            unreachable!("`start_service` says how to start one");
        };
        let first = ["-c".into(), script.into(), program.into()];
        StartService::IfNeeded {
            program: "/bin/sh".into(),
            arguments: first.into_iter().chain(arguments).collect(),
        }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(&self.location, &self.start_service()).unwrap()
    }

    pub fn connect_if_running(&self) -> Result<Connection, ConnectError> {
        Connection::open(&self.location, &StartService::Never)
    }

    pub fn raw_socket(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.location.control.join("socket")
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if let Ok(mut connection) = self.connect_if_running() {
            if std::thread::panicking() {
                let said = std::fs::read_to_string(self.location.control.join("service.log"));
                eprintln!("the service said: {}", said.unwrap_or_default());
                // After a failed test the service may not end in order.
                let (process, descriptor) = process_of(&mut connection);
                let _ = kill_process(process, Signal::KILL);
                wait_for_end(&descriptor);
            } else {
                let _ = connection.stop_and_abort();
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn detached() -> BeginOptions {
    BeginOptions {
        detached: true,
        ..BeginOptions::default()
    }
}

/// The service's process, and a descriptor to wait for its end.
pub fn process_of(connection: &mut Connection) -> (Pid, OwnedFd) {
    let number = connection.service_status().unwrap().process;
    let process = Pid::from_raw(number.try_into().unwrap()).unwrap();
    let descriptor = pidfd_open(process, PidfdFlags::empty()).unwrap();
    (process, descriptor)
}

/// A connection after the handshake, on which a test can send anything. If the service does
/// not answer within its timeout, it never will.
pub fn greeted(store: &TestStore) -> UnixStream {
    let mut socket = store.raw_socket();
    let answer_time_max = Duration::from_secs(100);
    socket.set_read_timeout(Some(answer_time_max)).unwrap();
    socket.write_all(&handshake::encode_hello()).unwrap();
    let mut verdict = [0; handshake::LENGTH];
    socket.read_exact(&mut verdict).unwrap();
    assert_eq!(
        handshake::decode_verdict(&verdict),
        Ok(handshake::Verdict::Welcome)
    );
    socket
}

/// Returns when the service has given up all other connections.
pub fn wait_until_alone(connection: &mut Connection) {
    wait_until("the end of connections whose clients have gone", || {
        connection.service_status().unwrap().connections == 1
    });
}

pub fn wait_for_end(process: &OwnedFd) {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, None).unwrap();
}

pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("several users", "only root can act as several users");
    }
    root
}

/// Whether ordinary users can mount. If not, an ordinary user's service can show no views.
pub fn users_can_mount() -> bool {
    atomdir_testing::users_can_mount("views of ordinary users")
}

pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| {
        line.split(' ')
            .nth(4)
            .is_some_and(|place| Path::new(place) == path)
    })
}

pub fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}
