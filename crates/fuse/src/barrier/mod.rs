//! The barrier: waits for what programs wrote through shared mappings.
//!
//! A store to mapped memory becomes a WRITE request some time later. On FUSE, syncfs(2)
//! only makes the kernel queue these requests and does not wait for them. A commit must
//! not miss them, so it runs this barrier:
//!
//! 1. syncfs: all WRITEs are in the kernel's queue of background requests.
//! 2. The session has a file of its own that only it knows. The barrier changes as many
//!    pages of it as there are workers, through a mapping.
//! 3. It syncs these pages. The queue is first in, first out, so their WRITEs are
//!    delivered last. A worker that gets one of them waits until every worker has one.
//!    By then each has finished all requests that it got before.
//!
//! The kernel may write a page at any moment, for instance because some program calls
//! sync(2). While step 2 changes the pages, no worker waits. A change of a page waits until
//! the last WRITE of the page has been answered, and the worker that has it would wait for
//! the pages that are still to be changed. Step 2 is repeated if a WRITE came during it, so
//! that all pages are yet to be written when step 3 begins.
//!
//! Only the barrier's own requests pay for this.
//!
//! Rings have a queue for each processor. With them the first step is the same, and then
//! the barrier waits until each queue has been empty once (`ring`).
//!
//! The process that serves the mount must not wait for it. If it were killed while it
//! waited, it could not end without an answer, and it would keep the connection open that
//! must break first. So a child process without the session's descriptors waits: see
//! [`process`].

use atomdir_disk::sync;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use atomdir_disk::{Errno, FileUsers, Kind, Owner, Timestamp};
use rustix::fs::{Mode, OFlags};

use crate::filesystem::{Entry, NodeAttributes, Result, Validity};
use crate::ring::Inboxes;

use self::process::{BarrierProcess, Breaker, STRIDE};

mod process;

/// The session's own node and its name in the root. Only the process that runs the
/// barrier can look it up.
pub const NODE: u64 = u64::MAX;
pub const NAME: &[u8] = b".atomdir-barrier";

/// How many workers the barrier can wait for. This is the kernel's limit on background
/// requests of an ordinary user's connection.
pub fn workers_max() -> usize {
    if rustix::process::geteuid().is_root() {
        return usize::MAX;
    }
    // 0, or no such file: the limit depends on the machine's memory and is in the hundreds.
    let limit = read_number(LIMIT_PATH).unwrap_or(0);
    if limit == 0 { usize::MAX } else { limit }
}

/// How often to try to get through the root of a new mount. Each failure but the last needs an
/// invalidation of its own, of which there is one for each transaction that begins or ends.
const ROOT_TRIES_MAX: usize = 1000;

/// How many children may be killed during one order before it fails.
const CHILDREN_MAX: usize = 10;

/// How often to change the barrier's pages. Each repetition needs a WRITE of the kernel's own within
/// the microseconds that a change takes.
const CHANGES_MAX: usize = 10_000;

const LIMIT_PATH: &str = "/sys/module/fuse/parameters/max_user_bgreq";

fn read_number(path: &str) -> Option<usize> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 32];
    let length = rustix::io::read(&file, &mut text).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}

pub struct Barrier {
    workers_count: usize,
    /// Its lock admits one barrier at a time. The first starts the child.
    turn: Mutex<Option<BarrierProcess>>,
    /// Pulled when the session ends, while another thread may have the turn.
    breaker: Mutex<EndBreaker>,
    /// The process that runs the barrier, as requests name it; 0 for none.
    process: AtomicU32,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterError {
    Keep,
    /// The child may be out of step, so the next order gets a new one.
    Renew,
}

#[derive(Default)]
struct EndBreaker {
    breaker: Option<Breaker>,
    is_over: bool,
}

#[derive(Default)]
struct Meeting {
    stage: Stage,
    /// How many of the barrier's requests have come in this stage.
    arrived: usize,
    /// The session is ending: its workers stop, so nobody may wait for them.
    over: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No barrier runs, or all workers have come.
    #[default]
    Closed,
    /// The child changes the pages, so no worker may wait.
    Changing,
    /// Workers wait for each other.
    Open,
}

impl Barrier {
    pub fn new(workers_count: usize) -> Barrier {
        Barrier {
            workers_count,
            turn: Mutex::new(None),
            breaker: Mutex::default(),
            process: AtomicU32::new(0),
            meeting: Mutex::new(Meeting::default()),
            changed: Condvar::new(),
        }
    }

