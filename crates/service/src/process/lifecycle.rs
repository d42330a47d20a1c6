//! The service from start to end. To start: take the start lock, check that no other
//! service has the store, open and recover it, listen, report to the starter. To end,
//! when idle or asked to: the same steps backwards, leaving nothing behind.

use crate::ServiceError;
use crate::clients::closing::Closing;
use crate::clients::connection::{self, Connection};
use crate::clients::connections::Connections;
use crate::clients::latch::Latch;
use crate::clients::limits::Budgets;
use crate::clients::socket::{self, Listener, Stream};
use crate::process::dead_guard::{self, Beneath};
use crate::process::detach::{self, Starter};
use crate::process::history_settings::HistorySettings;
use crate::process::memory;
use crate::process::mount_namespace;
use crate::process::notify::Supervisor;
use crate::process::report;
use crate::process::signals::EndSignals;
use crate::process::starter_settings;
use crate::process::store::{self, Directories};
use crate::process::watchdog::Watchdog;
use crate::requests::serving;
use crate::rights::access::Access;
use crate::rights::permissions::{Peer, Reach};
use crate::rights::walls::Walls;
use crate::service::{Asker, IdleTime, Service, Stop};
use crate::transactions::Transactions;
use crate::transactions::aside::{self, Tended};
use crate::transactions::committers::Committers;
use crate::transactions::expiry::{self, Expiry};
use crate::transactions::in_doubt::{self, Questions};
use crate::transactions::notices::Notices;
use crate::transactions::survival;
use crate::views::Views;
use crate::views::aborter;
use crate::views::guard::{self, GuardMount};
use crate::views::inner_socket::InnerSocket;
use crate::views::merges::Merges;
use atomdir::client::own_surroundings;
use atomdir::hosting::{StartLock, Ticks, now, run_maintenance, tend_unconfirmed};
use atomdir_disk::reason;
use atomdir_protocol::handshake::Verdict;
use atomdir_protocol::{Answer, Readiness, Reply, StopReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time that a peer has to read its answer when the service ends.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// The time that written data has to arrive when the service ends; programs can hold it up.
const BARRIER_PATIENCE: Duration = Duration::from_secs(5);
/// The process that started the service needs this time to connect.
const FIRST_CLIENT_TIME: Duration = Duration::from_secs(10);
const IDLE_TIME: Duration = Duration::from_secs(30);
/// The pause before another try when descriptors or the start lock were not to be had.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How often an otherwise used service checks whether its store was removed.
const LOOK_PAUSE_MIN: Duration = Duration::from_secs(1);
const LOOK_PAUSE_MAX: Duration = IDLE_TIME;

#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Continue in a new process while the calling one exits. Readiness is reported on
    /// standard output, to `atomdir::StartService`.
    pub detach: bool,
    /// The service ends after nothing was open for this long; `None`: it stays.
    pub idle: Option<Duration>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            detach: false,
            idle: Some(IDLE_TIME),
        }
    }
}

/// Serves the store whose root is `store` until idle or asked to end. The process must
/// have only one thread: this closes all descriptors but the standard ones, and reduces
/// the environment to [`SERVICE_ENVIRONMENT`](atomdir::client::SERVICE_ENVIRONMENT).
pub fn run(store: &Path, options: &ServiceOptions) -> Result<(), ServiceError> {
    memory::give_back_large_buffers();
    let supervisor = Supervisor::from_environment();
    detach::drop_inheritance()?;
    // Resolve the path before the current directory changes.
    let beneath = dead_guard::find(store);
    let location = match &beneath {
        Some(beneath) => Ok(beneath.location.clone()),
        None => store::locate(store),
    };
    let starter = if options.detach {
        let starter = detach::detach()?;
        // What a supervisor has set is deliberate, and stays.
        starter_settings::leave();
        if let Ok(location) = &location {
            mount_namespace::enter_first(location)?;
        }
        Some(starter)
    } else {
        None
    };
    let started = location.and_then(|location| {
        let (directories, start_lock) = match beneath.map(Beneath::open).transpose()? {
            Some((directories, start_lock)) => (directories, Some(start_lock)),
            None => (Directories::open(location)?, None),
        };
        report::begin(&directories.control, starter.is_some());
        Running::start((directories, start_lock), options, starter.is_none())
    });
    match started {
        Ok(running) => {
            match starter {
                Some(_) => report(starter, Readiness::Ready),
                None => supervisor.report_ready(),
            }
            running.serve();
            Ok(())
        }
        // A starter can use the other service just as well.
        Err(ServiceError::AlreadyRunning { .. }) if starter.is_some() => {
            report(starter, Readiness::Ready);
            Ok(())
        }
        Err(error) => {
            report(starter, Readiness::Failed(error.to_failure()));
            Err(error)
        }
    }
}

