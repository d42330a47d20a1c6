use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use atomdir_disk::Errno;

use crate::device::{self, Delivered};
use crate::dispatch::{Answer, Dispatcher, Scratch};
use crate::filesystem::Filesystem;
use crate::shared::Shared;
use crate::waiting::Deferred;
use crate::wire::{self, Header, Operation, REQUEST_LENGTH_MAX};

/// Whether a worker goes on after a request.
enum Next {
    Continue,
    Stop,
}

/// One thread's share of a session.
pub struct Worker<F> {
    device: Arc<OwnedFd>,
    dispatcher: Dispatcher<F>,
    shared: Arc<Shared>,
    scratch: Scratch,
}

impl<F: Filesystem> Worker<F> {
    pub fn new(device: Arc<OwnedFd>, dispatcher: Dispatcher<F>, shared: Arc<Shared>) -> Worker<F> {
        Worker {
            device,
            dispatcher,
            shared,
            scratch: Scratch::new(),
        }
    }

    /// Serves requests until the connection is over.
    pub fn run(mut self) {
        let mut buffer = vec![0; REQUEST_LENGTH_MAX];
        loop {
            let length = match device::receive(&self.device, &mut buffer) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(errno) => {
                    tracing::error!(%errno, "cannot read FUSE requests; the mount ends");
                    self.shared.end_in_background();
                    break;
                }
            };
            let message = &buffer[..length];
            if let Ok((header, _)) = wire::decode_header(message) {
                self.shared.count(header.opcode);
            }
            if let Next::Stop = self.serve(message) {
                break;
            }
        }
    }

    /// Serves a request that could not be served before.
    pub fn retry(&mut self, request: Deferred) {
        self.device = request.device;
        self.serve(&request.message);
    }

    fn serve(&mut self, message: &[u8]) -> Next {
        let (header, body) = match wire::decode_header(message) {
            Ok(decoded) => decoded,
            Err(malformed) => {
                tracing::error!(%malformed, "dropped");
                return Next::Continue;
            }
        };
        if self.shared.is_ending() {
            let _ = device::reply(&self.device, header.unique, Err(Errno::NOTCONN));
            return Next::Stop;
        }
        match catch_unwind(AssertUnwindSafe(|| {
            self.serve_decoded(&header, body, message)
        })) {
            Ok(()) => Next::Continue,
            Err(_) => {
                // What the file system now holds is unknown: nobody may go on
                // with it, and nobody may wait for it.
                tracing::error!(
                    opcode = header.opcode,
                    path = %self.shared.mountpoint().display(),
                    "a file system operation panicked; the mount ends"
                );
                self.shared.end_in_background();
                let _ = device::reply(&self.device, header.unique, Err(Errno::IO));
                Next::Stop
            }
        }
    }

    fn serve_decoded(&mut self, header: &Header, body: &[u8], message: &[u8]) {
        let answer = match wire::decode_operation(header.opcode, body) {
            Ok(operation) => self.answer(header, operation),
            Err(malformed) => {
                tracing::error!(%malformed, opcode = header.opcode, "answered EIO");
                Err(Errno::IO)
            }
        };
        tracing::trace!(opcode = header.opcode, node = header.node, ?answer);
        let answer = match answer {
            Ok(Answer::Silence) => return,
            Ok(Answer::Reply) => Ok(&self.scratch.reply[..]),
            Ok(Answer::Data(length)) => Ok(&self.scratch.data[..length]),
            // The view is being committed.
            Err(Errno::RESTART) => {
                self.dispatcher.withdraw(&mut self.scratch);
                return self.shared.waiting.defer(Deferred {
                    device: self.device.clone(),
                    message: message.to_vec(),
                });
            }
            Err(errno) => Err(errno),
        };
        let refused = answer.is_err();
        let delivered = device::reply(&self.device, header.unique, answer);
        if refused || delivered == Delivered::No {
            self.dispatcher.withdraw(&mut self.scratch);
        }
    }

    fn answer(&mut self, header: &Header, operation: Operation<'_>) -> Result<Answer, Errno> {
        self.dispatcher.answer(header, operation, &mut self.scratch)
    }
}
