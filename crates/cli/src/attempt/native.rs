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
    /// Native where it can be: as root, on ext4, XFS or Btrfs
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
        match begin_native(connected, options)? {
            Begun::Native(begun) => return Ok(*begun),
            Begun::Exact(transaction, reason) if choice == ViewChoice::Auto => {
                context
                    .output
                    .detail(format_args!("the view is exact, not native: {reason}"));
                return Ok(exact(*transaction));
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
    Ok(exact(super::begin::begin(context, connected, options)?))
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

fn begin_native(connected: &mut Connected, options: &BeginOptions) -> Result<Begun, Error> {
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
    let layers = transaction.layers.clone().unwrap_or_default();
    match Overlay::mount(&transaction.root, &layers) {
        Ok(overlay) => {
            let begun = (transaction, Tree::Native(overlay));
            Ok(Begun::Native(Box::new(begun)))
        }
        Err(failure) => {
            let transaction = connected.connection.take_over(id)?;
            Ok(Begun::Exact(Box::new(transaction), failure.to_string()))
        }
    }
}

fn exact(transaction: Transaction) -> (Transaction, Tree) {
    let tree = Tree::Exact(transaction.view_path.clone());
    (transaction, tree)
}
