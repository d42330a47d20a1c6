use atomdir_disk::sync;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex};

use atomdir_disk::Errno;
use rustix::event::{EventfdFlags, eventfd};

use crate::transport::Delivered;

/// Messages from other threads to the thread that serves a queue.
pub struct Inbox {
    /// Readable when messages have come.
    bell: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    answers: Vec<PutOff>,
    /// The numbers of the latest barrier that was asked for, and of the latest passed.
    asked: u64,
    passed: u64,
    is_over: bool,
}

/// The answer to a request that was put off.
pub struct PutOff {
    pub entry: usize,
    pub unique: u64,
    pub answer: Result<Vec<u8>, Errno>,
}

/// The messages that have come since the queue's thread last looked.
pub struct Letters {
    pub answers: Vec<PutOff>,
    pub barrier: Option<Barrier>,
    pub is_over: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Barrier(u64);

impl Inbox {
    pub fn new() -> Result<Inbox, Errno> {
        Ok(Inbox {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub fn answer(&self, entry: usize, unique: u64, answer: Result<&[u8], Errno>) -> Delivered {
        let mut state = sync::lock(&self.state);
        if state.is_over {
            return Delivered::No;
        }
        state.answers.push(PutOff {
            entry,
            unique,
            answer: answer.map(<[u8]>::to_vec),
        });
        drop(state);
        self.ring();
        Delivered::Yes
    }

    /// Asks the queue's thread to report when it has answered, or put off, all requests
    /// that the kernel had queued before.
    pub fn ask(&self) -> Barrier {
        let mut state = sync::lock(&self.state);
        state.asked += 1;
        let barrier = Barrier(state.asked);
        drop(state);
        self.ring();
        barrier
    }

    /// Waits until a barrier is passed. A worker must not call this.
    pub fn wait(&self, barrier: Barrier) -> Result<(), Errno> {
        let mut state = sync::lock(&self.state);
        while state.passed < barrier.0 {
            if state.is_over {
                return Err(Errno::NOTCONN);
            }
            state = sync::wait(&self.changed, state);
        }
        Ok(())
    }

    pub fn pass(&self, barrier: Barrier) {
        sync::lock(&self.state).passed = barrier.0;
        self.changed.notify_all();
    }

    /// Stops the queue's thread for good.
    pub fn end(&self) {
        sync::lock(&self.state).is_over = true;
        self.changed.notify_all();
        self.ring();
    }

    pub fn take(&self) -> Letters {
        // The bell is emptied first, so later messages ring again. Reading an empty bell fails.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut state = sync::lock(&self.state);
        Letters {
            answers: std::mem::take(&mut state.answers),
            barrier: (state.passed < state.asked).then_some(Barrier(state.asked)),
            is_over: state.is_over,
        }
    }

    fn ring(&self) {
        // It fails only if the bell is ringing already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}
