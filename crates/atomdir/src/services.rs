//! Which processes say that they are services of stores.

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longer command lines are not those of services.
const LENGTH_MAX: usize = 16 << 10;

/// The roots of stores that the command lines of processes name as those of services. Anybody can
/// start such a process.
pub fn stores_with_services() -> Vec<PathBuf> {
    let processes = processes().unwrap_or_default().into_iter();
    let lines = processes.filter_map(command_line);
    lines.filter_map(|line| store_of(&line)).collect()
}

/// All processes that this one sees.
pub(crate) fn processes() -> Result<Vec<u32>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(CWD, "/proc", flags, Mode::empty()).and_then(Dir::new)?;
    let names = listed.flatten().map(|entry| entry.file_name().to_owned());
    let processes = names.filter_map(|name| name.to_str().ok()?.parse().ok());
    Ok(processes.collect())
}

fn command_line(process: u32) -> Option<Vec<u8>> {
    let path = format!("/proc/{process}/cmdline");
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    while line.len() <= LENGTH_MAX {
        match rustix::io::read(&file, &mut buffer).ok()? {
            0 => return Some(line),
            count => line.extend_from_slice(&buffer[..count]),
        }
    }
    None
}

/// The store in `PROGRAM service run ... --store ROOT`.
fn store_of(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    let is_service = words.next() == Some(b"service") && words.next() == Some(b"run");
    if !is_service {
        return None;
    }
    words.find(|word| *word == b"--store")?;
    let root = PathBuf::from(OsStr::from_bytes(words.next()?));
    root.is_absolute().then_some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_their_command_line() {
        let found = |line: &[u8]| store_of(line);
        let wanted = Some(PathBuf::from("/srv/site"));
        assert_eq!(
            found(b"atomdir\0service\0run\0--detach\0--store\0/srv/site\0"),
            wanted
        );
        assert_eq!(
            found(b"/x\0service\0run\0--idle\0never\0--store\0/srv/site\0"),
            wanted
        );
        for line in [
            &b""[..],
            b"atomdir\0service\0run\0",
            b"atomdir\0service\0run\0--store\0",
            b"atomdir\0service\0run\0--store\0site\0",
            b"vi\0--store\0/srv/site\0",
        ] {
            assert_eq!(found(line), None);
        }
    }
}
