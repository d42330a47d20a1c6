//! Several clients use one store while the service, clients, their commands and the
//! mount's connection are killed at random instants. Every commit is complete or absent, a
//! client's death aborts its transaction and harms nobody else, and nothing is left over.
#![cfg(test)]

mod client;
mod lane;
mod leaks;
mod way;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atomdir_testing::exit_code::{INPUT_OUTPUT, NO_SUCH};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Random, look_long, pick, shell, skip};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use client::Victim;
use lane::Lane;
use leaks::Leaks;

const LANES: usize = 4;
/// How many operations each client does in a round.
const OPERATIONS: usize = 3;
const KILLS_MAX: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    /// `atomdir run`, `exec` or `commit`.
    Client,
    /// The command that runs in the transaction.
    Command,
    /// The connection of the views' mount, which an administrator would abort if it hangs.
    Connection,
    Service,
}

/// What the round's kills may have done to clients that were not killed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Harm {
    pub connection_aborted: bool,
    pub service_killed: bool,
}

#[derive(Debug, Default)]
struct Tally {
    clients: usize,
    commands: usize,
    connections: usize,
    services: usize,
    /// How often there was nothing to kill at that instant.
    missed: usize,
}

impl Tally {
    fn kills(&self) -> usize {
        self.clients + self.commands + self.connections + self.services
    }
}

/// One service outlives all kills, and its memory does not grow.
#[test]
fn clients_commands_and_connections_killed_under_load() {
    let test = "clients_commands_and_connections_killed_under_load";
    let kinds = [
        Kill::Client,
        Kill::Client,
        Kill::Command,
        Kill::Command,
        Kill::Connection,
    ];
    kill_under_load(test, &kinds, pick(25, 500));
}

#[test]
fn services_clients_and_connections_killed_under_load() {
    let test = "services_clients_and_connections_killed_under_load";
    let kinds = [
        Kill::Service,
        Kill::Service,
        Kill::Client,
        Kill::Command,
        Kill::Connection,
    ];
    kill_under_load(test, &kinds, pick(25, 500));
}

fn kill_under_load(test: &str, kinds: &[Kill], kills: usize) {
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may abort a FUSE connection");
    }
    let mut random = Random::for_test(test);
    let fixture = Fixture::new("kill-load", &lane::preparation(LANES));
    let connections = connections(&fixture);
    shell(fixture.scratch.path(), "mkdir clients");
    let mut lanes: Vec<Lane> = (0..LANES).map(Lane::new).collect();
    let mut leaks = Leaks::new(&fixture);
    let mut tally = Tally::default();
    let mut round = 0;
    while tally.kills() < kills {
        round += 1;
        println!("round {round}: {tally:?}");
        let harm = disturb(
            &fixture,
            &connections,
            &mut lanes,
            kinds,
            &mut random,
            &mut tally,
        );
        if lanes.iter_mut().any(Lane::take_unheard_begin) {
            // Abort it, unless the service died before it was kept.
            let aborted = fixture.store.call(["abort", "--all"]);
            aborted.expect_one_of(&[0, NO_SUCH]);
        }
        leaks.assert_quiet(harm);
        for lane in &mut lanes {
            lane.verify(&fixture.base, harm);
        }
        // The staging directory of a transaction is removed a moment after its end.
        let mut problems = String::new();
        let checked = look_long(|| {
            let checked = fixture.store.call(["check"]);
            problems = checked.to_string();
            (checked.code == 0).then_some(())
        });
        assert!(checked.is_some(), "{problems}");
        leaks.assert_bounded();
        if kinds.contains(&Kill::Service) && round % 10 == 0 {
            leaks.assert_nothing_left();
        }
    }
    let clients_harmed: usize = lanes.iter().map(|lane| lane.failures).sum();
    let commits: u64 = lanes.iter().map(|lane| lane.commits).sum();
    leaks.assert_nothing_left();
    if !kinds.contains(&Kill::Service) {
        leaks.assert_no_growth();
    }
    println!("{tally:?}; {commits} commits, {clients_harmed} failed");
}

