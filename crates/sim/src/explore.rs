//! Crashes a traced run at every point in every way, recovers, and compares the base with what is
//! expected. It also crashes those recoveries.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::choice::{Bounds, choices};
use crate::disk::SimDisk;
use crate::effect::{Keep, Ordering, Volatile};
use crate::expected::Expected;
use crate::fault::AfterFailedSync;
use crate::image::Image;
use crate::opening::{make_store, open};
use crate::recovered::{recover, recover_once};
use crate::trace::{Event, Trace};
use crate::world::Site;

#[derive(Debug, Clone)]
pub struct Plan {
    /// Bounds for crashes of the workload, of its recovery, of that recovery's recovery, and so on.
    pub levels: Vec<Bounds>,
    /// At each level but the last: in one of how many states the recovery is crashed, too.
    pub deeper_one_in: Vec<u64>,
    /// The largest number of states within recoveries.
    pub deeper_max: u64,
    pub seed: u64,
    pub skipped: Option<Site>,
    /// Tries only this state. The path is the printed one: positions and choices.
    pub only: Option<Vec<(usize, usize)>>,
}

/// A state from which recovery went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// A value for [`Plan::only`].
    pub path: Vec<(usize, usize)>,
    pub reason: String,
}

#[derive(Debug, Default)]
pub struct Explored {
    /// Distinct states from which recovery was checked.
    pub states: u64,
    /// Crash points, including those within recoveries.
    pub points: u64,
    pub failure: Option<Failure>,
    /// The lines that have asked for a sync in a recovery.
    pub sites: BTreeSet<Site>,
    deeper: u64,
    seen: HashSet<(u64, u64)>,
}

/// Explores the trace; stops at the first failure.
pub fn explore(trace: &Trace, expected: &[Expected], plan: &Plan) -> Explored {
    let mut explored = Explored::default();
    explored.level(trace, expected, plan, &mut Vec::new());
    explored
}

/// Stands for a crash's choice in [`Failure::path`] if the program died and the machine did
/// not.
pub const KILLED: usize = usize::MAX;

/// Kills the program at one in [`Plan::deeper_one_in`] calls, and crashes the recovery that
/// follows, which may read what is not yet on the disk.
pub fn explore_kills(trace: &Trace, expected: &[Expected], plan: &Plan) -> Explored {
    let mut explored = Explored::default();
    let before = trace.start.durable.clone();
    each_kill(trace, before, plan, |position, live, disk, allowed| {
        explored.killed(position, (live, disk), allowed, expected, plan);
        explored.failure.is_none()
    });
    explored
}

/// Kills the program likewise, and then kills the recovery that follows.
pub fn explore_killed_recoveries(trace: &Trace, expected: &[Expected], plan: &Plan) -> Explored {
    let mut explored = Explored::default();
    let before = trace.start.durable.clone();
    let inner = Plan {
        deeper_one_in: vec![1],
        only: plan.only.as_ref().map(|only| only[1..].to_vec()),
        ..plan.clone()
    };
    each_kill(trace, before, plan, |first, live, disk, allowed| {
        let restarted = restart_program(live, disk);
        let before = restarted.image();
        let recovered = recover(&restarted, allowed, expected, true);
        let fail = |explored: &mut Explored, path, reason| {
            explored.failure = Some(Failure { path, reason });
        };
        let (trace, expected) = match recovered {
            Ok(recovered) => recovered.expect("it was traced"),
            Err(reason) => {
                fail(&mut explored, vec![(first, KILLED)], reason);
                return false;
            }
        };
        each_kill(&trace, before, &inner, |second, live, disk, allowed| {
            explored.points += 1;
            explored.states += 1;
            let again = recover(&restart_program(live, disk), allowed, &expected, false);
            if let Err(reason) = again {
                let path = vec![(first, KILLED), (second, KILLED)];
                fail(&mut explored, path, reason);
            }
            explored.failure.is_none()
        });
        explored.failure.is_none()
    });
    explored
}

fn restart_program(live: &Image, disk: &Volatile) -> SimDisk {
    let mut seen = live.clone();
    seen.repair();
    SimDisk::restart(seen, disk.clone())
}

