//! How an open store is reached now, and handing it over to another process.
//!
//! A store that is open in this process keeps all other processes out. So a thread listens for
//! others who want it ([`Requests`]).
//!
//! Invariants
//! 1. The store is given up only while nothing here uses it: under the lock of the state, which
//!    then has the only reference. Each transaction, each file and each call in progress has one of its own,
//!    and gets it under that lock. So nobody here has a snapshot, a lock or a change of the store
//!    that others would not know of.
//! 2. It is given up only after all commits are durable, and while none of them is set aside. So no
//!    receipt and no transaction depends on this process any more.
//! 3. After that, this process has no lock, thread or file of the store. The next use opens the store
//!    as at the first time, which recovers it if another process was killed meanwhile.
//!
//! A killed process gives the store up at any moment; the next one recovers it.

use super::door::StoreOptions;
use super::error::{BeginError, OpenError, StoreError};
use crate::embedded::Embedded;
use crate::hosting::{Requests, without_signals};
use crate::process::Opener;
use crate::served::Served;
use crate::{ConnectError, StoreLocation};
use atomdir_types::sync;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

/// So often a begin is tried again whose service has just ended.
const TRIES_MAX: u32 = 10;

/// An open store, to be used for one call or one transaction.
#[derive(Debug, Clone)]
pub(super) enum Opened {
    Embedded(Arc<Embedded>),
    Served(Arc<Served>),
}

enum State {
    Open(Opened),
    GivenUp,
}

/// Shared with the thread that listens.
struct Shared {
    state: Mutex<State>,
    /// Somebody wanted the store while it was used.
    is_wanted: AtomicBool,
}

pub(super) struct Holding {
    /// How it is opened again.
    options: StoreOptions,
    location: StoreLocation,
    opener: Opener,
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
}

impl fmt::Debug for Holding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut holding = formatter.debug_struct("Holding");
        holding
            .field("root", &self.location.root)
            .finish_non_exhaustive()
    }
}

impl Holding {
    pub(super) fn new(options: StoreOptions, location: StoreLocation, opened: Opened) -> Holding {
        let listens = options.takes_any_door();
        let holding = Holding {
            options: options.once_handed_over(),
            location,
            opener: Opener::this_process(),
            shared: Arc::new(Shared {
                state: Mutex::new(State::GivenUp),
                is_wanted: AtomicBool::new(false),
            }),
            listener: Mutex::default(),
        };
        holding.become_open(&mut sync::lock(&holding.shared.state), opened, listens);
        holding
    }

    pub(super) fn location(&self) -> &StoreLocation {
        &self.location
    }

    pub(super) fn require_here(&self) -> Result<(), StoreError> {
        self.opener.require()
    }

    pub(super) fn is_embedded(&self) -> bool {
        let is_embedded = |state: &State| matches!(state, State::Open(Opened::Embedded(_)));
        self.opener.is_here() && is_embedded(&sync::lock(&self.shared.state))
    }

    /// The store as it is open now. Opens it if it was given up.
    pub(super) fn current(&self) -> Result<Opened, StoreError> {
        // The lock may be held in the process from which this one was forked off.
        self.opener.require()?;
        let mut state = sync::lock(&self.shared.state);
        if self.shared.is_wanted.swap(false, Ordering::Relaxed) {
            let _ = give_up(&mut state, self.listening().as_ref());
        }
        if let State::Open(Opened::Served(served)) = &*state
            && self.options.takes_any_door()
            && matches!(served.reach(), Err(ConnectError::NotRunning { .. }))
        {
            *state = State::GivenUp;
        }
        if let State::GivenUp = *state {
            let opened = self.options.open_at(&self.location);
            let listens = self.options.takes_any_door();
            self.become_open(&mut state, opened.map_err(not_reopened)?, listens);
        }
        match &*state {
            State::Open(opened) => Ok(opened.clone()),
            State::GivenUp => Err(StoreError::Closed),
        }
    }

    /// Begins a transaction in the store as it is open now. If its service ends just then, nothing has
    /// begun, and this tries again.
    pub(super) fn begin<T>(
        &self,
        begin: impl Fn(Opened) -> Result<T, BeginError>,
    ) -> Result<T, BeginError> {
        let mut tries_left = TRIES_MAX;
        loop {
            let begun = begin(self.current()?);
            let is_lost = matches!(begun, Err(BeginError::Store(StoreError::Lost(_))));
            if !is_lost || !self.options.takes_any_door() || tries_left == 0 {
                return begun;
            }
            tries_left -= 1;
        }
    }

