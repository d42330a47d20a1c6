//! Checks whether a level of isolation explains what concurrent transactions read and
//! wrote.
//!
//! The method is that of Adya ("Weak consistency", 1999) as Elle applies it
//! (Kingsbury and Alvaro, VLDB 2020): each value is written once, so the reads show
//! which transaction came before which, and a level forbids certain cycles. Here the
//! final state is known as well, so the order of all versions needs no inference.

mod cycles;
mod graph;

use std::collections::BTreeMap;
use std::fmt;

pub use graph::{Dependency, Edge};

/// What transactions read and write, by number. No value is written twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Holds one value, or none at first.
    Register(u32),
    /// Values are added at the end.
    List(u32),
    /// Values are added, in no order.
    Set(u32),
}

/// Every operation sees what its own transaction has done before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Read(Key, Vec<u64>),
    /// A write to a register. The transaction must have read it before.
    Write(Key, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    Aborted,
    /// The answer to the commit was lost.
    Unknown,
}

/// A transaction as its client saw it. All moments come from one clock. A transaction
/// that ended before another began must come before it.
#[derive(Debug, Clone)]
pub struct Transaction {
    pub name: String,
    pub operations: Vec<Operation>,
    pub outcome: Outcome,
    pub began: u64,
    /// When the client got the answer to its commit.
    pub ended: u64,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub transactions: Vec<Transaction>,
    /// The state after all transactions have ended.
    pub last: BTreeMap<Key, Vec<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Snapshot,
    Serializable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    /// A committed transaction read a value that was never committed.
    DirtyRead {
        reader: String,
        key: Key,
        value: u64,
    },
    /// A committed transaction read a state that the key never had, or did not have at that point
    /// of the transaction.
    ImpossibleRead {
        reader: String,
        key: Key,
        read: Vec<u64>,
    },
    /// A committed write is missing at the end.
    LostWrite {
        writer: String,
        key: Key,
        value: u64,
    },
    /// Two committed transactions replaced the same version.
    LostUpdate {
        writers: [String; 2],
        key: Key,
    },
    Cycle(Vec<Edge>),
}

impl fmt::Display for Anomaly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anomaly::Cycle(edges) => {
                writeln!(formatter, "a cycle:")?;
                for edge in edges {
                    writeln!(formatter, "    {edge}")?;
                }
                Ok(())
            }
            other => write!(formatter, "{other:?}"),
        }
    }
}

/// Returns the number of transactions that took part, if the level explains them all.
pub fn check(history: &History, level: Level) -> Result<usize, Anomaly> {
    let graph = graph::Graph::new(history)?;
    match cycles::forbidden(&graph, level) {
        Some(cycle) => Err(Anomaly::Cycle(cycle)),
        None => Ok(graph.transactions()),
    }
}

#[cfg(test)]
mod tests;
