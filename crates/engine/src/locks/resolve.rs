//! Finds what paths in a view would lock, and checks whether the caller may
//! lock it.

use atomdir_disk::{Disk, Errno, Kind, Name};
use atomdir_types::{LockMode, LockScope};

use super::reach::Reach;
use super::table::Lock;
use super::target::{Extent, Target};
use super::{LockError, LockRequest};
use crate::base::credentials::{Credentials, Permission};
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::view::View;

pub(crate) fn locks<D: Disk>(
    view: &mut View<D>,
    request: &LockRequest,
    credentials: &Credentials,
) -> Result<Vec<Lock>, LockError> {
    let mut locks = Vec::new();
    for path in &request.paths {
        let target = target(view, path, request, credentials);
        let target = target.map_err(|errno| LockError::Path {
            path: String::from_utf8_lossy(path).into_owned(),
            errno,
        })?;
        locks.push(Lock {
            reach: Reach::of_holder(&view.core, &target.base, request.mode, credentials),
            target,
            mode: request.mode,
            path: path.clone(),
            is_vote: false,
        });
    }
    Ok(locks)
}

/// Returns the object of the base at a path. If the object is new in the view
/// or does not exist, returns the name that it would take in the base.
fn target<D: Disk>(
    view: &mut View<D>,
    path: &[u8],
    request: &LockRequest,
    credentials: &Credentials,
) -> Result<Target, Errno> {
    let needed = match request.mode {
        LockMode::Shared => Permission::Read,
        LockMode::Exclusive => Permission::Write,
    };
    let mut at = NodeId::ROOT;
    let mut new_name: Option<Target> = None;
    let mut parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .peekable();
    while let Some(part) = parts.next() {
        let name = Name::new(part).map_err(|_| Errno::INVAL)?;
        view.require(at, credentials, Permission::Search)?;
        let child = view.child(at, &name)?;
        let is_new = match child {
            Some(child) => view.node(child)?.base.is_none(),
            None => true,
        };
        if is_new && let Some(base) = view.node(at)?.base.clone() {
            let extent = Extent::Entry(name);
            new_name.get_or_insert(Target { base, extent });
        }
        let Some(child) = child else {
            let is_part = matches!(request.scope, LockScope::Bytes { .. });
            if parts.peek().is_some() || is_part {
                return Err(Errno::NOENT);
            }
            // Anyone who may write the directory may lock the name.
            if request.mode == LockMode::Exclusive {
                view.require(at, credentials, Permission::Write)?;
            }
            return new_name.ok_or(Errno::NOENT);
        };
        at = child;
    }
    let node = view.node(at)?;
    let (kind, base, parent) = (node.kind, node.base.clone(), node.parent);
    // A symbolic link is changed by replacing it, so its directory decides.
    let (of, needed) = match (kind, request.mode) {
        (Kind::Symlink, LockMode::Shared) => (parent, Permission::Search),
        (Kind::Symlink, LockMode::Exclusive) => (parent, Permission::Write),
        _ => (at, needed),
    };
    view.require(of, credentials, needed)?;
    let extent = extent(request.scope, kind)?;
    match base {
        Some(base) => Ok(Target { base, extent }),
        None => new_name.ok_or(Errno::NOENT),
    }
}

fn extent(scope: LockScope, kind: Kind) -> Result<Extent, Errno> {
    match scope {
        LockScope::Object => Ok(Extent::Object),
        LockScope::Subtree => Ok(Extent::Subtree),
        LockScope::Bytes { start, end } if start >= end => Err(Errno::INVAL),
        LockScope::Bytes { start, end } => match kind {
            Kind::File => Ok(Extent::Pages(start / PAGE, end.div_ceil(PAGE))),
            Kind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        },
    }
}

/// The scope of a request, in whole pages.
pub(crate) fn scope(extent: &Extent) -> LockScope {
    match extent {
        Extent::Pages(start, end) => LockScope::Bytes {
            start: start * PAGE,
            end: end.saturating_mul(PAGE),
        },
        Extent::Subtree => LockScope::Subtree,
        Extent::Object | Extent::Attributes | Extent::Entry(_) => LockScope::Object,
    }
}
