//! File sessions: what a program writes to a file, from when it opens the file until it closes it, others
//! see at once or, if the program is killed, never. For programs that the store's profiles name.
//!
//! The program works on a copy: a file without a name, which has a node of its own. When the program
//! has closed the file, the service commits what the copy holds.
//!
//! The kernel caches one length and one set of pages for a node, whoever asks. So the program must get
//! another node than everybody else, at the same path. That is decided when it looks up the name, where
//! the kernel does not say what for. So the first open of the file fails with `ESTALE`. Then the kernel
//! asks for each name of the path again, and the program's process gets the node of the copy, whose name
//! the kernel may not cache.
//!
//! Invariants
//! 1. While a file has a session, the kernel asks for its name each time. The process that has opened it
//!    gets the copy, every other one gets the file.
//! 2. A session ends when all opens of its copy have ended. Before that, its contents land each time
//!    when the process that has opened it closes its last descriptor: the process waits for that, and
//!    learns whether it has failed. A process that ends with the file open has closed it, unless a
//!    signal has killed it: then nothing lands any more.
//! 3. No worker waits for a commit, which needs their answers.

mod copying;
mod landing;
mod process;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use atomdir_disk::{Identity, Kind, Name, Timestamp, reason, sync};
use atomdir_fuse::{Entry, Opened, Request, Result, Validity};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::acting::{Acting, set_umask};
use crate::nodes::Node;
use crate::processes::{groups_of, process_of};
use crate::serving::named;
use crate::{Guarded, Known, calls};
use copying::Copies;
use process::{Process, has_descriptor, is_there, process_that_closes};

/// So long a program has to open what it has looked up again.
const OPENED_WITHIN: Duration = Duration::from_secs(10);

/// What is to land.
pub struct Landing<'a> {
    /// From the base's root.
    pub path: Vec<u8>,
    pub copy: &'a OwnedFd,
    /// Who has opened the file, with the groups of then.
    pub user: u32,
    pub groups: &'a [u32],
    /// What the log calls it.
    pub label: &'a [u8],
}

/// What the service does for sessions.
pub trait FileSessions: Send + Sync {
    /// If a program's profile asks for sessions of the file at this path: what the log is to call them.
    fn label(&self, process: u32, path: &[u8]) -> Option<Vec<u8>>;
    /// Commits what a copy holds.
    fn land(&self, landing: &Landing<'_>) -> Result<()>;
}

#[derive(Default)]
pub struct Sessions {
    service: OnceLock<Box<dyn FileSessions>>,
    /// By the identity of the copy.
    open: Mutex<HashMap<Identity, Arc<Session>>>,
    pub copies: Arc<Copies>,
}

struct Session {
    opener: u32,
    user: u32,
    groups: Vec<u32>,
    label: Vec<u8>,
    /// The node of the copy, by its number as well.
    copy: Arc<Node>,
    number: u64,
    /// The file, unless it is new.
    file: Option<Arc<Node>>,
    since: Instant,
    state: Mutex<State>,
}

struct State {
    directory: Arc<Node>,
    name: Name,
    opens: u32,
    /// The change time of the copy when it landed last, or when it was made.
    landed: Option<Timestamp>,
    /// It was killed, or the name of a new file was removed.
    is_dropped: bool,
    is_landing: bool,
    /// What the process is to learn that waits for a landing, and the number of its request.
    outcome: Option<(u64, Result<()>)>,
}

impl Session {
    fn is_open_for(&self, thread: u32) -> bool {
        self.opener == thread || self.opener == process_of(thread)
    }

    fn is_of(&self, directory: &Node, name: &[u8]) -> bool {
        let state = sync::lock(&self.state);
        state.directory.identity == directory.identity && state.name.as_bytes() == name
    }

    fn is_given_up(&self) -> bool {
        let state = sync::lock(&self.state);
        state.opens == 0 && !state.is_landing && self.since.elapsed() > OPENED_WITHIN
    }
}

impl Sessions {
    fn get(&self, copy: Identity) -> Option<Arc<Session>> {
        sync::lock(&self.open).get(&copy).cloned()
    }

    fn all(&self) -> Vec<Arc<Session>> {
        sync::lock(&self.open).values().cloned().collect()
    }

    fn end(&self, known: &Known, session: &Session) {
        if sync::lock(&self.open)
            .remove(&session.copy.identity)
            .is_some()
        {
            known.nodes.forget(session.number, 1);
        }
    }
}

impl Guarded {
    /// From now on programs' opens are compared with the profiles. To be called before the mount.
    pub fn serve_sessions(&self, service: Box<dyn FileSessions>) {
        let _ = self.sessions.service.set(service);
    }

    pub(crate) fn has_sessions(&self) -> bool {
        self.sessions.service.get().is_some()
    }

