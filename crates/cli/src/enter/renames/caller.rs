//! Finds what a caller wants to rename, and who the caller is.

use super::requests::{Outcome, Request};
use super::{Server, directory};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags, openat, openat2,
    readlinkat, renameat_with, statx,
};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

const PATH_LENGTH_MAX: usize = 4096;
const PAGE: u64 = 4096;
/// Root's overlay moves everything whose path is not longer (OVL_REDIRECT_MAX, with a margin).
const MOVABLE_LENGTH_MAX: usize = 240;
/// CAP_DAC_OVERRIDE, CAP_FOWNER.
const RIGHTS_OF_ROOT: u64 = 1 << 1 | 1 << 3;

/// A path, as the caller's system call names it.
struct Given {
    directory: i32,
    address: u64,
}

/// A path that the caller has given.
struct CallersPath {
    /// In our `/proc`: the directory in which it begins.
    start: String,
    /// Relative to that, and without slashes at the end.
    path: Vec<u8>,
    /// It had slashes at the end.
    must_be_directory: bool,
}

/// A name in an open directory.
pub(super) struct Place {
    pub(super) parent: OwnedFd,
    pub(super) name: CString,
}

/// The arguments of a rename, or of a link if there are no flags.
struct Arguments {
    from: Given,
    to: Given,
    flags: Option<RenameFlags>,
}

impl Arguments {
    fn of(request: &Request) -> Option<Arguments> {
        let [a, b, c, d, e, _] = request.arguments;
        let given = |directory: u64, address| Given {
            directory: directory as i32,
            address,
        };
        let here = libc::AT_FDCWD as u64;
        let flags = Some(RenameFlags::empty());
        let (from, to, flags) = match request.call {
            libc::SYS_renameat2 => {
                let flags = RenameFlags::from_bits_retain(e as u32);
                (given(a, b), given(c, d), Some(flags))
            }
            libc::SYS_renameat => (given(a, b), given(c, d), flags),
            libc::SYS_linkat => (given(a, b), given(c, d), None),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => (given(here, a), given(here, b), flags),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => (given(here, a), given(here, b), None),
            _ => return None,
        };
        Some(Arguments { from, to, flags })
    }
}

