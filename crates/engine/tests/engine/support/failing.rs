//! A disk that fails from a chosen call on, as if the process were killed, and records
//! which changes were requested.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atomdir_disk::{
    Access, Attachment, Charge, DirectoryEntry, Disk, Errno, Extent, FileSystemStatus, Kind,
    LinuxDisk, Name, NewNode, Owner, PartLock, Placement, RenameMode, Result, Stat, Times,
    Timestamp,
};

#[derive(Clone)]
pub struct FailingDisk {
    inner: Arc<LinuxDisk>,
    /// How many changes still succeed.
    left: Arc<AtomicI64>,
    error: Errno,
    /// Whether all later calls fail, too, or only that one.
    forever: bool,
    /// From the chosen call on, those that take space fail, and no others.
    fills: bool,
    changes: Arc<Mutex<Vec<&'static str>>>,
    calls: Arc<AtomicU64>,
    /// Flushes of the log wait while a test holds this lock.
    pub flushes: Arc<Mutex<()>>,
    clock: Arc<Mutex<FileClock>>,
    flushes_nothing: bool,
    /// Directories have one link, as on Btrfs.
    counts_no_subdirectories: bool,
    modifies_exchanged_directories: bool,
    /// What is added to all inode numbers.
    inodes_from: u64,
    intruder: Arc<Mutex<Option<Intruder>>>,
    /// A name, and an action to run once, right after that name was looked up in a directory.
    after_lookup: Arc<Mutex<Option<AfterLookup>>>,
    /// A name, and an action to run once, right after that name was opened in a directory.
    after_open: Arc<Mutex<Option<AfterLookup>>>,
    /// An inode, and an action to run once, right before that file is read.
    before_read: Arc<Mutex<Option<(u64, Action)>>>,
    /// An action to run once, right after the next flush of the log.
    after_flush: Arc<Mutex<Option<Action>>>,
    at_apply: Arc<Mutex<AtApply>>,
    /// Whether the file system seems to have no space left.
    full: Arc<AtomicBool>,
    /// The inode on which another file system seems to be mounted.
    mounted: Arc<Mutex<Option<u64>>>,
}

/// An action to run once, at the first change after the next flush of the log that is not part of a
/// check.
#[derive(Default)]
enum AtApply {
    #[default]
    Nothing,
    AwaitsFlush(Action),
    Armed(Action),
}

type Action = Box<dyn FnOnce() + Send>;

type AfterLookup = (Vec<u8>, Action);

/// How many more changes to wait for, and an action to run once after them.
type Intruder = (usize, Action);

/// The file system's clock, as far as change times show it.
#[derive(Default)]
struct FileClock {
    newest: Timestamp,
    /// Change times from this one on are reported as earlier ones.
    back_from: Option<Timestamp>,
}

const HOUR_SECONDS: i64 = 3600;

/// The calls that a full disk refuses.
const TAKE_SPACE: [&str; 6] = [
    "create",
    "make",
    "link",
    "write_at",
    "allocate",
    "copy_range",
];

impl FailingDisk {
    pub fn new(error: Errno, forever: bool) -> FailingDisk {
        let left = Arc::new(AtomicI64::new(i64::MAX));
        FailingDisk {
            inner: Arc::new(LinuxDisk::new()),
            left,
            error,
            forever,
            fills: false,
            changes: Arc::default(),
            calls: Arc::default(),
            flushes: Arc::default(),
            clock: Arc::default(),
            flushes_nothing: false,
            counts_no_subdirectories: false,
            modifies_exchanged_directories: false,
            inodes_from: 0,
            intruder: Arc::default(),
            after_lookup: Arc::default(),
            after_open: Arc::default(),
            before_read: Arc::default(),
            after_flush: Arc::default(),
            at_apply: Arc::default(),
            full: Arc::default(),
            mounted: Arc::default(),
        }
    }

    /// A disk that is full from the chosen call on.
    pub fn filling() -> FailingDisk {
        FailingDisk {
            fills: true,
            ..FailingDisk::new(Errno::NOSPC, false)
        }
    }

    /// For tests in which no machine dies: flushes would take most of their time.
    pub fn without_flushes() -> FailingDisk {
        FailingDisk::new(Errno::IO, true).flushing_nothing()
    }

