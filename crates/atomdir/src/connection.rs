//! A connection to a store's service.

use crate::accounts::describe_user;
use crate::current::Current;
use crate::ended::Notice;
use crate::error::RequestError;
use crate::peer::peer_credentials;
use crate::process::ServiceProcess;
use crate::start::start;
use crate::surroundings::{self, Restriction};
use crate::transport::{receive_exact, send_all};
use crate::trust::{OVERFLOW_USER, is_root_mapped};
use crate::{ConnectError, StartService, StoreLocation};
use atomdir_protocol::handshake::{self, HandshakeError, Verdict};
use atomdir_protocol::{
    Answer, ChangeLine, CommitSummary, Conflict, EndedTransaction, MergeStep, Progress, Reply,
    Request, TransactionId, TransactionStatus, WhileOpen, frame,
};
use atomdir_types::sync;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The limit for the memory of a reply's parts together. The list of a million changes
/// takes a fourth of that, and the largest contents that can be asked for take half.
const PARTS_MEMORY_MAX: usize = if cfg!(test) { 16 << 20 } else { 512 << 20 };
/// How many times a client starts a service that ends just as the client connects.
const STARTS_MAX: u32 = 10;

/// A connection to a store's service.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    store: PathBuf,
    /// The control directory, if this process sees it.
    control: Option<PathBuf>,
    /// The user as whom the service runs.
    service_user: u32,
    started: bool,
    /// The things that this process may do and the service may not.
    pub(crate) restrictions: Vec<Restriction>,
    /// Notices that came between a request and its reply.
    pub(crate) missed: Mutex<VecDeque<Notice>>,
}

/// The parts that came before the last reply.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) changes: Vec<ChangeLine>,
    pub(crate) conflicts: Vec<Conflict>,
    pub(crate) contents: Vec<u8>,
    pub(crate) problems: Vec<String>,
    pub(crate) transactions: Vec<TransactionStatus>,
    pub(crate) commits: Vec<CommitSummary>,
    pub(crate) ended: Vec<EndedTransaction>,
    pub(crate) merge_steps: Vec<MergeStep>,
    /// Announced commits, which are no part of the reply.
    pub(crate) merges: Vec<TransactionId>,
}

/// Whether a service has ended so that another one can be started.
enum Replaced {
    No(Box<Connection>),
    Yes {
        /// How long it would have stayed.
        idle_ms: Option<u64>,
    },
}

enum Attempt {
    /// The socket, and the user who listens.
    Connected(OwnedFd, u32),
    /// Nobody listens, or the service is about to end.
    NoService,
}

impl Connection {
    /// Connects to the service, and starts it if `start` says so.
    pub fn open(
        store: &StoreLocation,
        start_service: &StartService,
    ) -> Result<Connection, ConnectError> {
        let mut starts = 0;
        // How long the service stays, as was asked of one that was replaced.
        let mut idle_ms = None;
        loop {
            if let Attempt::Connected(socket, service_user) = attempt(store)? {
                let mut connection = Connection {
                    socket,
                    store: store.root.clone(),
                    control: Some(store.control.clone()),
                    service_user,
                    started: starts > 0,
                    restrictions: Vec::new(),
                    missed: Mutex::default(),
                };
                if let Some(idle_ms) = idle_ms {
                    let _ = connection.nothing(&Request::SetIdleTime { idle_ms });
                }
                if starts > 0 || check_may_start(store).is_err() {
                    return Ok(connection);
                }
                connection.restrictions = connection.compare_restrictions();
                let may_start = matches!(start_service, StartService::IfNeeded { .. });
                if !may_start || connection.restrictions.is_empty() {
                    return Ok(connection);
                }
                match connection.replace() {
                    Replaced::No(connection) => return Ok(*connection),
                    Replaced::Yes { idle_ms: before } => idle_ms = Some(before),
                }
            }
            let StartService::IfNeeded { program, arguments } = start_service else {
                return Err(ConnectError::NotRunning {
                    store: store.root.clone(),
                });
            };
            if starts == STARTS_MAX {
                return Err(ConnectError::KeepsEnding {
                    store: store.root.clone(),
                });
            }
            check_may_start(store)?;
            start(&store.root, program, arguments)?;
            starts += 1;
        }
    }