    /// Runs the barrier. A worker must not call this.
    pub fn run(&self, mountpoint: &Path, rings: Option<&Arc<Inboxes>>) -> Result<()> {
        self.with_child(mountpoint, AfterError::Renew, |child| {
            self.process.store(child.process(), Ordering::Release);
            let result = match rings {
                Some(rings) => child.sync().and_then(|()| rings.drain()),
                None => self.meet(child),
            };
            self.process.store(0, Ordering::Release);
            result
        })
    }

    fn meet(&self, child: &BarrierProcess) -> Result<()> {
        let changed = self.begin().and_then(|()| child.begin());
        self.process.store(0, Ordering::Release);
        let met = changed
            .and_then(|()| self.change_until_open(child))
            .and_then(|()| child.write());
        self.close(false);
        met
    }

    fn change_until_open(&self, child: &BarrierProcess) -> Result<()> {
        for _ in 0..CHANGES_MAX {
            if self.open()? {
                return Ok(());
            }
            child.change()?;
        }
        Err(Errno::AGAIN)
    }

    /// Opens a directory of the mount. A worker must not call this.
    pub fn open_directory(&self, mountpoint: &Path, path: &Path) -> Result<OwnedFd> {
        let path = mountpoint.join(path);
        self.with_child(mountpoint, AfterError::Keep, |child| {
            child.open_directory(&path)
        })
    }

    /// How programs use a file of the mount. `path`: below the mount point. A worker must not call
    /// this.
    pub fn users(
        &self,
        mountpoint: &Path,
        path: &[u8],
        (inode, may_wait): (u64, bool),
    ) -> Result<FileUsers> {
        self.with_child(mountpoint, AfterError::Keep, |child| {
            child.users(path, inode, may_wait)
        })
    }

    /// Makes the kernel ask for the attributes of the mount's root. Before it knows them, it lets
    /// only root's processes through the root. It discards an answer if the file system has
    /// invalidated the root meanwhile, so this asks until it gets through. A worker must not call
    /// this.
    pub fn pass_root(&self, mountpoint: &Path) -> Result<()> {
        let inside = Path::new(".");
        for _ in 1..ROOT_TRIES_MAX {
            match self.open_directory(mountpoint, inside) {
                Err(Errno::ACCESS) => {}
                passed => return passed.map(drop),
            }
        }
        self.open_directory(mountpoint, inside).map(drop)
    }

    /// Makes the kernel forget a name in the mount's root that is no longer used, and all
    /// it has cached below. A worker must not call this.
    ///
    /// A notification would take the root's lock, uninterruptibly. Other processes hold
    /// this lock while they look up names and wait for our answer. If this process were
    /// killed while one of its threads waited for the lock, neither would ever end. So the
    /// child looks up the name instead. The kernel is answered twice that the name is
    /// stale: first when it asks for attributes of the cached node, then when it looks up
    /// the name again. Then it forgets the name.
    pub fn forget_name(&self, mountpoint: &Path, name: &[u8]) -> Result<()> {
        let path = mountpoint.join(OsStr::from_bytes(name));
        let looked = self.with_child(mountpoint, AfterError::Keep, |child| {
            self.process.store(child.process(), Ordering::Release);
            let looked = child.look(&path);
            self.process.store(0, Ordering::Release);
            looked
        });
        match looked {
            Err(Errno::STALE | Errno::NOENT) => Ok(()),
            looked => looked,
        }
    }

