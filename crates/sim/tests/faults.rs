//! Every error at every call. A commit fails and can be tried again, or it succeeds, or the store
//! refuses further work until it is recovered. In every case the base is whole. A failure names the
//! workload, the call and the error.

#![cfg(test)]

mod support;

use atomdir_disk::Errno;
use atomdir_sim::{
    AfterFailedSync, Death, Fault, Obstructed, Step, Struck, Workload, damage_each_byte,
    disturb_commit, disturb_equal, disturb_recovery, obstruct_commit, workloads,
};
use support::in_parallel;

/// Makes a fault from the number of the first call, and how many calls after it the fault strikes.
type Make = fn(u64, u64) -> Fault;
type Disturb = fn(&Workload, &dyn Fn(u64) -> Fault, AfterFailedSync) -> Result<Struck, String>;

fn error_at_one_call(first: u64, number: u64) -> Fault {
    Fault::Fails {
        call: first + number,
        errno: Errno::IO,
    }
}

fn full_from_one_call(first: u64, number: u64) -> Fault {
    Fault::Full {
        call: first + number,
    }
}

fn clock_back_at_one_call(first: u64, number: u64) -> Fault {
    Fault::Clock {
        call: first + number,
        seconds: -3600,
    }
}

fn clock_ahead_at_one_call(first: u64, number: u64) -> Fault {
    Fault::Clock {
        call: first + number,
        seconds: 3600,
    }
}

fn strike_every_call(disturb: Disturb, make: Make) {
    let all = workloads::kinds().into_iter().chain(workloads::sequences());
    let all: Vec<Workload> = all
        .filter(|workload| matches!(workload.steps.last(), Some(Step::Commit(_))))
        .collect();
    let struck = strike_every_call_of(&all, disturb, make);
    println!("{struck} faults in {} workloads", all.len());
    assert!(struck > 1_000);
}

/// Strikes each call once, and each sync a second time, after which programs read the disk.
fn strike_every_call_of(all: &[Workload], disturb: Disturb, make: Make) -> u64 {
    let struck = in_parallel(all, |workload| {
        for number in 0.. {
            for after in [AfterFailedSync::Written, AfterFailedSync::Durable] {
                match disturb(workload, &|first| make(first, number), after) {
                    Ok(Struck::Nothing) => return number,
                    Ok(Struck::Call) => break,
                    Ok(Struck::Sync) => {}
                    Err(reason) => panic!(
                        "{}: {:?} ({after:?}): {reason}",
                        workload.name,
                        make(0, number)
                    ),
                }
            }
        }
        0
    });
    struck.iter().sum()
}

fn commit(
    workload: &Workload,
    fault: &dyn Fn(u64) -> Fault,
    after: AfterFailedSync,
) -> Result<Struck, String> {
    disturb_commit(workload, fault, after)
}

fn recovery(
    workload: &Workload,
    fault: &dyn Fn(u64) -> Fault,
    after: AfterFailedSync,
) -> Result<Struck, String> {
    disturb_recovery(workload, Death::Machine, fault, after)
}

fn restart(
    workload: &Workload,
    fault: &dyn Fn(u64) -> Fault,
    after: AfterFailedSync,
) -> Result<Struck, String> {
    disturb_recovery(workload, Death::Process, fault, after)
}

#[test]
fn io_error_at_any_call_of_a_commit_is_handled() {
    strike_every_call(commit, error_at_one_call);
}

/// A failed flush of what an outside writer has made as well poisons the store.
#[test]
fn io_error_at_any_call_of_a_commit_that_finds_equal_objects_is_handled() {
    let all = workloads::kinds().into_iter();
    let all: Vec<Workload> = all
        .filter(|workload| matches!(workload.steps.last(), Some(Step::EqualUnflushed { .. })))
        .collect();
    let disturb = |workload: &Workload, fault: &dyn Fn(u64) -> Fault, after| {
        disturb_equal(workload, fault, after)
    };
    let struck = strike_every_call_of(&all, disturb, error_at_one_call);
    assert!(struck > 100, "{struck}");
}

/// An obstacle in the base meets each call that applies a commit, one at a
/// time.
#[test]
fn obstacle_at_any_call_of_a_commit_stalls_or_refuses_it() {
    let all = workloads::kinds().into_iter().chain(workloads::sequences());
    let all: Vec<Workload> = all
        .filter(|workload| matches!(workload.steps.last(), Some(Step::Commit(_))))
        .collect();
    let stalled = in_parallel(&all, |workload| {
        let mut stalled = 0;
        for number in 0.. {
            match obstruct_commit(workload, number) {
                Ok(Obstructed::NotMet) => break,
                Ok(Obstructed::Elsewhere) => {}
                Ok(Obstructed::Stalled) => stalled += 1,
                Err(reason) => panic!("{}: call {number}: {reason}", workload.name),
            }
        }
        stalled
    });
    let stalled: u64 = stalled.iter().sum();
    println!("{stalled} times stalled in {} workloads", all.len());
    assert!(stalled > 500);
}

#[test]
fn io_error_at_any_call_of_a_recovery_is_handled() {
    strike_every_call(recovery, error_at_one_call);
    strike_every_call(restart, error_at_one_call);
}

#[test]
fn full_disk_from_any_call_of_a_commit_is_handled() {
    strike_every_call(commit, full_from_one_call);
}

#[test]
fn full_disk_from_any_call_of_a_recovery_is_handled() {
    strike_every_call(recovery, full_from_one_call);
}

#[test]
fn clock_change_at_any_call_of_a_commit_is_harmless() {
    strike_every_call(commit, clock_back_at_one_call);
    strike_every_call(commit, clock_ahead_at_one_call);
}

#[test]
fn damage_to_any_byte_of_header_or_log_is_detected() {
    let all = workloads::sequences();
    let three = all.iter().find(|workload| workload.name == "three commits");
    let three = three.expect("the workload is there");
    for keeps_mark in [false, true] {
        let bytes = damage_each_byte(three, keeps_mark);
        let bytes = bytes.unwrap_or_else(|reason| panic!("{reason} (mark: {keeps_mark})"));
        println!("{bytes} bytes damaged in turn");
        assert!(bytes > 500);
    }
}
