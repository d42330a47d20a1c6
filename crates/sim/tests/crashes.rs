//! Crashes at every call of the workloads and of their recoveries. The recovered base is
//! a prefix of the commits that includes every durable one.
//! `ATOMDIR_STATE`, as a failure prints it, replays one state; `ATOMDIR_SEED`
//! replays one of the random workloads.

#![cfg(test)]

mod support;

use std::panic;

use atomdir_sim::{
    AfterFailedSync, Bounds, Expected, Explored, Ordering, Plan, Trace, Workload, explore,
    explore_killed_recoveries, explore_kills, explore_lost_writes, workloads,
};
use atomdir_testing::pick;
use support::{State, in_parallel, kill_plan, plan, seeds};

type Explore = fn(&Trace, &[Expected], &Plan) -> Explored;

fn check(workload: &Workload, ordering: Ordering, explore: Explore, mut plan: Plan) -> Explored {
    let asked = State::asked_for();
    if let Some(asked) = &asked {
        if asked.workload != workload.name || asked.ordering != ordering {
            return Explored::default();
        }
        plan.only = Some(asked.path.clone());
    }
    let run = workload.run(ordering, None);
    let explored = explore(&run.trace, &run.expected, &plan);
    if let Some(failure) = &explored.failure {
        let state = State {
            workload: workload.name.clone(),
            ordering,
            path: failure.path.clone(),
        };
        panic!("ATOMDIR_STATE='{state}'\n{}", failure.reason);
    }
    println!(
        "{:7} states: {} ({ordering:?})",
        explored.states, workload.name
    );
    explored
}

fn check_all(workloads: &[Workload], explore: Explore, plan: &Plan, states_min: u64) {
    let jobs = workloads.iter().flat_map(|workload| {
        let orderings = [Ordering::Least, Ordering::Journal];
        orderings.map(|ordering| (workload, ordering))
    });
    let jobs: Vec<_> = jobs.collect();
    let explored = in_parallel(&jobs, |(workload, ordering)| {
        check(workload, *ordering, explore, plan.clone())
    });
    let states: u64 = explored.iter().map(|explored| explored.states).sum();
    let points: u64 = explored.iter().map(|explored| explored.points).sum();
    println!("{states} distinct states after {points} crash points, all recovered");
    if State::asked_for().is_none() && std::env::var_os("ATOMDIR_SEED").is_none() {
        assert!(states >= states_min, "only {states} states");
    }
}

#[test]
fn any_crash_leaves_a_prefix_of_the_commits() {
    let mut all = workloads::kinds();
    all.extend(workloads::sequences());
    check_all(&all, explore, &plan(), pick(100_000, 1_000_000));
}

#[test]
fn any_crash_around_special_commits_leaves_a_prefix() {
    let all = workloads::transactions();
    check_all(&all, explore, &plan(), pick(60_000, 600_000));
}

#[test]
fn after_any_crash_kept_commits_can_be_undone() {
    let all = workloads::kept();
    let bounds = |exhaustive, random| Bounds { exhaustive, random };
    // Fewer states, since each is compared twice more, after undoing commits. The quick form has all
    // crash points; what may be lost at each is tried with other workloads above.
    let fewer = Plan {
        levels: vec![
            bounds(pick(2, 7), pick(2, 20)),
            bounds(pick(1, 3), 2),
            bounds(1, 1),
        ],
        deeper_one_in: pick(vec![500, 800], vec![40, 300]),
        ..plan()
    };
    check_all(&all, explore, &fewer, pick(5_000, 100_000));
    let fewer = Plan {
        deeper_one_in: vec![pick(120, 8)],
        ..kill_plan(None)
    };
    check_all(&all, explore_kills, &fewer, pick(1_000, 10_000));
}

/// Until the caller gets the commit's error, a crash leaves the whole commit or none of it. From
/// then on it never appears.
#[test]
fn a_crash_around_a_cancelled_commit_leaves_all_or_nothing() {
    let all = workloads::cancelled().into_iter().step_by(pick(3, 1));
    let all: Vec<Workload> = all.collect();
    let bounds = |exhaustive, random| Bounds { exhaustive, random };
    let fewer = Plan {
        levels: vec![
            bounds(pick(2, 8), pick(2, 30)),
            bounds(pick(1, 3), 2),
            bounds(1, 1),
        ],
        deeper_one_in: pick(vec![1_200, 800], vec![16, 200]),
        ..plan()
    };
    check_all(&all, explore, &fewer, pick(2_000, 50_000));
    let fewer = Plan {
        deeper_one_in: vec![pick(120, 8)],
        ..kill_plan(None)
    };
    check_all(&all, explore_kills, &fewer, pick(500, 10_000));
}