    /// What a name leads to for a process. `found`: what it leads to in the base.
    pub(crate) fn through_session(
        &self,
        request: &Request,
        (directory, name): (&Node, &[u8]),
        found: Result<Option<Entry>>,
    ) -> Result<Option<Entry>> {
        if !self.has_sessions() {
            return found;
        }
        let file = match &found {
            Ok(Some(entry)) => self.known.nodes.get(entry.node).ok(),
            _ => None,
        };
        let identity = file.map(|file| file.identity);
        let mut sessions = self.sessions.all();
        sessions.retain(|session| match &session.file {
            Some(file) => Some(file.identity) == identity,
            None => session.is_of(directory, name),
        });
        if sessions.is_empty() {
            return found;
        }
        let own = sessions.iter().find(|one| one.is_open_for(request.process));
        let Some(session) = own else {
            return match found {
                Ok(Some(entry)) => Ok(Some(Entry {
                    valid: Validity::No,
                    ..entry
                })),
                Ok(None) => Err(Errno::NOENT),
                Err(errno) => Err(errno),
            };
        };
        if let Ok(Some(entry)) = found {
            self.known.nodes.forget(entry.node, 1);
        }
        self.entry_of_copy(session).map(Some)
    }

    fn entry_of_copy(&self, session: &Session) -> Result<Entry> {
        let (node, stat) = self
            .known
            .nodes
            .give(calls::open(&session.copy.object, OFlags::PATH)?)?;
        Ok(Entry {
            node,
            generation: 0,
            valid: Validity::No,
            attributes: self.shown(&stat),
            attributes_valid: Validity::No,
        })
    }

    /// Whether it is a copy of a session that has a name.
    pub(crate) fn is_copy(&self, identity: Identity) -> bool {
        self.has_sessions() && self.sessions.get(identity).is_some()
    }

    pub(crate) fn open_in_session(
        &self,
        request: &Request,
        number: u64,
        flags: OFlags,
    ) -> Result<Opened> {
        let node = self.known.nodes.get(number)?;
        if let Some(session) = self.sessions.get(node.identity) {
            sync::lock(&session.state).opens += 1;
            return Ok(Opened::UntilClosed);
        }
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        // Each write of a program that appends is whole by itself, and others may append as well.
        if !writes || flags.contains(OFlags::APPEND) || node.kind != Kind::File {
            return Ok(Opened::Plainly);
        }
        let path = node.located(&self.known).path();
        let label = path.as_deref().and_then(|path| self.label(request, path));
        let (Some(path), Some(label)) = (path, label) else {
            return Ok(Opened::Plainly);
        };
        let (directory, name) = self.place_of(&path)?;
        let between = (&node, &directory);
        let copy = self.sessions.copies.get(&self.known, request, between)?;
        self.begin_session(request, label, (Some(node), copy), (directory, name))?;
        Err(Errno::STALE)
    }

    fn label(&self, request: &Request, path: &[u8]) -> Option<Vec<u8>> {
        let service = self.sessions.service.get()?;
        service.label(request.process, path)
    }

    /// The directory of a path from the root, and the name in it.
    fn place_of(&self, path: &[u8]) -> Result<(Arc<Node>, Name)> {
        let parts = path.split(|byte| *byte == b'/');
        let mut parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
        let name = named(parts.pop().ok_or(Errno::INVAL)?)?;
        let mut directory = self.known.nodes.get(atomdir_fuse::ROOT_NODE)?;
        for part in parts {
            let (number, _) = self
                .known
                .nodes
                .give(calls::find(&directory.object, part)?)?;
            directory = self.known.nodes.get(number)?;
            // The node itself keeps the directory open.
            self.known.nodes.forget(number, 1);
        }
        Ok((directory, name))
    }

    /// Creates a file in a session of its own, or plainly.
    pub(crate) fn create_in_session(
        &self,
        request: &Request,
        (directory, name): (&Arc<Node>, &[u8]),
        (mode, umask, flags): (u32, u32, OFlags),
    ) -> Result<Option<Entry>> {
        // Though others do not see it yet: it may be a lock.
        let takes_name = |one: &Arc<Session>| {
            one.file.is_none() && one.is_of(directory, name) && !sync::lock(&one.state).is_dropped
        };
        let is_exclusive = self.has_sessions() && flags.contains(OFlags::EXCL);
        if is_exclusive && self.sessions.all().iter().any(takes_name) {
            return Err(Errno::EXIST);
        }
        let place = directory.located(&self.known).path();
        let path = place.map(|place| [&place[..], b"/", name].concat());
        let path = path.filter(|_| !flags.contains(OFlags::APPEND));
        let Some(label) = path.as_deref().and_then(|path| self.label(request, path)) else {
            return Ok(None);
        };
        match calls::find(&directory.object, name) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(Errno::EXIST),
            Err(errno) => return Err(errno),
        }
        let acting = Acting::begin(&self.disk, request)?;
        set_umask(umask)?;
        let copy = calls::make_unnamed(&directory.object, mode)?;
        drop(acting);
        let place = (directory.clone(), named(name)?);
        let session = self.begin_session(request, label, (None, copy), place)?;
        sync::lock(&session.state).opens += 1;
        self.entry_of_copy(&session).map(Some)
    }

