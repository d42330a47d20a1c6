//! A store under test, driven through the command. It is cleaned up whatever happens to
//! the test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::command::{Outcome, binary, capture_output, shell_as};
use crate::mounts::{Mount, mounts, unmount};
use crate::user::User;
use crate::wait_until::{look_long, wait_until};

/// The most storage that the control directory takes after a checkpoint, whatever was
/// committed: the header, an empty log and a summary of each commit.
const CONTROL_BYTES_MAX: u64 = 4 << 20;
const CONTROL_FILES_MAX: usize = 64;

#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    user: User,
}

/// A transaction begun by `atomdir begin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub id: String,
    pub path: PathBuf,
}

impl Store {
    /// Makes `path`, which must exist, a store of `user`.
    #[track_caller]
    pub fn init(path: &Path, user: &User) -> Self {
        let path = fs::canonicalize(path)
            .unwrap_or_else(|error| panic!("cannot find {}: {error}", path.display()));
        let store = Self {
            path,
            user: user.clone(),
        };
        store
            .plain(["init".as_ref(), store.path.as_os_str()])
            .expect(0);
        store
    }

    /// Guards a store that exists already.
    pub fn existing(path: &Path, user: &User) -> Self {
        Self {
            path: path.to_owned(),
            user: user.clone(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn user(&self) -> &User {
        &self.user
    }

    pub fn control(&self) -> PathBuf {
        self.path.join(".atomdir")
    }

    /// `atomdir -C STORE ARGUMENTS` as the store's user, ready to run.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.command_as(&self.user, arguments)
    }

    pub fn command_as<A: AsRef<OsStr>>(
        &self,
        user: &User,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(binary());
        user.dress(&mut command);
        command
            .current_dir("/")
            .arg("-C")
            .arg(&self.path)
            .args(arguments);
        command
    }

    #[track_caller]
    pub fn call<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Outcome {
        capture_output(&mut self.command(arguments))
    }

    #[track_caller]
    pub fn call_as<A: AsRef<OsStr>>(
        &self,
        user: &User,
        arguments: impl IntoIterator<Item = A>,
    ) -> Outcome {
        capture_output(&mut self.command_as(user, arguments))
    }

    fn plain<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Outcome {
        let mut command = Command::new(binary());
        self.user.dress(&mut command);
        capture_output(command.current_dir("/").args(arguments))
    }

    /// Runs a shell script in the store's root, outside every view, as the store's owner. Expects it
    /// to succeed.
    #[track_caller]
    pub fn outside(&self, script: &str) -> Outcome {
        shell_as(self.user(), self.path(), script)
    }

    /// `atomdir run -- sh -ec SCRIPT` at the store's root.
    #[track_caller]
    pub fn run(&self, script: &str) -> Outcome {
        self.run_with(&[], script)
    }

    /// Like [`Store::run`], in an exact view: for scripts that begin nested transactions, set
    /// savepoints or let others in.
    #[track_caller]
    pub fn run_exact(&self, script: &str) -> Outcome {
        self.run_with(&["--view", "exact"], script)
    }

    #[track_caller]
    pub fn run_with(&self, options: &[&str], script: &str) -> Outcome {
        let shell = ["--", "/bin/sh", "-ec", script];
        self.call(["run"].iter().chain(options).chain(&shell))
    }

    /// `atomdir exec TX -- sh -ec SCRIPT` at the store's root.
    #[track_caller]
    pub fn exec(&self, view: &View, script: &str) -> Outcome {
        self.call(["exec", &view.id, "--", "/bin/sh", "-ec", script])
    }

    #[track_caller]
    pub fn begin(&self) -> View {
        self.begin_with(&[])
    }

    #[track_caller]
    pub fn begin_with(&self, options: &[&str]) -> View {
        let outcome = self.call(["begin"].iter().chain(options)).expect(0);
        let mut lines = outcome.stdout.split(|byte| *byte == b'\n');
        let id = lines
            .next()
            .map(|line| String::from_utf8_lossy(line).into_owned());
        let path = lines
            .next()
            .map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_owned())));
        match (id, path) {
            (Some(id), Some(path)) if !id.is_empty() && path.is_absolute() => View { id, path },
            _ => panic!("begin must print the id and, on line two, the view's path\n{outcome}"),
        }
    }

    #[track_caller]
    pub fn commit(&self, view: &View) -> Outcome {
        self.call(["commit", &view.id])
    }

    #[track_caller]
    pub fn abort(&self, view: &View) -> Outcome {
        self.call(["abort", &view.id])
    }

    /// The processes that serve this store, found by their command line.
    pub fn service_processes(&self) -> Vec<Pid> {
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(Pid::from_raw)
            .filter(|pid| is_service_of(*pid, &self.path) && !is_child_of_service(*pid))
            .collect()
    }

    /// Kills the child processes by which services wait for mounts. Returns whether there was one.
    pub fn kill_barrier_processes(&self) -> bool {
        let Ok(processes) = fs::read_dir("/proc") else {
            return false;
        };
        let services = self.service_processes();
        let ids = processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children: Vec<Pid> = ids
            .filter_map(Pid::from_raw)
            .filter(|pid| {
                is_barrier_process(*pid)
                    && parent_of(*pid).is_some_and(|parent| services.contains(&parent))
            })
            .collect();
        for pid in &children {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        !children.is_empty()
    }

    /// Kills the service as a crash would, and waits until it is gone. Returns whether there
    /// was one.
    pub fn kill_service(&self) -> bool {
        let services = self.service_processes();
        for pid in &services {
            // It may have ended by itself in the meantime.
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
            wait_until_dead(*pid);
        }
        !services.is_empty()
    }

    /// Waits for the end of a service that was asked to stop, since it answers before it ends.
    #[track_caller]
    pub fn wait_until_ended(&self) {
        wait_until("the end of the service", || {
            self.service_processes().is_empty()
        });
    }

    /// The mounts that show this store's views.
    pub fn mounts(&self) -> Vec<Mount> {
        mounts()
            .into_iter()
            .filter(|mount| mount.is_atomdir() && mount.source == self.path)
            .collect()
    }

    /// Stops the service and checks what must hold of a store that nobody uses: there is no
    /// process, no mount, and hardly anything in the control directory.
    #[track_caller]
    pub fn assert_at_rest(&self) {
        // Commits that open transactions need are not pruned.
        self.call(["service", "stop", "--abort"]).expect(0);
        // The history takes as much space as what its commits replaced.
        self.call(["prune", "--all"]).expect(0);
        self.call(["service", "stop"]).expect(0);
        self.wait_until_ended();
        let mounts = self.mounts();
        assert!(mounts.is_empty(), "service stop left mounts: {mounts:?}");
        let (files, bytes) = occupied(&self.control());
        assert!(
            files.len() <= CONTROL_FILES_MAX && bytes <= CONTROL_BYTES_MAX,
            "the control directory holds {bytes} bytes in {} files after service stop, among them {:?}",
            files.len(),
            &files[..files.len().min(20)]
        );
    }
}