    fn compare_restrictions(&mut self) -> Vec<Restriction> {
        match self.ask(&Request::Surroundings) {
            Ok((Answer::Surroundings(its), _)) => {
                surroundings::restrictions(&its, self.service_user, &surroundings::own())
            }
            // A service that ends just now is noticed by the next request.
            _ => Vec::new(),
        }
    }

    /// Has the service end, unless others use it.
    fn replace(mut self) -> Replaced {
        let Ok(status) = self.service_status() else {
            return Replaced::No(Box::new(self));
        };
        let process = self.service_process();
        let open = WhileOpen::RefuseIfUsed;
        match self.ask(&Request::Stop { open }) {
            Ok((Answer::Stopped(_), _)) => {
                process.wait_for_end();
                let idle_ms = status.idle_ms;
                Replaced::Yes { idle_ms }
            }
            _ => Replaced::No(Box::new(self)),
        }
    }

    /// Only for poll(2): hangs up when the service ends, and is readable when it has sent something
    /// unasked.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether [`open`](Connection::open) had to start the service.
    pub fn started(&self) -> bool {
        self.started
    }

    /// Connects from within a view, where the control directory cannot be seen. The
    /// environment says where the service listens, and somebody else may have set the
    /// environment. So the service must be the caller's own or root's.
    pub fn open_within(current: &Current) -> Result<Connection, ConnectError> {
        let store = &current.store;
        let attempt = match SocketAddrUnix::new(&current.socket) {
            Ok(address) => attempt_at(store, &address, own_or_roots())?,
            Err(_) => Attempt::NoService,
        };
        match attempt {
            Attempt::Connected(socket, service_user) => {
                let mut connection = Connection {
                    socket,
                    store: store.clone(),
                    control: None,
                    service_user,
                    started: false,
                    restrictions: Vec::new(),
                    missed: Mutex::default(),
                };
                connection.enter(current)?;
                Ok(connection)
            }
            Attempt::NoService => Err(ConnectError::NotReachedWithin {
                store: store.clone(),
            }),
        }
    }

    pub(crate) fn service_process(&self) -> ServiceProcess {
        ServiceProcess::at(&self.socket)
    }

