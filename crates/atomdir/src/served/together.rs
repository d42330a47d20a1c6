//! Transactions of several stores' services that are committed together.

use super::failure;
use super::session::ServedTransaction;
use crate::api::{BeginError, CommitError, StoreError};
use crate::client;
use crate::connection::Connection;
use crate::joint::{self, NotTogether, Side};
use atomdir_protocol::{Committed, Others};
use atomdir_types::sync;
use std::sync::MutexGuard;

/// Acts with the connections of all of them. Each set of transactions is always locked in the same order.
fn with_sides<T>(
    all: &[&ServedTransaction],
    act: impl FnOnce(&mut [Side<'_>]) -> T,
) -> Result<T, StoreError> {
    let mut slots: Vec<MutexGuard<'_, Option<Connection>>> = Vec::new();
    for one in all {
        one.store.opener.require()?;
        slots.push(sync::lock(&one.connection));
    }
    let sides = slots.iter_mut().zip(all).map(|(slot, one)| {
        Some(Side {
            connection: slot.as_mut()?,
            transaction: one.transaction.id,
        })
    });
    let mut sides = sides
        .collect::<Option<Vec<_>>>()
        .ok_or_else(super::session::has_ended)?;
    Ok(act(&mut sides))
}

pub(crate) fn link(all: &[&ServedTransaction]) -> Result<(), BeginError> {
    with_sides(all, joint::link)?.map_err(failure::begin)
}

/// After an error none is committed, and the place says which could not be.
pub(crate) fn commit_together(
    all: &[&ServedTransaction],
) -> Result<Vec<Committed>, (usize, CommitError)> {
    let committed = with_sides(all, |sides| {
        joint::commit_together(sides, None, Others::Refuse, &mut |_| {})
    });
    let committed = committed.map_err(|error| (0, CommitError::Store(error)))?;
    let committed =
        committed.map_err(|NotTogether { place, error }| (place, failure::commit(error)))?;
    for one in all {
        one.ended();
    }
    Ok(committed.into_iter().map(or_in_doubt).collect())
}

fn or_in_doubt(committed: Result<Committed, client::CommitError>) -> Committed {
    committed.unwrap_or_else(|error| Committed {
        stalled: Some(format!(
            "it is in doubt, and its service tries again: {error}"
        )),
        ..Committed::default()
    })
}
