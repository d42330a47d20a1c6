//! A simulated disk, and the crashes and faults that the engine must survive
//! on it.
//!
//! [`SimDisk`] is the whole [`atomdir_disk::Disk`] in memory. Whatever no sync
//! has covered is pending: a crash keeps, loses or tears it in every way that
//! the contract of the trait allows. Nothing in it is random or depends on
//! time, so a state that was found once can be found again.
//!
//! Modules
//! - `disk`, `world`, `image`, `contents`: the simulated disk; its state; the tree of one state; the
//!   contents of files
//! - `effect`, `choice`: what a crash may keep of each call; which of these are tried
//! - `trace`, `explore`, `recovered`: records a run; crashes it at every point; recovers and compares
//! - `fault`, `disturb`: faults of the disk while the engine runs; workloads that meet them
//! - `workload`, `workloads`, `random`, `expected`: a few commits in a row; the list of them; random
//!   ones; what a crash may leave of them
//! - `operation`, `transactions`, `opening`: what the steps of workloads do: operations on a tree;
//!   other uses of a transaction; opening stores and beginning transactions
//! - `cancelled`, `obstruct`, `group`, `unflushed`, `survivors`, `damage`, `overlay`: particular
//!   circumstances: commits that are cancelled; those that are stalled; those that share a flush; those
//!   of what others have made, too; transactions that survive; damaged control files; native views
//! - `tree`, `hash`: what a transaction promises to keep of a tree; a hash

mod cancelled;
mod choice;
mod contents;
mod damage;
mod disk;
mod disturb;
mod effect;
mod expected;
mod explore;
mod fault;
mod group;
mod hash;
mod image;
mod obstruct;
mod opening;
mod operation;
mod overlay;
mod random;
mod recovered;
mod survivors;
mod trace;
mod transactions;
mod tree;
mod unflushed;
mod workload;
pub mod workloads;
mod world;

pub use cancelled::Cancelled;
pub use choice::Bounds;
pub use damage::{AtRest, damage_each_byte};
pub use disk::{Handle, SimDisk};
pub use disturb::{Death, disturb_commit, disturb_equal, disturb_recovery};
pub use effect::Ordering;
pub use expected::Expected;
pub use explore::{
    Explored, Failure, KILLED, Plan, explore, explore_killed_recoveries, explore_kills,
    explore_lost_writes, explore_making,
};
pub use fault::{AfterFailedSync, Fault, Struck};
pub use group::Moment;
pub use image::Image;
pub use obstruct::{Obstructed, obstruct_commit};
pub use operation::{Node, Operation};
pub use survivors::{Surviving, Survivor, SurvivorAct};
pub use trace::Trace;
pub use transactions::{Act, LandedPart, Read, Reader};
pub use tree::Tree;
pub use workload::{Run, Step, Workload};
pub use world::Site;
