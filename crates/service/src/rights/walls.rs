//! What a peer in another mount namespace sees of the store: a sandbox may hide a part of it, or
//! make it read-only. A view would show the part, and let the peer change it. So the service looks
//! at the peer's mounts, and serves a peer that is walled off only as far as its walls allow.
//!
//! The kernel tells nothing about walls of other kinds, such as Landlock.
//!
//! Invariant: a peer gets a view, or learns contents, only if by some path it sees the store whole
//! and can write to it, or if it sees a view there. A peer could mount an overlay of its own there
//! that claims to be a native view. So this counts only for a peer that knows the secret of a view
//! and that no sandbox has bereft of its rights (`no_new_privs`). Such a one is also served if it
//! cannot be looked at.

use crate::rights::permissions::{Peer, Reach};
use atomdir::CONTROL_NAME;
use atomdir::client::mounts::{Mount, is_exact_view, is_guard, is_native_view, list, list_of};
use atomdir::hosting::kernel_text;
use atomdir_protocol::{Failure, FailureKind, Request};
use rustix::fs::{AtFlags, CWD, StatxFlags, stat, statx};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// So many are named in a message.
const NAMED_MAX: usize = 3;
/// A peer with more mounts is not looked at: that would keep the service busy.
const MOUNTS_MAX: usize = 4096;

/// The parts of the store, relative to its root, that a peer does not see, or cannot change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walls {
    hidden: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    /// The peer could not be looked at.
    is_unknown: bool,
}

impl Walls {
    /// The walls between a peer and the store at `root`.
    pub(crate) fn around(peer: &Peer, root: &Path) -> Walls {
        let process = peer.process;
        // The kernel has no id for a process outside of our process namespace. That one is less
        // walled off than we are.
        if process == 0 {
            return Walls::default();
        }
        let of_peer = format!("/proc/{process}/ns/mnt");
        match (stat(of_peer), stat("/proc/self/ns/mnt")) {
            (Ok(its), Ok(own))
                if (its.st_dev, its.st_ino) == (own.st_dev, own.st_ino)
                    && has_our_root(process) =>
            {
                return Walls::default();
            }
            (Ok(_), Ok(_)) => {}
            // It has rights that we lack, or has changed its user. Root gets no view from a service of
            // another user.
            (Err(Errno::ACCESS | Errno::PERM), _) => {
                return match !peer.is_root() && runs_without_new_privileges(process) {
                    true => Walls::unknown(),
                    false => Walls::default(),
                };
            }
            _ => return Walls::unknown(),
        }
        match (list_of(process), list()) {
            (Ok(theirs), Ok(own)) if theirs.len() <= MOUNTS_MAX => {
                let may_be_native =
                    peer.reach != Reach::All && !runs_without_new_privileges(process);
                let walls = |own: &[Mount], theirs: &[Mount]| {
                    Table {
                        own: Mounts::new(own),
                        theirs: Mounts::new(theirs),
                        root,
                        may_be_native,
                    }
                    .walls()
                };
                let found = walls(&own, &theirs);
                if found.is_none() || !own.iter().any(|mount| is_guard_of(mount, root)) {
                    return found;
                }
                // The peer's mount namespace may be older than the guard.
                let beneath = walls(&without_guard(own, root), &without_guard(theirs, root));
                match beneath.is_none() {
                    true => beneath,
                    false => found,
                }
            }
            _ => Walls::unknown(),
        }
    }

    fn unknown() -> Walls {
        Walls {
            is_unknown: true,
            ..Walls::default()
        }
    }

    fn is_none(&self) -> bool {
        self.hidden.is_empty() && self.protected.is_empty() && !self.is_unknown
    }

