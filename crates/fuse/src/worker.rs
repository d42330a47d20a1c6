use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use atomdir_disk::{Errno, reason};

use crate::dispatch::{Answer, Dispatcher, Scratch};
use crate::filesystem::Filesystem;
use crate::shared::Shared;
use crate::transport::{Delivered, Next, Transport};
use crate::waiting::{Deferred, Obstacle};
use crate::wire::{self, Header, Operation};

/// What one thread of a session needs to serve requests.
pub struct Worker<F> {
    dispatcher: Dispatcher<F>,
    shared: Arc<Shared>,
    scratch: Scratch,
}

/// The result of serving a request.
enum Served {
    /// The kernel expects no answer.
    Silence,
    Answer(u64, Result<Answer, Errno>),
    /// The request cannot be served yet.
    Later(Obstacle),
    /// The session is ending.
    Refused(u64, Errno),
}

impl<F: Filesystem> Worker<F> {
    pub fn new(dispatcher: Dispatcher<F>, shared: Arc<Shared>) -> Worker<F> {
        Worker {
            dispatcher,
            shared,
            scratch: Scratch::new(),
        }
    }

    /// Serves requests until the connection is over.
    pub fn run(mut self, transport: &mut impl Transport) {
        loop {
            match transport.receive() {
                Ok(true) => {}
                Ok(false) => break,
                Err(errno) => {
                    tracing::error!(errno = %reason(errno), "cannot read FUSE requests; the mount ends");
                    self.shared.end_in_background();
                    break;
                }
            }
            let message = transport.message();
            if let Ok((header, _)) = wire::decode_header(message) {
                self.shared.count(header.opcode);
            }
            match self.serve(message) {
                Served::Silence => {}
                Served::Answer(unique, answer) => {
                    let delivered = transport.answer(unique, self.bytes(answer));
                    self.take_back(answer, delivered);
                }
                Served::Later(obstacle) => {
                    let message = message.to_vec();
                    let addressee = transport.put_off();
                    let deferred = Deferred::new(addressee, message, obstacle);
                    if let Some(interrupted) = self.shared.waiting.defer(deferred) {
                        self.dispatcher.give_up(&interrupted);
                    }
                }
                Served::Refused(unique, errno) => {
                    if transport.refuse(unique, errno) == Next::Stop {
                        break;
                    }
                }
            }
        }
    }

    /// Serves a request that could not be served before.
    pub fn retry(&mut self, request: Deferred) {
        match self.serve(&request.message) {
            Served::Silence => {}
            Served::Answer(unique, answer) => {
                let delivered = request.addressee.answer(unique, self.bytes(answer));
                self.take_back(answer, delivered);
            }
            Served::Later(obstacle) => match request.again(obstacle) {
                Ok(request) => {
                    if let Some(interrupted) = self.shared.waiting.put_back(request) {
                        self.dispatcher.give_up(&interrupted);
                    }
                }
                Err(expired) => {
                    let _ = expired.addressee.answer(expired.unique, Err(Errno::AGAIN));
                }
            },
            Served::Refused(unique, errno) => {
                let _ = request.addressee.answer(unique, Err(errno));
            }
        }
    }

    fn serve(&mut self, message: &[u8]) -> Served {
        let (header, body) = match wire::decode_header(message) {
            Ok(decoded) => decoded,
            Err(malformed) => {
                tracing::error!(%malformed, "dropped");
                return Served::Silence;
            }
        };
        if self.shared.is_ending() {
            return Served::Refused(header.unique, Errno::NOTCONN);
        }
        match catch_unwind(AssertUnwindSafe(|| self.serve_decoded(&header, body))) {
            Ok(served) => served,
            Err(_) => {
                // The file system's state is now unknown, so no request may use it or wait
                // for it any more.
                tracing::error!(
                    opcode = header.opcode,
                    path = %self.shared.mountpoint().display(),
                    "a file system operation panicked; the mount ends"
                );
                self.shared.end_in_background();
                Served::Refused(header.unique, Errno::IO)
            }
        }
    }

    fn serve_decoded(&mut self, header: &Header, body: &[u8]) -> Served {
        let answer = match wire::decode_operation(header.opcode, body) {
            Ok(operation) => self.answer(header, operation),
            Err(malformed) => {
                tracing::error!(%malformed, opcode = header.opcode, "answered EIO");
                Err(Errno::IO)
            }
        };
        tracing::trace!(opcode = header.opcode, node = header.node, ?answer);
        match answer {
            Ok(Answer::Silence) => Served::Silence,
            Err(errno @ (Errno::RESTART | Errno::AGAIN | Errno::INPROGRESS)) => {
                self.dispatcher.withdraw(&mut self.scratch);
                Served::Later(match errno {
                    Errno::RESTART => Obstacle::Commit,
                    Errno::INPROGRESS => Obstacle::Other,
                    _ => Obstacle::Lease,
                })
            }
            answer => Served::Answer(header.unique, answer),
        }
    }

    fn answer(&mut self, header: &Header, operation: Operation<'_>) -> Result<Answer, Errno> {
        self.dispatcher.answer(header, operation, &mut self.scratch)
    }

    fn bytes(&self, answer: Result<Answer, Errno>) -> Result<&[u8], Errno> {
        Ok(match answer? {
            Answer::Reply => &self.scratch.reply,
            Answer::Data(length) => &self.scratch.data[..length],
            Answer::Silence => &[],
        })
    }

    /// Undoes the lookup counts that an answer raised, if nobody received it.
    fn take_back(&mut self, answer: Result<Answer, Errno>, delivered: Delivered) {
        if answer.is_err() || delivered == Delivered::No {
            self.dispatcher.withdraw(&mut self.scratch);
        }
    }
}
