//! Sealed commands. A sealed command's changes wait in the view until a user has
//! reviewed them. So the command must not reach anything that would commit them, must
//! not reach the base, and must not go on after the review. docs/running.md says what
//! that protects against and what it does not.
//!
//! What holds while the command runs, and which code ensures it:
//!
//! 1. Wherever a mount shows the store's directory, or part of it, the command finds
//!    the view or nothing (`places`, `Seal::cover`).
//! 2. It finds neither the control directory nor the place of views and of the
//!    services' inner sockets (`places`).
//! 3. Among the file systems through which the kernel shows itself, it sees one `/proc`,
//!    with only its own processes, and it cannot write the machine's settings
//!    (`kernel`).
//! 4. It cannot undo these mounts or enter another namespace: it has no capability for
//!    that, and cannot get one (`capabilities`).
//! 5. It inherits no descriptor of a file or a directory, except the standard three
//!    (`descriptors`).
//! 6. All that it starts is in a process namespace of its own, and ends with it
//!    (`processes`). If that is not possible, `Running::wait` kills what it finds.
//! 7. If it is confined, it can write only in the view, the named places and private directories,
//!    and finds its home empty (`Seal::confine`, `private`).
//! 8. It finds nothing at the places that are to be hidden, by whatever mount that shows them
//!    (`places::hidden`, `Seal::cover`). Without a network it has a network namespace with nothing
//!    but a loopback device (`network`).
//!
//! Whatever the command reaches, the service lets only us commit the transaction.

mod capabilities;
mod descriptors;
mod kernel;
mod network;
mod places;
mod private;
mod processes;
mod terminal;

pub(super) use capabilities::give_up as give_up_capabilities;
pub(super) use descriptors::withhold as withhold_descriptors;
pub(super) use kernel::protect_proc;
pub(super) use network::start_loopback;
pub(super) use places::Unseen;
pub use private::{NAMED_MAX, Private};
pub(super) use processes::supervise;
pub(super) use terminal::Foreground;

use super::{Step, ViewBinding};
use places::Cover;
use private::Privates;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};
use std::ffi::{CStr, CString, OsString};
use std::io;
use std::mem::size_of;
use std::path::PathBuf;

/// How a command is sealed.
#[derive(Debug, Clone)]
pub struct Sealing {
    /// The directory where the service mounts views, and listens for programs in them.
    pub views: PathBuf,
    /// The store's control directory, if it is not in the store.
    pub control: Option<PathBuf>,
    /// If set, the command can write only in the view and in the places that this names.
    pub confinement: Option<Confinement>,
    /// The command finds these files and directories empty.
    pub hidden: Vec<PathBuf>,
    pub has_network: bool,
    /// The command's environment, in place of ours.
    pub environment: Option<Vec<(OsString, OsString)>>,
}

/// The files outside of the view that a confined command finds.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    pub writable: Vec<PathBuf>,
    /// What is to be seen in private directories.
    pub readable: Vec<PathBuf>,
    /// Symbolic links on the way to the named places.
    pub links: Vec<PathBuf>,
    pub private: Vec<Private>,
}

/// All that the child needs, made before the fork.
pub(super) struct Seal {
    covers: Vec<Cover>,
    /// Mounts of the kernel's settings.
    settings: Vec<CString>,
    confined: Option<Confined>,
    hidden: Vec<Cover>,
    has_network: bool,
}

/// A confinement, made ready.
struct Confined {
    writable: Vec<CString>,
    privates: Privates,
}

impl Seal {
    pub(super) fn prepare(binding: &ViewBinding, sealing: &Sealing) -> io::Result<Seal> {
        let mounts = atomdir::client::mounts::list()?;
        let confined = sealing.confinement.as_ref().map(|confinement| {
            let places = confinement.writable.iter().take(NAMED_MAX);
            let writable = places.map(|place| Ok(super::c_path(place)?));
            let kept = private::Kept {
                base: &binding.base,
                writable: &confinement.writable,
                readable: &confinement.readable,
                links: &confinement.links,
            };
            let private = private::with_other_places(&confinement.private, &mounts)?;
            Ok::<_, io::Error>(Confined {
                writable: writable.collect::<io::Result<_>>()?,
                privates: Privates::prepare(&private, &kept)?,
            })
        });
        let mut covers = kernel::covers(&mounts, &binding.base)?;
        covers.append(&mut places::covers(&mounts, &binding.base, sealing)?);
        Ok(Seal {
            covers,
            settings: kernel::settings(&mounts, &binding.base)?,
            confined: confined.transpose()?,
            hidden: places::hidden(&mounts, &binding.base, &sealing.hidden)?,
            has_network: sealing.has_network,
        })
    }