    /// Fails if the request would lead the peer around its walls.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Failure> {
        // They show no contents, and change nothing.
        let is_harmless = matches!(
            request,
            Request::ServiceStatus
                | Request::Surroundings
                | Request::List
                | Request::ListEnded { .. }
                | Request::Status { .. }
                | Request::Enter { .. }
        );
        let only_reads = matches!(
            request,
            Request::Log(_)
                | Request::Show { .. }
                | Request::Changes { .. }
                | Request::ListConflicts { .. }
                | Request::SnapshotObject { .. }
        );
        let may_read = self.hidden.is_empty() && !self.is_unknown;
        if self.is_none() || is_harmless || (only_reads && may_read) {
            return Ok(());
        }
        let message = format!(
            "this process is in a sandbox, {}: a view would lead around that",
            self.describe()
        );
        Err(Failure::new(FailureKind::NotPermitted, message).with_hint(
            "start the sandbox in the transaction (`atomdir run -- bwrap ...`), seal the command \
             instead (`atomdir run --confine --hide PATH -- ...`), or show the sandbox the whole store",
        ))
    }

    fn describe(&self) -> String {
        if self.is_unknown {
            return "and its mounts cannot be looked at".to_owned();
        }
        let parts = |paths: &[PathBuf], how: &str| {
            if paths.is_empty() {
                return None;
            }
            let names = paths.iter().take(NAMED_MAX).map(|path| match path {
                path if path.as_os_str().is_empty() => "the store".to_owned(),
                path => format!("'{}'", path.display()),
            });
            let mut names: Vec<String> = names.collect();
            if paths.len() > NAMED_MAX {
                names.push(format!("{} more", paths.len() - NAMED_MAX));
            }
            Some(format!("{how} {}", names.join(", ")))
        };
        let parts = [
            parts(&self.hidden, "hides"),
            parts(&self.protected, "keeps it from changing"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("which {}", parts.join(" and "))
    }
}

fn is_guard_of(mount: &Mount, root: &Path) -> bool {
    mount.point == root && is_guard(mount)
}

/// The mounts as they would be without a guard over the store.
fn without_guard(mut mounts: Vec<Mount>, root: &Path) -> Vec<Mount> {
    while let Some(at) = mounts.iter().position(|mount| is_guard_of(mount, root)) {
        let guard = mounts.remove(at);
        let upon = mounts.iter_mut().filter(|mount| mount.parent == guard.id);
        upon.for_each(|mount| mount.parent = guard.parent);
    }
    mounts
}

/// Whether a process in our mount namespace also has our root directory: it may be in a chroot.
fn has_our_root(process: u32) -> bool {
    let root = |process: &str| {
        let path = format!("/proc/{process}/root");
        let found = statx(
            CWD,
            path,
            AtFlags::empty(),
            StatxFlags::INO | StatxFlags::MNT_ID,
        );
        found.ok().map(|found| (found.stx_mnt_id, found.stx_ino))
    };
    let own = root("self");
    own.is_some() && own == root(&process.to_string())
}

/// As bubblewrap and other sandboxes without privileges set it. The kernel shows this of every
/// process to everybody.
fn runs_without_new_privileges(process: u32) -> bool {
    let text = kernel_text(&format!("/proc/{process}/status")).unwrap_or_default();
    // A process that has ended cannot be trusted either.
    text.lines()
        .find_map(|line| line.strip_prefix("NoNewPrivs:"))
        .is_none_or(|value| value.trim() != "0")
}

/// Our mounts and a peer's, and the path of the store among ours.
struct Table<'a> {
    own: Mounts<'a>,
    theirs: Mounts<'a>,
    root: &'a Path,
    /// Whether an overlay of the peer's that claims to be a native view can be one.
    may_be_native: bool,
}

/// A place where a peer sees the store or a view of it.
struct Place<'a> {
    point: PathBuf,
    mount: &'a Mount,
    /// The store's root or the view's, on the file system of the mount.
    root: PathBuf,
}

