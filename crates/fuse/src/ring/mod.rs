//! Requests over io_uring (Linux 6.14, where `fuse.enable_uring` is set).
//!
//! The kernel has a queue for each processor, and puts a request into the queue of the
//! processor on which it was made. Each queue has a thread, bound to that processor, that
//! answers the request there, so no other processor needs to be woken. One system call
//! answers a request and waits for the next.
//!
//! Once *all* queues are registered, every request comes this way except FORGET and
//! INTERRUPT. One worker goes on reading the device for these.
//!
//! Invariants
//! 1. Everything that can fail is done before INIT is answered. Once that answer has accepted
//!    rings, requests wait until all queues are registered. If registering fails all the
//!    same, the mount is made again without rings.
//! 2. Requests in a queue are served one after another, mostly in their order. A request
//!    that is put off keeps its entry until it is answered, and a new entry is registered
//!    in its place.
//! 3. A queue counts as empty when all entries that are not put off have been handed back and
//!    none has completed since, because the kernel gives an entry to a queued request as
//!    soon as it can. The barrier of a commit (`barrier`) uses this: all WRITEs are queued
//!    when syncfs returns, so all have been served once every queue has been empty.
//! 4. An entry's memory is unmapped only after the thread that registered it has ended: until
//!    then the kernel may write to it.
//! 5. No descriptor is registered with a ring: a child process might keep it open.

mod entry;
mod inbox;
mod queue;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use atomdir_disk::{Errno, reason};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::filesystem::Filesystem;
use crate::shared::Running;
use crate::worker::Worker;
use entry::Entry;
pub use inbox::Inbox;
use queue::Queue;

/// With more processors than this the device is used, since each queue needs a thread.
const QUEUES_MAX: usize = 64;

/// The inboxes of a session's threads, for messages that the kernel does not bring.
pub struct Inboxes {
    queues: Vec<Arc<Inbox>>,
    /// The inbox of the worker that reads the device.
    pub device: Arc<Inbox>,
}

impl Inboxes {
    /// Returns when each queue has been empty once. A worker must not call this.
    pub fn drain(&self) -> Result<(), Errno> {
        let asked: Vec<_> = self.queues.iter().map(|queue| queue.ask()).collect();
        let mut waits = self.queues.iter().zip(asked);
        waits.try_for_each(|(queue, asked)| queue.wait(asked))
    }

    pub fn end(&self) {
        self.queues.iter().for_each(|queue| queue.end());
        self.device.end();
    }
}

/// The threads of the queues, one each, while they start step by step.
pub struct Rings {
    queues: Vec<Handle>,
}

struct Handle {
    inbox: Arc<Inbox>,
    device: Sender<Arc<OwnedFd>>,
    serve: Sender<Running>,
    reports: Receiver<Result<(), Errno>>,
    thread: RingThread,
}

/// A queue's thread. It returns the queue's memory, or nothing if the queue was never made.
pub struct RingThread(JoinHandle<Vec<Entry>>);

impl RingThread {
    pub fn join(self) {
        for entry in self.0.join().unwrap_or_default() {
            // SAFETY: the thread that registered it has ended.
            unsafe { entry.unmap() };
        }
    }
}

impl Rings {
    /// Makes everything that needs no connection.
    pub fn prepare<F: Filesystem>(worker: impl Fn() -> Worker<F>) -> Result<Rings, Errno> {
        let mut rings = Rings { queues: Vec::new() };
        let prepared = rings.start_all(worker).and_then(|()| rings.reports());
        match prepared {
            Ok(()) => Ok(rings),
            Err(errno) => {
                rings.give_up();
                Err(errno)
            }
        }
    }

    fn start_all<F: Filesystem>(&mut self, worker: impl Fn() -> Worker<F>) -> Result<(), Errno> {
        let count = processors_possible().ok_or(Errno::OPNOTSUPP)?;
        if count > QUEUES_MAX {
            return Err(Errno::TOOBIG);
        }
        for number in 0..count {
            self.queues.push(start(number as u16, worker())?);
        }
        Ok(())
    }

    fn reports(&self) -> Result<(), Errno> {
        let mut reports = self.queues.iter().map(|queue| {
            let report = queue.reports.recv();
            report.unwrap_or(Err(Errno::NOTCONN))
        });
        // Every report is read, so that no thread is still registering.
        reports.by_ref().fold(Ok(()), Result::and)
    }

    /// Registers all queues. Call it once INIT is answered.
    pub fn register(&self, device: &Arc<OwnedFd>) -> Result<(), Errno> {
        for queue in &self.queues {
            let _ = queue.device.send(Arc::clone(device));
        }
        self.reports()
    }

    pub fn inboxes(&self) -> Result<Inboxes, Errno> {
        let queues = self.queues.iter().map(|queue| Arc::clone(&queue.inbox));
        Ok(Inboxes {
            queues: queues.collect(),
            device: Arc::new(Inbox::new()?),
        })
    }

    pub fn serve(self, running: impl Fn() -> Running) -> Vec<RingThread> {
        let threads = self.queues.into_iter().map(|queue| {
            let _ = queue.serve.send(running());
            queue.thread
        });
        threads.collect()
    }

    pub fn give_up(self) {
        for queue in self.queues {
            drop((queue.device, queue.serve));
            queue.thread.join();
        }
    }
}

fn start<F: Filesystem>(number: u16, worker: Worker<F>) -> Result<Handle, Errno> {
    let inbox = Arc::new(Inbox::new()?);
    let (device, devices) = channel();
    let (serve, serving) = channel();
    let (report, reports) = channel();
    let queue_inbox = Arc::clone(&inbox);
    let thread = std::thread::Builder::new()
        .name(format!("fuse-ring-{number}"))
        .spawn(move || {
            bind(number);
            let mut queue = match Queue::new(number, queue_inbox) {
                Ok(queue) => queue,
                Err(errno) => {
                    let _ = report.send(Err(errno));
                    return Vec::new();
                }
            };
            let _ = report.send(Ok(()));
            if let Ok(device) = devices.recv() {
                let _ = report.send(queue.register(device));
            }
            if let Ok(running) = serving.recv() {
                let _running: Running = running;
                worker.run(&mut queue);
            }
            queue.close()
        })
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    Ok(Handle {
        inbox,
        device,
        serve,
        reports,
        thread: RingThread(thread),
    })
}

/// Binds the calling thread to this processor. Failure is ignored: a processor that is
/// absent, or closed to this process, makes hardly any requests, and those can be
/// answered on any other.
fn bind(processor: u16) {
    let mut only = CpuSet::new();
    only.set(processor.into());
    if let Err(errno) = sched_setaffinity(None, &only) {
        tracing::debug!(processor, errno = %reason(errno), "a queue's thread is not bound");
    }
}

/// The kernel's number of queues, if the processors' numbers have no gaps.
fn processors_possible() -> Option<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let file = rustix::fs::open(PATH, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let length = rustix::io::read(&file, &mut text).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?.trim();
    match text.split_once('-') {
        None => (text == "0").then_some(1),
        Some((first, last)) => {
            let last: usize = last.parse().ok()?;
            (first == "0").then_some(last + 1)
        }
    }
}