    fn is_confined(&self) -> bool {
        self.confined.is_some()
    }

    pub(super) fn has_network(&self) -> bool {
        self.has_network
    }

    /// Makes all mounts read-only, except those of the writable places, and makes the private
    /// directories.
    pub(super) fn confine(&self) -> Result<(), (Step, Errno)> {
        match &self.confined {
            Some(confined) => confined.make().map_err(|errno| (Step::Confine, errno)),
            None => Ok(()),
        }
    }

    /// With the view bound at `base`, binds it over every other place that shows the
    /// store, and hides what leads to the service.
    pub(super) fn cover(&self, base: &CStr) -> Result<(), (Step, Errno)> {
        if self.is_confined() {
            // The view was bound from a mount that is now read-only.
            let (set, clear) = (0, libc::MOUNT_ATTR_RDONLY);
            set_attributes(base, 0, set, clear).map_err(|errno| (Step::Confine, errno))?;
        }
        let covered = self.covers.iter().chain(&self.hidden).try_for_each(put);
        covered
            .and_then(|()| kernel::protect(&self.settings))
            .map_err(|errno| (Step::Cover, errno))
    }
}

impl Confined {
    fn make(&self) -> Result<(), Errno> {
        // We copy these mounts first, so that mounts which are read-only already stay so.
        let copies = private::copy(&self.writable)?;
        let (set, clear) = (libc::MOUNT_ATTR_RDONLY, 0);
        set_attributes(c"/", libc::AT_RECURSIVE, set, clear)?;
        self.privates.make()?;
        private::attach(&self.writable, &copies)?;
        self.privates.close()
    }
}

fn put(cover: &Cover) -> Result<(), Errno> {
    let done = match cover {
        Cover::View { source, .. } if is_refused(source) => Err(Errno::NOENT),
        Cover::View { source, target, .. } => mount_bind(&**source, &**target),
        Cover::Directory(target) => hide(target, true),
        Cover::File(target) => hide(target, false),
    };
    match (done, cover) {
        // The view no longer has this object, or it is now of another type.
        (
            Err(Errno::NOENT | Errno::NOTDIR),
            Cover::View {
                target,
                is_directory,
                ..
            },
        ) => match hide(target, *is_directory) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            hidden => hidden,
        },
        // Nobody reaches the place: it was removed, or something covers a directory above it.
        (Err(Errno::NOENT | Errno::NOTDIR), _) => Ok(()),
        (
            Err(Errno::PERM),
            Cover::Directory(target) | Cover::File(target) | Cover::View { target, .. },
        ) if is_refused(target) => Ok(()),
        (done, _) => done,
    }
}

/// Whether a native view is there by now, which refuses the name of the control directory.
fn is_refused(target: &CStr) -> bool {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::statat(rustix::fs::CWD, target, flags).err() == Some(Errno::PERM)
}

/// Covers what was a directory, or another file, when the covers were prepared. In the view it may
/// be of another type.
fn hide(target: &CStr, was_directory: bool) -> Result<(), Errno> {
    let hide = |is_directory| match is_directory {
        true => hide_directory(target),
        false => mount_bind(c"/dev/null", target),
    };
    match hide(was_directory) {
        Err(Errno::NOTDIR) => hide(!was_directory),
        hidden => hidden,
    }
}

fn hide_directory(target: &CStr) -> Result<(), Errno> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(
        c"atomdir-sealed",
        target,
        c"tmpfs",
        flags,
        c"mode=0555,size=4k",
    )
}

/// mount_setattr(2), for which rustix has no function.
pub(super) fn set_attributes(
    path: &CStr,
    flags: libc::c_int,
    set: u64,
    clear: u64,
) -> Result<(), Errno> {
    // SAFETY: the structure is plain numbers, and zero means no change.
    let mut attributes: libc::mount_attr = unsafe { std::mem::zeroed() };
    attributes.attr_set = set;
    attributes.attr_clr = clear;
    // SAFETY: the path and the structure live through the call, and the kernel gets the
    // structure's size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    checked(result)
}

/// The error of a system call that returned -1. Must be called right after it.
fn checked(result: libc::c_long) -> Result<(), Errno> {
    if result != -1 {
        return Ok(());
    }
    // SAFETY: the pointer is to this thread's own errno.
    Err(Errno::from_raw_os_error(unsafe {
        *libc::__errno_location()
    }))
}