impl Table<'_> {
    fn walls(&self) -> Walls {
        let mut first = None;
        for place in self.places() {
            let walls = self.inside(&place);
            if walls.is_none() {
                return walls;
            }
            first.get_or_insert(walls);
        }
        first.unwrap_or_else(|| Walls {
            hidden: vec![PathBuf::new()],
            ..Walls::default()
        })
    }

    /// The mount on which the store is for us, and its path on that file system.
    fn base(&self) -> Option<(&Mount, PathBuf)> {
        let mount = self.own.at(self.root)?;
        let root = join(&mount.root, self.root.strip_prefix(&mount.point).ok());
        Some((mount, root))
    }

    fn places(&self) -> Vec<Place<'_>> {
        let Some((base, base_root)) = self.base() else {
            return Vec::new();
        };
        let places = self.theirs.all.iter().filter_map(|mount| {
            let place = match base_root.strip_prefix(&mount.root) {
                Ok(below) if mount.device == base.device => Place {
                    point: join(&mount.point, Some(below)),
                    mount,
                    root: base_root.clone(),
                },
                _ if mount.point == self.root && self.is_view(mount) => Place {
                    point: mount.point.clone(),
                    mount,
                    root: mount.root.clone(),
                },
                _ => return None,
            };
            // Another mount may cover it.
            let seen = self.theirs.at(&place.point);
            seen.is_some_and(|seen| seen.id == mount.id)
                .then_some(place)
        });
        places.collect()
    }

    fn is_view(&self, mount: &Mount) -> bool {
        let is_ours = |own: &Mount| own.device == mount.device;
        match is_native_view(mount) {
            true => self.may_be_native,
            false => is_exact_view(mount) && self.own.all.iter().any(is_ours),
        }
    }

    /// The walls at and below a place.
    fn inside(&self, place: &Place<'_>) -> Walls {
        let mut walls = Walls::default();
        let is_read_only = |mount: &Mount| mount.device == place.mount.device && mount.is_read_only;
        let base = self.base();
        let base = base.as_ref().map(|(mount, root)| (*mount, &**root));
        if place.mount.is_read_only && !base.is_some_and(|(mount, _)| is_read_only(mount)) {
            walls.protected.push(PathBuf::new());
        }
        for mount in self.theirs.all {
            let Some(part) = below(&mount.point, &place.point) else {
                continue;
            };
            let seen = self.theirs.at(&mount.point);
            let is_seen = seen.is_some_and(|seen| seen.id == mount.id);
            if !is_seen || part.starts_with(CONTROL_NAME) || self.is_mount_point(part) {
                continue;
            }
            let is_at = |seen: &Mount, root: &Path| {
                mount.device == seen.device && mount.root == root.join(part)
            };
            // Below a view, the base itself may be bound.
            let is_same = is_at(place.mount, &place.root)
                || base.is_some_and(|(base, root)| is_at(base, root));
            match is_same {
                true if mount.is_read_only => walls.protected.push(part.to_owned()),
                true => {}
                false => walls.hidden.push(part.to_owned()),
            }
        }
        walls
    }

    /// Whether nothing of the base is visible there for us either.
    fn is_mount_point(&self, part: &Path) -> bool {
        let path = self.root.join(part);
        let mut points = self.own.all.iter().map(|mount| &mount.point);
        points.any(|point| below(point, self.root).is_some() && path.starts_with(point))
    }
}

fn join(above: &Path, below: Option<&Path>) -> PathBuf {
    match below {
        Some(below) if !below.as_os_str().is_empty() => above.join(below),
        _ => above.to_owned(),
    }
}

/// The rest of a path strictly below a directory.
fn below<'a>(path: &'a Path, directory: &Path) -> Option<&'a Path> {
    let rest = path.strip_prefix(directory).ok()?;
    (!rest.as_os_str().is_empty()).then_some(rest)
}

/// A process's mounts, by what they are mounted on.
struct Mounts<'a> {
    all: &'a [Mount],
    root: Option<&'a Mount>,
    upon: HashMap<u64, Vec<&'a Mount>>,
}