    fn become_open(&self, state: &mut State, opened: Opened, listens: bool) {
        if let Opened::Embedded(store) = &opened
            && listens
        {
            let listener = store
                .requests()
                .map(|requests| Listener::start(Arc::new(requests), Arc::downgrade(&self.shared)));
            let listener = match listener {
                Ok(Ok(listener)) => Some(listener),
                // Then it is given up only on demand of this process.
                Ok(Err(error)) => report(&error),
                Err(error) => report(&error.into()),
            };
            let before = std::mem::replace(&mut *sync::lock(&self.listener), listener);
            // Its thread may wait for the state, so this must not wait for the thread.
            drop(before.map(Listener::dismiss));
        }
        *state = State::Open(opened);
    }

    fn listening(&self) -> Option<Arc<Requests>> {
        let listener = sync::lock(&self.listener);
        listener.as_ref().map(|listener| listener.requests.clone())
    }

    pub(super) fn hand_over(&self) -> Result<(), StoreError> {
        self.opener.require()?;
        let listening = self.listening();
        let given_up = give_up(&mut sync::lock(&self.shared.state), listening.as_ref());
        given_up?;
        self.end_listener();
        Ok(())
    }

    pub(super) fn close(self) -> Result<(), StoreError> {
        self.opener.require()?;
        match self.end() {
            State::GivenUp => Ok(()),
            State::Open(Opened::Served(store)) => store.sync(),
            State::Open(Opened::Embedded(store)) => match Arc::try_unwrap(store) {
                Ok(store) => store.close(),
                Err(_) => Err(StoreError::InUse),
            },
        }
    }

    /// Returns the state before. Others find the store given up from now on.
    fn end(&self) -> State {
        if let Some(requests) = self.listening() {
            requests.remove();
        }
        let state = std::mem::replace(&mut *sync::lock(&self.shared.state), State::GivenUp);
        self.end_listener();
        state
    }

    fn end_listener(&self) {
        let listener = sync::lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.end();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.opener.is_here() {
            drop(self.end());
        }
    }
}

fn report(error: &std::io::Error) -> Option<Listener> {
    tracing::debug!(%error, "the store is not handed over to others who want it");
    None
}

fn not_reopened(error: OpenError) -> StoreError {
    StoreError::NotReopened(error.to_string())
}

/// Gives the store up if nothing uses it, and else fails.
fn give_up(state: &mut State, listening: Option<&Arc<Requests>>) -> Result<(), StoreError> {
    let State::Open(Opened::Embedded(store)) = state else {
        return Ok(());
    };
    if Arc::strong_count(store) > 1 {
        return Err(StoreError::InUse);
    }
    store.prepare_to_end()?;
    let State::Open(Opened::Embedded(store)) = std::mem::replace(state, State::GivenUp) else {
        return Ok(());
    };
    match Arc::try_unwrap(store) {
        Ok(store) => {
            if let Some(requests) = listening {
                requests.remove();
            }
            if let Err(error) = store.close() {
                // The commits are durable; whoever opens the store next recovers it.
                tracing::error!("the store was handed over and not closed in order: {error}");
            }
            Ok(())
        }
        // A receipt is being made durable.
        Err(store) => {
            *state = State::Open(Opened::Embedded(store));
            Err(StoreError::InUse)
        }
    }
}

/// The thread that listens for others who want the store.
struct Listener {
    requests: Arc<Requests>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listener {
    fn start(requests: Arc<Requests>, shared: Weak<Shared>) -> std::io::Result<Listener> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (heard, over) = (requests.clone(), is_over.clone());
        let listen = move || {
            while heard.wait().is_ok() && !over.load(Ordering::Acquire) {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let mut state = sync::lock(&shared.state);
                match give_up(&mut state, Some(&heard)) {
                    Ok(()) => return,
                    Err(_) => shared.is_wanted.store(true, Ordering::Relaxed),
                }
            }
        };
        let thread = std::thread::Builder::new().name("atomdir-asked".to_owned());
        // The program's signal handlers run in the program's own threads.
        let thread = without_signals(|| thread.spawn(listen))?;
        Ok(Listener {
            requests,
            is_over,
            thread,
        })
    }

    fn end(self) {
        // A panic of the thread has been reported already.
        let _ = self.dismiss().join();
    }

    /// Has the thread end soon.
    fn dismiss(self) -> JoinHandle<()> {
        self.is_over.store(true, Ordering::Release);
        self.requests.wake();
        self.thread
    }
}
