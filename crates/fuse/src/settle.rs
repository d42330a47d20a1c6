//! Waiting for what programs wrote through shared mappings.
//!
//! A store to mapped memory becomes a WRITE request some time later, and
//! syncfs(2) only makes the kernel queue these requests: on FUSE it does not
//! wait for them. A commit must not miss them, hence this barrier:
//!
//! 1. syncfs: all WRITEs are in the kernel's queue of background requests.
//! 2. The session has a file of its own, known only to it. As many pages of
//!    it as there are workers are changed through a mapping and synced. The
//!    queue is first in, first out, so these WRITEs are delivered last.
//! 3. A worker that gets one waits until every worker has one. Each has then
//!    finished whatever it had been given before.
//!
//! No request pays for this but those of the barrier itself.
//!
//! Rings have a queue for each processor. There the first step is the same, and
//! the others are that each queue has been empty once (`ring`).
//!
//! What waits for the mount must not be in the process that serves it: were
//! that killed meanwhile, it could not end for want of an answer, and would
//! keep the connection open that would have to break first. So a child process
//! without the session's descriptors does it: see [`crate::helper`].

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use atomdir_disk::{Errno, Kind, Owner, Timestamp};
use rustix::fs::{Mode, OFlags};

use crate::filesystem::{Entry, NodeAttributes, Result, Validity};
use crate::helper::{Breaker, Helper, STRIDE};
use crate::ring::Inboxes;

/// The session's own node and its name in the root, which is nobody else's
/// to find: only the process that settles gets an answer for it.
pub const NODE: u64 = u64::MAX;
pub const NAME: &[u8] = b".atomdir-settle";

/// How many workers the barrier can wait for: no more than the kernel lets an
/// ordinary user's connection have background requests.
pub fn workers_max() -> usize {
    if rustix::process::geteuid().is_root() {
        return usize::MAX;
    }
    // 0 or no such file: a limit that follows from the memory, in the hundreds.
    let limit = read_number(LIMIT_PATH).unwrap_or(0);
    if limit == 0 { usize::MAX } else { limit }
}

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

pub struct Settle {
    workers_count: usize,
    /// One barrier at a time; the child is made for the first.
    turn: Mutex<Option<Helper>>,
    /// To be pulled at the end, while somebody else has the turn.
    breaker: Mutex<EndBreaker>,
    /// The process that settles, as requests name it; 0 for none.
    process: AtomicU32,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Default)]
struct EndBreaker {
    breaker: Option<Breaker>,
    is_over: bool,
}

#[derive(Default)]
struct Meeting {
    open: bool,
    arrived: usize,
    /// The session ends; workers leave and can no longer be waited for.
    over: bool,
}

impl Settle {
    pub fn new(workers_count: usize) -> Settle {
        Settle {
            workers_count,
            turn: Mutex::new(None),
            breaker: Mutex::default(),
            process: AtomicU32::new(0),
            meeting: Mutex::new(Meeting::default()),
            changed: Condvar::new(),
        }
    }

    /// Runs the barrier; not from a worker.
    pub fn run(&self, mountpoint: &Path, rings: Option<&Arc<Inboxes>>) -> Result<()> {
        let mut turn = self.lock_turn();
        let helper = self.helper(&mut turn, mountpoint)?;
        self.process.store(helper.process(), Ordering::Release);
        let settled = match rings {
            Some(rings) => helper.sync().and_then(|()| rings.drain()),
            None => self.meet(helper),
        };
        self.process.store(0, Ordering::Release);
        if settled.is_err() {
            // It may be out of step; the next barrier gets a fresh one.
            *turn = None;
        }
        settled
    }

    fn meet(&self, helper: &Helper) -> Result<()> {
        let prepared = helper.prepare();
        self.process.store(0, Ordering::Release);
        let met = prepared
            .and_then(|()| self.open())
            .and_then(|()| helper.change());
        self.close(false);
        met
    }

    /// Opens a directory of the mount; not from a worker.
    pub fn open_directory(&self, mountpoint: &Path, path: &Path) -> Result<OwnedFd> {
        let mut turn = self.lock_turn();
        let helper = self.helper(&mut turn, mountpoint)?;
        let opened = helper.open_directory(&mountpoint.join(path));
        if helper.has_ended() {
            *turn = None;
        }
        opened
    }

    /// The kernel forgets a name in the mount's root, which nothing has any more, and
    /// all it knows below; not from a worker.
    ///
    /// To be told so it would take the root's lock, and nothing could interrupt that.
    /// Others have this lock while they look up names and wait for the answer: were
    /// the process that serves the mount killed while one of its threads waited for
    /// the lock, neither would ever end. So the child asks for the name. That it has
    /// gone stale is answered twice, when the kernel asks for attributes of what it
    /// remembers, and as it then looks up the name once more: then it forgets.
    pub fn forget_name(&self, mountpoint: &Path, name: &[u8]) -> Result<()> {
        let mut turn = self.lock_turn();
        let helper = self.helper(&mut turn, mountpoint)?;
        self.process.store(helper.process(), Ordering::Release);
        let looked = helper.look(&mountpoint.join(OsStr::from_bytes(name)));
        self.process.store(0, Ordering::Release);
        if helper.has_ended() {
            *turn = None;
        }
        match looked {
            Err(Errno::STALE | Errno::NOENT) => Ok(()),
            looked => looked,
        }
    }

    fn lock_turn(&self) -> MutexGuard<'_, Option<Helper>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn helper<'a>(&self, turn: &'a mut Option<Helper>, mountpoint: &Path) -> Result<&'a Helper> {
        let mut breaker = self.lock_breaker();
        if breaker.is_over {
            return Err(Errno::NOTCONN);
        }
        if turn.is_none() {
            let helper = Helper::start(mountpoint, self.workers_count)?;
            breaker.breaker = Some(helper.breaker());
            *turn = Some(helper);
        }
        turn.as_ref().ok_or(Errno::NOTCONN)
    }

    fn lock_breaker(&self) -> MutexGuard<'_, EndBreaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_asked_for(&self, parent: u64, name: &[u8], process: u32) -> bool {
        name == NAME && self.asks_in_root(parent, process)
    }

    /// Then a name that is not there is stale: that it is none need not be remembered.
    pub fn asks_in_root(&self, parent: u64, process: u32) -> bool {
        parent == crate::ROOT_NODE
            && process != 0
            && process == self.process.load(Ordering::Acquire)
    }

    /// A worker got one of the barrier's requests.
    pub fn arrive(&self) {
        let mut meeting = self.lock();
        if !meeting.open {
            return;
        }
        meeting.arrived += 1;
        if meeting.arrived == self.workers_count {
            meeting.open = false;
            self.changed.notify_all();
        }
        while meeting.open {
            meeting = self
                .changed
                .wait(meeting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets everybody go who waits for the child, or for workers that will not come,
    /// for good.
    pub fn end(&self) {
        self.close(true);
        let mut breaker = self.lock_breaker();
        breaker.is_over = true;
        if let Some(breaker) = &breaker.breaker {
            breaker.pull();
        }
    }

    fn open(&self) -> Result<()> {
        let mut meeting = self.lock();
        if meeting.over {
            return Err(Errno::NOTCONN);
        }
        (meeting.open, meeting.arrived) = (true, 0);
        Ok(())
    }

    fn close(&self, over: bool) {
        let mut meeting = self.lock();
        meeting.open = false;
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

    fn lock(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