    /// How many calls there have been, changes and others.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    pub fn counting_no_subdirectories(self) -> FailingDisk {
        FailingDisk {
            counts_no_subdirectories: true,
            ..self
        }
    }

    /// Inode numbers as some file systems have them.
    pub fn with_inodes_from(self, inodes_from: u64) -> FailingDisk {
        FailingDisk {
            inodes_from,
            ..self
        }
    }

    /// As XFS, which sets the modification time of directories that an exchange moves.
    pub fn modifying_exchanged_directories(self) -> FailingDisk {
        FailingDisk {
            modifies_exchanged_directories: true,
            ..self
        }
    }

    pub fn flushing_nothing(self) -> FailingDisk {
        FailingDisk {
            flushes_nothing: true,
            ..self
        }
    }

    /// Makes another writer act right before a later change.
    pub fn intrude_before(&self, changes: usize, act: impl FnOnce() + Send + 'static) {
        *self.intruder.lock().expect("no test panics with it") = Some((changes, Box::new(act)));
    }

    /// Makes another writer act once this name was looked up, or before something is put there.
    pub fn intrude_after_lookup(&self, name: &[u8], act: impl FnOnce() + Send + 'static) {
        let mut after = self.after_lookup.lock().expect("no test panics with it");
        *after = Some((name.to_vec(), Box::new(act)));
    }

    /// Makes another writer act right after this name was opened.
    pub fn intrude_after_open(&self, name: &[u8], act: impl FnOnce() + Send + 'static) {
        let mut after = self.after_open.lock().expect("no test panics with it");
        *after = Some((name.to_vec(), Box::new(act)));
    }

    /// Makes another writer act right before this file is read.
    pub fn intrude_before_read(&self, inode: u64, act: impl FnOnce() + Send + 'static) {
        *self.before_read.lock().expect("no test panics with it") = Some((inode, Box::new(act)));
    }

    /// Makes another writer act right after the next flush of the log.
    pub fn intrude_after_flush(&self, act: impl FnOnce() + Send + 'static) {
        *self.after_flush.lock().expect("no test panics with it") = Some(Box::new(act));
    }

    /// Makes another writer act when the next commit is applied and has passed its second check.
    pub fn intrude_at_apply(&self, act: impl FnOnce() + Send + 'static) {
        *self.at_apply.lock().expect("no test panics with it") =
            AtApply::AwaitsFlush(Box::new(act));
    }

    /// From now on the file system says that it has no space left. Calls succeed all the same.
    pub fn seem_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    fn arm(&self) {
        let mut at_apply = self.at_apply.lock().expect("no test panics with it");
        *at_apply = match std::mem::take(&mut *at_apply) {
            AtApply::AwaitsFlush(act) => AtApply::Armed(act),
            other => other,
        };
    }

    fn let_intrude_at_apply(&self) {
        let mut at_apply = self.at_apply.lock().expect("no test panics with it");
        match std::mem::take(&mut *at_apply) {
            AtApply::Armed(act) => act(),
            other => *at_apply = other,
        }
    }

    /// From now on a file system seems to be mounted on this object, or on none.
    pub fn seem_mounted(&self, inode: Option<u64>) {
        *self.mounted.lock().expect("no test panics with it") = inode;
    }

    /// An object's attributes as this disk reports them.
    fn as_seen(&self, stat: Stat) -> Stat {
        let mut stat = self.with_clock(stat);
        let mounted = self.mounted.lock().expect("no test panics with it");
        stat.mount_point |= *mounted == Some(stat.identity.inode);
        if self.counts_no_subdirectories && stat.kind == Kind::Directory {
            stat.links = 1;
        }
        stat.identity.inode += self.inodes_from;
        stat
    }

    /// Whether the other writer has yet to act.
    pub fn awaits_intruder(&self) -> bool {
        let intruder = self.intruder.lock().expect("no test panics with it");
        intruder.is_some()
    }

    fn let_intrude(&self) {
        let mut intruder = self.intruder.lock().expect("no test panics with it");
        match intruder.take() {
            Some((0, act)) => {
                // The action may set the next intruder.
                drop(intruder);
                act();
            }
            Some((left, act)) => *intruder = Some((left - 1, act)),
            None => {}
        }
    }

    fn flush(&self, call: &'static str, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        self.change(call)?;
        if self.flushes_nothing {
            Ok(())
        } else {
            flush()
        }
    }

    pub fn fail_after(&self, changes: i64) {
        self.left.store(changes, Ordering::SeqCst);
    }

    pub fn has_failed(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    /// Acts as if the system's clock had been set back by an hour just now.
    pub fn set_clock_back(&self) {
        let mut clock = self.clock.lock().expect("no test panics with it");
        clock.back_from = Some(clock.newest);
    }

    fn with_clock(&self, mut stat: Stat) -> Stat {
        let mut clock = self.clock.lock().expect("no test panics with it");
        clock.newest = clock.newest.max(stat.changed);
        if clock.back_from.is_some_and(|from| stat.changed >= from) {
            stat.changed.seconds -= HOUR_SECONDS;
        }
        stat
    }

    /// The names of the changing calls since this was last called.
    pub fn take_changes(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.changes.lock().expect("no test panics with it"))
    }

    fn change(&self, call: &'static str) -> Result<()> {
        self.let_intrude_at_apply();
        self.check(call)
    }

    /// A changing call with which a check probes and which cannot succeed.
    fn check(&self, call: &'static str) -> Result<()> {
        self.let_intrude();
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.changes
            .lock()
            .expect("no test panics with it")
            .push(call);
        if call == "sync_data" {
            drop(self.flushes.lock());
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let fails = match self.fills {
            true => left <= 0 && TAKE_SPACE.contains(&call),
            false => left == 0 || (left < 0 && self.forever),
        };
        if fails { Err(self.error) } else { Ok(()) }
    }

    fn look(&self, _call: &'static str) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.forever && self.has_failed() {
            Err(self.error)
        } else {
            Ok(())
        }
    }
}

