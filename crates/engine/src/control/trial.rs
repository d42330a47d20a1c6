//! Tries in the control directory whether the file system can do what a store needs,
//! when the store is made.
//!
//! A commit that is in the log must be applied. If the file system lacks a call that this needs,
//! the user must learn it before there is a store. The trial looks at what calls do, not at the
//! file system's name. It cannot see what happens once the kernel no longer caches an object, for
//! example that the object gets another inode number.
//!
//! Overlays are recognized by their type, because the trial would not notice them: an
//! object of a lower layer gets another identity when it is first written, and nothing
//! in a new directory comes from a lower layer. Where all objects are in the upper layer,
//! identities last; only whoever has copied them there knows that ([`Layers::Upper`]).

use atomdir_disk::{
    Access, Disk, Errno, FileSystemId, FileSystemStatus, Identity, NewNode, RenameMode, Times,
    Timestamp, reason,
};

use crate::control;
use crate::error::StoreError;
use crate::names;

const FILE: &str = "file";
const LINK: &str = "link";
const FIRST: &str = "first";
const SECOND: &str = "second";
const XATTR: &[u8] = b"user.atomdir.trial";
const TIME: Timestamp = Timestamp {
    seconds: 1_000_000_000,
    nanoseconds: 0,
};

const NO_REPLACE: &str = "renames that replace nothing (RENAME_NOREPLACE)";
const LAYERED: &str = "it is an overlay, as a container's root is, on which a file gets another birth time and loses its hard links when it is first changed";

enum Failure {
    Unsuitable(String),
    Failed(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Failed(errno)
    }
}

type Outcome = Result<(), Failure>;

/// What a caller knows of the base's objects, should the file system be an overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    /// Some may be in a lower layer.
    Any,
    /// All are in the upper layer, as whatever is made later will be.
    Upper,
}

/// Fails if the store was not made in an overlay's upper layer, or if that is a lower layer now, as
/// in a container that was made from another one.
pub(crate) fn require_upper<D: Disk>(
    disk: &D,
    status: &FileSystemStatus,
    control: &D::Handle,
) -> Result<(), StoreError> {
    if !status.layered {
        return Ok(());
    }
    // An overlay has no id. So this store was made on the file system of a layer.
    if control::read_header(disk, control)?.place.file_system != FileSystemId::default() {
        refuse_layered(status)?;
    }
    // Copies this file and the directories above it out of a lower layer. Then they have other birth
    // times than the header says, and the store counts as a copy.
    let header = disk.open(control, &names::fixed(names::HEADER), Access::ReadWrite);
    header.map(drop).map_err(control::failed("open the header"))
}

pub(crate) fn refuse_layered(status: &FileSystemStatus) -> Result<(), StoreError> {
    if status.layered {
        let reason = LAYERED.to_owned();
        return Err(StoreError::Unsuitable { reason });
    }
    Ok(())
}

/// Leaves nothing behind. If the process dies, the next trial removes its files.
pub(crate) fn run<D: Disk>(
    disk: &D,
    control: &D::Handle,
    layers: Layers,
) -> Result<(), StoreError> {
    let failed = |errno| control::failed("try what the file system can do")(errno);
    if layers == Layers::Any {
        refuse_layered(&disk.status(control).map_err(failed)?)?;
    }
    let name = names::fixed(names::TRIAL);
    control::remove_tree(disk, control, &name).map_err(failed)?;
    let made = disk.make(control, &name, &NewNode::Directory, 0o700);
    made.map_err(failed)?;
    let directory = disk.open(control, &name, Access::Directory);
    let tried = directory
        .map_err(Failure::Failed)
        .and_then(|directory| Trial { disk, directory }.run());
    let removed = control::remove_tree(disk, control, &name);
    match tried {
        Err(Failure::Unsuitable(reason)) => Err(StoreError::Unsuitable { reason }),
        Err(Failure::Failed(errno)) => Err(failed(errno)),
        Ok(()) => removed.map_err(failed),
    }
}

struct Trial<'a, D: Disk> {
    disk: &'a D,
    directory: D::Handle,
}

