//! The guard without a mount: programs are calls of its file system.

mod ends;
mod found;
mod histories;
mod model;
mod program;
mod waits;
mod world;