macro_rules! delegate {
    ($guard:ident: $(fn $name:ident(&self, $($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.$guard(stringify!($name))?;
            self.inner.$name($($argument),*)
        })*
    };
}

fn act_after(after: &Mutex<Option<AfterLookup>>, name: &Name) {
    let act = {
        let mut after = after.lock().expect("no test panics with it");
        after.take_if(|(of, _)| of == name.as_bytes())
    };
    if let Some((_, act)) = act {
        act();
    }
}

impl Disk for FailingDisk {
    type Handle = OwnedFd;

    fn stat(&self, object: &OwnedFd) -> Result<Stat> {
        self.look("stat")?;
        let stat = self.inner.stat(object)?;
        Ok(self.as_seen(stat))
    }

    fn stat_at(&self, directory: &OwnedFd, name: &Name) -> Result<Stat> {
        self.look("stat_at")?;
        let stat = self.inner.stat_at(directory, name);
        act_after(&self.after_lookup, name);
        stat.map(|stat| self.as_seen(stat))
    }

    fn open(&self, directory: &OwnedFd, name: &Name, access: Access) -> Result<OwnedFd> {
        self.look("open")?;
        let opened = self.inner.open(directory, name, access);
        act_after(&self.after_open, name);
        opened
    }

    fn read_at(&self, file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.look("read_at")?;
        let act = {
            let mut before = self.before_read.lock().expect("no test panics with it");
            let is_read =
                |inode| Ok(inode) == self.inner.stat(file).map(|stat| stat.identity.inode);
            before.take_if(|(inode, _)| is_read(*inode))
        };
        if let Some((_, act)) = act {
            act();
        }
        self.inner.read_at(file, buffer, offset)
    }

    /// Also hides overlays, so that tests can have stores on them, which are refused otherwise.
    fn status(&self, object: &OwnedFd) -> Result<FileSystemStatus> {
        self.look("status")?;
        let status = self.inner.status(object)?;
        let blocks_available = match self.full.load(Ordering::SeqCst) {
            true => 0,
            false => status.blocks_available,
        };
        Ok(FileSystemStatus {
            blocks_available,
            layered: false,
            ..status
        })
    }

    fn list(&self, directory: &OwnedFd) -> Result<Vec<DirectoryEntry>> {
        self.look("list")?;
        let mut entries = self.inner.list(directory)?;
        for entry in &mut entries {
            entry.inode += self.inodes_from;
        }
        Ok(entries)
    }

    delegate! { look:
        fn act_as(&self, user: u32, groups: &[u32]) -> Result<Charge>;
        fn placement(&self, object: &OwnedFd) -> Result<Placement>;
        fn read_link(&self, directory: &OwnedFd, name: &Name) -> Result<Vec<u8>>;
        fn next_data(&self, file: &OwnedFd, offset: u64) -> Result<Option<Extent>>;
        fn uncover(&self, directory: &OwnedFd, name: &Name) -> Result<bool>;
        fn xattr(&self, object: &OwnedFd, name: &[u8]) -> Result<Vec<u8>>;
        fn xattr_names(&self, object: &OwnedFd) -> Result<Vec<Vec<u8>>>;
        fn attachment(&self, object: &OwnedFd) -> Result<Option<Attachment>>;
        fn try_lock(&self, file: &OwnedFd) -> Result<()>;
        fn unlock(&self, file: &OwnedFd) -> Result<()>;
        fn is_open_for_writing(&self, file: &OwnedFd) -> Result<bool>;
        fn is_locked(&self, file: &OwnedFd) -> Result<bool>;
        fn part_lock(&self, file: &OwnedFd) -> Result<Option<PartLock>>;
        fn write_back(&self, file: &OwnedFd) -> Result<()>;
        fn may_access(&self, object: &OwnedFd, bits: u32) -> Result<bool>;
    }

    delegate! { change:
        fn create(&self, directory: &OwnedFd, name: &Name, mode: u32) -> Result<OwnedFd>;
        fn make(&self, directory: &OwnedFd, name: &Name, node: &NewNode, mode: u32) -> Result<()>;
        fn link(&self, from: (&OwnedFd, &Name), to: (&OwnedFd, &Name)) -> Result<()>;
        fn unlink(&self, directory: &OwnedFd, name: &Name) -> Result<()>;
        fn remove_directory(&self, directory: &OwnedFd, name: &Name) -> Result<()>;
        fn set_length(&self, file: &OwnedFd, length: u64) -> Result<()>;
        fn allocate(&self, file: &OwnedFd, offset: u64, length: u64) -> Result<()>;
        fn punch_hole(&self, file: &OwnedFd, offset: u64, length: u64) -> Result<()>;
        fn copy_range(&self, from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64>;
        fn set_mode(&self, object: &OwnedFd, mode: u32) -> Result<()>;
        fn set_owner(&self, object: &OwnedFd, owner: Owner) -> Result<()>;
        fn set_times(&self, object: &OwnedFd, times: Times) -> Result<()>;
        fn touch(&self, object: &OwnedFd) -> Result<()>;
        fn set_xattr(&self, object: &OwnedFd, name: &[u8], value: &[u8]) -> Result<()>;
        fn remove_xattr(&self, object: &OwnedFd, name: &[u8]) -> Result<()>;
    }

    /// A write that fails still writes a part, as on a full disk.
    fn write_at(&self, file: &OwnedFd, data: &[u8], offset: u64) -> Result<()> {
        let allowed = self.change("write_at");
        if allowed.is_err() && !self.forever {
            let _ = self.inner.write_at(file, &data[..data.len() / 2], offset);
            return allowed;
        }
        allowed?;
        self.inner.write_at(file, data, offset)
    }

    fn rename(
        &self,
        from: (&OwnedFd, &Name),
        to: (&OwnedFd, &Name),
        mode: RenameMode,
    ) -> Result<()> {
        match to.1.as_bytes() {
            b"occupied" => self.check("rename")?,
            _ => self.change("rename")?,
        }
        if mode == RenameMode::NoReplace {
            act_after(&self.after_lookup, to.1);
        }
        self.inner.rename(from, to, mode)?;
        if self.modifies_exchanged_directories && mode == RenameMode::Exchange {
            for (directory, name) in [from, to] {
                if self.inner.stat_at(directory, name)?.kind == Kind::Directory {
                    let moved = self.inner.open(directory, name, Access::Path)?;
                    self.inner.touch(&moved)?;
                }
            }
        }
        Ok(())
    }

    fn sync(&self, file: &OwnedFd) -> Result<()> {
        self.flush("sync", || self.inner.sync(file))
    }

    fn sync_data(&self, file: &OwnedFd) -> Result<()> {
        let flushed = self.flush("sync_data", || self.inner.sync_data(file));
        let mut after = self.after_flush.lock().expect("no test panics with it");
        let act = after.take();
        drop(after);
        if let Some(act) = act {
            act();
        }
        self.arm();
        flushed
    }

    fn sync_directory(&self, directory: &OwnedFd) -> Result<()> {
        self.flush("sync_directory", || self.inner.sync_directory(directory))
    }

    fn sync_file_system(&self, object: &OwnedFd) -> Result<()> {
        self.flush("sync_file_system", || self.inner.sync_file_system(object))
    }
}