impl<D: Disk> Trial<'_, D> {
    fn run(&self) -> Outcome {
        self.links()?;
        self.renames()?;
        self.changes()?;
        self.removals()?;
        self.xattrs()?;
        self.locks()
    }

    fn identity(&self, name: &str) -> Result<Identity, Errno> {
        let stat = self.disk.stat_at(&self.directory, &names::fixed(name))?;
        Ok(stat.identity)
    }

    fn open(&self, name: &str, access: Access) -> Result<D::Handle, Errno> {
        self.disk.open(&self.directory, &names::fixed(name), access)
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<(), Errno> {
        let (from, to) = (names::fixed(from), names::fixed(to));
        let directory = &self.directory;
        self.disk.rename((directory, &from), (directory, &to), mode)
    }

    fn links(&self) -> Outcome {
        let (file, link) = (names::fixed(FILE), names::fixed(LINK));
        let created = self.disk.create(&self.directory, &file, 0o600)?;
        let linked = self
            .disk
            .link((&self.directory, &file), (&self.directory, &link));
        linked.map_err(lacking("hard links"))?;
        let stat = self.disk.stat(&created)?;
        require(
            stat.links == 2 && self.identity(LINK)? == stat.identity,
            "it does not count the names of a file",
        )
    }

    /// An object keeps its identity wherever it is moved, and handles stay with it.
    fn renames(&self) -> Outcome {
        for name in [FIRST, SECOND] {
            let name = names::fixed(name);
            self.disk
                .make(&self.directory, &name, &NewNode::Directory, 0o700)?;
        }
        let (file, first) = (self.identity(FILE)?, self.identity(FIRST)?);
        let (handle, second) = (
            self.open(FIRST, Access::Directory)?,
            self.open(SECOND, Access::Directory)?,
        );
        match self.rename(FIRST, SECOND, RenameMode::NoReplace) {
            Err(Errno::EXIST) => {}
            renamed => {
                renamed.map_err(lacking(NO_REPLACE))?;
                require(false, "its RENAME_NOREPLACE replaces an empty directory")?;
            }
        }
        let inside = names::fixed(FIRST);
        let moved = self.disk.rename(
            (&self.directory, &inside),
            (&second, &inside),
            RenameMode::NoReplace,
        );
        moved.map_err(lacking(NO_REPLACE))?;
        let exchanged = self.disk.rename(
            (&self.directory, &names::fixed(FILE)),
            (&second, &inside),
            RenameMode::Exchange,
        );
        exchanged.map_err(lacking("renames that exchange objects (RENAME_EXCHANGE)"))?;
        let exchanged = self.disk.stat_at(&second, &inside)?.identity;
        require(
            self.identity(FILE)? == first && exchanged == file,
            "it changes inode numbers or birth times of objects that are renamed",
        )?;
        // An object made through the handle is found under the directory's new name.
        drop(self.disk.create(&handle, &names::fixed(LINK), 0o600)?);
        let moved = self.open(FILE, Access::Directory)?;
        let found = self.disk.stat_at(&moved, &names::fixed(LINK));
        require(
            found.is_ok(),
            "the handle of a directory leads elsewhere once the directory is renamed",
        )
    }

    fn changes(&self) -> Outcome {
        let before = self.identity(LINK)?;
        let times = Times {
            accessed: TIME,
            modified: TIME,
        };
        let file = self.open(LINK, Access::ReadWrite)?;
        self.disk.write_at(&file, b"contents", 0)?;
        self.disk.set_mode(&file, 0o640)?;
        self.disk.set_times(&file, times)?;
        drop(file);
        let file = self.open(LINK, Access::Read)?;
        let after = self.disk.stat(&file)?;
        require(
            after.identity == before && self.identity(LINK)? == before,
            "it changes inode numbers or birth times of objects that are written",
        )?;
        require(
            after.attributes.mode == 0o640 && after.attributes.times.modified == TIME,
            "it does not keep modes or times",
        )
    }

    /// A file can be used after its last name has gone. Without birth times, its inode
    /// number must not be given again at once.
    fn removals(&self) -> Outcome {
        let name = names::fixed("removed");
        let mut earlier = Vec::new();
        for _ in 0..4 {
            let file = self.disk.create(&self.directory, &name, 0o600)?;
            self.disk.unlink(&self.directory, &name)?;
            let stat = self.disk.stat(&file)?;
            require(
                stat.links == 0,
                "a file that is open is lost when its name is removed",
            )?;
            let identity = stat.identity;
            require(
                identity.birth != 0 || !earlier.contains(&identity),
                "it keeps no birth times, and gives the inode numbers of removed files again",
            )?;
            earlier.push(identity);
        }
        Ok(())
    }

    /// A file system without extended attributes will do: then no object has any.
    fn xattrs(&self) -> Outcome {
        for name in [FILE, LINK] {
            let object = self.open(name, Access::Path)?;
            match self.disk.set_xattr(&object, XATTR, b"value") {
                Err(Errno::OPNOTSUPP) => return Ok(()),
                set => set?,
            }
            let is_kept = self.disk.xattr(&object, XATTR)? == b"value"
                && self.disk.xattr_names(&object)?.iter().any(|of| of == XATTR);
            require(is_kept, "it does not keep extended attributes")?;
            self.disk.remove_xattr(&object, XATTR)?;
        }
        Ok(())
    }

    fn locks(&self) -> Outcome {
        let (one, other) = (
            self.open(LINK, Access::Read)?,
            self.open(LINK, Access::Read)?,
        );
        self.disk.try_lock(&one).map_err(lacking("locks (flock)"))?;
        let locked = self.disk.try_lock(&other);
        require(
            locked == Err(Errno::WOULDBLOCK),
            "a lock on a file (flock) does not keep others out",
        )
    }
}

fn require(holds: bool, or_else: &str) -> Outcome {
    if holds {
        return Ok(());
    }
    Err(Failure::Unsuitable(or_else.to_owned()))
}

/// The errors with which file systems report that they do not support a call.
fn lacking(what: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| match errno {
        Errno::OPNOTSUPP
        | Errno::NOSYS
        | Errno::INVAL
        | Errno::PERM
        | Errno::MLINK
        | Errno::XDEV => {
            Failure::Unsuitable(format!("it has no {what}: {errno}", errno = reason(errno)))
        }
        errno => Failure::Failed(errno),
    }
}
