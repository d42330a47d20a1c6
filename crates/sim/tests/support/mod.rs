//! Shared parts of the crash tests: bounds, replaying, threads.
#![allow(dead_code)] // each test uses a part of it

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};

use atomdir_sim::{Bounds, KILLED, Ordering, Plan, Site};
use atomdir_testing::pick;

/// The bounds of the test tier that is running.
pub fn plan() -> Plan {
    let bounds = |exhaustive, random| Bounds { exhaustive, random };
    Plan {
        levels: vec![
            bounds(pick(5, 9), pick(6, 60)),
            bounds(pick(2, 4), pick(2, 6)),
            bounds(1, 1),
        ],
        deeper_one_in: pick(vec![200, 400], vec![16, 300]),
        deeper_max: pick(1_000, 10_000),
        seed: 1,
        skipped: None,
        only: None,
    }
}

/// Bounds for the crashes of recoveries that follow a kill.
pub fn kill_plan(skipped: Option<Site>) -> Plan {
    let bounds = Bounds {
        exhaustive: pick(2, 4),
        random: pick(2, 6),
    };
    Plan {
        levels: vec![bounds; 2],
        deeper_one_in: vec![pick(10, 2)],
        deeper_max: u64::MAX,
        seed: 1,
        skipped,
        only: None,
    }
}

/// One crash of one workload, and then of its recoveries.
pub struct State {
    pub workload: String,
    pub ordering: Ordering,
    pub path: Vec<(usize, usize)>,
}

impl State {
    /// The state that `ATOMDIR_STATE` names.
    pub fn asked_for() -> Option<State> {
        let text = std::env::var("ATOMDIR_STATE").ok()?;
        let mut parts = text.split('/');
        let workload = parts.next()?.to_owned();
        let ordering = match parts.next()? {
            "least" => Ordering::Least,
            _ => Ordering::Journal,
        };
        let crash = |part: &str| {
            let (position, choice) = part.split_once('.').expect("POSITION.CHOICE");
            let number = |text: &str| text.parse().expect("a number");
            match choice {
                "killed" => (number(position), KILLED),
                choice => (number(position), number(choice)),
            }
        };
        Some(State {
            workload,
            ordering,
            path: parts.map(crash).collect(),
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ordering = match self.ordering {
            Ordering::Least => "least",
            Ordering::Journal => "journal",
        };
        write!(formatter, "{}/{ordering}", self.workload)?;
        for (position, choice) in &self.path {
            match *choice {
                KILLED => write!(formatter, "/{position}.killed")?,
                choice => write!(formatter, "/{position}.{choice}")?,
            }
        }
        Ok(())
    }
}

/// The seeds of a test: the requested one, or the first `count`.
pub fn seeds(count: u64) -> Box<dyn Iterator<Item = u64>> {
    match std::env::var("ATOMDIR_SEED") {
        Ok(seed) => Box::new(std::iter::once(seed.parse().expect("a number"))),
        Err(_) => Box::new(1..=count),
    }
}

/// Runs all jobs, as many at once as there are processors. The results have the order of the
/// jobs.
pub fn in_parallel<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Memory::Relaxed);
                    let Some(job) = jobs.get(index) else {
                        break;
                    };
                    let result = work(job);
                    let mut results = results.lock().expect("no other job has failed");
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no job has failed");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