    /// Has the child do something. If somebody kills the child, another one does it again.
    fn with_child<T>(
        &self,
        mountpoint: &Path,
        after_error: AfterError,
        act: impl Fn(&BarrierProcess) -> Result<T>,
    ) -> Result<T> {
        let mut turn = sync::lock(&self.turn);
        let mut tries_left = CHILDREN_MAX;
        loop {
            // It may have been killed since it was last needed.
            turn.take_if(|child| child.has_ended());
            let child = self.child(&mut turn, mountpoint)?;
            tries_left -= 1;
            let result = act(child);
            let is_killed = result.is_err() && child.has_ended();
            if is_killed || result.is_err() && after_error == AfterError::Renew {
                *turn = None;
            }
            if !is_killed || tries_left == 0 {
                return result;
            }
        }
    }

    fn child<'a>(
        &self,
        turn: &'a mut Option<BarrierProcess>,
        mountpoint: &Path,
    ) -> Result<&'a BarrierProcess> {
        let mut breaker = sync::lock(&self.breaker);
        if breaker.is_over {
            return Err(Errno::NOTCONN);
        }
        if turn.is_none() {
            let child = BarrierProcess::start(mountpoint, self.workers_count)?;
            breaker.breaker = Some(child.breaker());
            *turn = Some(child);
        }
        turn.as_ref().ok_or(Errno::NOTCONN)
    }

    pub fn is_asked_for(&self, parent: u64, name: &[u8], process: u32) -> bool {
        name == NAME && self.asks_in_root(parent, process)
    }

    /// Whether the child is looking up a name in the root. A missing name is then answered
    /// with ESTALE, so that the kernel does not cache that it is missing.
    pub fn asks_in_root(&self, parent: u64, process: u32) -> bool {
        parent == crate::ROOT_NODE
            && process != 0
            && process == self.process.load(Ordering::Acquire)
    }

    /// A worker calls this when it has received one of the barrier's requests.
    pub fn arrive(&self) {
        let mut meeting = sync::lock(&self.meeting);
        meeting.arrived += 1;
        if meeting.stage == Stage::Open && meeting.arrived == self.workers_count {
            meeting.stage = Stage::Closed;
            self.changed.notify_all();
        }
        while meeting.stage == Stage::Open {
            meeting = sync::wait(&self.changed, meeting);
        }
    }

    /// Wakes, for good, all threads that wait for the child or for workers that will not
    /// come.
    pub fn end(&self) {
        self.close(true);
        let mut breaker = sync::lock(&self.breaker);
        breaker.is_over = true;
        if let Some(breaker) = &breaker.breaker {
            breaker.pull();
        }
    }

    fn begin(&self) -> Result<()> {
        let mut meeting = sync::lock(&self.meeting);
        if meeting.over {
            return Err(Errno::NOTCONN);
        }
        (meeting.stage, meeting.arrived) = (Stage::Changing, 0);
        Ok(())
    }

    /// Makes workers wait from now on. Returns false if a page was written while the child changed
    /// the pages: then it must change them again.
    fn open(&self) -> Result<bool> {
        let mut meeting = sync::lock(&self.meeting);
        if meeting.over {
            return Err(Errno::NOTCONN);
        }
        let all_to_come = std::mem::take(&mut meeting.arrived) == 0;
        if all_to_come {
            meeting.stage = Stage::Open;
        }
        Ok(all_to_come)
    }

    fn close(&self, over: bool) {
        let mut meeting = sync::lock(&self.meeting);
        meeting.stage = Stage::Closed;
        meeting.over |= over;
        self.changed.notify_all();
    }

    pub fn entry(&self) -> Entry {
        let attributes = self.attributes();
        Entry {
            node: NODE,
            generation: 0,
            valid: Validity::Forever,
            attributes,
            attributes_valid: Validity::Forever,
        }
    }

    pub fn attributes(&self) -> NodeAttributes {
        NodeAttributes {
            inode: NODE,
            kind: Kind::File,
            mode: 0o600,
            links: 1,
            owner: Owner {
                user: rustix::process::geteuid().as_raw(),
                group: rustix::process::getegid().as_raw(),
            },
            device_number: 0,
            length: (self.workers_count * STRIDE) as u64,
            blocks: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
        }
    }
}
