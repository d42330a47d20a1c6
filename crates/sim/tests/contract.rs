//! The simulated disk keeps the contract that every disk must keep.

#![cfg(test)]

// Included, since a feature of the disk's crate for it would have the whole tree built once more
// wherever a package is built alone, as the Python package is.
#[path = "../../disk/src/contract/mod.rs"]
mod contract;

use atomdir_disk::{
    Access, Disk, Errno, Extent, Kind, Name, NewNode, Owner, RenameMode, Result, Stat, Times,
    Timestamp,
};
use atomdir_sim::SimDisk;
use contract::Abilities;

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
