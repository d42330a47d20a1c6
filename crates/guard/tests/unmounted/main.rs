//! The guard without a mount: programs are calls of its file system.

mod ends;
mod found;
mod histories;
mod model;
mod program;
mod remembered;
mod waits;
mod world;
mod writers;
