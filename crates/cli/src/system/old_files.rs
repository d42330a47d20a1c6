//! Running programs that use files which commits have replaced or removed.
//!
//! Such a file has no name any more, or one in the control directory, where it is kept so that the commit
//! can be undone.

use crate::files;
use atomdir::client::mounts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A program that should be restarted.
pub struct Stale {
    pub process: u32,
    pub name: Vec<u8>,
    /// The unit of systemd that it belongs to.
    pub unit: Option<Vec<u8>>,
}

/// A store in which files may have been replaced.
pub struct Place {
    root: PathBuf,
    control: PathBuf,
    /// `MAJOR:MINOR`, as the kernel writes it in the list of mappings. None: any.
    device: Option<Vec<u8>>,
}

impl Place {
    pub fn new(root: &Path, control: &Path) -> Place {
        let found = statx(CWD, root, AtFlags::empty(), StatxFlags::MNT_ID).ok();
        let mount = found.and_then(|found| {
            let mut mounts = mounts::list().ok()?.into_iter();
            mounts.find(|mount| mount.id == found.stx_mnt_id)
        });
        Place {
            root: root.to_owned(),
            control: control.to_owned(),
            device: mount.and_then(|mount| in_maps(&mount.device)),
        }
    }

    /// Whether this is an old file of the store.
    fn has(&self, device: &[u8], path: &[u8]) -> bool {
        if self.device.as_deref().is_some_and(|own| own != device) {
            return false;
        }
        match path.strip_suffix(b" (deleted)") {
            Some(path) => below(&self.root, path) || below(&self.control, path),
            None => below(&self.control, path),
        }
    }
}

fn below(directory: &Path, path: &[u8]) -> bool {
    let rest = path.strip_prefix(directory.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}

/// The list of mounts has decimal numbers, and that of mappings two digits in base 16.
fn in_maps(device: &str) -> Option<Vec<u8>> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(format!("{major:02x}:{minor:02x}").into_bytes())
}

/// All that this process may look at, except services of Atomdir.
pub fn find(places: &[Place]) -> Vec<Stale> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(proc) = rustix::fs::open("/proc", flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&proc) else {
        return Vec::new();
    };
    let read = |process: u32, name: &str| files::read_at(&proc, format!("{process}/{name}"));
    let processes = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_str().ok()?;
        name.parse::<u32>().ok()
    });
    let stale = processes.filter_map(|process| {
        // The program itself is one of the mappings.
        let maps = read(process, "maps").ok()?;
        let mut lines = maps.split(|byte| *byte == b'\n');
        if !lines.any(|line| is_old(places, line)) {
            return None;
        }
        let name = read(process, "comm").unwrap_or_default();
        let name = name.trim_ascii_end().to_vec();
        let command = read(process, "cmdline").unwrap_or_default();
        if is_service(&command) {
            return None;
        }
        let groups = read(process, "cgroup").unwrap_or_default();
        Some(Stale {
            process,
            name,
            unit: unit(&groups),
        })
    });
    let mut stale: Vec<Stale> = stale.collect();
    stale.sort_by_key(|one| one.process);
    stale
}

/// Each line: addresses, rights, offset, device, inode and, after blanks, the path.
fn is_old(places: &[Place], line: &[u8]) -> bool {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let (Some(device), Some(path)) = (words.nth(3), words.nth(1)) else {
        return false;
    };
    places
        .iter()
        .any(|place| place.has(device, path.trim_ascii_start()))
}

/// It ends by itself, and the next one is the new program.
fn is_service(command: &[u8]) -> bool {
    let mut words = command.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    program.ends_with(b"atomdir") && words.any(|word| word == b"service")
}

fn unit(groups: &[u8]) -> Option<Vec<u8>> {
    let names = groups.split(|byte| *byte == b'\n' || *byte == b'/');
    let mut units = names.filter(|name| name.ends_with(b".service"));
    units.next_back().map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_files_of_a_store_are_recognized_in_a_list_of_mappings() {
        let places = [Place {
            root: "/usr".into(),
            control: "/usr/.atomdir".into(),
            device: in_maps("254:0"),
        }];
        for (line, is_stale) in [
            (
                "7f-80 r-xp 0 fe:00 12                 /usr/lib/a b.so",
                false,
            ),
            (
                "7f-80 r-xp 0 fe:00 12                 /usr/lib/a b.so (deleted)",
                true,
            ),
            (
                "7f-80 r-xp 0 fe:00 12                 /usr/.atomdir/limbo/12",
                true,
            ),
            (
                "7f-80 r-xp 0 fe:01 12                 /usr/lib/a.so (deleted)",
                false,
            ),
            (
                "7f-80 r-xp 0 fe:00 12                 /usrlib/a.so (deleted)",
                false,
            ),
            ("7f-80 rw-p 0 00:00 0 ", false),
            ("7f-80 rw-p 0 00:00 0                  [heap]", false),
            ("", false),
        ] {
            assert_eq!(is_old(&places, line.as_bytes()), is_stale, "{line}");
        }
        let groups = b"0::/system.slice/system-getty.slice/getty@tty1.service\n";
        assert_eq!(unit(groups).as_deref(), Some(&b"getty@tty1.service"[..]));
        assert_eq!(unit(b"0::/user.slice\n"), None);
    }
}