fn report(starter: Option<Starter>, readiness: Readiness) {
    if let Some(starter) = starter {
        starter.report(&readiness);
    }
}

struct Running {
    directories: Directories,
    service: Arc<Service>,
    listener: Listener,
    inner: Option<InnerSocket>,
    signals: EndSignals,
    maintainer: JoinHandle<()>,
    closing: Closing,
}

impl Running {
    /// The start lock comes with the directories if these lie under a dead guard.
    fn start(
        (directories, start_lock): (Directories, Option<StartLock>),
        options: &ServiceOptions,
        is_supervised: bool,
    ) -> Result<Running, ServiceError> {
        let path = directories.location.root.clone();
        let serve = |operation| {
            let store = path.clone();
            move |errno| ServiceError::Serve {
                store,
                operation,
                errno,
            }
        };
        let surroundings = own_surroundings();
        detach::configure_process()?;
        let signals = EndSignals::block()?;
        let start_lock = match start_lock {
            Some(start_lock) => start_lock,
            None => store::wait_for_turn(&directories)?,
        };
        let (store, recovery) = directories.open_store()?;
        store.tend_stages();
        let notices = Notices::open(directories.control()?, &store, &recovery);
        let user = rustix::process::geteuid().as_raw();
        let views = Views::new(&path, user, &directories.control)
            .map_err(serve("looking at the control directory"))?;
        aborter::start(views.claim(), &path);
        let inner = InnerSocket::bind(views.claim());
        let latch = Arc::new(Latch::new().map_err(serve("making an event"))?);
        let control = directories.control()?;
        let history = HistorySettings::new(&control, &store);
        let service = Arc::new(Service {
            store,
            path: path.clone(),
            history,
            access: Access {
                control,
                root: path.clone(),
            },
            views,
            guard: GuardMount::default(),
            inner_socket: inner.as_ref().map(InnerSocket::path),
            transactions: Arc::new(Transactions::default()),
            merges: Merges::default(),
            notices,
            budgets: Budgets::default(),
            expiry: Expiry::default(),
            connections: Arc::new(Connections::new(latch.clone())),
            maintenance: Ticks::default(),
            tended: Tended::default(),
            committers: Committers::default(),
            questions: Questions::default(),
            latch,
            started: now(),
            started_at: Instant::now(),
            recovery: recovery.report,
            stop: Stop::default(),
            idle_time: IdleTime::new(options.idle),
            surroundings,
            is_supervised,
        });
        // Before a client is served, and before the supervisor starts what uses the store.
        guard::mount_as_set(&service).map_err(|failure| ServiceError::Guard {
            store: path.clone(),
            failure,
        })?;
        survival::open_all(&service);
        if service.store.awaits_confirmation() {
            service.maintenance.wake();
        }
        let listener = Listener::bind(&directories.control, socket::NAME, user == 0)
            .map_err(serve("making the socket"))?;
        let maintainer = spawn_maintenance(&service).map_err(serve("starting a thread"))?;
        spawn_expiry(&service).map_err(serve("starting a thread"))?;
        let closing = Closing::start().map_err(serve("starting a thread"))?;
        drop(start_lock);
        Ok(Running {
            directories,
            service,
            listener,
            inner,
            signals,
            maintainer,
            closing,
        })
    }

