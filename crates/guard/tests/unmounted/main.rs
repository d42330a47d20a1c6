//! The guard without a mount: programs are calls of its file system.

mod histories;
mod model;
mod program;