#[test]
fn survivor_shows_its_last_call_after_a_kill_and_its_last_flush_after_a_crash() {
    let all = workloads::survivors();
    let bounds = |exhaustive, random| Bounds { exhaustive, random };
    let fewer = Plan {
        levels: vec![
            bounds(pick(5, 9), pick(5, 60)),
            bounds(pick(2, 4), pick(2, 6)),
            bounds(1, 1),
        ],
        deeper_one_in: pick(vec![120, 600], vec![16, 300]),
        ..plan()
    };
    check_all(&all, explore, &fewer, pick(3_000, 30_000));
    let fewer = Plan {
        deeper_one_in: vec![pick(40, 2)],
        ..kill_plan(None)
    };
    check_all(&all, explore_kills, &fewer, pick(1_000, 5_000));
}

#[test]
fn power_cut_after_a_killed_program_leaves_a_prefix() {
    let all = workloads::sequences();
    check_all(&all, explore_kills, &kill_plan(None), pick(15_000, 300_000));
    let all = workloads::transactions();
    let fewer = Plan {
        deeper_one_in: vec![pick(80, 16)],
        ..kill_plan(None)
    };
    check_all(&all, explore_kills, &fewer, pick(15_000, 100_000));
}

/// Writing clears a file's set-id bits and capabilities. A recovery that dies while it rewrites
/// contents must keep those that an outside writer has set.
#[test]
fn outside_privileges_survive_kills_of_program_and_recovery() {
    let each = Plan {
        deeper_one_in: vec![1],
        ..kill_plan(None)
    };
    let all = workloads::privileged();
    check_all(&all, explore_killed_recoveries, &each, 1_000);
}

fn lost_writes(trace: &Trace, expected: &[Expected], plan: &Plan) -> Explored {
    explore_lost_writes(trace, expected, plan, AfterFailedSync::Written)
}

fn lost_writes_read_from_the_disk(trace: &Trace, expected: &[Expected], plan: &Plan) -> Explored {
    explore_lost_writes(trace, expected, plan, AfterFailedSync::Durable)
}

/// The kernel reports a failed write only once, to the next caller of sync.
#[test]
fn recovery_rewrites_contents_lost_by_failed_writeback() {
    let mut all = workloads::kinds();
    all.extend(workloads::sequences());
    let each = Plan {
        deeper_one_in: vec![1],
        ..kill_plan(None)
    };
    check_all(&all, lost_writes, &each, 9_000);
    check_all(&all, lost_writes_read_from_the_disk, &each, 9_000);
}

#[test]
fn any_crash_of_random_commits_leaves_a_prefix() {
    let all: Vec<Workload> = seeds(pick(8, 100)).map(workloads::random).collect();
    check_all(&all, explore, &plan(), pick(15_000, 500_000));
}

#[test]
fn interrupted_init_can_be_repeated() {
    let orderings = [Ordering::Least, Ordering::Journal];
    for how in orderings
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let made = atomdir_sim::explore_making(how, plan().levels[0], None);
        assert!(made.failure.is_none(), "{how:?}: {:?}", made.failure);
        println!(
            "{} distinct states while a store is made {how:?}",
            made.states
        );
        assert!(made.states > 10);
    }
}
/// The base and the log are on two file systems, of which each loses what was not flushed on it.
#[test]
fn any_crash_of_a_store_with_its_log_elsewhere_leaves_a_prefix() {
    let mut all = workloads::kinds();
    all.extend(workloads::sequences());
    all.extend(workloads::transactions());
    all.extend(workloads::survivors());
    let random = seeds(pick(4, 100)).map(workloads::random);
    all.extend(random);
    let all = all.into_iter().step_by(pick(4, 1));
    let all: Vec<Workload> = all.map(Workload::with_log_elsewhere).collect();
    let fewer = Plan {
        levels: vec![
            Bounds {
                exhaustive: pick(3, 9),
                random: pick(2, 100),
            },
            Bounds {
                exhaustive: pick(2, 6),
                random: pick(2, 20),
            },
            Bounds {
                exhaustive: 1,
                random: 1,
            },
        ],
        deeper_one_in: pick(vec![600, 800], vec![16, 100]),
        ..plan()
    };
    check_all(&all, explore, &fewer, pick(5_000, 300_000));
    let kills = Plan {
        deeper_one_in: vec![pick(80, 8)],
        ..kill_plan(None)
    };
    check_all(&all, explore_kills, &kills, pick(500, 50_000));
}

/// Without faults: each run compares every view and the base with a plain disk.
#[test]
fn random_commits_equal_the_same_changes_on_a_plain_disk() {
    let seeds: Vec<u64> = seeds(pick(600, 10_000)).collect();
    in_parallel(&seeds, |seed| {
        let run = panic::catch_unwind(|| drop(workloads::random(*seed).run(Ordering::Least, None)));
        assert!(run.is_ok(), "ATOMDIR_SEED={seed}");
    });
}