    fn begin_session(
        &self,
        request: &Request,
        label: Vec<u8>,
        (file, copy): (Option<Arc<Node>>, OwnedFd),
        (directory, name): (Arc<Node>, Name),
    ) -> Result<Arc<Session>> {
        for session in self.sessions.all() {
            if session.is_given_up() {
                self.sessions.end(&self.known, &session);
            }
        }
        let (number, stat) = self.known.nodes.give(copy)?;
        let is_new = file.is_none();
        let session = Arc::new(Session {
            opener: process_of(request.process),
            user: request.user,
            groups: groups_of(request),
            label,
            copy: self.known.nodes.get(number)?,
            number,
            file,
            since: Instant::now(),
            state: Mutex::new(State {
                directory,
                name,
                opens: 0,
                landed: (!is_new).then_some(stat.changed),
                is_dropped: false,
                is_landing: false,
                outcome: None,
            }),
        });
        sync::lock(&self.sessions.open).insert(stat.identity, session.clone());
        Ok(session)
    }

    /// A new file gets another name while it is open.
    pub(crate) fn rename_in_session(
        &self,
        request: &Request,
        from: (&Node, &Name),
        to: (&Arc<Node>, &Name),
    ) -> bool {
        let Some(session) = self.new_file(request, from.0, from.1) else {
            return false;
        };
        let mut state = sync::lock(&session.state);
        state.directory = to.0.clone();
        state.name = to.1.clone();
        true
    }

    /// A new file loses its name while it is open.
    pub(crate) fn unlink_in_session(&self, request: &Request, at: &Node, name: &Name) -> bool {
        let session = self.new_file(request, at, name);
        if let Some(session) = &session {
            sync::lock(&session.state).is_dropped = true;
        }
        session.is_some()
    }

    fn new_file(&self, request: &Request, at: &Node, name: &Name) -> Option<Arc<Session>> {
        if !self.has_sessions() {
            return None;
        }
        let is_it = |one: &Arc<Session>| {
            one.file.is_none()
                && one.is_of(at, name.as_bytes())
                && sync::lock(&one.state).landed.is_none()
                && one.is_open_for(request.process)
        };
        self.sessions.all().into_iter().find(is_it)
    }

    /// A process closes a descriptor of a copy.
    pub(crate) fn close_in_session(&self, request: &Request, number: u64) -> Result<()> {
        let Some(session) = self
            .known
            .nodes
            .get(number)
            .ok()
            .and_then(|node| self.sessions.get(node.identity))
        else {
            return Ok(());
        };
        let unique = request.unique;
        let is_own = session.is_open_for(request.process);
        let closes = process_that_closes(request.process);
        // What others do that have got the file open from the opener counts when that one has gone.
        if !is_own && (closes == Process::Lives || is_there(session.opener)) {
            return Ok(());
        }
        let mut state = sync::lock(&session.state);
        if let Some((_, outcome)) = state.outcome.take_if(|(of, _)| *of == unique) {
            return outcome;
        }
        if state.is_landing {
            return Err(Errno::RESTART);
        }
        if closes == Process::IsKilled {
            state.is_dropped = true;
        }
        let inode = session.copy.identity.inode;
        if state.is_dropped
            || !self.is_changed(&session, &state)?
            || has_descriptor(session.opener, inode)
        {
            return Ok(());
        }
        state.is_landing = true;
        drop(state);
        let landed = self.land_apart(session.clone(), move |session, outcome| {
            let mut state = sync::lock(&session.state);
            // Who is told that the file has not changed may rely on it.
            state.is_dropped |= outcome.is_err();
            state.outcome = Some((unique, outcome));
        });
        match landed {
            Ok(()) => Err(Errno::RESTART),
            Err(errno) => {
                sync::lock(&session.state).is_landing = false;
                Err(errno)
            }
        }
    }

    fn is_changed(&self, session: &Session, state: &State) -> Result<bool> {
        let stat = self.stat(&session.copy)?;
        Ok(state.landed != Some(stat.changed))
    }

    /// The last descriptor of an open has been closed.
    pub(crate) fn closed_in_session(&self, number: u64) {
        let session = self.known.nodes.get(number).ok();
        let Some(session) = session.and_then(|node| self.sessions.get(node.identity)) else {
            return;
        };
        let mut state = sync::lock(&session.state);
        state.opens = state.opens.saturating_sub(1);
        if state.opens > 0 {
            return;
        }
        if state.is_dropped || !self.is_changed(&session, &state).unwrap_or(false) {
            drop(state);
            return self.sessions.end(&self.known, &session);
        }
        state.is_landing = true;
        drop(state);
        let (known, sessions) = (self.known.clone(), self.sessions.clone());
        let landed = self.land_apart(session.clone(), move |session, outcome| {
            if let Err(errno) = outcome {
                let name = String::from_utf8_lossy(sync::lock(&session.state).name.as_bytes())
                    .into_owned();
                let errno = reason(errno);
                tracing::error!(%name, %errno, "what a program has written to a file is lost");
            }
            sessions.end(&known, session);
        });
        if let Err(errno) = landed {
            let errno = reason(errno);
            tracing::error!(%errno, "what a program has written to a file is lost");
            self.sessions.end(&self.known, &session);
        }
    }
}