    /// Whether the service has closed the connection, which carries no request now.
    pub(crate) fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut polled, Some(&now)) != Ok(0)
    }

    /// The service's process, by the lock that it holds.
    pub(crate) fn service_holder(&self) -> Option<crate::hosting::Holder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let control = openat(CWD, self.control()?, flags, Mode::empty()).ok()?;
        crate::hosting::Holder::find(control)
    }

    /// Views that the service offers are checked against this user.
    pub(crate) fn service_user(&self) -> u32 {
        self.service_user
    }

    pub(crate) fn control(&self) -> Option<&Path> {
        self.control.as_deref()
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    pub(crate) fn unexpected(&self) -> RequestError {
        RequestError::Unexpected {
            store: self.store.clone(),
        }
    }

    /// Sends the request and gathers its replies. `parts` keeps the received parts, even
    /// if the request fails.
    pub(crate) fn ask_with(
        &self,
        request: &Request,
        parts: &mut Parts,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Answer, Option<OwnedFd>), RequestError> {
        let bytes =
            frame::encode(request, frame::REQUEST_LENGTH_MAX).map_err(RequestError::TooLong)?;
        send_all(&self.socket, &bytes).map_err(|errno| self.lost(errno))?;
        let mut descriptor = None;
        let mut memory = 0;
        loop {
            let reply = self.receive(&mut descriptor)?;
            memory += reply.memory();
            if memory > PARTS_MEMORY_MAX {
                return Err(RequestError::TooMuch {
                    store: self.store.clone(),
                    memory_max: PARTS_MEMORY_MAX,
                });
            }
            match reply {
                Reply::Progress(value) => progress(value),
                Reply::Changes(mut part) => parts.changes.append(&mut part),
                Reply::Conflicts(mut part) => parts.conflicts.append(&mut part),
                Reply::Contents(mut part) => parts.contents.append(&mut part),
                Reply::Problems(mut part) => parts.problems.append(&mut part),
                Reply::Transactions(mut part) => parts.transactions.append(&mut part),
                Reply::Commits(mut part) => parts.commits.append(&mut part),
                Reply::Ended(mut part) => parts.ended.append(&mut part),
                Reply::MergeSteps(mut part) => parts.merge_steps.append(&mut part),
                Reply::Merge(nested) => parts.merges.push(nested),
                unasked @ (Reply::Lend(_) | Reply::Left(_) | Reply::Leave(_)) => {
                    self.miss(unasked, descriptor.take());
                }
                Reply::Done(answer) => return Ok((answer, descriptor)),
                Reply::Failed(failure) => {
                    let failure = surroundings::explain(&self.store, &self.restrictions, failure);
                    return Err(RequestError::Failed(failure));
                }
            }
        }
    }

    /// Keeps a notice that came before a reply.
    fn miss(&self, reply: Reply, descriptor: Option<OwnedFd>) {
        let mut missed = sync::lock(&self.missed);
        missed.extend(Notice::of_sharing(reply, descriptor));
    }

    pub(crate) fn receive(&self, descriptor: &mut Option<OwnedFd>) -> Result<Reply, RequestError> {
        let mut header = [0; frame::HEADER_LENGTH];
        self.receive_exact(&mut header, descriptor)?;
        let malformed = |source| RequestError::Malformed {
            store: self.store.clone(),
            source,
        };
        let length = frame::decode_header(header, frame::REPLY_LENGTH_MAX).map_err(malformed)?;
        let mut payload = vec![0; length];
        self.receive_exact(&mut payload, descriptor)?;
        frame::decode(&payload).map_err(malformed)
    }

    fn receive_exact(
        &self,
        buffer: &mut [u8],
        descriptor: &mut Option<OwnedFd>,
    ) -> Result<(), RequestError> {
        let expected = !buffer.is_empty();
        match receive_exact(&self.socket, buffer, descriptor) {
            Ok(false) if expected => Err(self.lost(Errno::CONNRESET)),
            Ok(_) => Ok(()),
            Err(errno) => Err(self.lost(errno)),
        }
    }

    fn lost(&self, errno: Errno) -> RequestError {
        let store = self.store.clone();
        match errno {
            Errno::CONNRESET | Errno::PIPE => RequestError::Disconnected { store },
            errno => RequestError::Io { store, errno },
        }
    }
}

