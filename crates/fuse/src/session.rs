use atomdir_disk::sync;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use atomdir_disk::{Errno, reason};

use crate::barrier;
use crate::device::{self, Device};
use crate::dispatch::Dispatcher;
use crate::error::{MountError, UnmountError};
use crate::filesystem::Filesystem;
use crate::listings::Listings;
use crate::mount::{Mount, MountOptions};
use crate::notifier::{self, Notifier};
use crate::ring::{RingThread, Rings};
use crate::shared::{Running, Shared};
use crate::transport::Delivered;
use crate::wire::{self, Offer, Operation, REQUEST_LENGTH_MAX};
use crate::worker::Worker;

/// A mounted file system and the threads that serve it.
///
/// It ends when it is unmounted, here or by anyone else, or when a file system
/// operation panics. Every caller then gets `ENOTCONN`. Dropping it does not end it:
/// call [`unmount`](Session::unmount) and [`join`](Session::join).
pub struct Session {
    shared: Arc<Shared>,
    notifier: Notifier,
    threads: Mutex<Threads>,
}

/// The threads of a session, until somebody joins them.
#[derive(Default)]
struct Threads {
    workers: Vec<JoinHandle<()>>,
    rings: Vec<RingThread>,
    /// The threads that receive no requests. They are joined after the others.
    others: Vec<JoinHandle<()>>,
}

impl Session {
    /// Mounts on a directory and starts serving. `path` must be absolute.
    pub fn mount<F: Filesystem>(
        filesystem: Arc<F>,
        path: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        if options.rings
            && let Some(session) = Session::attempt(&filesystem, path, options, prepare_rings)?
        {
            return Ok(session);
        }
        let no_rings = |_: &dyn Fn() -> Worker<F>| None;
        // An attempt without rings returns a session or an error.
        let session = Session::attempt(&filesystem, path, options, no_rings)?;
        session.ok_or(MountError::Handshake {
            source: Errno::OPNOTSUPP,
        })
    }

    /// `None`: INIT was answered with rings, but registering them failed. No request can be
    /// served any more, so this mount was given up.
    fn attempt<F: Filesystem>(
        filesystem: &Arc<F>,
        path: &Path,
        options: &MountOptions,
        prepare_rings: impl Fn(&dyn Fn() -> Worker<F>) -> Option<Rings>,
    ) -> Result<Option<Session>, MountError> {
        let (mount, device) = Mount::attach(path, options)?;
        let device = Arc::new(device);
        let listings = Arc::new(Listings::default());
        let workers_count = options.workers.min(barrier::workers_max()).max(1);
        let shared = Arc::new(Shared::new(mount, workers_count));
        let session = Session {
            notifier: Notifier::new(&device, &shared, Arc::clone(&listings)),
            shared,
            threads: Mutex::default(),
        };
        let shared = Arc::clone(&session.shared);
        let dispatcher = Dispatcher::new(Arc::clone(filesystem), listings, Arc::clone(&shared));
        let worker = || Worker::new(dispatcher.clone(), Arc::clone(&shared));
        let rings = handshake(&device, || prepare_rings(&worker)).inspect_err(|_| {
            // The first error is the one to report.
            let _ = shared.detach();
        })?;
        filesystem.mounted(session.notifier());
        let started = match rings {
            None => session.start(device, &dispatcher, workers_count),
            Some(rings) => match rings.register(&device) {
                Ok(()) => session.start_rings(rings, device, &dispatcher),
                Err(errno) => {
                    tracing::warn!(errno = %reason(errno), "the kernel refused FUSE over io_uring");
                    let _ = shared.detach();
                    rings.give_up();
                    return Ok(None);
                }
            },
        };
        if let Err(source) = started {
            let _ = session.unmount();
            session.join();
            return Err(MountError::Thread {
                path: path.to_owned(),
                source: Errno::from_io_error(&source).unwrap_or(Errno::AGAIN),
            });
        }
        if let Err(errno) = shared.barrier.pass_root(session.mountpoint()) {
            // Opening a directory will fail in the same way, for those who need it.
            tracing::warn!(errno = %reason(errno), "the root of a new mount cannot be passed");
        }
        Ok(Some(session))
    }

    fn start_rings<F: Filesystem>(
        &self,
        rings: Rings,
        device: Arc<OwnedFd>,
        dispatcher: &Dispatcher<F>,
    ) -> Result<(), std::io::Error> {
        let shared = Arc::clone(&self.shared);
        let inboxes = shared.set_rings(rings.inboxes()?);
        sync::lock(&self.threads).rings = rings.serve(|| Running::new(&shared));
        let mut transport = Device::beside_rings(device, Arc::clone(&inboxes.device))?;
        let inboxes = Arc::clone(inboxes);
        self.start_worker("fuse-device".to_owned(), dispatcher, move |worker| {
            worker.run(&mut transport);
            // The kernel may not announce the end to every ring's thread.
            inboxes.end();
        })?;
        self.start_others(dispatcher)
    }