/// Runs all clients at once, [`OPERATIONS`] operations each, and kills some meanwhile.
fn disturb(
    fixture: &Fixture,
    connections: &Path,
    lanes: &mut [Lane],
    kinds: &[Kill],
    random: &mut Random,
    tally: &mut Tally,
) -> Harm {
    let victims: Vec<Victim> = (0..lanes.len()).map(|_| Victim::default()).collect();
    let seeds: Vec<u64> = lanes.iter().map(|_| random.number()).collect();
    let mut harm = Harm::default();
    std::thread::scope(|scope| {
        for ((lane, victim), seed) in lanes.iter_mut().zip(&victims).zip(seeds) {
            scope.spawn(move || {
                let mut random = Random::from_seed(seed);
                for _ in 0..OPERATIONS {
                    lane.operate(fixture, victim, &mut random);
                }
            });
        }
        for _ in 0..1 + random.below(KILLS_MAX) {
            std::thread::sleep(Duration::from_millis(random.below(150) as u64));
            let victim = random.choose(&victims);
            let hit = match *random.choose(kinds) {
                Kill::Client => count(&mut tally.clients, victim.kill_client()),
                Kill::Command => count(&mut tally.commands, victim.kill_command()),
                Kill::Connection => {
                    let aborted = abort_connection(fixture, connections);
                    harm.connection_aborted |= aborted;
                    count(&mut tally.connections, aborted)
                }
                Kill::Service => {
                    let ran = fixture.store.kill_service();
                    harm.service_killed |= ran;
                    count(&mut tally.services, ran)
                }
            };
            tally.missed += usize::from(!hit);
        }
    });
    harm
}

fn count(counter: &mut usize, hit: bool) -> bool {
    *counter += usize::from(hit);
    hit
}

/// The kernel's directory of FUSE connections.
fn connections(fixture: &Fixture) -> PathBuf {
    shell(
        fixture.scratch.path(),
        "mkdir connections; mount -t fusectl connections connections",
    );
    fixture.scratch.join("connections")
}

/// Returns whether there was a connection.
fn abort_connection(fixture: &Fixture, connections: &Path) -> bool {
    let mounts = fixture.store.mounts();
    let aborted = mounts.iter().filter(|mount| {
        let abort = connections.join(mount.minor.to_string()).join("abort");
        let Ok(mut abort) = fs::File::options().write(true).open(abort) else {
            return false;
        };
        // Meanwhile the number may have passed to another test's mount.
        fixture.store.mounts().contains(mount) && abort.write_all(b"1").is_ok()
    });
    aborted.count() > 0
}

#[test]
fn stopping_the_service_removes_a_mount_with_an_aborted_connection() {
    let test = "stopping_the_service_removes_a_mount_with_an_aborted_connection";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may abort a FUSE connection");
    }
    let fixture = Fixture::new("kill-mount", "echo old > file");
    let connections = connections(&fixture);
    for view in ["exact", "native"] {
        let options = ["--view", view];
        fixture.store.run_with(&options, "cat file").expect(0);
    }
    assert!(abort_connection(&fixture, &connections));
    fixture.store.assert_at_rest();
}

/// The write to mapped memory has not reached the service yet, so it is lost with the mount.
#[test]
fn commit_refused_after_unmount_lost_mapped_writes() {
    let test = "commit_refused_after_unmount_lost_mapped_writes";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may abort a FUSE connection");
    }
    let fixture = Fixture::new("kill-mapped", "echo old > mapped; echo old > written");
    let store = &fixture.store;
    let connections = connections(&fixture);
    let before = fixture.look();
    let view = store.begin();
    fs::write(view.path.join("written"), "new\n").expect("written");
    store_to_mapping(&view.path.join("mapped"), b"new\n", || {
        assert!(abort_connection(&fixture, &connections));
    });
    store
        .commit(&view)
        .expect(INPUT_OUTPUT)
        .says(&["mount", "ended from outside"]);
    store.call(["diff", "--name-status", &view.id]).expect(0);
    let other = store.begin();
    store.commit(&view).expect(INPUT_OUTPUT);
    store.abort(&view).expect(0);
    assert_equal(
        "before (left) and after (right)",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    store.exec(&other, "echo new > written").expect(0);
    store.commit(&other).expect(0);
    assert_eq!(
        fs::read_to_string(fixture.base.join("written")).expect("read"),
        "new\n"
    );
    store.assert_at_rest();
}

/// Writes the bytes to a mapping of the file's start and keeps the mapping while `meanwhile` runs.
fn store_to_mapping(path: &Path, bytes: &[u8], meanwhile: impl FnOnce()) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("opened");
    // SAFETY: the mapping is as long as the bytes, and nobody else uses it.
    unsafe {
        let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let mapping = mmap(
            std::ptr::null_mut(),
            bytes.len(),
            read_write,
            shared,
            &file,
            0,
        )
        .expect("mapped");
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.cast(), bytes.len());
        meanwhile();
        munmap(mapping, bytes.len()).expect("unmapped");
    }
}