fn attempt(store: &StoreLocation) -> Result<Attempt, ConnectError> {
    let io = |operation| {
        move |errno| ConnectError::Io {
            store: store.root.clone(),
            operation,
            errno,
        }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let control = openat(CWD, &store.control, flags, Mode::empty())
        .map_err(io("opening the control directory"))?;
    let stat = fstat(&control).map_err(io("reading the control directory's owner"))?;
    if stat.st_uid != store.owner {
        return Err(ConnectError::Replaced {
            store: store.root.clone(),
        });
    }
    // Use the descriptor, since a socket address has room for only 107 bytes.
    let path = format!("/proc/self/fd/{}/socket", control.as_raw_fd());
    let address = SocketAddrUnix::new(path.as_str()).map_err(io("naming the socket"))?;
    attempt_at(&store.root, &address, vec![store.owner, 0])
}

/// The users whose services a program in a view may use.
fn own_or_roots() -> Vec<u32> {
    let mut users = vec![rustix::process::geteuid().as_raw(), 0];
    // A user namespace that does not map root shows root as this user.
    if !is_root_mapped() {
        users.push(OVERFLOW_USER);
    }
    users
}

/// `listeners` are the users as whom the service may run.
fn attempt_at(
    store: &Path,
    address: &SocketAddrUnix,
    listeners: Vec<u32>,
) -> Result<Attempt, ConnectError> {
    let io = |operation| {
        move |errno| ConnectError::Io {
            store: store.to_owned(),
            operation,
            errno,
        }
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io("making a socket"))?;
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(Attempt::NoService),
            Err(Errno::ACCESS | Errno::PERM) => {
                return Err(ConnectError::NotPermitted {
                    store: store.to_owned(),
                });
            }
            Err(errno) => return Err(io("connecting")(errno)),
        }
    }
    let user = peer_credentials(&socket)
        .map_err(io("asking who listens"))?
        .user;
    if !listeners.contains(&user) {
        return Err(ConnectError::Impostor {
            store: store.to_owned(),
            user,
        });
    }
    shake_hands(store, socket, user)
}

fn shake_hands(store: &Path, socket: OwnedFd, user: u32) -> Result<Attempt, ConnectError> {
    let mut answer = [0; handshake::LENGTH];
    // A service that turns us away sends its answer and closes without reading. We can
    // read that answer even if sending fails.
    let _ = send_all(&socket, &handshake::encode_hello());
    match receive_exact(&socket, &mut answer, &mut None) {
        Ok(true) => {}
        // The service ended after we connected and before it accepted.
        Ok(false) | Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Attempt::NoService),
        Err(errno) => {
            return Err(ConnectError::Io {
                store: store.to_owned(),
                operation: "greeting the service",
                errno,
            });
        }
    }
    let other_version = |source| ConnectError::OtherVersion {
        store: store.to_owned(),
        source,
    };
    match handshake::decode_verdict(&answer).map_err(other_version)? {
        Verdict::Welcome => Ok(Attempt::Connected(socket, user)),
        Verdict::Ending => Ok(Attempt::NoService),
        Verdict::NotAllowed => Err(ConnectError::NotPermitted {
            store: store.to_owned(),
        }),
        Verdict::TooManyConnections => Err(ConnectError::TooManyConnections {
            store: store.to_owned(),
        }),
        Verdict::OtherVersion => Err(other_version(HandshakeError::OtherVersion(
            atomdir_protocol::VERSION,
        ))),
    }
}

/// Checks that the caller owns the control directory or is root: only they can open the store.
fn check_may_start(store: &StoreLocation) -> Result<(), ConnectError> {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 || user == store.owner {
        return Ok(());
    }
    Err(ConnectError::NotPermittedToStart {
        store: store.root.clone(),
        owner: describe_user(store.owner),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// A million empty strings take a megabyte in a message, and 24 in memory.
    #[test]
    fn an_answer_is_limited_by_what_it_takes_in_memory() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let service = std::thread::spawn(move || {
            let problems = Reply::Problems(vec![String::new(); 1 << 20]);
            let part = frame::encode(&problems, frame::REPLY_LENGTH_MAX).expect("encoded");
            let last = frame::encode(&Reply::Done(Answer::Nothing), frame::REPLY_LENGTH_MAX);
            // The client may have closed the connection already.
            let _ = theirs.write_all(&part);
            let _ = theirs.write_all(&last.expect("encoded"));
        });
        let connection = Connection {
            socket: ours.into(),
            store: PathBuf::from("/store"),
            control: None,
            service_user: 0,
            started: false,
            restrictions: Vec::new(),
            missed: Mutex::default(),
        };
        let mut parts = Parts::default();
        let answer = connection.ask_with(&Request::Check, &mut parts, &mut |_| ());
        assert!(
            matches!(answer, Err(RequestError::TooMuch { .. })),
            "{answer:?}"
        );
        drop(connection);
        service.join().expect("it has ended");
    }
}
