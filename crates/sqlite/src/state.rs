//! The state of a connection: its databases, and the transaction that they share. The head of
//! `connection` lists the states.

use crate::abi::{self, LOCK_NONE, LOCK_RESERVED};
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::outer::Outer;
use crate::retry;
use crate::stores::Held;
use atomdir::{BeginError, Isolation, Sequence, SharedTransaction, Transaction};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) databases: BTreeMap<u64, Database>,
    pub(crate) opened: u64,
    pub(crate) transaction: Option<SharedTransaction>,
    /// How the transaction ended, while SQLite still holds locks.
    pub(crate) end: Option<End>,
    /// The super-journal whose removal commits the transaction.
    pub(crate) super_journal: Option<CString>,
    /// The outer transaction, which takes up SQLite's transactions.
    pub(crate) outer: Option<Arc<Outer>>,
    /// The address of SQLite's connection.
    pub(crate) address: usize,
    /// Conflicts since the last commit.
    pub(crate) tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As this commit, if it changed anything.
    Committed(Option<Sequence>),
    Failed,
}

/// Begins a transaction of the store.
pub(crate) fn begin(held: &Held) -> std::result::Result<Transaction, BeginError> {
    begin_labelled(held, b"sqlite")
}

pub(crate) fn begin_labelled(
    held: &Held,
    label: &[u8],
) -> std::result::Result<Transaction, BeginError> {
    let options = held.store().transaction();
    let options = options.isolation(Isolation::Serializable);
    let options = options.own_reads_only(true);
    options.label(label).begin()
}

impl State {
    pub(crate) fn committed_length(&self, id: u64) -> Option<u64> {
        let database = self.databases.get(&id)?;
        matches!(self.end, Some(End::Committed(_))).then_some(database.committed_length)
    }

    pub(crate) fn add(&mut self, database: Database) -> u64 {
        self.opened += 1;
        self.databases.insert(self.opened, database);
        self.opened
    }

    /// Refuses a lock if the same file is attached twice and one of the two writes. They share a
    /// transaction, so the commit would not find their conflict.
    pub(crate) fn refuse_own(&self, id: u64, level: c_int) -> Result<()> {
        let Some(this) = self.databases.get(&id) else {
            return Err(closed());
        };
        let in_the_way = self.databases.iter().any(|(other, database)| {
            *other != id
                && database.path == this.path
                && (database.lock >= LOCK_RESERVED
                    || level >= LOCK_RESERVED && database.lock != LOCK_NONE)
        });
        match in_the_way {
            true => Err(Failure::new(
                abi::BUSY,
                "the database is attached twice; detach one of the two",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn commit(&mut self) -> Result<()> {
        let transaction = self.transaction.as_ref().ok_or_else(ended)?;
        for database in self.databases.values_mut() {
            if database.lock != LOCK_NONE && !database.is_prepared && self.outer.is_none() {
                database.note_left(transaction)?;
            }
            database.close_file();
            database.is_prepared = false;
        }
        self.super_journal = None;
        if self.outer.is_some() {
            return Ok(());
        }
        let failure = match transaction.commit() {
            Ok(receipt) => {
                self.tries = 0;
                self.transaction = None;
                self.end = Some(End::Committed(receipt.sequence()));
                return Ok(());
            }
            Err(error) => Failure::of_commit(&error),
        };
        if failure.code != abi::BUSY_SNAPSHOT && failure.code != abi::FULL {
            self.transaction = None;
            self.end = Some(End::Failed);
        }
        Err(failure)
    }

    /// Begins another transaction for the statements that still read after a commit. They have read
    /// the state after that commit, so they can go on only if nothing was committed since.
    pub(crate) fn go_on(&mut self, held: &Held) -> Result<()> {
        let Some(End::Committed(Some(sequence))) = self.end else {
            return Err(ended());
        };
        let is_ending = |database: &Database| database.lock >= LOCK_RESERVED;
        if self.databases.values().any(is_ending) {
            return Err(ended());
        }
        let transaction = begin(held).map_err(|error| Failure::of_begin(&error))?;
        let transaction = SharedTransaction::from(transaction);
        let refreshed = transaction.refresh();
        if !refreshed.is_ok_and(|refreshed| refreshed.to == sequence) {
            return Err(ended());
        }
        for database in self.databases.values_mut() {
            if database.lock != LOCK_NONE && !database.go_on(&transaction)? {
                return Err(ended());
            }
        }
        self.transaction = Some(transaction);
        self.end = None;
        Ok(())
    }

    /// Turns a conflict into the error that makes SQLite run the statement again, if that is sound.
    pub(crate) fn run_again(&mut self, failure: Failure) -> Failure {
        let address = ptr::with_exposed_provenance_mut(self.address);
        let is_conflict = failure.code == abi::BUSY_SNAPSHOT && self.outer.is_none();
        if !is_conflict || !retry::may_run_again(address, self.tries) {
            self.tries = 0;
            return failure;
        }
        retry::pause(self.tries);
        self.tries += 1;
        Failure {
            code: abi::SCHEMA,
            ..failure
        }
    }

    /// Leaves the outer transaction if another connection has ended it.
    pub(crate) fn leave_ended(&mut self) {
        if self.outer.as_ref().is_some_and(|outer| outer.has_ended()) {
            self.outer = None;
        }
    }

    pub(crate) fn refuse_locked(&self) -> Result<()> {
        match self.transaction.is_none() && self.end.is_none() {
            true => Ok(()),
            false => Err(misuse(
                "a transaction of SQLite is already open; commit it or roll it back first",
            )),
        }
    }

    pub(crate) fn end_if_idle(&mut self) {
        let is_idle = |database: &Database| database.lock == LOCK_NONE;
        if self.databases.values().all(is_idle) {
            for database in self.databases.values_mut() {
                database.close_file();
            }
            self.transaction = None;
            self.end = None;
            self.super_journal = None;
        }
    }
}

pub(crate) fn misuse(message: &str) -> Failure {
    Failure::new(abi::ERROR, message)
}

pub(crate) fn closed() -> Failure {
    Failure::new(abi::IOERR, "the database is not open")
}

pub(crate) fn ended() -> Failure {
    Failure::new(
        abi::BUSY_SNAPSHOT,
        "the transaction of this statement has ended; run the statement again",
    )
}