/// Kills the program likewise, after the kernel has failed to write one object's contents to the
/// disk and has reported that to another program. Then programs read the contents from memory or,
/// depending on `after`, from the disk. Once the program has recovered, the machine stops.
pub fn explore_lost_writes(
    trace: &Trace,
    expected: &[Expected],
    plan: &Plan,
    after: AfterFailedSync,
) -> Explored {
    let mut explored = Explored::default();
    let before = trace.start.durable.clone();
    each_kill(trace, before, plan, |position, live, disk, allowed| {
        disk.unwritten().into_iter().all(|number| {
            let (mut live, mut disk) = (live.clone(), disk.clone());
            disk.lose_contents(number);
            if after == AfterFailedSync::Durable {
                disk.evict(&mut live, number);
            }
            let reason = lost_write((live, disk), allowed, expected).err();
            let path = vec![(position, KILLED)];
            explored.failure = reason.map(|reason| Failure { path, reason });
            explored.points += 1;
            explored.states += 1;
            explored.failure.is_none()
        })
    });
    explored
}

/// Starts the program again, and stops the machine once the program has recovered.
fn lost_write(
    (mut live, disk): (Image, Volatile),
    allowed: &[usize],
    expected: &[Expected],
) -> Result<(), String> {
    live.repair();
    let restarted = SimDisk::restart(live, disk);
    recover(&restarted, allowed, expected, false)?;
    let found = recover_once(restarted.crash(false), allowed, expected);
    found
        .map(drop)
        .map_err(|reason| format!("after a crash: {reason}"))
}

/// Calls `each` with what programs see and what the disk has, as long as it returns true.
/// `live` is what programs saw when the trace began.
fn each_kill(
    trace: &Trace,
    mut live: Image,
    plan: &Plan,
    mut each: impl FnMut(usize, &Image, &Volatile, &[usize]) -> bool,
) {
    let mut disk = trace.start.clone();
    let mut allowed: Arc<[usize]> = Arc::new([]);
    for (position, event) in trace.events.iter().enumerate() {
        event.replay(&mut disk);
        match event {
            Event::Born(number, inode) => live.insert(*number, inode.clone()),
            Event::Effect(effect) => effect.apply(&mut live, Keep::All),
            Event::Allowed(trees) => allowed = trees.clone(),
            _ => {}
        }
        let wanted = plan.only.as_ref().and_then(|only| only.first());
        // A machine may stop within a call, but a program cannot.
        let next = trace.events.get(position + 1);
        let is_left_out = wanted.is_none()
            && plan
                .deeper_one_in
                .first()
                .is_some_and(|one_in| !(position as u64).is_multiple_of(*one_in));
        if is_left_out || next.is_some_and(|next| next.is_of_call(event)) {
            continue;
        }
        if allowed.is_empty() || wanted.is_some_and(|wanted| *wanted != (position, KILLED)) {
            continue;
        }
        if !each(position, &live, &disk, &allowed) {
            break;
        }
    }
}

impl Explored {
    /// Starts the program again after it has died.
    fn killed(
        &mut self,
        position: usize,
        (live, disk): (&Image, &Volatile),
        allowed: &[usize],
        expected: &[Expected],
        plan: &Plan,
    ) {
        self.points += 1;
        let restarted = restart_program(live, disk);
        restarted.skip_sync(plan.skipped);
        let mut path = vec![(position, KILLED)];
        match recover(&restarted, allowed, expected, true) {
            Ok(Some((trace, expected))) => self.level(&trace, &expected, plan, &mut path),
            Ok(None) => {}
            Err(reason) => self.failure = Some(Failure { path, reason }),
        }
    }

    fn level(
        &mut self,
        trace: &Trace,
        expected: &[Expected],
        plan: &Plan,
        path: &mut Vec<(usize, usize)>,
    ) {
        let depth = path.len();
        let Some(bounds) = plan.levels.get(depth) else {
            return;
        };
        let wanted = plan.only.as_ref().and_then(|only| only.get(depth)).copied();
        let mut disk = trace.start.clone();
        let mut allowed: Arc<[usize]> = Arc::new([]);
        for (position, event) in trace.events.iter().enumerate() {
            event.replay(&mut disk);
            if let Event::Allowed(trees) = event {
                allowed = trees.clone();
            }
            if allowed.is_empty() || wanted.is_some_and(|(wanted, _)| wanted != position) {
                continue;
            }
            self.points += 1;
            let seed = plan.seed ^ (position as u64) << 8;
            for (number, keep) in choices(&disk, *bounds, seed).iter().enumerate() {
                if wanted.is_some_and(|(_, wanted)| wanted != number) {
                    continue;
                }
                path.push((position, number));
                self.state(&disk, disk.crash(keep), &allowed, expected, plan, path);
                path.pop();
                if self.failure.is_some() {
                    return;
                }
            }
        }
    }

