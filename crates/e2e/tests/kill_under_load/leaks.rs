//! What must not grow under load, and what must be gone afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atomdir_testing::{Fixture, SERVICE_CHILDREN, look_long};
use rustix::process::Pid;

use crate::Harm;

/// For a service at rest: its own descriptors, and files that it keeps open for a while
/// for later requests.
const DESCRIPTORS_MAX: usize = 96;
/// The mount of the views, and that of the snapshots below native views.
const MOUNTS_MAX: usize = 2;
const RESIDENT_BYTES_MAX: u64 = 48 << 20;
/// How far the minimum of a test's last quarter may exceed the median of its first quarter.
const GROWTH_BYTES_MAX: u64 = 4 << 20;
const THREADS_MAX: usize = 32;

#[derive(Debug)]
pub struct Leaks<'a> {
    fixture: &'a Fixture,
    service: Option<Pid>,
    mount_points: BTreeSet<PathBuf>,
    descriptors_max: usize,
    /// The resident memory after each round.
    resident_bytes: Vec<u64>,
    threads_max: usize,
}

impl<'a> Leaks<'a> {
    pub fn new(fixture: &'a Fixture) -> Self {
        Self {
            fixture,
            service: None,
            mount_points: BTreeSet::new(),
            descriptors_max: 0,
            resident_bytes: Vec::new(),
            threads_max: 0,
        }
    }

    /// Waits until no command runs and no transaction is open any more.
    pub fn assert_quiet(&mut self, harm: Harm) {
        self.fixture.store.call(["recover"]).expect(0);
        // Lazy commits reach the base.
        self.fixture.store.call(["sync"]).expect(0);
        let mut left = String::new();
        let is_quiet = look_long(|| {
            let processes = self.processes();
            let open = self.fixture.store.call(["list"]).expect(0).text();
            left = format!("{processes:?}; open: {open}");
            (processes.is_empty() && open.trim().is_empty()).then_some(())
        });
        assert!(is_quiet.is_some(), "left over after {harm:?}: {left}");
        let services = self.fixture.store.service_processes();
        assert_eq!(services.len(), 1, "one service: {services:?}");
        if !harm.service_killed
            && let Some(before) = self.service
        {
            assert_eq!(services[0], before, "the service outlives its clients");
        }
        self.service = Some(services[0]);
    }

    /// Checks the service while nobody uses it.
    pub fn assert_bounded(&mut self) {
        let mounts = self.fixture.store.mounts();
        assert!(mounts.len() <= MOUNTS_MAX, "too many mounts: {mounts:?}");
        self.mount_points
            .extend(mounts.into_iter().map(|mount| mount.point));
        let Some(service) = self.service else { return };
        let process = PathBuf::from(format!("/proc/{}", service.as_raw_nonzero()));
        let count = |name: &str| fs::read_dir(process.join(name)).expect("listed").count();
        let statm = fs::read_to_string(process.join("statm")).expect("read");
        let pages: u64 = statm
            .split(' ')
            .nth(1)
            .expect("resident")
            .parse()
            .expect("a number");
        let (descriptors, threads, resident) = (
            count("fd"),
            count("task"),
            pages * rustix::param::page_size() as u64,
        );
        self.descriptors_max = self.descriptors_max.max(descriptors);
        self.resident_bytes.push(resident);
        self.threads_max = self.threads_max.max(threads);
        let open = open_files(&process);
        assert!(
            descriptors <= DESCRIPTORS_MAX,
            "{descriptors} descriptors: {open:#?}, {self:?}"
        );
        let is_deleted = |path: &&PathBuf| path.as_os_str().as_bytes().ends_with(b" (deleted)");
        let deleted: Vec<&PathBuf> = open.iter().filter(is_deleted).collect();
        assert!(
            deleted.is_empty(),
            "open files without a name: {deleted:#?}"
        );
        assert!(threads <= THREADS_MAX, "{threads} threads: {self:?}");
        assert!(resident <= RESIDENT_BYTES_MAX, "{resident} bytes: {self:?}");
    }

    /// Checks one service that ran all the time.
    pub fn assert_no_growth(&self) {
        let rounds = &self.resident_bytes;
        let (first, last) = rounds.split_at(rounds.len() - rounds.len() / 4);
        let mut first = first[..rounds.len().div_ceil(4)].to_vec();
        first.sort_unstable();
        // Two mounts need more memory than one, and a checkpoint needs more for a while, since
        // it reads the log. Memory that is not released again has leaked.
        let before = first[first.len() / 2];
        let after = last.iter().copied().min().unwrap_or(before);
        println!("{before} bytes resident in the first quarter, at least {after} in the last");
        assert!(after <= before + GROWTH_BYTES_MAX, "{self:?}");
    }

    /// Stops the service and checks that it leaves nothing behind.
    pub fn assert_nothing_left(&mut self) {
        self.fixture.store.assert_at_rest();
        self.service = None;
        for point in &self.mount_points {
            assert!(!point.exists(), "left over: {}", point.display());
        }
        let root = names(self.fixture.scratch.path());
        let expected = ["base", "clients", "connections", "home-root"];
        assert_eq!(root, BTreeSet::from(expected.map(str::to_owned)));
        let home = names(self.fixture.store.user().home());
        assert_eq!(
            home,
            BTreeSet::from(["run".to_owned()]),
            "in the home directory"
        );
    }

    /// The processes whose command line or environment names this test's directory, except
    /// the service's.
    fn processes(&self) -> Vec<String> {
        let scratch = self.fixture.scratch.path();
        let own = std::process::id();
        let services = self.fixture.store.service_processes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("readable").flatten() {
            let Some(number): Option<i32> = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let is_service = services
                .iter()
                .any(|service| service.as_raw_nonzero().get() == number);
            if is_service || number as u32 == own {
                continue;
            }
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let said = [read("cmdline"), read("environ")].concat();
            let text = String::from_utf8_lossy(&said);
            let comm = String::from_utf8_lossy(&read("comm")).trim_end().to_owned();
            let is_child = SERVICE_CHILDREN.contains(&comm.as_str());
            if text.contains(&*scratch.to_string_lossy()) && !is_child {
                found.push(format!("{number} {comm}"));
            }
        }
        found
    }
}

/// The files that a process has open.
fn open_files(process: &Path) -> Vec<PathBuf> {
    let open = fs::read_dir(process.join("fd")).expect("listed").flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect()
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("listed").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
