//! The simulated disk keeps the contract that every disk must keep.

#![cfg(test)]

use atomdir_disk::contract::{self, Abilities};
use atomdir_sim::SimDisk;

#[test]
fn the_simulated_disk_keeps_the_contract() {
    let disk = SimDisk::new();
    let abilities = Abilities {
        privileged: true,
        user_xattrs: true,
        large_directory_entries: 300,
    };
    contract::check(&disk, &disk.root(), abilities);
}
