//! Changing the attributes of an object in a transaction.

use super::session::EmbeddedTransaction;
use crate::api::session::{AttributeChange, Result};
use atomdir_engine as engine;
use atomdir_engine::NodeId;

pub(super) fn set_attributes(
    session: &EmbeddedTransaction,
    node: NodeId,
    change: &AttributeChange,
) -> Result<()> {
    let engine = session.engine()?;
    let object = engine.attributes(node)?;
    let rights = &session.rights;
    let allowed = rights.require_change(engine, node, &object, change)?;
    change_attributes(session, node, &allowed)
}

/// Changes attributes without a check.
pub(super) fn change_attributes(
    session: &EmbeddedTransaction,
    node: NodeId,
    change: &AttributeChange,
) -> Result<()> {
    let change = engine::SetAttributes {
        mode: change.mode,
        user: change.user,
        group: change.group,
        length: change.length,
        accessed: change.accessed,
        modified: change.modified,
        kill_set_id: change.length.is_some() && !session.rights.is_privileged,
    };
    let engine = session.engine()?;
    engine
        .set_attributes(node, change, session.caller)
        .map(drop)
}
