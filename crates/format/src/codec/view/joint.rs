//! Which transaction of another store decides, in the begin of a view log.

use atomdir_types::{Partner, TransactionId};

use crate::primitives::{Reader, Result, Writer};

/// The begin's flag that says it.
pub(super) const IN_DOUBT: u8 = 64;

pub(super) fn flag(coordinator: Option<&Partner>) -> u8 {
    match coordinator {
        None => 0,
        Some(_) => IN_DOUBT,
    }
}

pub(super) fn put(writer: &mut Writer, coordinator: Option<&Partner>) {
    if let Some(coordinator) = coordinator {
        writer.bytes.extend_from_slice(&coordinator.store);
        writer.string(&coordinator.root);
        writer.number(coordinator.transaction.0);
    }
}

pub(super) fn take(reader: &mut Reader<'_>, flags: u8) -> Result<Option<Partner>> {
    if flags & IN_DOUBT == 0 {
        return Ok(None);
    }
    Ok(Some(Partner {
        store: reader.array()?,
        root: reader.string()?.to_vec(),
        transaction: TransactionId(reader.number()?),
    }))
}
