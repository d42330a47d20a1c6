//! Files that change whole under a guard, as the store's profiles say: whose, and how they are committed.

use crate::service::Service;
use atomdir::client::profiles::{Profile, parse_profiles, profile_of, profiles_in};
use atomdir_disk::{Disk, Kind, LinuxDisk, NewNode, SetAttributes, SetTime, Stat, Timestamp, sync};
use atomdir_engine::{
    BeginOptions, Caller, CommitError, Conflicts, Durability, Isolation, NodeId, Store, Transaction,
};
use atomdir_guard::{FileSessions, Landing};
use atomdir_protocol::{Failure, FailureKind};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, openat, readlinkat, statat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// How often a landing begins anew because others have committed to the file meanwhile.
const TRIES_MAX: usize = 16;
const CHUNK: usize = 1 << 20;

/// The profiles as they were read last, and the file's stamp then.
type Read = (Option<Timestamp>, Vec<Profile>);

pub(super) struct Profiled {
    store: Store<LinuxDisk>,
    control: OwnedFd,
    read: Mutex<Read>,
}

impl Profiled {
    /// `None`: no profile wants any file to change whole, so the guard serves no opens.
    pub fn of(service: &Service) -> Result<Option<Box<Profiled>>, Failure> {
        let io =
            |errno: Errno| Failure::new(FailureKind::Io, atomdir_disk::reason(errno).to_string());
        let control = &service.access.control;
        let read = read(control).map_err(|why| Failure::new(FailureKind::Misconfigured, why))?;
        if !read.1.iter().any(Profile::wants_whole) {
            return Ok(None);
        }
        Ok(Some(Box::new(Profiled {
            store: service.store.clone(),
            control: control.try_clone().map_err(|_| io(Errno::MFILE))?,
            read: Mutex::new(read),
        })))
    }
}

fn read(control: &OwnedFd) -> Result<Read, String> {
    let stamp = stamp(control);
    let text = profiles_in(control).map_err(|error| error.to_string())?;
    // The command has checked the options of runs.
    let profiles = parse_profiles(&text, |_| Ok(()));
    let profiles =
        profiles.map_err(|bad| format!("line {} of the profiles: {}", bad.line, bad.why))?;
    Ok((stamp, profiles))
}

fn stamp(control: &OwnedFd) -> Option<Timestamp> {
    let stat = statat(control, "profiles", AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(Timestamp {
        seconds: stat.st_ctime,
        nanoseconds: u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
    })
}

impl FileSessions for Profiled {
    fn label(&self, process: u32, path: &[u8]) -> Option<Vec<u8>> {
        let mut known = sync::lock(&self.read);
        if known.0 != stamp(&self.control) {
            match read(&self.control) {
                Ok(read) => *known = read,
                Err(why) => {
                    tracing::warn!("the profiles that were there before still count: {why}");
                    known.0 = stamp(&self.control);
                }
            }
        }
        let program = readlinkat(CWD, format!("/proc/{process}/exe"), Vec::new());
        let program = program.map_or_else(|_| Vec::new(), CString::into_bytes);
        let program = PathBuf::from(OsString::from_vec(program));
        let profile = profile_of(&known.1, &program, |one| one.has_whole(path))?;
        let label = profile.value("message").map(str::as_bytes);
        let label = label.map_or_else(
            || [program.as_os_str().as_encoded_bytes(), b": ", path].concat(),
            <[u8]>::to_vec,
        );
        Some(label)
    }

    fn land(&self, landing: &Landing<'_>) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            let options = BeginOptions {
                owner: landing.user,
                isolation: Isolation::Snapshot,
                // A lazy one would be seen late, also by the program itself.
                durability: Durability::Durable,
                conflicts: Conflicts::AtCommit,
                first_try: None,
                label: landing.label.to_vec(),
            };
            let transaction = self.store.begin(options).map_err(|_| Errno::IO)?;
            let written = write(&transaction, landing);
            let error = match written.map(|()| self.store.commit(&transaction)) {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(CommitError::Conflict(_) | CommitError::Leased { .. })) => None,
                Ok(Err(CommitError::NoSpace { .. })) => Some(Errno::NOSPC),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a file that was closed has not changed");
                    Some(Errno::IO)
                }
                Err(errno) => Some(errno),
            };
            self.store.abort(&transaction);
            if let Some(errno) = error {
                return Err(errno);
            }
        }
        Err(Errno::BUSY)
    }
}