    fn state(
        &mut self,
        disk: &Volatile,
        image: Image,
        allowed: &[usize],
        expected: &[Expected],
        plan: &Plan,
        path: &mut Vec<(usize, usize)>,
    ) {
        let hash = image.hash();
        let bits = allowed
            .iter()
            .fold(allowed.len() as u64, |bits, tree| bits * 31 + *tree as u64);
        if !self.seen.insert((hash, bits)) && plan.only.is_none() {
            return;
        }
        self.states += 1;
        self.deeper += u64::from(path.len() > 1);
        let is_asked_for = plan
            .only
            .as_ref()
            .is_some_and(|only| only.len() > path.len());
        let goes_deeper = plan.levels.len() > path.len()
            && self.deeper < plan.deeper_max
            && (is_asked_for || hash.is_multiple_of(plan.deeper_one_in[path.len() - 1]));
        if !goes_deeper && plan.only.is_none() {
            match recover_once(image, allowed, expected) {
                Ok(sites) => self.sites.extend(sites.iter()),
                Err(reason) => {
                    let path = path.clone();
                    self.failure = Some(Failure { path, reason });
                }
            }
            return;
        }
        let booted = SimDisk::boot(image, disk.ordering);
        booted.skip_sync(plan.skipped);
        let recovered = recover(&booted, allowed, expected, goes_deeper);
        self.sites.extend(booted.sync_sites());
        match recovered {
            Ok(None) => {}
            Ok(Some((trace, expected))) => self.level(&trace, &expected, plan, path),
            Err(reason) => {
                let path = path.clone();
                self.failure = Some(Failure { path, reason });
            }
        }
    }
}

/// Crashes the making of a store at every point. Making it again gives an empty store.
pub fn explore_making(
    (ordering, has_log_elsewhere): (Ordering, bool),
    bounds: Bounds,
    skipped: Option<Site>,
) -> Explored {
    let mut explored = Explored::default();
    let disk = SimDisk::new();
    if has_log_elsewhere {
        disk.add_file_system();
    }
    disk.set_ordering(ordering);
    disk.skip_sync(skipped);
    disk.start_trace();
    make_store(&disk).expect("a fresh disk takes a store");
    explored.sites.extend(disk.sync_sites());
    let trace = disk.take_trace();
    let mut disk = trace.start.clone();
    for (position, event) in trace.events.iter().enumerate() {
        event.replay(&mut disk);
        explored.points += 1;
        for (number, keep) in choices(&disk, bounds, 0).iter().enumerate() {
            let image = disk.crash(keep);
            if !explored.seen.insert((image.hash(), 0)) {
                continue;
            }
            explored.states += 1;
            if let Err(reason) = make_again(&SimDisk::boot(image, ordering), skipped) {
                let path = vec![(position, number)];
                explored.failure = Some(Failure { path, reason });
                return explored;
            }
        }
    }
    explored
}

/// Makes a store where a crash has left part of one, and checks that a further crash does not lose
/// it.
fn make_again(disk: &SimDisk, skipped: Option<Site>) -> Result<(), String> {
    disk.skip_sync(skipped);
    make_store(disk).map_err(|error| format!("made again: {error}"))?;
    let crashed = SimDisk::boot(disk.crash(false), Ordering::Least);
    let (store, _) = open(&crashed).map_err(|error| format!("opened: {error}"))?;
    match store.status().sequence.0 {
        0 => Ok(()),
        sequence => Err(format!("a new store has {sequence} commits")),
    }
}

/// Starts the program again on a disk that has failed, and crashes the recovery
/// that follows.
pub(crate) fn restart(disk: &SimDisk, expected: &[Expected], plan: &Plan) -> Result<(), String> {
    let allowed: Vec<usize> = (0..expected.len()).collect();
    let mut explored = Explored::default();
    if let Some((trace, expected)) = recover(disk, &allowed, expected, true)? {
        explored.level(&trace, &expected, plan, &mut Vec::new());
    }
    match explored.failure {
        Some(failure) => Err(format!("{:?}: {}", failure.path, failure.reason)),
        None => Ok(()),
    }
}
