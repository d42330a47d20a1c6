//! A layer that changes nothing. It counts the calls, and before each one it asks a hook, which can
//! wait or let the call fail.
//!
//! Invariants
//! - A call that the hook lets through reaches the disk below exactly once, with the same arguments,
//!   and its result is returned as it is. So the contract of [`Disk`] holds if it holds below.
//! - A call that the hook refuses is counted and never reaches the disk below.
//! - A call is passed on as itself, even where [`Disk`] has a default that would do: the disk below
//!   may know a better way.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{
    Access, Attachment, Charge, DirectoryEntry, Disk, Extent, FileSystemStatus, Name, NewNode,
    Owner, PartLock, Placement, RenameMode, Result, Stat, Times,
};

/// Called before each call. What it returns is the call's result if it is an error.
pub type Hook = dyn Fn(Call) -> Result<()> + Send + Sync;

pub struct PassThrough<D> {
    below: D,
    counts: Arc<Counts>,
    hook: Box<Hook>,
}

/// How often each call was made. Stays readable after a store has taken the disk.
pub struct Counts([AtomicU64; Call::ALL.len()]);

impl Counts {
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize].load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        Call::ALL.iter().map(|call| self.of(*call)).sum()
    }
}

impl<D: Disk> PassThrough<D> {
    pub fn new(below: D) -> PassThrough<D> {
        PassThrough::with_hook(below, |_| Ok(()))
    }

    /// The hook must not call this disk: it would be asked about its own call.
    pub fn with_hook(
        below: D,
        hook: impl Fn(Call) -> Result<()> + Send + Sync + 'static,
    ) -> PassThrough<D> {
        PassThrough {
            below,
            counts: Arc::new(Counts(array::from_fn(|_| AtomicU64::new(0)))),
            hook: Box::new(hook),
        }
    }

    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    fn enter(&self, call: Call) -> Result<()> {
        self.counts.0[call as usize].fetch_add(1, Ordering::Relaxed);
        (self.hook)(call)
    }
}

impl Call {
    /// Whether the call makes something durable.
    pub fn is_sync(self) -> bool {
        use Call::{Sync, SyncData, SyncDirectory, SyncFileSystem};
        matches!(self, Sync | SyncData | SyncDirectory | SyncFileSystem)
    }
}

macro_rules! pass_through {
    ($($call:ident: fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        /// A method of [`Disk`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Call {
            $($call,)*
            StartWriting,
        }

        impl Call {
            pub const ALL: &[Call] = &[$(Call::$call,)* Call::StartWriting];
        }

        impl<D: Disk> Disk for PassThrough<D> {
            type Handle = D::Handle;

            $(
                // The simulated disk tells syncs apart by their place in the engine, not in here.
                #[track_caller]
                fn $name(&self $(, $argument: $type)*) -> $result {
                    self.enter(Call::$call)?;
                    self.below.$name($($argument),*)
                }
            )*

            /// A hint, so a failure only leaves it out.
            fn start_writing(&self, directory: &D::Handle, files_min: usize) {
                if self.enter(Call::StartWriting).is_ok() {
                    self.below.start_writing(directory, files_min);
                }
            }
        }
    };
}