    fn start<F: Filesystem>(
        &self,
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
            let name = format!("fuse-{number}");
            self.start_worker(name, dispatcher, move |worker| {
                worker.run(&mut Device::new(channel));
            })?;
        }
        self.start_others(dispatcher)
    }

    fn start_worker<F: Filesystem>(
        &self,
        name: String,
        dispatcher: &Dispatcher<F>,
        run: impl FnOnce(Worker<F>) + Send + 'static,
    ) -> Result<(), std::io::Error> {
        let worker = Worker::new(dispatcher.clone(), Arc::clone(&self.shared));
        let running = Running::new(&self.shared);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _running = running;
            run(worker);
        })?;
        sync::lock(&self.threads).workers.push(thread);
        Ok(())
    }

    /// Starts the threads that receive no requests.
    fn start_others<F: Filesystem>(
        &self,
        dispatcher: &Dispatcher<F>,
    ) -> Result<(), std::io::Error> {
        let shared = Arc::clone(&self.shared);
        let worker = Worker::new(dispatcher.clone(), Arc::clone(&shared));
        let waiting = std::thread::Builder::new().name("fuse-waiting".to_owned());
        let waiting = waiting.spawn(move || shared.waiting.run(worker))?;
        sync::lock(&self.threads).others.push(waiting);
        let shared = Arc::clone(&self.shared);
        let forgetting = std::thread::Builder::new().name("fuse-forgetting".to_owned());
        let forgetting = forgetting.spawn(move || {
            shared.forgetting.run(|name| {
                let forgotten = shared.barrier.forget_name(shared.mountpoint(), name);
                if let Err(errno) = notifier::unless_unknown(forgotten) {
                    tracing::warn!(errno = %reason(errno), "the kernel goes on to know a view that has ended");
                }
            })
        })?;
        sync::lock(&self.threads).others.push(forgetting);
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

    /// Whether requests come by io_uring.
    pub fn has_rings(&self) -> bool {
        self.shared.rings().is_some()
    }

    /// How many requests the kernel has sent, by opcode of `linux/fuse.h`.
    pub fn requests(&self) -> Vec<(u32, u64)> {
        self.shared.requests()
    }

    /// Waits until everything that programs wrote before has reached the file system,
    /// including writes through shared mappings that they still have. Call it before a
    /// commit. Never call it from an operation of the file system, nor with a lock held
    /// that such an operation needs. It fails with `ENOTCONN` once the session is ending:
    /// then stores to mapped memory may be lost. It fails with `EAGAIN` while a write
    /// cannot arrive because another process holds a lease on a file that the write needs.
    pub fn run_barrier(&self) -> Result<(), Errno> {
        if self.is_ended() {
            return Err(Errno::NOTCONN);
        }
        self.shared
            .barrier
            .run(self.mountpoint(), self.shared.rings())?;
        match self.shared.waiting.try_all() {
            true => Ok(()),
            false => Err(Errno::AGAIN),
        }
    }

    /// Opens a directory of the mount (O_PATH). The path is relative to the mount point.
    /// The process that serves a mount must not open anything in it itself: if it were
    /// killed while it waited for its own answer, it could not end.
    pub fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        if self.is_ended() {
            return Err(Errno::NOTCONN);
        }
        self.shared.barrier.open_directory(self.mountpoint(), path)
    }

    /// Detaches the file system at once, even if it is in use, and ends the workers.
    /// Programs that are still in it get `ENOTCONN`. It does nothing once the session has
    /// ended. It waits for operations under way, so never call it from one.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.shared.end()
    }

    /// Waits until the session has ended. After [`unmount`](Session::unmount) this is at
    /// once; after someone else's lazy unmount, it is when no program is in it any more.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *sync::lock(&self.threads));
        for worker in threads.workers {
            // A worker catches its panics, so nothing is left to report.
            let _ = worker.join();
        }
        for thread in threads.rings {
            thread.join();
        }
        self.shared.barrier.end();
        self.shared.waiting.end();
        self.shared.forgetting.end();
        for thread in threads.others {
            let _ = thread.join();
        }
        self.shared.join_finisher();
    }

    /// Wakes all threads that wait for programs in the mount. From then on barriers and
    /// opening directories fail. It waits for nothing.
    pub fn give_up_barriers(&self) {
        self.shared.barrier.end();
    }
}

/// Makes what rings need in this process. If that fails, the device serves instead.
fn prepare_rings<F: Filesystem>(worker: &dyn Fn() -> Worker<F>) -> Option<Rings> {
    let prepared = Rings::prepare(worker);
    prepared
        .inspect_err(|errno| tracing::info!(errno = %reason(errno), "no FUSE over io_uring"))
        .ok()
}

/// Answers the INIT request, which comes before all others. If the kernel offers rings,
/// this calls `prepare`; the caller must register what it returns.
fn handshake(
    device: &OwnedFd,
    prepare: impl Fn() -> Option<Rings>,
) -> Result<Option<Rings>, MountError> {
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
        let reply = |answer: &[u8]| match device::reply(device, header.unique, Ok(answer)) {
            Delivered::Yes => Ok(()),
            Delivered::No => Err(failed(Errno::NODEV)),
        };
        match wire::negotiate(&init) {
            Offer::Accept(accepted) => {
                tracing::debug!(kernel = ?init, reply = ?accepted, "FUSE connection begins");
                let rings = init.offers_rings().then(&prepare).flatten();
                let answered = match rings {
                    Some(_) => reply(&accepted.with_rings().encode()),
                    None => reply(&accepted.encode()),
                };
                return match (answered, rings) {
                    (Ok(()), rings) => Ok(rings),
                    (Err(error), rings) => {
                        rings.into_iter().for_each(Rings::give_up);
                        Err(error)
                    }
                };
            }
            Offer::AskAgain => reply(&wire::ask_again())?,
            Offer::TooOld => {
                let _ = device::reply(device, header.unique, Err(Errno::PROTO));
                return Err(MountError::KernelTooOld {
                    major: init.major,
                    minor: init.minor,
                });
            }
        }
    }
}