    fn serve(self) {
        let mut idle = Some(Idle::new(self.idle_time().max(FIRST_CLIENT_TIME)));
        loop {
            let look_pause = self.idle_time().clamp(LOOK_PAUSE_MIN, LOOK_PAUSE_MAX);
            let time_left = idle.as_ref().map_or(look_pause, Idle::time_left);
            if self.wait(time_left) == Wake::Signal || self.service.stop.is_requested() {
                let start_lock = StartLock::try_take(&self.directories.control);
                return self.end(start_lock.ok().flatten());
            }
            self.service.latch.clear();
            self.accept_all();
            if self.is_used() {
                idle = None;
                continue;
            }
            let idle = idle.get_or_insert_with(|| Idle::new(self.idle_time()));
            if !idle.time_left().is_zero() {
                continue;
            }
            match StartLock::try_take(&self.directories.control) {
                Ok(Some(start_lock)) => {
                    // A client that connected before we got the lock must not be turned away.
                    self.accept_all();
                    if !self.is_used() {
                        return self.end(Some(start_lock));
                    }
                }
                // A starter holds the lock. It is about to connect, or to give up.
                Ok(None) => idle.extend(RETRY_PAUSE),
                Err(errno) => {
                    // The control directory is gone, so nobody can start another service.
                    tracing::warn!(
                        "ending without the start lock: {errno}",
                        errno = reason(errno)
                    );
                    return self.end(None);
                }
            }
        }
    }

    fn is_used(&self) -> bool {
        let service = &self.service;
        let stays = service.transactions.count() > 0
            || service.guard.is_mounted()
            || service.store.awaits_confirmation()
            || service.idle_time.get().is_none();
        service.connections.count() > 0 || (stays && !service.store.is_removed())
    }

    /// A service without an idle time ends as well, when its store was removed.
    fn idle_time(&self) -> Duration {
        self.service.idle_time.get().unwrap_or(IDLE_TIME)
    }