pass_through! {
    Open: fn open(&self, directory: &D::Handle, name: &Name, access: Access) -> Result<D::Handle>;
    OpenWaiting: fn open_waiting(&self, directory: &D::Handle, name: &Name, access: Access) -> Result<D::Handle>;
    Charge: fn charge(&self, user: u32) -> Result<Charge>;
    ActAs: fn act_as(&self, user: u32, groups: &[u32]) -> Result<Charge>;
    Create: fn create(&self, directory: &D::Handle, name: &Name, mode: u32) -> Result<D::Handle>;
    Make: fn make(&self, directory: &D::Handle, name: &Name, node: &NewNode, mode: u32) -> Result<()>;
    Link: fn link(&self, from: (&D::Handle, &Name), to: (&D::Handle, &Name)) -> Result<()>;
    Rename: fn rename(&self, from: (&D::Handle, &Name), to: (&D::Handle, &Name), mode: RenameMode) -> Result<()>;
    Uncover: fn uncover(&self, directory: &D::Handle, name: &Name) -> Result<bool>;
    Unlink: fn unlink(&self, directory: &D::Handle, name: &Name) -> Result<()>;
    RemoveDirectory: fn remove_directory(&self, directory: &D::Handle, name: &Name) -> Result<()>;
    Stat: fn stat(&self, object: &D::Handle) -> Result<Stat>;
    StatAt: fn stat_at(&self, directory: &D::Handle, name: &Name) -> Result<Stat>;
    List: fn list(&self, directory: &D::Handle) -> Result<Vec<DirectoryEntry>>;
    ReadLink: fn read_link(&self, directory: &D::Handle, name: &Name) -> Result<Vec<u8>>;
    ReadAt: fn read_at(&self, file: &D::Handle, buffer: &mut [u8], offset: u64) -> Result<usize>;
    WriteAt: fn write_at(&self, file: &D::Handle, data: &[u8], offset: u64) -> Result<()>;
    SetLength: fn set_length(&self, file: &D::Handle, length: u64) -> Result<()>;
    Allocate: fn allocate(&self, file: &D::Handle, offset: u64, length: u64) -> Result<()>;
    PunchHole: fn punch_hole(&self, file: &D::Handle, offset: u64, length: u64) -> Result<()>;
    NextData: fn next_data(&self, file: &D::Handle, offset: u64) -> Result<Option<Extent>>;
    CopyRange: fn copy_range(&self, from: (&D::Handle, u64), to: (&D::Handle, u64), length: u64) -> Result<u64>;
    SetMode: fn set_mode(&self, object: &D::Handle, mode: u32) -> Result<()>;
    SetOwner: fn set_owner(&self, object: &D::Handle, owner: Owner) -> Result<()>;
    SetTimes: fn set_times(&self, object: &D::Handle, times: Times) -> Result<()>;
    Touch: fn touch(&self, object: &D::Handle) -> Result<()>;
    Xattr: fn xattr(&self, object: &D::Handle, name: &[u8]) -> Result<Vec<u8>>;
    XattrNames: fn xattr_names(&self, object: &D::Handle) -> Result<Vec<Vec<u8>>>;
    XattrNamesAt: fn xattr_names_at(&self, directory: &D::Handle, name: &Name) -> Result<Vec<Vec<u8>>>;
    XattrsAt: fn xattrs_at(&self, directory: &D::Handle, name: &Name) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    Xattrs: fn xattrs(&self, object: &D::Handle) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    SetXattr: fn set_xattr(&self, object: &D::Handle, name: &[u8], value: &[u8]) -> Result<()>;
    RemoveXattr: fn remove_xattr(&self, object: &D::Handle, name: &[u8]) -> Result<()>;
    HasFlags: fn has_flags(&self, file: &D::Handle) -> Result<bool>;
    IsOpenForWriting: fn is_open_for_writing(&self, file: &D::Handle) -> Result<bool>;
    IsLocked: fn is_locked(&self, file: &D::Handle) -> Result<bool>;
    PartLock: fn part_lock(&self, file: &D::Handle) -> Result<Option<PartLock>>;
    WriteBack: fn write_back(&self, file: &D::Handle) -> Result<()>;
    Placement: fn placement(&self, object: &D::Handle) -> Result<Placement>;
    Sync: fn sync(&self, file: &D::Handle) -> Result<()>;
    SyncData: fn sync_data(&self, file: &D::Handle) -> Result<()>;
    SyncDirectory: fn sync_directory(&self, directory: &D::Handle) -> Result<()>;
    SyncFileSystem: fn sync_file_system(&self, object: &D::Handle) -> Result<()>;
    Status: fn status(&self, object: &D::Handle) -> Result<FileSystemStatus>;
    StopHandingDown: fn stop_handing_down(&self, directory: &D::Handle, like: &D::Handle) -> Result<Option<&'static str>>;
    Attachment: fn attachment(&self, object: &D::Handle) -> Result<Option<Attachment>>;
    TryLock: fn try_lock(&self, file: &D::Handle) -> Result<()>;
    Unlock: fn unlock(&self, file: &D::Handle) -> Result<()>;
    MayAccess: fn may_access(&self, object: &D::Handle, bits: u32) -> Result<bool>;
}
