//! Closes connections that were turned away.
//!
//! What their peers have sent is dropped with them, unread. It may hold descriptors of
//! files, and the close of the last descriptor of a file can wait for as long as its
//! owner likes: that of a TCP socket waits for the other end to read (SO_LINGER), that of
//! a FUSE file for its server. The thread that accepts connections serves every user, so it
//! closes none of them. Since Linux 6.16 no descriptor gets here, as listeners refuse
//! them; on older kernels only this thread waits.

use crate::socket::Stream;
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
        // The thread ends only with what sends to it.
        let _ = self.0.send(stream);
    }
}
