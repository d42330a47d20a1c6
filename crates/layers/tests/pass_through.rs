//! The engine on a layer: the disk's contract, crashes at every call, failures, and what is counted.

#![cfg(test)]

mod support;

#[path = "../../disk/src/contract/mod.rs"]
mod contract;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use atomdir_disk::{
    Access, Disk, Errno, Extent, Kind, LinuxDisk, Name, NewNode, Owner, RenameMode, Result, Stat,
    Times, Timestamp,
};
use atomdir_layers::{Call, PassThrough};
use atomdir_sim::SimDisk;
use atomdir_testing::Scratch;
use contract::Abilities;
use support::{commit_twice, make_store, open, recovered};

#[test]
fn keeps_the_contract_over_the_simulated_disk() {
    let below = SimDisk::new();
    let abilities = Abilities {
        privileged: true,
        user_xattrs: true,
        large_directory_entries: 300,
    };
    let disk = PassThrough::new(below.clone());
    contract::check(&disk, &below.root(), abilities);
    assert!(disk.counts().of(Call::Rename) > 0);
}

#[test]
fn keeps_the_contract_over_linux() {
    let scratch = Scratch::new("pass-through");
    let root = LinuxDisk::open_root(scratch.path()).expect("a directory that was just made");
    let abilities = Abilities {
        privileged: rustix::process::geteuid().is_root(),
        user_xattrs: true,
        large_directory_entries: 300,
    };
    contract::check(&PassThrough::new(LinuxDisk::new()), &root, abilities);
}

#[test]
fn counts_each_call_that_the_engine_makes() {
    let below = SimDisk::new();
    make_store(&below);
    let disk = PassThrough::new(below.clone());
    let counts = disk.counts();
    let before = below.calls();
    let store = open(disk, &below).expect("nothing fails");
    commit_twice(&store).expect("nothing fails");
    assert!(counts.of(Call::Create) > 0 && counts.of(Call::SyncData) >= 2);
    // All that the simulated disk has counted, except that this test opened the control directory, passed
    // through the layer. It does not count calls that mean nothing to it.
    assert!(counts.total() >= below.calls() - before - 1);
    store.close().expect("nothing fails");
    assert_eq!(recovered(&below), [b"first".to_vec(), b"second".to_vec()]);
}

/// The process dies at each call in turn: that call and all later ones fail. Then the machine dies,
/// with all that was not flushed kept, or lost. What a commit has returned for must be there.
#[test]
fn crash_at_any_call_keeps_whole_commits() {
    let mut crashes = 0;
    for keeps_all in [true, false] {
        for calls in 0.. {
            let below = SimDisk::new();
            make_store(&below);
            let left = Arc::new(AtomicI64::new(calls));
            let dies = left.clone();
            let disk = PassThrough::with_hook(below.clone(), move |_| {
                match dies.fetch_sub(1, SeqCst) <= 0 {
                    true => Err(Errno::IO),
                    false => Ok(()),
                }
            });
            let done = match open(disk, &below) {
                Ok(store) => commit_twice(&store).unwrap_or_else(|done| done),
                Err(_) => 0,
            };
            let found = recovered(&SimDisk::boot(
                below.crash(keeps_all),
                atomdir_sim::Ordering::Least,
            ));
            assert!(
                found.len() >= done && found.len() <= 2,
                "{calls} calls: {found:?}"
            );
            for (contents, wanted) in found.iter().zip([&b"first"[..], b"second"]) {
                assert_eq!(contents, wanted, "{calls} calls");
            }
            crashes += 1;
            if done == 2 && left.load(SeqCst) > 0 {
                break;
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn a_failed_flush_surfaces_as_an_error_of_the_commit() {
    let below = SimDisk::new();
    make_store(&below);
    let fails = Arc::new(AtomicI64::new(0));
    let hook = fails.clone();
    let disk = PassThrough::with_hook(below.clone(), move |call| {
        match call.is_sync() && hook.load(SeqCst) == 1 {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    });
    let store = open(disk, &below).expect("nothing fails yet");
    fails.store(1, SeqCst);
    assert_eq!(commit_twice(&store), Err(0));
    fails.store(0, SeqCst);
    // The store is poisoned until it is recovered.
    assert_eq!(commit_twice(&store), Err(0));
}
