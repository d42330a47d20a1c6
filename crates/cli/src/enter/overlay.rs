//! A native view: the kernel's overlayfs over a transaction's snapshot, with its
//! upper layer in the transaction's staging directory.

use super::{lent_mount, namespace, renames};
use atomdir::client::mounts::OVERLAY_SOURCE;
use atomdir::client::{Layers, OpenLayers, ViewRootError, reason};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};
use std::cell::OnceCell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Makes the view look like a plain tree: links stay links, directories can be
/// renamed, and a change of mode copies no contents.
///
/// Without `xino` files have the inode numbers of their layers and a device number for
/// each layer. With it, there would be one device number, but overlayfs would add 2^63 to the
/// numbers of the lower layer. JavaScript and other languages without 64-bit integers round such
/// numbers, and then take different files for one.
const OPTIONS: [(&str, &str); 4] = [
    ("index", "on"),
    ("redirect_dir", "on"),
    ("metacopy", "on"),
    XINO,
];
const XINO: (&str, &str) = ("xino", "off");

/// In a user namespace the kernel supports none of the others. overlayfs then
/// keeps its attributes where the user may write them.
const USER_OPTIONS: [(&str, &str); 1] = [XINO];
const USER_MARKS: &str = "userxattr";

/// Why there is no native view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverlayFailure {
    #[error("{step} failed: {errno}", errno = reason(errno))]
    Step { step: Step, errno: Errno },
    #[error("its layers cannot be used: {0}")]
    Layers(ViewRootError),
}

/// A step of the way to a native view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    OpenWork,
    Enter(super::Step),
    Configure,
    Mount,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Step::Enter(step) => return step.fmt(formatter),
            Step::OpenWork => "opening overlayfs's own directories to their owner",
            Step::Configure => "setting overlayfs up",
            Step::Mount => "mounting overlayfs",
        })
    }
}

/// A mount of an overlay. It is attached to a path when a command starts in it.
pub struct Overlay {
    mount: OwnedFd,
    /// Set for an overlay of an ordinary user, in which some calls on old files fail.
    pub is_limited: bool,
    /// Another process has mounted the overlay, and this is only one more mount of it.
    pub is_lent: bool,
    /// The mount namespace of the command.
    place: OnceCell<Rc<OwnedFd>>,
}

impl Overlay {
    pub fn mount(layers: &Layers) -> Result<Overlay, OverlayFailure> {
        let failed = |step| move |errno| OverlayFailure::Step { step, errno };
        namespace::check_root().map_err(failed(Step::Enter(super::Step::HoldMounts)))?;
        renames::check().map_err(failed(Step::Enter(super::Step::WatchRenames)))?;
        let configure = failed(Step::Configure);
        let context = match start() {
            Err(Errno::PERM) if layers.user_xattrs => {
                enter()?;
                start()
            }
            started => started,
        };
        let context = context.map_err(configure)?;
        // Only directories on mounts of this mount namespace can be layers.
        let OpenLayers { lower, upper, work } = layers.open().map_err(OverlayFailure::Layers)?;
        fsconfig_set_string(&context, "source", OVERLAY_SOURCE).map_err(configure)?;
        for (key, layer) in [
            ("lowerdir", &lower),
            ("upperdir", &upper),
            ("workdir", &work),
        ] {
            // The layer's own path may be longer than an option can be.
            let path = format!("/proc/self/fd/{}", layer.as_raw_fd());
            fsconfig_set_string(&context, key, path).map_err(configure)?;
        }
        let options = if layers.user_xattrs {
            fsconfig_set_flag(&context, USER_MARKS).map_err(configure)?;
            &USER_OPTIONS[..]
        } else {
            &OPTIONS[..]
        };
        for (key, value) in options {
            fsconfig_set_string(&context, *key, *value).map_err(configure)?;
        }
        // Nothing is durable before the commit anyway, so overlayfs need not flush.
        fsconfig_set_flag(&context, "volatile").map_err(configure)?;
        let mount = failed(Step::Mount);
        fsconfig_create(&context).map_err(mount)?;
        if layers.user_xattrs {
            open_up(&work).map_err(failed(Step::OpenWork))?;
        }
        let made = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, mount_flags(&lower));
        Ok(Overlay {
            mount: made.map_err(mount)?,
            is_limited: layers.user_xattrs,
            is_lent: false,
            place: OnceCell::new(),
        })
    }

    /// A mount that the process which mounted the overlay has lent.
    pub fn lent(mount: OwnedFd) -> Result<Overlay, OverlayFailure> {
        let failed = |step| move |errno| OverlayFailure::Step { step, errno };
        namespace::check_root().map_err(failed(Step::Enter(super::Step::HoldMounts)))?;
        let is_limited = match start() {
            Err(Errno::PERM) => {
                enter()?;
                true
            }
            _ => false,
        };
        Ok(Overlay {
            mount,
            is_limited,
            is_lent: true,
            place: OnceCell::new(),
        })
    }

    /// Notes the mount namespace in which the command has started.
    pub(super) fn set_place(&self, place: Rc<OwnedFd>) {
        // There is only one command.
        let _ = self.place.set(place);
    }

    pub(super) fn place(&self) -> Option<&OwnedFd> {
        self.place.get().map(|place| &**place)
    }

    /// The descriptors that must stay open as long as this is used.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.mount)
            .chain(self.place())
            .map(AsFd::as_fd)
    }

    /// Makes the overlay read-only, even for processes still in it. Fails with
    /// `EBUSY` while a file is open for writing. A lent mount does this only for itself.
    pub fn make_read_only(&self) -> Result<(), Errno> {
        if self.is_lent {
            return lent_mount::make_mount_read_only(self);
        }
        let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
        let context = fspick(&self.mount, c"", flags)?;
        fsconfig_set_flag(&context, "ro")?;
        fsconfig_reconfigure(&context)
    }
}

/// Begins to set up an overlay. Needs the right to mount.
fn start() -> Result<OwnedFd, Errno> {
    fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)
}

/// Gets the right to mount.
fn enter() -> Result<(), OverlayFailure> {
    namespace::enter_as_mounter().map_err(|(step, errno)| OverlayFailure::Step {
        step: Step::Enter(step),
        errno,
    })
}

impl AsFd for Overlay {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// overlayfs makes its own directories inaccessible to their owner, who then could
/// not remove the store.
fn open_up(work: &OwnedFd) -> Result<(), Errno> {
    let (mode, flags) = (Mode::RWXU, AtFlags::empty());
    for directory in ["work", "work/incompat", "work/incompat/volatile"] {
        match rustix::fs::chmodat(work, directory, mode, flags) {
            // The directories differ between kernels.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The view has the same restrictions as the base's own mount.
fn mount_flags(lower: &OwnedFd) -> MountAttrFlags {
    use rustix::fs::StatVfsMountFlags as Outside;
    let outside = rustix::fs::fstatvfs(lower).map_or(Outside::empty(), |found| found.f_flag);
    // With this, a new access time means that a program has set it.
    let mut flags = MountAttrFlags::MOUNT_ATTR_NOATIME;
    for (bit, flag) in [
        (Outside::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (Outside::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (Outside::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ] {
        flags.set(flag, outside.contains(bit));
    }
    flags
}
