//! Which kind of view a command runs in.

use crate::context::{Connected, Context};
use crate::enter::{Overlay, Tree};
use crate::error::Error;
use atomdir::{BeginOptions, Conflicts, FailureKind, RequestError, Transaction, View};
use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ViewChoice {
    /// Atomdir's own file system: all of POSIX, pages of a file can be written
    /// apart, others can join, transactions can nest
    #[default]
    Exact,
    /// The kernel's overlayfs: faster; a file counts as written whole
    Native,
    /// Native where all works in it: as root, on ext4, XFS or Btrfs
    Auto,
}

/// Begins a transaction whose view will be entered by one command.
pub fn begin(
    context: &Context,
    connected: &mut Connected,
    options: &BeginOptions,
    choice: ViewChoice,
) -> Result<(Transaction, Tree), Error> {
    let is_wanted = match choice {
        ViewChoice::Exact => false,
        ViewChoice::Native => true,
        ViewChoice::Auto => can_be_native(options) && rustix::process::geteuid().is_root(),
    };
    if is_wanted {
        match begin_native(connected, options, choice)? {
            Begun::Native(begun) => return Ok(*begun),
            Begun::Exact(transaction, reason) if choice == ViewChoice::Auto => {
                context
                    .output
                    .detail(format_args!("the view is exact, not native: {reason}"));
                return exact(connected, *transaction);
            }
            Begun::Exact(transaction, reason) => {
                connected.connection.abort(transaction.id)?;
                return Err(Error::NoNativeView { reason });
            }
            Begun::Not(error) if choice == ViewChoice::Auto => {
                context
                    .output
                    .detail(format_args!("the view is exact, not native: {error}"));
            }
            Begun::Not(error) => return Err(error.into()),
        }
    }
    let transaction = super::begin::begin(context, connected, options)?;
    exact(connected, transaction)
}

/// What is nested must see what the outer one has done, and early conflicts are
/// found when something is written.
fn can_be_native(options: &BeginOptions) -> bool {
    options.outer.is_none() && options.conflicts == Conflicts::AtCommit
}

enum Begun {
    Native(Box<(Transaction, Tree)>),
    /// The transaction has begun, but has no native view.
    Exact(Box<Transaction>, String),
    Not(RequestError),
}

fn begin_native(
    connected: &mut Connected,
    options: &BeginOptions,
    choice: ViewChoice,
) -> Result<Begun, Error> {
    let options = BeginOptions {
        view: View::Native,
        ..options.clone()
    };
    let transaction = match connected.connection.begin(&options) {
        Err(RequestError::Failed(failure)) if failure.kind == FailureKind::NoViews => {
            return Ok(Begun::Not(RequestError::Failed(failure)));
        }
        begun => begun?,
    };
    let id = transaction.id;
    let mounted = match &transaction.layers {
        // Not all that a program may do to old files works in it.
        Some(layers) if layers.user_marks && choice == ViewChoice::Auto => {
            Err("overlayfs cannot do all for an ordinary user".to_owned())
        }
        Some(layers) => {
            let mounted = Overlay::mount(layers);
            mounted.map_err(|failure| failure.to_string())
        }
        None => Err("the service has made none".to_owned()),
    };
    match mounted {
        Ok(overlay) => {
            let begun = (transaction, Tree::Native(overlay));
            Ok(Begun::Native(Box::new(begun)))
        }
        Err(reason) => {
            let transaction = connected.connection.take_over(id)?;
            Ok(Begun::Exact(Box::new(transaction), reason))
        }
    }
}

fn exact(connected: &Connected, transaction: Transaction) -> Result<(Transaction, Tree), Error> {
    let root = connected.connection.enterable_root(&transaction)?;
    Ok((transaction, Tree::Exact(root)))
}
