//! Native views: who can have one, and the options of its overlay mount.

use crate::rights::convert::quoted;
use crate::rights::permissions::{Peer, Reach};
use crate::service::Service;
use crate::transactions::{OpenTransaction, Transaction};
use crate::views::outside_locks;
use atomdir_disk::{Owner, reason};
use atomdir_engine::{BeyondOverlay, OverlayPrefix};
use atomdir_protocol::{
    BeginOptions, Conflicts, Failure, FailureKind, Isolation, Layers, TransactionId, ViewChoice,
};
use rustix::fs::{Mode, OFlags, fstatfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::unix::ffi::OsStringExt;

/// File systems whose directories can be the upper layer of a native view, by their
/// numbers in statfs(2): ext4, XFS, Btrfs.
const FILE_SYSTEMS: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// If any of these is 0, ordinary users cannot mount an overlay.
const USER_NAMESPACES: [&str; 2] = [
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
];

/// How many objects of the base are looked at before an ordinary user gets a native view. Later
/// begins go on from there.
const LOOKED_AT_MAX: usize = 100_000;

pub(crate) enum Choice {
    /// `because`: why a native view was not possible, if one was wanted.
    Exact { because: Option<String> },
    /// `is_required`: the begin fails if a native view is not possible.
    Native { is_required: bool },
    /// A native view over the base itself, for a transaction that holds the whole store.
    Exclusive,
}

/// Decides which kind of view a transaction gets; nothing else does. Only the client
/// can find out later whether the kernel lets it mount an overlay.
pub(crate) fn choose(
    service: &Service,
    begin: &BeginOptions,
    peer: &Peer,
) -> Result<Choice, Failure> {
    let wanted = match begin.view {
        // The setting is for transactions that can have any kind of view.
        ViewChoice::Configured if begin.outer.is_some() || begin.fork_of.is_some() => {
            ViewChoice::Auto
        }
        ViewChoice::Configured => service.access.configured_view()?,
        wanted => wanted,
    };
    let exact = |because: Failure| Choice::Exact {
        because: Some(because.message),
    };
    Ok(match wanted {
        ViewChoice::Exclusive => {
            impossible(service, begin, peer)?;
            refuse_exclusive(begin)?;
            if service.guard.is_mounted() {
                return Err(no_view(
                    "a guard lies over the store, and an exclusive transaction needs the base itself there",
                ));
            }
            Choice::Exclusive
        }
        ViewChoice::Native => {
            impossible(service, begin, peer)?;
            Choice::Native { is_required: true }
        }
        ViewChoice::Auto => {
            match impossible(service, begin, peer).and_then(|()| unfit(service, begin)) {
                Ok(()) => Choice::Native { is_required: false },
                Err(because) => exact(because),
            }
        }
        ViewChoice::Exact | ViewChoice::Configured => Choice::Exact { because: None },
    })
}

/// Why a native view is not possible, even if the client requires one.
fn impossible(service: &Service, begin: &BeginOptions, peer: &Peer) -> Result<(), Failure> {
    peer.require_native()?;
    if begin.outer.is_some() {
        return Err(no_view("a nested transaction cannot have a native view"));
    }
    if begin.fork_of.is_some() {
        return Err(no_view("a fork cannot have a native view"));
    }
    if peer.reach != Reach::All {
        return Err(no_view(
            "a command in a view cannot have a native one: it does not reach the control directory",
        ));
    }
    if begin.conflicts == Conflicts::Early {
        return Err(no_view(
            "early conflicts are found in exact views only: the writes in a native view are \
             looked at when its command has ended",
        ));
    }
    let found = fstatfs(&service.access.control).map_err(|errno| {
        let why = reason(errno);
        let message = format!("cannot find out the store's file system: {why}");
        Failure::new(FailureKind::Io, message)
    })?;
    #[allow(clippy::unnecessary_cast, reason = "its type differs by architecture")]
    if !FILE_SYSTEMS.contains(&(found.f_type as i64)) {
        return Err(no_view(
            "the store is not on ext4, XFS or Btrfs, which native views need",
        ));
    }
    Ok(())
}

/// Why a transaction whose native view is possible cannot be exclusive.
fn refuse_exclusive(begin: &BeginOptions) -> Result<(), Failure> {
    if begin.isolation == Isolation::Serializable {
        return Err(no_view(
            "an exclusive transaction cannot be serializable: its programs read the base itself, and \
             nobody sees what they read",
        ));
    }
    Ok(())
}

/// Why an exact view suits this transaction better, though a native one is possible.
fn unfit(service: &Service, begin: &BeginOptions) -> Result<(), Failure> {
    if begin.isolation == Isolation::Serializable {
        return Err(no_view(
            "in a native view a serializable transaction conflicts more often: what is written \
             counts as read, and whole files as written",
        ));
    }
    if !geteuid().is_root() && user_namespaces_are_off() {
        return Err(no_view(
            "the system does not let this user have user namespaces, which native views need",
        ));
    }
    if let Some(path) = outside_locks::find(&service.path) {
        return Err(no_view(&format!(
            "a program outside uses {} as a database, and only exact views keep the files of one",
            quoted(&path)
        )));
    }
    Ok(())
}

fn user_namespaces_are_off() -> bool {
    USER_NAMESPACES
        .iter()
        .any(|path| is_zero(path).unwrap_or(false))
}

fn is_zero(path: &str) -> Result<bool, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = [0; 16];
    let length = rustix::io::read(&file, &mut text)?;
    Ok(text[..length].trim_ascii() == b"0")
}