    fn wait(&self, time_max: Duration) -> Wake {
        let time_max = Timespec::try_from(time_max).ok();
        let mut polled = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.service.latch, PollFlags::IN),
        ];
        let listeners = self.listeners();
        polled.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut polled, time_max.as_ref()) {
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => Wake::Signal,
            _ => Wake::Other,
        }
    }

    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        let inner = self.inner.iter().map(|inner| &inner.listener);
        std::iter::once(&self.listener).chain(inner)
    }

    fn accept_all(&self) {
        self.accept_all_at(&self.listener, Reach::All);
        if let Some(inner) = &self.inner {
            self.accept_all_at(&inner.listener, Reach::Nothing);
        }
    }

    fn accept_all_at(&self, listener: &Listener, reach: Reach) {
        loop {
            match listener.accept() {
                Ok(Some(stream)) => {
                    if let Some((refused, verdict)) = self.admit(stream, reach) {
                        connection::turn_away(&refused, verdict);
                        self.closing.close(refused);
                    }
                }
                Ok(None) => return,
                Err(errno) => {
                    tracing::warn!("cannot accept a connection: {errno}", errno = reason(errno));
                    // The listener stays readable: without a pause the next poll would
                    // return at once, until there is a descriptor again.
                    std::thread::sleep(RETRY_PAUSE);
                    return;
                }
            }
        }
    }

    /// Returns the stream and the reason if the service does not serve it.
    fn admit(&self, stream: Stream, reach: Reach) -> Option<(Stream, Verdict)> {
        let allowed = Peer::of(&stream).ok();
        let allowed = allowed.filter(|peer| self.service.access.is_allowed(peer));
        let Some(peer) = allowed else {
            return Some((stream, Verdict::NotAllowed));
        };
        let connections = self.service.connections.clone();
        let Some(id) = connections.admit(peer.user, &stream) else {
            return Some((stream, Verdict::TooManyConnections));
        };
        let service = self.service.clone();
        let accepted = Connection {
            stream,
            peer: Peer { reach, ..peer },
            walls: Walls::default(),
            id,
            first_begun: None,
        };
        let thread = std::thread::Builder::new().name("connection".to_owned());
        let spawned = thread.spawn(move || serving::serve(service, &connections, id, accepted));
        if spawned.is_ok() {
            return None;
        }
        let refused = self.service.connections.take_stream(id);
        self.service.connections.remove(id);
        refused.map(|stream| (stream, Verdict::TooManyConnections))
    }

    /// The process holds the start lock, if it got it, until it exits: a starter waits
    /// for that.
    fn end(self, start_lock: Option<StartLock>) {
        socket::remove(&self.directories.control, socket::NAME);
        if let Some(inner) = &self.inner {
            inner.remove();
        }
        for listener in self.listeners() {
            while let Ok(Some(stream)) = listener.accept() {
                connection::turn_away(&stream, Verdict::Ending);
                self.closing.close(stream);
            }
        }
        drop((self.listener, self.inner));
        let service = self.service;
        service.stop.begin();
        let watchdog = Watchdog::start(&service);
        let begun = Instant::now();
        service.connections.close_all(END_PATIENCE, || {
            if begun.elapsed() >= BARRIER_PATIENCE {
                service.views.give_up_barriers();
            }
        });
        aside::finish_lazy_commits(&service);
        service.guard.unmount();
        let kept = survival::end_all(&service);
        service.expiry.end();
        service.maintenance.end();
        let _ = self.maintainer.join();
        if let Err(error) = service.store.close() {
            // The log still has the commits that the base lacks; the next start recovers them.
            tracing::error!("the store could not be closed in order: {error}");
        }
        let waiting = service.stop.take_waiting();
        service.views.unmount();
        drop(watchdog);
        // The last reference to the service holds the store's lock.
        drop(service);
        answer_stopped(waiting, kept);
        std::mem::forget(start_lock);
    }
}

pub(crate) fn answer_stopped(waiting: Vec<Asker>, kept: u64) {
    for asker in waiting {
        let report = StopReport {
            transactions_aborted: asker.transactions_open.saturating_sub(kept),
            transactions_kept: kept,
        };
        let stopped = Reply::Done(Answer::Stopped(report));
        let _ = asker.stream.send_reply(&stopped);
    }
}

/// Since when the service is idle, and how long it may be.
struct Idle {
    since: Instant,
    time_max: Duration,
}

impl Idle {
    fn new(time_max: Duration) -> Idle {
        Idle {
            since: Instant::now(),
            time_max,
        }
    }

    fn time_left(&self) -> Duration {
        self.time_max.saturating_sub(self.since.elapsed())
    }

    fn extend(&mut self, by: Duration) {
        self.time_max += by;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wake {
    Signal,
    Other,
}

fn spawn_maintenance(service: &Arc<Service>) -> Result<JoinHandle<()>, Errno> {
    let service = service.clone();
    std::thread::Builder::new()
        .name("maintenance".to_owned())
        .spawn(move || {
            let tend = || {
                aside::tend(&service);
                let is_in_doubt = in_doubt::tend(&service);
                let is_waiting = tend_unconfirmed(&service.store);
                // Programs in the guard ask nothing of the service, so that it looks by itself.
                let is_guarded = service.guard.is_mounted();
                if is_guarded {
                    service
                        .history
                        .heed(&service.access.control, &service.store);
                }
                service.notices.flush_due() || is_waiting || is_guarded || is_in_doubt
            };
            if !service.transactions.in_doubt().is_empty() {
                service.maintenance.wake();
            }
            run_maintenance(&service.store, &service.maintenance, tend);
        })
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

/// The thread's reference to the service goes when the expiry ends.
fn spawn_expiry(service: &Arc<Service>) -> Result<(), Errno> {
    let service = service.clone();
    std::thread::Builder::new()
        .name("expiry".to_owned())
        .spawn(move || expiry::run(&service))
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}