/// Gives the file in a transaction what the copy holds.
fn write(transaction: &Transaction<LinuxDisk>, landing: &Landing<'_>) -> Result<(), Errno> {
    let disk = LinuxDisk::new();
    let stat = disk.stat(landing.copy)?;
    let caller = Caller {
        user: stat.attributes.owner.user,
        group: stat.attributes.owner.group,
    };
    let names = landing.path.split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let (name, directories) = names.split_last().ok_or(Errno::INVAL)?;
    let mut parent = NodeId::ROOT;
    for directory in directories {
        parent = transaction.lookup(parent, directory)?.node;
    }
    let mode = stat.attributes.mode & 0o7777;
    let entry = match transaction.lookup(parent, name) {
        Err(Errno::NOENT) => transaction.create(parent, name, NewNode::File, mode, 0, caller)?,
        found => found?,
    };
    if entry.attributes.kind != Kind::File {
        return Err(Errno::ISDIR);
    }
    let set = |change: SetAttributes| transaction.set_attributes(entry.node, change, caller);
    let length = |length| SetAttributes {
        length: Some(length),
        ..SetAttributes::default()
    };
    set(length(0))?;
    write_contents(transaction, entry.node, landing.copy)?;
    set(length(stat.length))?;
    set_attributes(transaction, &entry, landing.copy, &stat)
}

fn write_contents(
    transaction: &Transaction<LinuxDisk>,
    node: NodeId,
    copy: &OwnedFd,
) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut chunk = vec![0; CHUNK];
    let mut end = 0;
    loop {
        // Without the holes.
        let mut offset = match rustix::fs::seek(&file, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(()),
            found => found?,
        };
        end = rustix::fs::seek(&file, SeekFrom::Hole(offset))?;
        while offset < end {
            let wanted = chunk.len().min((end - offset) as usize);
            let read = || rustix::io::pread(&file, &mut chunk[..wanted], offset);
            let count = retry_on_intr(read)?;
            if count == 0 {
                return Ok(());
            }
            transaction.write(node, offset, &chunk[..count], false)?;
            offset += count as u64;
        }
    }
}

fn set_attributes(
    transaction: &Transaction<LinuxDisk>,
    entry: &atomdir_engine::Entry,
    copy: &OwnedFd,
    stat: &Stat,
) -> Result<(), Errno> {
    let disk = LinuxDisk::new();
    let (attributes, old) = (&stat.attributes, &entry.attributes);
    let differs = attributes.owner != old.owner;
    let change = SetAttributes {
        user: differs.then_some(attributes.owner.user),
        group: differs.then_some(attributes.owner.group),
        mode: (differs || attributes.mode & 0o7777 != old.mode & 0o7777)
            .then_some(attributes.mode & 0o7777),
        accessed: Some(SetTime::At(attributes.times.accessed)),
        modified: Some(SetTime::At(attributes.times.modified)),
        ..SetAttributes::default()
    };
    let caller = Caller { user: 0, group: 0 };
    for name in disk.xattr_names(copy)? {
        let value = disk.xattr(copy, &name)?;
        if transaction.xattr(entry.node, &name) != Ok(value.clone()) {
            transaction.set_xattr(entry.node, &name, &value, 0, false)?;
        }
    }
    transaction
        .set_attributes(entry.node, change, caller)
        .map(drop)
}
