use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use atomdir_disk::{Errno, reason};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use super::entry::Entry;
use super::inbox::{Barrier, Inbox};
use crate::transport::{Addressee, Delivered, Next, Transport};
use crate::wire::ring::{self, COMMIT_AND_FETCH, REGISTER};

/// How many entries are not put off, and so how many requests the kernel can hand over
/// at a time.
const ENTRIES: usize = 4;
/// While one entry is put off there must be another: the kernel gives a queued request
/// to an entry that is handed back with an answer, not to a new entry.
const _: () = assert!(ENTRIES >= 2);

const SUBMISSIONS: u32 = 16;
/// Enough for nearly all completions that can be there at a time. The kernel keeps those
/// that do not fit.
const COMPLETIONS: u32 = 256;

/// A completion's user data is an entry's number, or one of these.
const BELL: u64 = u64::MAX;

/// The requests made on one processor.
pub struct Queue {
    number: u16,
    ring: IoUring<Entry128>,
    device: Option<Arc<OwnedFd>>,
    entries: Vec<Entry>,
    /// The entry whose request was received and is neither answered nor put off.
    current: Option<usize>,
    /// How many entries are put off.
    away: usize,
    inbox: Arc<Inbox>,
    barrier: Option<Barrier>,
}

impl Queue {
    /// Must be called in the thread that will serve the queue.
    pub fn new(number: u16, inbox: Arc<Inbox>) -> Result<Queue, Errno> {
        let ring = IoUring::<Entry128>::builder()
            .dontfork()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(SUBMISSIONS)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let entries = (0..ENTRIES).map(|_| Entry::map());
        let mut queue = Queue {
            number,
            ring,
            device: None,
            entries: entries.collect::<Result<_, _>>()?,
            current: None,
            away: 0,
            inbox,
            barrier: None,
        };
        // A sandbox may allow making a ring and forbid using it, so it is tried here.
        queue.listen()?;
        queue.submit(0)?;
        Ok(queue)
    }

    /// Hands all entries to the kernel, which uses them once every queue has done so.
    pub fn register(&mut self, device: Arc<OwnedFd>) -> Result<(), Errno> {
        self.device = Some(device);
        for entry in 0..self.entries.len() {
            self.push(self.register_command(entry))?;
        }
        self.submit(0)?;
        // Only a refused registration has completed by now.
        let refused = self.ring.completion().next();
        refused.map_or(Ok(()), |refused| {
            Err(Errno::from_raw_os_error(-refused.result()))
        })
    }

    /// Stops the queue. Returns its memory, to be unmapped when the thread has ended.
    pub fn close(mut self) -> Vec<Entry> {
        self.inbox.end();
        // This sends the last answer.
        let _ = self.submit(0);
        std::mem::take(&mut self.entries)
    }

    fn register_command(&self, entry: usize) -> Entry128 {
        let vectors = self.entries[entry].vectors();
        let command = self.command(REGISTER, 0).addr(Some(vectors as u64));
        let mut command = command.build().user_data(entry as u64);
        set_length(&mut command, 2);
        command
    }

    /// Registers another entry in place of one that is put off, so that other requests are
    /// served however many are put off.
    fn replace(&mut self) -> Result<(), Errno> {
        if self.entries.len() - self.away < ENTRIES {
            self.entries.push(Entry::map()?);
            self.push(self.register_command(self.entries.len() - 1))?;
        }
        Ok(())
    }

    fn commit_command(&self, entry: usize) -> Entry128 {
        let commit = self.entries[entry].commit();
        let command = self.command(COMMIT_AND_FETCH, commit);
        command.build().user_data(entry as u64)
    }

    fn command(&self, operation: u32, commit: u64) -> opcode::UringCmd80 {
        let device = self.device.as_ref().map_or(-1, |device| device.as_raw_fd());
        opcode::UringCmd80::new(types::Fd(device), operation)
            .cmd(ring::command(self.number, commit))
    }

    /// Waits for the bell.
    fn listen(&mut self) -> Result<(), Errno> {
        let bell = types::Fd(self.inbox.bell().as_raw_fd());
        let poll = opcode::PollAdd::new(bell, libc::POLLIN as u32).build();
        self.push(Entry128::from(poll.user_data(BELL)))
    }

