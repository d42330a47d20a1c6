use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use atomdir_disk::Errno;

use crate::device::{self, Delivered};
use crate::dispatch::Dispatcher;
use crate::error::{MountError, UnmountError};
use crate::filesystem::Filesystem;
use crate::listings::Listings;
use crate::mount::{Mount, MountOptions};
use crate::notifier::Notifier;
use crate::settle;
use crate::shared::{Running, Shared};
use crate::wire::{self, Offer, Operation, REQUEST_LENGTH_MAX};
use crate::worker::Worker;

/// A mounted file system and the threads that serve it.
///
/// It ends when it is unmounted, here or by anyone else, or when a file
/// system operation panics; then every caller gets `ENOTCONN`. Dropping it
/// changes nothing: call [`unmount`](Session::unmount) and [`join`](Session::join).
pub struct Session {
    shared: Arc<Shared>,
    notifier: Notifier,
    workers: Vec<JoinHandle<()>>,
    waiting: Option<JoinHandle<()>>,
}

impl Session {
    /// Mounts on a directory and starts serving. `path` must be absolute.
    pub fn mount<F: Filesystem>(
        filesystem: Arc<F>,
        path: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        let (mount, device) = Mount::attach(path, options)?;
        if let Err(error) = handshake(&device) {
            // The first error is the one to report.
            let _ = mount.detach();
            return Err(error);
        }
        let device = Arc::new(device);
        let listings = Arc::new(Listings::default());
        let workers_count = options.workers.min(settle::workers_max()).max(1);
        let mut session = Session {
            shared: Arc::new(Shared::new(mount, workers_count)),
            notifier: Notifier::new(&device, Arc::clone(&listings)),
            workers: Vec::with_capacity(workers_count),
            waiting: None,
        };
        filesystem.mounted(session.notifier());
        let dispatcher = Dispatcher::new(filesystem, listings, Arc::clone(&session.shared));
        let started = session.start(device, &dispatcher, workers_count);
        if let Err(source) = started {
            let _ = session.unmount();
            session.join();
            return Err(MountError::Thread {
                path: path.to_owned(),
                source,
            });
        }
        Ok(session)
    }

    fn start<F: Filesystem>(
        &mut self,
        device: Arc<OwnedFd>,
        dispatcher: &Dispatcher<F>,
        count: usize,
    ) -> Result<(), std::io::Error> {
        for number in 0..count {
            let channel = if number == 0 {
                Arc::clone(&device)
            } else {
                Arc::new(device::duplicate(&device)?)
            };
            let worker = Worker::new(channel, dispatcher.clone(), Arc::clone(&self.shared));
            let name = format!("fuse-{number}");
            let running = Running::new(&self.shared);
            self.workers
                .push(std::thread::Builder::new().name(name).spawn(move || {
                    let _running = running;
                    worker.run();
                })?);
        }
        let shared = Arc::clone(&self.shared);
        let worker = Worker::new(device, dispatcher.clone(), Arc::clone(&shared));
        let waiting = std::thread::Builder::new().name("fuse-waiting".to_owned());
        self.waiting = Some(waiting.spawn(move || shared.waiting.run(worker))?);
        Ok(())
    }

    pub fn mountpoint(&self) -> &Path {
        self.shared.mountpoint()
    }

    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Whether nobody serves the file system any more.
    pub fn is_ended(&self) -> bool {
        self.shared.is_ended()
    }

    /// How many requests the kernel has sent, by opcode of `linux/fuse.h`.
    pub fn requests(&self) -> Vec<(u32, u64)> {
        self.shared.requests()
    }

    /// Waits until everything programs wrote before this, also through shared
    /// mappings they still have, has reached the file system. Call it before
    /// a commit. Never call it from an operation of the file system, nor with
    /// a lock held that one needs. `ENOTCONN` once the session is ending: then
    /// what was stored to mapped memory may be lost.
    pub fn settle(&self) -> Result<(), Errno> {
        if self.is_ended() {
            return Err(Errno::NOTCONN);
        }
        self.shared.settle.run(self.mountpoint())?;
        self.shared.waiting.try_all();
        Ok(())
    }

    /// Opens a directory of the mount (O_PATH), its path relative to the mount
    /// point. Whoever serves a mount must not open anything in it themselves:
    /// a process killed while it waits for its own answer cannot end.
    pub fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        if self.is_ended() {
            return Err(Errno::NOTCONN);
        }
        self.shared.settle.open_directory(self.mountpoint(), path)
    }

    /// Detaches the file system at once, also when it is in use, and ends the
    /// workers; programs still in it get `ENOTCONN`. Does nothing once ended.
    /// Waits for operations under way; never call it from one.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.shared.end()
    }

    /// Waits until the session has ended: after [`unmount`](Session::unmount)
    /// at once; after someone else's lazy unmount, when nobody is in it any more.
    pub fn join(self) {
        for worker in self.workers {
            // A worker catches its panics; nothing is left to tell.
            let _ = worker.join();
        }
        self.shared.waiting.end();
        if let Some(waiting) = self.waiting {
            let _ = waiting.join();
        }
        self.shared.join_finisher();
    }
}

/// Answers the INIT request, which comes before all others.
fn handshake(device: &OwnedFd) -> Result<(), MountError> {
    let failed = |source| MountError::Handshake { source };
    let mut buffer = vec![0; REQUEST_LENGTH_MAX];
    loop {
        let length = device::receive(device, &mut buffer).map_err(failed)?;
        let length = length.ok_or(failed(Errno::NODEV))?;
        let (header, body) =
            wire::decode_header(&buffer[..length]).map_err(|_| failed(Errno::PROTO))?;
        let Ok(Operation::Init(init)) = wire::decode_operation(header.opcode, body) else {
            return Err(failed(Errno::PROTO));
        };
        let (answer, done) = match wire::negotiate(&init) {
            Offer::Accept(reply) => {
                tracing::debug!(kernel = ?init, ?reply, "FUSE connection begins");
                (reply.encode(), true)
            }
            Offer::AskAgain => (wire::ask_again(), false),
            Offer::TooOld => {
                let _ = device::reply(device, header.unique, Err(Errno::PROTO));
                return Err(MountError::KernelTooOld {
                    major: init.major,
                    minor: init.minor,
                });
            }
        };
        if device::reply(device, header.unique, Ok(&answer)) == Delivered::No {
            return Err(failed(Errno::NODEV));
        }
        if done {
            return Ok(());
        }
    }
}
