//! Reports what overlayfs has done otherwise in a native view than a plain directory would.

use super::Wish;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::explain::ExitCode;
use crate::output::quoted;
use atomdir::TransactionId;
use atomdir::client::{Deviation, DeviationKind, Transaction};

/// If a commit would leave the store otherwise, keeps the transaction open and fails. Prints a note
/// if it is kept anyway, or if programs may only have seen something else.
pub fn report(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    wish: Wish,
) -> Result<(), Error> {
    let of_outcome = |one: &&Deviation| one.kind.changes_outcome();
    let (changed, seen): (Vec<_>, Vec<_>) = transaction.deviations.iter().partition(of_outcome);
    if !seen.is_empty() && wish != Wish::Abort {
        context.output.note(format_args!(
            "{} (not with `--view exact`)",
            described(&owned(&seen))
        ));
    }
    match wish {
        _ if changed.is_empty() => Ok(()),
        Wish::Abort => Ok(()),
        Wish::Keep => {
            context.output.note(format_args!(
                "a commit would leave the store otherwise than the same command in a plain \
                 directory: {}",
                described(&owned(&changed))
            ));
            Ok(())
        }
        Wish::Commit => {
            connected.connection.keep(transaction.id)?;
            Err(Error::Deviations {
                transaction: transaction.id,
                deviations: owned(&changed),
            })
        }
    }
}

fn owned(deviations: &[&Deviation]) -> Vec<Deviation> {
    deviations.iter().copied().cloned().collect()
}

/// The first one of each kind, and how many there are.
pub fn described(deviations: &[Deviation]) -> String {
    let kinds = deviations.chunk_by(|one, next| one.kind == next.kind);
    let lines = kinds.filter_map(|kind| Some(of_kind(kind.first()?, kind.len() - 1)));
    lines.collect::<Vec<_>>().join("; ")
}

fn of_kind(first: &Deviation, more: usize) -> String {
    let path = quoted(&first.path);
    let more = match more {
        0 => String::new(),
        1 => " (and 1 other)".to_owned(),
        more => format!(" (and {more} others)"),
    };
    match first.kind {
        DeviationKind::CopyWithoutNames => format!(
            "overlayfs refused to move a directory, so it was copied, and {path}{more} is not the \
             file of its other names any more"
        ),
        DeviationKind::CopyWithoutOwner => format!(
            "overlayfs refused to move a directory, so it was copied, and {path}{more} does not \
             have its old owner and group any more"
        ),
        DeviationKind::FlagsLost => {
            format!("{path}{more} was made immutable or append-only (chattr), which is lost")
        }
        DeviationKind::AttributeLost => format!(
            "{path}{more} got an extended attribute in overlayfs's own namespace, which is lost"
        ),
        DeviationKind::ChangeRefused => format!(
            "overlayfs refused to change {path}{more}, and the command went on all the same"
        ),
        DeviationKind::ControlNameTaken => {
            format!("{path} has the name of the store's control directory, and is lost")
        }
        DeviationKind::NameLookedApart => format!(
            "{path}{more} is a new name of an old file, and showed another inode number than the \
             file's other names, so programs may have taken them for two files"
        ),
    }
}

/// The exit code, and a hint.
pub fn explain(transaction: TransactionId) -> (u8, Option<String>) {
    let hint = format!(
        "`atomdir run --view exact` does or refuses it as a plain directory would; transaction \
         {transaction} is still open: `atomdir commit {transaction}` lands it as it is, `atomdir \
         abort {transaction}` drops it"
    );
    (ExitCode::Configuration.code(), Some(hint))
}