    fn push(&mut self, command: Entry128) -> Result<(), Errno> {
        loop {
            // SAFETY: what it points to are entries, which stay where they
            // are until this thread has ended, and the device, which is open.
            if unsafe { self.ring.submission().push(&command) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    fn submit(&self, wanted: usize) -> Result<(), Errno> {
        entered(self.ring.submit_and_wait(wanted))
    }

    /// Submits, and lets the kernel hand over the requests it has, without waiting.
    fn look(&mut self) -> Result<(), Errno> {
        const GETEVENTS: u32 = 1;
        let pending = self.ring.submission().len() as u32;
        // SAFETY: no argument but the flag.
        entered(unsafe {
            let submitter = self.ring.submitter();
            submitter.enter::<libc::sigset_t>(pending, 0, GETEVENTS, None)
        })
    }

    /// Returns the next completion. Answers are submitted before the next is looked at.
    fn next(&mut self) -> Result<cqueue::Entry, Errno> {
        loop {
            if self.ring.completion().is_empty() {
                match self.barrier.take() {
                    None => self.submit(1)?,
                    Some(barrier) => {
                        self.look()?;
                        if self.ring.completion().is_empty() {
                            self.inbox.pass(barrier);
                        } else {
                            self.barrier = Some(barrier);
                        }
                    }
                }
            } else if !self.ring.submission().is_empty() {
                self.submit(0)?;
            }
            if let Some(completion) = self.ring.completion().next() {
                return Ok(completion);
            }
        }
    }

    /// Returns `false` when the queue must stop.
    fn read_letters(&mut self) -> Result<bool, Errno> {
        let letters = self.inbox.take();
        for one in letters.answers {
            self.away -= 1;
            self.reply(
                one.entry,
                one.unique,
                one.answer.as_deref().map_err(|errno| *errno),
            )?;
        }
        self.barrier = letters.barrier;
        self.listen()?;
        Ok(!letters.is_over)
    }

    fn reply(
        &mut self,
        entry: usize,
        unique: u64,
        answer: Result<&[u8], Errno>,
    ) -> Result<(), Errno> {
        self.entries[entry].answer(unique, answer);
        self.push(self.commit_command(entry))
    }
}

impl Transport for Queue {
    fn receive(&mut self) -> Result<bool, Errno> {
        if let Some(entry) = self.current.take() {
            // No request without an answer comes over a ring. If one did, its entry would
            // still have to be handed back.
            self.reply(entry, 0, Err(Errno::NOSYS))?;
        }
        loop {
            let completion = self.next()?;
            if completion.user_data() == BELL {
                if !self.read_letters()? {
                    return Ok(false);
                }
                continue;
            }
            let entry = completion.user_data() as usize;
            match completion.result() {
                0 => {
                    self.entries[entry].fetch();
                    self.current = Some(entry);
                    return Ok(true);
                }
                failed => match Errno::from_raw_os_error(-failed) {
                    Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV => return Ok(false),
                    // The kernel never took this entry, but it has the others.
                    errno if self.entries[entry].commit() == 0 => {
                        tracing::warn!(errno = %reason(errno), "one entry less for requests");
                    }
                    errno => return Err(errno),
                },
            }
        }
    }

    fn message(&self) -> &[u8] {
        self.current
            .map_or(&[], |entry| self.entries[entry].message())
    }

    fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) -> Delivered {
        let Some(entry) = self.current.take() else {
            return Delivered::No;
        };
        match self.reply(entry, unique, answer) {
            // A ring does not report whether anyone was still waiting.
            Ok(()) => Delivered::Yes,
            Err(_) => Delivered::No,
        }
    }

    fn refuse(&mut self, unique: u64, errno: Errno) -> Next {
        // The inbox reports the end of the session. Until then every request gets an
        // answer.
        match self.answer(unique, Err(errno)) {
            Delivered::Yes => Next::Continue,
            Delivered::No => Next::Stop,
        }
    }

    fn put_off(&mut self) -> Addressee {
        let entry = self.current.take().unwrap_or(usize::MAX);
        self.away += 1;
        if let Err(errno) = self.replace() {
            tracing::warn!(errno = %reason(errno), "no further entry for requests");
        }
        Addressee::Ring {
            inbox: self.inbox.clone(),
            entry,
        }
    }
}

/// The result of io_uring_enter. Some of its errors only mean that we must look again.
fn entered(result: std::io::Result<usize>) -> Result<(), Errno> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            errno => Err(errno.unwrap_or(Errno::IO)),
        },
    }
}

/// Sets `len`, for which the crate io-uring has no setter in this command.
fn set_length(command: &mut Entry128, length: u32) {
    const LENGTH_AT: usize = 24;
    // SAFETY: an io_uring_sqe of 128 bytes; `len` is the word at this offset.
    unsafe {
        std::ptr::from_mut(command)
            .cast::<u8>()
            .add(LENGTH_AT)
            .cast::<u32>()
            .write(length);
    }
}
