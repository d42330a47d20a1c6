//! Tools of the end-to-end tests: the tree comparer, scratch directories,
//! guards that clean up, and the scenario harness. Nothing here knows how
//! Atomdir works inside; it drives the command and looks at the files.
//!
//! Environment: `ATOMDIR_BIN` is the binary under test; `ATOMDIR_TIER=full`
//! asks for the long forms; `ATOMDIR_SEED` replays a random test;
//! `ATOMDIR_TEST_DIR` is where scratch directories go; `ATOMDIR_KEEP=1` keeps
//! them; `ATOMDIR_SKIP_FILE` collects what was skipped; `ATOMDIR_BUILT=1` says that all
//! libraries have been built, so that tests need not build them.
//!
//! Modules
//! - `scenario`: the harness, which runs a program inside and outside a transaction and compares
//! - `tree`: a tree as a value, to compare two
//! - `history`: the checker of histories: whether an isolation level explains what was read
//! - `store`, `fixture`, `steps`: a store that is driven through the command; one in a scratch
//!   directory; several commits in it
//! - `command`, `waiting`, `terminal`, `again`: running programs; a command that waits in its view;
//!   one on a terminal; a test of this program once more
//! - `scratch`, `mounts`, `user`, `random`, `wait_until`: scratch directories, the mount table, other
//!   users, seeds, and polling
//! - `lease`: a lease that holds up whoever opens a file for writing
//! - `guard`: a guard over a store
//! - `loop_device`: a file system in a loop device
//! - `usage`: programs that use a file so that it must keep its inode
//! - `tier`, `skip`, `exit_code`: the forms of tests; tests that cannot run here; exit codes
//! - `documents`, `debian_source`: code in documents; programs of others, as sources

mod again;
mod command;
mod debian_source;
pub mod documents;
pub mod exit_code;
mod fixture;
mod guard;
pub mod history;
mod lease;
mod loop_device;
mod mounts;
mod random;
mod scenario;
mod scratch;
mod skip;
pub mod steps;
mod store;
mod terminal;
mod tier;
pub mod tree;
mod usage;
mod user;
mod wait_until;
mod waiting;

pub use again::{call_here, for_each_user, for_each_user_of_a_store, this_program};
pub use command::{
    Outcome, atomdir, atomdir_in, binary, capture_output, helper, script, shell, shell_as,
    system_command,
};
pub use debian_source::debian_source;
pub use fixture::{Fixture, Owner, for_each_owner, look};
pub use guard::Guard;
pub use lease::Lease;
pub use loop_device::LoopDevice;
pub use mounts::{Mount, mounts, unmount};
pub use random::Random;
pub use scenario::{Action, Scenario, copy_tree, moment_now};
pub use scratch::{Scratch, fresh_directory, quick_directory};
pub use skip::{
    cached, native_views_possible, only_in_full_tier, skip, tools_present, users_can_mount,
};
pub use store::{SERVICE_CHILDREN, Store, View, is_traced};
pub use terminal::OnTerminal;
pub use tier::{full_tier, pick};
pub use usage::{Usage, Using};
pub use user::{User, as_user};
pub use wait_until::{WAIT_UNTIL, look_long, wait_for, wait_until};
pub use waiting::Waiting;
