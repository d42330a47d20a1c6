//! What a transaction is to those of other stores, in the begin of its view log.

use atomdir_types::{Coordinator, Joint, TransactionId};

use crate::Problem;
use crate::primitives::{Reader, Result, Writer};

const COORDINATES: u8 = 32;
const IN_DOUBT: u8 = 64;

/// Those of the begin's flags that say it.
pub(super) const FLAGS: u8 = COORDINATES | IN_DOUBT;

pub(super) fn flag(joint: Option<&Joint>) -> u8 {
    match joint {
        None => 0,
        Some(Joint::Coordinates) => COORDINATES,
        Some(Joint::InDoubt(_)) => IN_DOUBT,
    }
}

pub(super) fn put(writer: &mut Writer, joint: Option<&Joint>) {
    if let Some(Joint::InDoubt(coordinator)) = joint {
        writer.bytes.extend_from_slice(&coordinator.store);
        writer.string(&coordinator.root);
        writer.number(coordinator.transaction.0);
    }
}

pub(super) fn take(reader: &mut Reader<'_>, flags: u8) -> Result<Option<Joint>> {
    Ok(match flags & FLAGS {
        0 => None,
        COORDINATES => Some(Joint::Coordinates),
        IN_DOUBT => Some(Joint::InDoubt(Coordinator {
            store: reader.array()?,
            root: reader.string()?.to_vec(),
            transaction: TransactionId(reader.number()?),
        })),
        _ => return reader.fail(Problem::Tag(flags)),
    })
}
