//! Finds out which kind of view a command runs in: the service chooses, and the kernel must let us
//! mount it.

use super::Partners;
use crate::context::{Connected, Context};
use crate::enter::{self, AlsoBound, MergeFailure, Overlay, OverlayFailure, Tree};
use crate::error::Error;
use crate::output::escaped;
use atomdir::TransactionId;
use atomdir::client::{
    BeginOptions, Connection, FailureKind, RequestError, Transaction, ViewChoice,
};
use clap::{Args, ValueEnum};

const VARIABLE: &str = "ATOMDIR_VIEW";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Native where it can be had and no other option needs an exact one
    Auto,
    /// Atomdir's own file system: all of POSIX, pages of a file can be written
    /// apart, and it has savepoints
    Exact,
    /// The kernel's overlayfs: faster; a file counts as written whole. For ordinary users
    /// some changes of old files fail with EPERM: of files with several names, or of another
    /// group
    Native,
    /// As with --exclusive
    Exclusive,
}

#[derive(Debug, Args)]
pub struct ViewArguments {
    /// Lock the whole store until the transaction ends: no other commit lands meanwhile. The view is
    /// native and lies over the directory itself, so work on old files runs at the
    /// kernel's speed
    #[arg(long, conflicts_with = "view")]
    exclusive: bool,
    /// Which kind of view the command gets; the default comes from ATOMDIR_VIEW, and without it
    /// from `atomdir config view`
    // Not clap's `env`: an option that the environment sets would be in conflict with TX.
    #[arg(long, value_enum, value_name = "KIND")]
    view: Option<Kind>,
}

impl ViewArguments {
    pub fn choice(&self) -> Result<ViewChoice, Error> {
        let kind = match self.view {
            _ if self.exclusive => Some(Kind::Exclusive),
            None => kind_in_environment()?,
            given => given,
        };
        Ok(match kind {
            None => ViewChoice::Configured,
            Some(Kind::Auto) => ViewChoice::Auto,
            Some(Kind::Exact) => ViewChoice::Exact,
            Some(Kind::Native) => ViewChoice::Native,
            Some(Kind::Exclusive) => ViewChoice::Exclusive,
        })
    }
}

fn kind_in_environment() -> Result<Option<Kind>, Error> {
    let Some(value) = std::env::var_os(VARIABLE) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    let kind = Kind::from_str(&value, false);
    kind.map(Some).map_err(|_| {
        let value = escaped(value.as_bytes());
        Error::usage(format!(
            "{VARIABLE} is '{value}', and should be auto, exact, native or exclusive"
        ))
    })
}

/// Begins a transaction whose view one command will enter.
pub fn begin(
    context: &Context,
    connected: &mut Connected,
    options: &BeginOptions,
) -> Result<(Transaction, Tree), Error> {
    let transaction = super::begin::begin(context, connected, options)?;
    mount(context, connected, transaction)
}

/// Like [`begin`], in several stores: first in all of them, and then it mounts their views.
pub fn begin_all(
    context: &Context,
    connected: &mut Connected,
    options: &BeginOptions,
    partners: &mut Partners,
) -> Result<(Transaction, Tree, Vec<AlsoBound>), Error> {
    partners.begin(options)?;
    let transaction = super::begin::begin(context, connected, options)?;
    let also = partners.enter(context)?;
    let (transaction, view) = mount(context, connected, transaction)?;
    Ok((transaction, view, also))
}

/// Mounts the view of a new transaction if it is native. That may move this process to another mount
/// namespace, in which mounts that are made later may not be seen.
pub(super) fn mount(
    context: &Context,
    connected: &mut Connected,
    mut transaction: Transaction,
) -> Result<(Transaction, Tree), Error> {
    if let Some(layers) = &transaction.layers {
        let mounted = match Overlay::mount(layers) {
            // The snapshot beneath may not be visible in this mount namespace yet.
            Err(OverlayFailure::Layers(_)) if connected.connection.bring(&transaction) => {
                Overlay::mount(layers)
            }
            mounted => mounted,
        };
        match mounted {
            Ok(overlay) => return Ok((transaction, Tree::Native(overlay))),
            Err(failure) if layers.is_required => {
                connected.connection.abort(transaction.id)?;
                let reason = failure.to_string();
                return Err(Error::NoNativeView { reason });
            }
            Err(failure) => {
                transaction = connected.connection.take_over(transaction.id, true)?;
                transaction.exact_because = Some(failure.to_string());
            }
        }
    }
    if let Some(reason) = &transaction.exact_because {
        context
            .output
            .detail(format_args!("the view is exact, not native: {reason}"));
    }
    let root = connected.connection.enterable_root(&transaction)?;
    Ok((transaction, Tree::Exact(root)))
}

/// Brings the changes of a nested transaction that commits into our native view. False if only a
/// part of them came there: then the outer transaction is aborted.
pub(super) fn merge(
    context: &Context,
    connection: &Connection,
    (outer, overlay): (TransactionId, &Overlay),
    nested: TransactionId,
) -> bool {
    let (steps, root) = match connection.merge_steps(nested) {
        Ok(known) => known,
        Err(RequestError::Failed(failure)) if failure.kind == FailureKind::NoSuchTransaction => {
            // Nobody waits any more.
            return true;
        }
        Err(error) => return connection.merged(nested, Some(error.to_string())).is_ok(),
    };
    let result = match enter::merge(overlay, &root, &steps) {
        Ok(()) => connection.merged(nested, None),
        Err(MergeFailure::Refused(why)) => connection.merged(nested, Some(why)),
        Err(MergeFailure::Half(why)) => {
            context.output.warn(format_args!(
                "transaction {outer} is aborted: only a part of the changes of transaction {nested}, \
                 nested in it, came into its native view ({why}); `--view exact` avoids this"
            ));
            let _ = connection.abort_half_merged(outer);
            return false;
        }
    };
    // After an error the service has gone.
    result.is_ok()
}
