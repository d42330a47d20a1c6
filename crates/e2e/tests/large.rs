//! Size has no limits: a transaction is kept on disk, not in memory, and its cost depends
//! on its changes, not on the size of the store.
//!
//! Figures are printed past the test runner's capture, for docs/performance.md.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atomdir_testing::{
    Fixture, Store, View, is_traced, pick, shell, skip, tools_present, wait_until,
};
use rustix::process::{Pid, Signal};

fn tell(line: &str) {
    // A lost figure must not fail the test.
    let _ = std::io::stderr().write_all(format!("MEASURED: {line}\n").as_bytes());
}

fn the_service(store: &Store) -> Pid {
    match store.service_processes().as_slice() {
        [one] => *one,
        others => panic!("one service is expected, found {others:?}"),
    }
}

/// The peak of a process's own memory, in bytes.
fn memory_peak_bytes(process: Pid) -> u64 {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(&path).expect("the service lives");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes.expect("the kernel reports VmHWM in KiB") * 1024
}

/// A memory limit around one process, cgroup version 1 or 2.
struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    fn around(process: Pid, limit_bytes: u64) -> Result<MemoryLimit, String> {
        let name = format!("atomdir-large-{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let mut reasons = Vec::new();
        for (parent, file) in places {
            let limit = MemoryLimit {
                group: Path::new(parent).join(&name),
            };
            match limit.set(file, limit_bytes, process) {
                Ok(()) => return Ok(limit),
                Err(error) => reasons.push(format!("{}: {error}", limit.group.display())),
            }
        }
        Err(reasons.join("; "))
    }

    fn set(&self, file: &str, limit_bytes: u64, process: Pid) -> std::io::Result<()> {
        // A tmpfs would accept any name; only in a cgroup does this file exist by itself.
        fs::create_dir(&self.group)?;
        fs::OpenOptions::new()
            .write(true)
            .open(self.group.join(file))?
            .write_all(limit_bytes.to_string().as_bytes())?;
        fs::OpenOptions::new()
            .write(true)
            .open(self.group.join("cgroup.procs"))?
            .write_all(process.as_raw_nonzero().to_string().as_bytes())
    }

    fn holds(&self, process: Pid) -> bool {
        let inside = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        let process = process.as_raw_nonzero().to_string();
        inside.lines().any(|line| line == process)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let parent = self
            .group
            .parent()
            .map(|parent| parent.join("cgroup.procs"));
        let inside = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for process in inside.lines() {
            if let Some(parent) = &parent {
                // It may have ended meanwhile.
                let _ = fs::write(parent, process);
            }
        }
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn transaction_larger_than_the_memory_limit_commits() {
    const TEST: &str = "transaction_larger_than_the_memory_limit_commits";
    const LIMIT_BYTES: u64 = 64 << 20;
    let files = pick(8, 32);
    let fixture = Fixture::new("large-memory", "head -c 67108864 /dev/urandom > old");
    let store = &fixture.store;
    let view = store.begin();
    let service = the_service(store);
    let limit = match MemoryLimit::around(service, LIMIT_BYTES) {
        Ok(limit) => limit,
        Err(reason) => return skip(TEST, &format!("no memory limit can be set: {reason}")),
    };
    // The script makes new files, and writes single pages of an old one.
    let script = format!(
        "for number in $(seq {files}); do head -c 33554432 /dev/urandom > new-$number; done
        for place in $(seq 0 2 62); do
            head -c 1048576 /dev/urandom | dd of=old bs=1M seek=$place conv=notrunc status=none
        done
        sha256sum new-* old"
    );
    let inside = store.exec(&view, &script).expect(0).text();
    store.commit(&view).expect(0);
    let outside = shell(store.path(), "sha256sum new-* old").text();
    assert_eq!(inside, outside, "the base must hold what the view showed");
    assert_eq!(
        the_service(store),
        service,
        "the service must have survived"
    );
    assert!(limit.holds(service), "the service left its memory limit");
    let peak = memory_peak_bytes(service);
    tell(&format!(
        "{TEST}: {} MiB written under a limit of {} MiB; the service's own peak {} KiB",
        files * 32 + 32,
        LIMIT_BYTES >> 20,
        peak >> 10
    ));
    assert!(peak < LIMIT_BYTES, "the service held {peak} bytes");
    store.assert_at_rest();
}

const FILES_PER_DIRECTORY: usize = 1000;

fn path_of(number: usize) -> String {
    format!("d{}/f{number}", number / FILES_PER_DIRECTORY)
}

fn create_files(root: &Path, count: usize) {
    for number in 0..count {
        let path = root.join(path_of(number));
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            let directory = path.parent().expect("it lies in a directory");
            fs::create_dir(directory).expect("made");
        }
        fs::write(path, number.to_string()).expect("written");
    }
}

#[test]
fn memory_per_new_file_is_bounded() {
    const TEST: &str = "memory_per_new_file_is_bounded";
    /// Far more than is measured. It detects contents kept in memory, or a leak, but not a
    /// larger node.
    const BYTES_PER_FILE_MAX: u64 = 4096;
    let count = pick(30_000, 300_000);
    let fixture = Fixture::new("large-files", "echo here > before");
    let store = &fixture.store;
    let view = store.begin();
    let service = the_service(store);
    let before = memory_peak_bytes(service);
    let start = Instant::now();
    create_files(&view.path, count);
    let created = start.elapsed();
    let while_open = memory_peak_bytes(service);
    let start = Instant::now();
    store.commit(&view).expect(0);
    let committed = start.elapsed();
    let after = memory_peak_bytes(service);
    for number in 0..count {
        let found = fs::read_to_string(store.path().join(path_of(number)));
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", path_of(number)));
        assert_eq!(found, number.to_string());
    }
    let listed = shell(store.path(), "find d* -type f | wc -l").text();
    assert_eq!(listed.trim(), count.to_string(), "the base has other files");
    let per_file = |peak: u64| (peak - before) / count as u64;
    tell(&format!(
        "{TEST}: {count} files in {created:.1?}, committed in {committed:.1?}; the service's \
         peak grew by {} bytes per file while open, {} by the end of the commit",
        per_file(while_open),
        per_file(after)
    ));
    assert!(
        per_file(after) <= BYTES_PER_FILE_MAX,
        "the service took {} bytes of memory for each new file",
        per_file(after)
    );
    assert_nothing_staged(store);
}

/// Checks the same as `assert_at_rest` except the bytes of the history, since the summary
/// of this commit names every file.
fn assert_nothing_staged(store: &Store) {
    store.call(["service", "stop", "--abort"]).expect(0);
    store.wait_until_ended();
    let mounts = store.mounts();
    assert!(mounts.is_empty(), "service stop left mounts: {mounts:?}");
    let left = shell(&store.control(), "find stage limbo -mindepth 1 | head").text();
    assert_eq!(left, "", "service stop left staged or replaced objects");
}

/// `strace` counting the service's system calls.
struct Counter {
    strace: Child,
    report: PathBuf,
}

impl Counter {
    fn attach(process: Pid, report: PathBuf) -> Counter {
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(&report)
            .args(["-p", &process.as_raw_nonzero().to_string()])
            .stderr(Stdio::null())
            .spawn()
            .expect("strace starts");
        wait_until("strace in the service", || {
            let ended = strace.try_wait().expect("it is our child");
            assert_eq!(ended, None, "strace cannot attach to the service");
            is_traced(process)
        });
        Counter { strace, report }
    }

    /// The number of system calls since the start, without those that only wait: how often a
    /// thread sleeps depends on chance.
    fn finish(mut self) -> u64 {
        let pid = Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, Signal::INT).expect("strace runs");
        self.strace.wait().expect("it is our child");
        let report = fs::read_to_string(&self.report).expect("strace wrote its report");
        let mut count = 0;
        for line in report.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(calls), Some(name)) = (fields.get(3), fields.last()) else {
                continue;
            };
            let waits = [
                "futex",
                "restart_syscall",
                "total",
                "poll",
                "ppoll",
                "sched_yield",
            ];
            if !waits.contains(name) {
                count += calls.parse::<u64>().unwrap_or(0);
            }
        }
        count
    }
}

