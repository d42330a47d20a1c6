//! Closes connections that the service turned away.
//!
//! This drops what their peers have sent, unread, and that may hold descriptors of files.
//! The close of a file's last descriptor can wait for as long as the file's owner likes:
//! for a TCP socket until the other end reads (SO_LINGER), for a FUSE file until its server
//! answers. The thread that accepts connections serves every user, so it closes none of
//! them. Since Linux 6.16 listeners refuse descriptors, so none gets here; on older kernels
//! only this thread waits.

use crate::clients::socket::Stream;
use rustix::io::Errno;
use std::sync::mpsc::{Sender, channel};

pub(crate) struct Closing(Sender<Stream>);

impl Closing {
    pub(crate) fn start() -> Result<Closing, Errno> {
        let (closing, streams) = channel();
        std::thread::Builder::new()
            .name("closing".to_owned())
            .spawn(move || streams.into_iter().for_each(drop::<Stream>))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Closing(closing))
    }

    pub(crate) fn close(&self, stream: Stream) {
        // The thread runs as long as there is a sender, so this cannot fail.
        let _ = self.0.send(stream);
    }
}
