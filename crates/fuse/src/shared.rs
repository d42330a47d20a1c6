use atomdir_disk::sync;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};

use crate::barrier::Barrier;
use crate::error::UnmountError;
use crate::forgetting::Forgetting;
use crate::mount::Mount;
use crate::ring::Inboxes;
use crate::waiting::Waiting;

const OPCODES_COUNTED: usize = 64;

/// Counts a worker as running for as long as this exists.
pub struct Running(Arc<Shared>);

impl Running {
    pub fn new(shared: &Arc<Shared>) -> Running {
        shared.worker_started();
        Running(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.worker_stopped();
    }
}

/// The state that all workers of a session share.
pub struct Shared {
    mount: Mount,
    /// Set once. From then on a worker that receives a request refuses it and stops.
    ending: AtomicBool,
    workers_count: usize,
    pub barrier: Barrier,
    pub waiting: Waiting,
    pub forgetting: Forgetting,
    /// Not set if requests come by the device.
    rings: OnceLock<Arc<Inboxes>>,
    workers_running: AtomicUsize,
    finisher: Mutex<Option<JoinHandle<()>>>,
    /// Counts by opcode. The last one counts all larger opcodes.
    requests: [AtomicU64; OPCODES_COUNTED],
}

impl Shared {
    pub fn new(mount: Mount, workers_count: usize) -> Shared {
        Shared {
            mount,
            ending: AtomicBool::new(false),
            workers_count,
            barrier: Barrier::new(workers_count),
            waiting: Waiting::default(),
            forgetting: Forgetting::default(),
            rings: OnceLock::new(),
            workers_running: AtomicUsize::new(0),
            finisher: Mutex::new(None),
            requests: [const { AtomicU64::new(0) }; OPCODES_COUNTED],
        }
    }

    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// Records that requests come by rings from now on.
    pub fn set_rings(&self, inboxes: Inboxes) -> &Arc<Inboxes> {
        self.rings.get_or_init(|| Arc::new(inboxes))
    }

    pub fn rings(&self) -> Option<&Arc<Inboxes>> {
        self.rings.get()
    }

    pub fn detach(&self) -> Result<(), UnmountError> {
        self.mount.detach()
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub fn is_ended(&self) -> bool {
        self.workers_running.load(Ordering::Acquire) == 0
    }

    pub fn worker_started(&self) {
        self.workers_running.fetch_add(1, Ordering::AcqRel);
    }

    pub fn worker_stopped(&self) {
        self.workers_running.fetch_sub(1, Ordering::AcqRel);
    }

    pub fn count(&self, opcode: u32) {
        let slot = (opcode as usize).min(OPCODES_COUNTED - 1);
        self.requests[slot].fetch_add(1, Ordering::Relaxed);
    }

    pub fn requests(&self) -> Vec<(u32, u64)> {
        let counts = self
            .requests
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        (0..).zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Detaches the mount and stops the workers. Only the first call does anything, so it
    /// leaves alone whatever was mounted at the same place since.
    pub fn end(&self) -> Result<(), UnmountError> {
        if self.ending.swap(true, Ordering::AcqRel) || self.is_ended() {
            return Ok(());
        }
        self.finish()
    }

    /// Does the same as [`end`](Self::end) for a worker, which cannot wait for itself.
    pub fn end_in_background(self: &Arc<Self>) {
        if self.ending.swap(true, Ordering::AcqRel) {
            return;
        }
        // This counts as a worker, so the session has not ended before it is done.
        self.worker_started();
        let shared = Arc::clone(self);
        let finish = move || {
            if let Err(error) = shared.finish() {
                tracing::error!(%error);
            }
            shared.worker_stopped();
        };
        match std::thread::Builder::new()
            .name("fuse-end".to_owned())
            .spawn(finish)
        {
            Ok(thread) => *sync::lock(&self.finisher) = Some(thread),
            Err(error) => {
                self.worker_stopped();
                tracing::error!(%error, "cannot unmount; requests are refused one by one");
            }
        }
    }

    /// Waits for what [`end_in_background`](Self::end_in_background) began.
    pub fn join_finisher(&self) {
        let finisher = sync::lock(&self.finisher).take();
        if let Some(finisher) = finisher {
            let _ = finisher.join();
        }
    }

    fn finish(&self) -> Result<(), UnmountError> {
        self.barrier.end();
        self.waiting.end();
        self.forgetting.end();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.mount.path(), flags, Mode::empty());
        let detached = self.mount.detach();
        if let Some(inboxes) = self.rings() {
            inboxes.end();
            return detached;
        }
        // If detaching does not end the connection, the workers still wait for requests,
        // so make one request for each of them. When the last worker has closed its
        // descriptor, the kernel ends the connection.
        if let Ok(root) = root {
            for _ in 0..self.workers_count {
                let _ = rustix::fs::fstatvfs(&root);
            }
        }
        detached
    }
}