impl Drop for Store {
    /// Cleans up after a test that failed half-way. After a successful test nothing is left
    /// to do.
    fn drop(&mut self) {
        self.kill_service();
        for mount in self.mounts() {
            unmount(&mount.point);
            // Our mount points are empty; a directory that is not empty is not ours.
            let _ = fs::remove_dir(&mount.point);
        }
    }
}

/// A killed process is gone when all its threads are. A thread that waits for its own
/// mount keeps the mount, the sockets and the locks for ever. The test then fails instead
/// of waiting for ever.
fn wait_until_dead(pid: Pid) {
    if look_long(|| living_threads(pid).is_empty().then_some(())).is_none() {
        let (number, living) = (pid.as_raw_nonzero(), living_threads(pid).join("; "));
        eprintln!("the killed service {number} does not die: {living}");
        assert!(std::thread::panicking(), "a killed service does not die");
    }
}

/// Whether every thread of the process has a tracer, as strace. It attaches to one after another.
pub fn is_traced(process: Pid) -> bool {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let tasks = fs::read_dir(tasks).expect("the process lives");
    tasks.flatten().all(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let tracer = status.lines().find(|line| line.starts_with("TracerPid:"));
        // A thread that has ended since has no status.
        tracer.is_none_or(|line| !line.ends_with("\t0"))
    })
}

/// The state of each thread that is not dead, and where in the kernel it waits.
fn living_threads(pid: Pid) -> Vec<String> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    let describe = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let state = status
            .lines()
            .find(|line| line.starts_with("State:"))?
            .to_owned();
        let is_dead = ["Z (zombie)", "X (dead)"]
            .iter()
            .any(|dead| state.ends_with(dead));
        let place = fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
        (!is_dead).then(|| format!("{} in {place}", state.replace('\t', " ")))
    };
    threads.flatten().filter_map(describe).collect()
}

/// The names of the service's child that waits for the mount, and of the one that ends its
/// connection if the service is killed. Both end with the service.
pub const SERVICE_CHILDREN: [&str; 2] = [BARRIER, "view-aborter"];
const BARRIER: &str = "atomdir-barrier";

fn is_barrier_process(pid: Pid) -> bool {
    name_of(pid).is_some_and(|name| name == BARRIER)
}

fn is_child_of_service(pid: Pid) -> bool {
    name_of(pid).is_some_and(|name| SERVICE_CHILDREN.contains(&name.as_str()))
}

fn name_of(pid: Pid) -> Option<String> {
    let comm = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    Some(comm.trim_end().to_owned())
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
}

/// A zombie has no command line, so a service whose parent has not waited for it counts as gone.
fn is_service_of(pid: Pid, store: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())) else {
        return false;
    };
    let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let program = arguments
        .first()
        .and_then(|program| program.rsplit(|byte| *byte == b'/').next());
    let is_atomdir = program.is_some_and(|name| name.starts_with(b"atomdir") || name == b"exe");
    is_atomdir
        && arguments.contains(&b"service".as_slice())
        && arguments.contains(&b"run".as_slice())
        && arguments.contains(&store.as_os_str().as_bytes())
}

/// Every file below the directory, and the storage they take.
fn occupied(directory: &Path) -> (Vec<PathBuf>, u64) {
    use std::os::unix::fs::MetadataExt;
    let mut files = Vec::new();
    let mut bytes = 0;
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                pending.push(entry.path());
            }
            bytes += metadata.blocks() * 512;
            files.push(entry.path());
        }
    }
    (files, bytes)
}