fn no_view(message: &str) -> Failure {
    Failure::new(FailureKind::NoViews, message).with_hint("use `--view exact`")
}

/// Makes the directories from which the client mounts the overlay, unless the store has objects that
/// an ordinary user's overlay cannot change.
pub(crate) fn prepare(
    transaction: &Transaction,
    choice: Choice,
    peer: &Peer,
) -> Result<Choice, Failure> {
    let is_exclusive = matches!(choice, Choice::Exclusive);
    let is_required = match choice {
        Choice::Exact { .. } => return Ok(choice),
        Choice::Exclusive => true,
        Choice::Native { is_required } => is_required,
    };
    // A snapshot bars such objects from being changed. The base cannot, so it must have none.
    let are_barred = is_required && !is_exclusive;
    if let Some(message) = beyond_overlay(transaction, are_barred, peer)? {
        return match is_required {
            true => Err(no_view(&message)),
            false => Ok(Choice::Exact {
                because: Some(message),
            }),
        };
    }
    let made = match is_exclusive {
        true => transaction.lie_over_base(),
        false => transaction.become_lower(),
    };
    let Err(errno) = made else {
        return Ok(choice);
    };
    let message = match errno {
        Errno::PERM => {
            "the upper layer cannot copy the store's root, which has another owner or group, \
             or attributes that this user may not set"
                .to_owned()
        }
        errno => {
            let why = reason(errno);
            format!("cannot make the directories of a native view: {why}")
        }
    };
    match errno {
        Errno::PERM if !is_required => Ok(Choice::Exact {
            because: Some(message),
        }),
        Errno::PERM => Err(no_view(&message)),
        _ => Err(Failure::new(FailureKind::Io, message)),
    }
}

/// Why the peer's overlay cannot change all old objects as a plain directory can. If the view bars such
/// objects, only what makes it useless counts. It then reports those that it refuses to change.
fn beyond_overlay(
    transaction: &Transaction,
    are_barred: bool,
    peer: &Peer,
) -> Result<Option<String>, Failure> {
    if transaction.overlay_prefix() == OverlayPrefix::Trusted {
        return Ok(None);
    }
    let io = |errno| {
        let message = format!("cannot look through the store: {}", reason(errno));
        Failure::new(FailureKind::Io, message)
    };
    // The user namespace in which the client mounts the overlay maps these two.
    let own = Owner {
        user: peer.user,
        group: peer.group,
    };
    if transaction.root_owner().map_err(io)? != own {
        let message = "the store's root has another owner or group than the user's own, which an \
                       ordinary user's overlay cannot change";
        return Ok(Some(message.to_owned()));
    }
    if are_barred {
        return Ok(None);
    }
    let found = transaction.beyond_overlay(own, LOOKED_AT_MAX).map_err(io)?;
    Ok(found.map(|found| match found {
        BeyondOverlay::SeveralNames { path } => format!(
            "{} has several names, which an ordinary user's overlay cannot keep together",
            quoted(&path)
        ),
        BeyondOverlay::OtherOwner { path } => format!(
            "{} has another owner or group than the user's own, so an ordinary user's overlay cannot \
             change it",
            quoted(&path)
        ),
        BeyondOverlay::Unknown => format!(
            "an ordinary user's overlay cannot change every object, and the store has more than \
             {LOOKED_AT_MAX} to look at, or very deep directories"
        ),
    }))
}

pub(crate) fn layers(transaction: &Transaction, is_required: bool) -> Option<Layers> {
    Some(Layers {
        path: transaction.layers()?.into_os_string().into_vec(),
        user_xattrs: transaction.overlay_prefix() == OverlayPrefix::User,
        is_required,
        over_base: transaction.is_over_base(),
    })
}

/// While programs may be in a native view, its changes can be looked at, but not decided on.
pub(crate) fn require_exact(one: &OpenTransaction) -> Result<(), Failure> {
    if !one.transaction.is_lower() {
        return Ok(());
    }
    let processes: Vec<String> = one.holders.values().map(u32::to_string).collect();
    let processes = match processes.is_empty() {
        // The last of them has just left.
        true => String::new(),
        false => format!(": {}", processes.join(", ")),
    };
    Err(in_use(one.id(), &processes))
}

/// `processes` names them, after a colon.
pub(crate) fn in_use(id: TransactionId, processes: &str) -> Failure {
    let message = format!(
        "transaction {id} has a native view, and processes are still working in it{processes}"
    );
    Failure::new(FailureKind::InUse, message).with_hint(format!(
        "it is still open: wait for them, or drop its changes with `atomdir abort {id}`"
    ))
}

/// The failure when the upper layer could not be read.
pub(crate) fn unreadable(id: TransactionId, errno: Errno) -> Failure {
    let message = format!(
        "cannot read what was changed in transaction {id}: {errno}",
        errno = reason(errno)
    );
    let kind = match errno {
        Errno::NOSPC | Errno::DQUOT => FailureKind::NoSpace,
        _ => FailureKind::Io,
    };
    let failure = Failure::new(kind, message);
    match errno {
        Errno::ACCESS => failure.with_hint(
            "the command left a file or directory that its owner cannot read; run it with `--view exact`",
        ),
        _ => failure,
    }
}
