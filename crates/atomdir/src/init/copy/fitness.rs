//! Whether a directory can be moved to an overlay's upper layer, so that all in it stays what it is.

use super::{Failure, Outcome, at};
use crate::hosting::kernel_text;
use crate::mounts;
use crate::services::processes;
use atomdir_disk::{Disk, LinuxDisk, Name};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const REDIRECT_DEFAULT: &str = "/sys/module/overlay/parameters/redirect_dir";

fn refuse<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Failure::Refused(reason.into()))
}

pub(super) fn check(root: &Path, handle: &OwnedFd) -> Outcome {
    let status = LinuxDisk::new().status(handle);
    if !status
        .map_err(at("", "examine the file system of"))?
        .layered
    {
        return refuse("it is on no overlay, so it can become a store where it is, without a copy");
    }
    if mounts::any_below(root) {
        return refuse("file systems are mounted in it; choose a directory without any");
    }
    if may_redirect(handle) {
        return refuse(
            "its overlay is mounted with redirect_dir=on, so directories of a lower layer could be \
             moved into the store",
        );
    }
    check_use(root)
}

/// Whether the kernel lets programs rename directories of a lower layer. Where it does not, these are
/// copied, so whatever comes into the store is in the upper layer.
fn may_redirect(handle: &OwnedFd) -> bool {
    let option = || {
        let found = statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        let text = kernel_text("/proc/thread-self/mountinfo")?;
        let id = format!("{} ", found.stx_mnt_id);
        let line = text.lines().find(|line| line.starts_with(&id))?;
        let (_, file_system) = line.split_once(" - ")?;
        let mut options = file_system.split([' ', ',']);
        let set = options.find_map(|option| option.strip_prefix("redirect_dir="))?;
        Some(set == "on")
    };
    let default = || kernel_text(REDIRECT_DEFAULT).is_some_and(|text| text.starts_with('Y'));
    option().unwrap_or_else(default)
}

/// Where the layers are on several file systems, directories have no inode numbers that last, unless
/// overlayfs makes the numbers of all objects unique (`xino`). It shows that by the device numbers.
pub(super) fn check_layers(disk: &LinuxDisk, root: &OwnedFd, copy: &OwnedFd) -> Outcome {
    let name = Name::new(b"file").map_err(|_| Failure::Refused("no name".to_owned()))?;
    let failed = at("", "try the file system of");
    let file = disk.create(copy, &name, 0o600).map_err(&failed)?;
    let (file, directory) = (disk.stat(&file), disk.stat(root));
    disk.unlink(copy, &name).map_err(&failed)?;
    if file.map_err(&failed)?.device == directory.map_err(&failed)?.device {
        return Ok(());
    }
    refuse(
        "the layers of its overlay are on several file systems, so its directories have no inode \
         numbers that last",
    )
}

/// Refuses while another process uses what is in the directory, since that would go on in what was
/// removed. Only what this user may see is found.
pub(super) fn check_use(root: &Path) -> Outcome {
    let own = std::process::id();
    for process in processes().unwrap_or_default() {
        if process != own
            && let Some(path) = used_below(process, root)
        {
            let program = kernel_text(&format!("/proc/{process}/comm")).unwrap_or_default();
            return refuse(format!(
                "process {process} ({}) uses '{}'; end it, or let it leave, first",
                program.trim_end(),
                path.display()
            ));
        }
    }
    Ok(())
}

fn used_below(process: u32, root: &Path) -> Option<PathBuf> {
    let is_below = |path: &PathBuf| path != root && path.starts_with(root);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let of_process = openat(CWD, format!("/proc/{process}"), flags, Mode::empty()).ok()?;
    let target = |directory: &OwnedFd, name: &[u8]| {
        let target = readlinkat(directory, name, Vec::new()).ok()?;
        Some(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
    };
    let fixed = [&b"cwd"[..], b"root", b"exe"].into_iter();
    let mut fixed = fixed.filter_map(|name| target(&of_process, name));
    if let Some(found) = fixed.find(is_below) {
        return Some(found);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let files = openat(&of_process, "fd", flags, Mode::empty()).ok()?;
    let listed = Dir::read_from(&files).ok()?.filter_map(Result::ok);
    let mut open = listed.filter_map(|entry| target(&files, entry.file_name().to_bytes()));
    open.find(is_below)
}
