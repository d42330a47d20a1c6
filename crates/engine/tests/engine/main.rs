//! The engine's tests, in one program: each program would compile the engine anew for
//! the disks it is tested on. Those that measure the process itself are programs of their
//! own beside this one.

mod cancelled;
mod carried_pages;
mod contested_names;
mod crash;
mod creation;
mod exchange;
mod freeze;
mod group;
mod held_space;
mod histories;
mod history;
mod history_age;
mod history_costs;
mod history_shares;
mod lazy;
mod listed_changes;
mod lock_waits;
mod log_growth;
mod merges;
mod model;
mod names_of_one_file;
mod nesting;
mod not_surviving;
mod others;
mod outside_late;
mod outside_moves;
mod parts;
mod past;
mod permissions;
mod privileges;
mod reading;
mod refresh;
mod replaced;
mod restore;
mod serializable;

mod set_aside;
mod several_names;
mod siblings;
mod stalled;
mod store_lock;
mod subdirectories;
mod support;
mod survival;
mod transaction_ids;
mod undo;
mod undo_conflicts;
mod undo_histories;
mod undo_kept;
mod undo_repeated;
mod undo_returned;
mod undo_rewritten;
