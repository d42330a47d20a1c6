//! Handles messages that the service sends without a request while a command runs.

use super::native;
use crate::context::Context;
use crate::ended;
use crate::enter::{self, Tree};
use atomdir::client::{Connection, Notice, Transaction};

/// Acts on messages that the service has sent while a command runs. False if the service has gone,
/// or the transaction cannot be committed any more.
pub(super) fn hear(
    context: &Context,
    connection: &Connection,
    inside: (&Transaction, &Tree),
) -> bool {
    let notice = connection.receive_notice();
    notice.is_some_and(|notice| act_on(notice, context, connection, inside))
        && hear_missed(context, connection, inside)
}

/// Like [`hear`], for messages that the service has sent before its reply to a request.
pub(super) fn hear_missed(
    context: &Context,
    connection: &Connection,
    inside: (&Transaction, &Tree),
) -> bool {
    while let Some(notice) = connection.missed_notice() {
        if !act_on(notice, context, connection, inside) {
            return false;
        }
    }
    true
}

fn act_on(
    notice: Notice,
    context: &Context,
    connection: &Connection,
    (transaction, view): (&Transaction, &Tree),
) -> bool {
    match (notice, view) {
        (Notice::Ended(ended), _) => {
            ended::tell_at_once(&ended, transaction.id, context.output);
            true
        }
        (Notice::Merge(nested), Tree::Native(overlay)) => {
            native::merge(context, connection, (transaction.id, overlay), nested)
        }
        (Notice::Lend(_, socket), Tree::Native(overlay)) => {
            enter::lend(overlay, &socket);
            true
        }
        (Notice::Left(_), _) => true,
        (Notice::Leave(id), _) if id == transaction.id => {
            context.output.warn(format_args!(
                "the native view of transaction {id} has ended, and with it this command"
            ));
            false
        }
        (Notice::Leave(_), _) => true,
        _ => false,
    }
}