const TRANSACTIONS: usize = 20;

/// Begins, changes one file, makes one, and commits, several times.
fn small_transactions(store: &Store, round: usize) {
    for turn in 0..TRANSACTIONS {
        let view = store.begin();
        change(&view, round * TRANSACTIONS + turn);
        store.commit(&view).expect(0);
    }
}

fn change(view: &View, number: usize) {
    let old = view.path.join(path_of(number));
    fs::write(old, "changed").expect("written");
    fs::write(view.path.join(format!("d0/new-{number}")), "new").expect("written");
}

/// The service's system calls for these transactions, and their time.
fn cost(test: &str, files: usize) -> (u64, Duration) {
    let fixture = Fixture::new(&format!("{test}-{files}"), "true");
    let store = &fixture.store;
    create_files(store.path(), files);
    // Without this the kernel would still write the new files during the measurement.
    rustix::fs::sync();
    // The first transactions start the service, which opens files that it keeps open.
    small_transactions(store, 0);
    let start = Instant::now();
    small_transactions(store, 1);
    let took = start.elapsed();
    let counter = Counter::attach(the_service(store), fixture.scratch.join("strace"));
    small_transactions(store, 2);
    let calls = counter.finish();
    for number in 0..3 * TRANSACTIONS {
        let text = fs::read_to_string(store.path().join(path_of(number))).expect("readable");
        assert_eq!(text, "changed");
    }
    store.assert_at_rest();
    (calls, took)
}

#[test]
fn cost_of_a_small_change_does_not_grow_with_the_store() {
    const TEST: &str = "cost_of_a_small_change_does_not_grow_with_the_store";
    if !tools_present(TEST, &["strace"]) {
        return;
    }
    let (few, many) = (1_000, pick(20_000, 1_000_000));
    let (calls_few, took_few) = cost("large-store", few);
    let (calls_many, took_many) = cost("large-store", many);
    tell(&format!(
        "{TEST}: {TRANSACTIONS} transactions among {few} files: {calls_few} system calls, \
         {took_few:.1?}; among {many}: {calls_many}, {took_many:.1?}"
    ));
    // Background maintenance may or may not fall into the count.
    let most = calls_few + calls_few / 4;
    assert!(
        calls_many <= most,
        "{calls_many} system calls in a store of {many} files, {calls_few} in one of {few}"
    );
}