impl<'a> Mounts<'a> {
    fn new(all: &'a [Mount]) -> Mounts<'a> {
        let listed: HashSet<u64> = all.iter().map(|mount| mount.id).collect();
        let root = all.iter().find(|mount| {
            let is_top = mount.parent == mount.id || !listed.contains(&mount.parent);
            mount.point == Path::new("/") && is_top
        });
        let mut upon: HashMap<u64, Vec<&Mount>> = HashMap::new();
        for mount in all.iter().filter(|mount| mount.parent != mount.id) {
            upon.entry(mount.parent).or_default().push(mount);
        }
        Mounts { all, root, upon }
    }

    /// The mount that a path leads to, found as the kernel does: from the root, crossing each mount
    /// point on the way.
    fn at(&self, path: &Path) -> Option<&'a Mount> {
        let mut seen = self.root?;
        // There may be loops in a list that was read while it changed.
        for _ in self.all {
            let upon = self.upon.get(&seen.id).into_iter().flatten();
            let crossed = upon.filter(|mount| {
                path.starts_with(&mount.point) && mount.point.starts_with(&seen.point)
            });
            match crossed.min_by_key(|mount| mount.point.components().count()) {
                Some(next) => seen = *next,
                None => break,
            }
        }
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "
27 1 254:0 / / rw - ext4 /dev/vda rw
40 27 8:1 / /srv rw - ext4 /dev/sda1 rw
41 40 0:9 / /srv/site/media rw - tmpfs none rw
42 27 0:50 / /run/atomdir/1 rw - fuse.atomdir x rw
";

    fn walls(theirs: &str) -> Walls {
        let parse = |text: &str| atomdir::client::mounts::parse(text.as_bytes());
        Table {
            own: Mounts::new(&parse(OWN)),
            theirs: Mounts::new(&parse(theirs)),
            root: Path::new("/srv/site"),
            may_be_native: false,
        }
        .walls()
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn who_sees_the_store_as_it_is_has_no_walls() {
        assert!(walls(OWN).is_none());
        // Elsewhere, as in a container; read-only in one place and not in another.
        for theirs in [
            "27 1 0:30 / / rw - overlay none rw\n40 27 8:1 /site /data rw - ext4 x rw\n",
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv ro - ext4 x rw\n41 27 8:1 / /all rw - ext4 x rw\n",
            // A view, as in a command that `run` has started; its own control directory hidden.
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 40 0:50 /7/site /srv/site rw - fuse.atomdir x rw\n",
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 40 0:9 / /srv/site/.atomdir rw - tmpfs x rw\n",
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 40 0:50 /7/site /srv/site rw - fuse.atomdir x rw\n42 41 8:1 /site/run /srv/site/run rw - ext4 x rw\n",
            // What is mounted inside the store for us, too.
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 40 0:99 / /srv/site/media/new rw - tmpfs x rw\n",
        ] {
            assert!(walls(theirs).is_none(), "{theirs}");
        }
    }

    #[test]
    fn what_a_sandbox_hides_and_protects_is_found() {
        let sandbox = "
27 1 254:0 / / rw - ext4 /dev/vda rw
40 27 8:1 / /srv rw - ext4 /dev/sda1 rw
50 40 0:5 /null /srv/site/.env ro - devtmpfs none rw
51 40 8:1 /site/.git /srv/site/.git ro - ext4 /dev/sda1 rw
52 40 8:1 /site/src /srv/site/src rw - ext4 /dev/sda1 rw
";
        let found = walls(sandbox);
        assert_eq!(found.hidden, paths(&[".env"]));
        assert_eq!(found.protected, paths(&[".git"]));
        let read_only = "27 1 254:0 / / ro - ext4 x rw\n40 27 8:1 / /srv ro - ext4 x rw\n";
        assert_eq!(walls(read_only).protected, paths(&[""]));
        for hidden in [
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 40 0:7 / /srv/site rw - tmpfs x rw\n",
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 / /srv rw - ext4 x rw\n41 27 0:7 / /srv rw - tmpfs x rw\n42 40 0:7 / /srv rw - tmpfs x rw\n",
            "27 1 254:0 / / rw - ext4 x rw\n40 27 8:1 /site/src /srv/site/src rw - ext4 x rw\n",
            // After a chroot(2) the root may be no mount.
            "40 27 8:1 / /srv rw - ext4 x rw\n",
        ] {
            assert_eq!(walls(hidden).hidden, paths(&[""]), "{hidden}");
        }
        // A sandbox inside a view.
        let view = "
27 1 254:0 / / rw - ext4 x rw
40 27 8:1 / /srv rw - ext4 x rw
41 40 0:50 /7/site /srv/site rw - fuse.atomdir x rw
42 41 0:50 /7/site/.git /srv/site/.git ro - fuse.atomdir x rw
";
        assert_eq!(walls(view).protected, paths(&[".git"]));
        // What only claims to be a view.
        let other = view.replace("0:50", "0:51");
        assert_eq!(walls(&other).hidden, paths(&[""]));
        let overlay = other.replace("fuse.atomdir x", "overlay atomdir");
        assert_eq!(walls(&overlay).hidden, paths(&[""]));
    }

    #[test]
    fn a_message_names_the_walls() {
        let walls = Walls {
            hidden: paths(&[".env", "a", "b", "c", "d"]),
            protected: paths(&[""]),
            is_unknown: false,
        };
        let described = walls.describe();
        let wanted = "which hides '.env', 'a', 'b', 2 more and keeps it from changing the store";
        assert_eq!(described, wanted);
        let log = Request::Log(atomdir_protocol::LogRequest {
            before: None,
            limit: 1,
            paths: Vec::new(),
            only: Default::default(),
        });
        assert!(walls.check(&log).is_err() && walls.check(&Request::List).is_ok());
        let only_protected = Walls {
            hidden: Vec::new(),
            ..walls
        };
        assert!(
            only_protected.check(&log).is_ok() && only_protected.check(&Request::Sync).is_err()
        );
    }
}