impl Server<'_> {
    /// An error means that the kernel goes on, too.
    pub(super) fn perform(&self, request: &Request) -> Result<Outcome, Errno> {
        let arguments = Arguments::of(request).ok_or(Errno::NOSYS)?;
        let source = self.path(request, &arguments.from)?;
        let Some(flags) = arguments.flags else {
            return self.link(request, &source);
        };
        if !self.may_be_refused(&source)? {
            return Ok(Outcome::GoOn);
        }
        let target = self.path(request, &arguments.to)?;
        let (from, to) = (self.place(&source)?, self.place(&target)?);
        let has_wrong_slash = source.must_be_directory && !directory::is_directory(&from)
            || target.must_be_directory && !may_end_with_slash(&from, &to, flags);
        if has_wrong_slash || !self.is_known(request)? || !self.listener.is_waiting(request) {
            return Ok(Outcome::GoOn);
        }
        let done = match rename(&from, &to, flags) {
            Err(Errno::XDEV) if self.is_in_overlay(&from, &to) => {
                let moved = directory::move_by_parts(&from, &to, flags);
                if moved == Err(Errno::XDEV) {
                    self.report(from.parent.as_fd(), from.name.as_bytes());
                }
                moved
            }
            done => done,
        };
        Ok(Outcome::Done(done))
    }

    /// Git compares inode numbers after it has linked a file, to be sure that both are one. In an ordinary
    /// user's overlay they differ until the commit. If a link fails, git copies the file.
    fn link(&self, request: &Request, source: &CallersPath) -> Result<Outcome, Errno> {
        let name = self.read(&format!("{}/comm", request.process))?;
        let is_refused = self.is_limited
            && name.trim_ascii_end() == b"git"
            && self.is_in_view(&self.place(source)?)
            && self.listener.is_waiting(request);
        Ok(match is_refused {
            true => Outcome::Done(Err(Errno::XDEV)),
            false => Outcome::GoOn,
        })
    }

    /// Whether overlayfs may refuse to rename the object. Looks at as little as possible, since it mostly does
    /// not.
    fn may_be_refused(&self, source: &CallersPath) -> Result<bool, Errno> {
        if self.is_limited {
            let found = self.stat(source)?;
            return Ok(found.is_directory && self.devices.contains(&found.device));
        }
        let from = self.place(source)?;
        let above = self.within_store(from.parent.as_fd());
        let is_long = above
            .is_some_and(|above| above.len() + 1 + from.name.as_bytes().len() > MOVABLE_LENGTH_MAX);
        Ok(is_long && (!source.must_be_directory || self.stat(source)?.is_directory))
    }

    /// Its files may show other device numbers than its directories.
    fn is_in_view(&self, place: &Place) -> bool {
        let found = statx(&place.parent, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
        found.is_ok_and(|found| self.devices.contains(&device(&found)))
    }

    /// Whether both are in the view and on one mount.
    fn is_in_overlay(&self, from: &Place, to: &Place) -> bool {
        let mount = |place: &Place| {
            let flags = AtFlags::EMPTY_PATH;
            let found = statx(&place.parent, c"", flags, StatxFlags::MNT_ID).ok()?;
            (self.devices.contains(&device(&found))).then_some(found.stx_mnt_id)
        };
        mount(from).is_some_and(|one| Some(one) == mount(to))
    }

    /// Whether the caller has the rights that we use for it, and finds the same under each path.
    fn is_known(&self, request: &Request) -> Result<bool, Errno> {
        let process = request.process;
        let namespace = readlinkat(self.proc, format!("{process}/ns/mnt"), Vec::new())?;
        let users = |process: &str| readlinkat(self.proc, format!("{process}/ns/user"), Vec::new());
        let root = |directory: &dyn AsFd, path: &str| {
            let found = statx(directory, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
            Ok::<_, Errno>((device(&found), found.stx_ino, found.stx_mnt_id))
        };
        if namespace != self.namespace
            || root(&self.proc, &format!("{process}/root"))? != root(&CWD, "/")?
        {
            return Ok(false);
        }
        let status = self.read(&format!("{process}/status"))?;
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| {
            let mut lines = status.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        // The last of the four counts for files.
        let user = field("Uid:").and_then(|ids| ids.split_ascii_whitespace().last());
        let user = user.and_then(|user| user.parse::<u32>().ok());
        if user != Some(rustix::process::geteuid().as_raw()) {
            return Ok(false);
        }
        let rights = field("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok());
        Ok(self.is_limited
            || users(&process.to_string())? == users("self")?
                && rights.is_some_and(|rights| rights & RIGHTS_OF_ROOT == RIGHTS_OF_ROOT))
    }

    fn path(&self, request: &Request, given: &Given) -> Result<CallersPath, Errno> {
        let path = read_path(request.process, given.address)?;
        let process = request.process;
        let start = match (path.first(), given.directory) {
            (None, _) => return Err(Errno::NOENT),
            (Some(b'/'), _) => format!("{process}/root"),
            (Some(_), libc::AT_FDCWD) => format!("{process}/cwd"),
            (Some(_), directory) => format!("{process}/fd/{directory}"),
        };
        let is_slash = |byte: &u8| *byte == b'/';
        let first = path.iter().position(|byte| !is_slash(byte));
        let last = path.iter().rposition(|byte| !is_slash(byte));
        // The root directory cannot be renamed.
        let (first, last) = first.zip(last).ok_or(Errno::BUSY)?;
        Ok(CallersPath {
            start,
            path: path[first..=last].to_vec(),
            must_be_directory: path.ends_with(b"/"),
        })
    }

    /// Links of `/proc` may mean something else to the caller than to us, so they are not followed.
    fn place(&self, given: &CallersPath) -> Result<Place, Errno> {
        let last_slash = given.path.iter().rposition(|byte| *byte == b'/');
        let name_at = last_slash.map_or(0, |at| at + 1);
        let (above, name) = given.path.split_at(name_at);
        if matches!(name, b"." | b"..") {
            return Err(Errno::BUSY);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut parent = openat(self.proc, &*given.start, flags, Mode::empty())?;
        if !above.is_empty() {
            let resolve = ResolveFlags::NO_MAGICLINKS;
            parent = openat2(&parent, above, flags, Mode::empty(), resolve)?;
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Place { parent, name })
    }

    fn stat(&self, given: &CallersPath) -> Result<Found, Errno> {
        let mut whole = format!("{}/", given.start).into_bytes();
        whole.extend_from_slice(&given.path);
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(self.proc, &*whole, flags, StatxFlags::TYPE)?;
        Ok(Found {
            is_directory: FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory,
            device: device(&found),
        })
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        crate::files::read_at(self.proc, path)
    }
}

/// Whether the target's name may have a slash at the end. Otherwise the kernel refuses it.
fn may_end_with_slash(from: &Place, to: &Place, flags: RenameFlags) -> bool {
    let is_exchange = flags.contains(RenameFlags::EXCHANGE);
    directory::is_directory(from) && (!is_exchange || directory::is_directory(to))
}

struct Found {
    is_directory: bool,
    device: u64,
}

fn device(found: &rustix::fs::Statx) -> u64 {
    rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor)
}

pub(super) fn rename(from: &Place, to: &Place, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(&from.parent, &*from.name, &to.parent, &*to.name, flags)
}

/// Reads a string of another process, one page after the other, since the next one may be missing.
fn read_path(process: u32, address: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let mut page = [0_u8; PAGE as usize];
    let mut at = address;
    while path.len() < PATH_LENGTH_MAX {
        let length = (PAGE - at % PAGE) as usize;
        let here = libc::iovec {
            iov_base: page.as_mut_ptr().cast(),
            iov_len: length,
        };
        let there = libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: length,
        };
        // SAFETY: `page` is at least so long, and the other address is one of the other process.
        let read = unsafe {
            libc::process_vm_readv(process as i32, &raw const here, 1, &raw const there, 1, 0)
        };
        let read = usize::try_from(read).map_err(|_| Errno::FAULT)?;
        if read == 0 {
            return Err(Errno::FAULT);
        }
        match page[..read].iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&page[..end]);
                return Ok(path);
            }
            None => path.extend_from_slice(&page[..read]),
        }
        at += read as u64;
    }
    Err(Errno::NAMETOOLONG)
}
