//! Says to the supervisor that has started the service that it is ready, as sd_notify(3) does.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Where the supervisor listens, if it does.
pub(crate) struct Supervisor(Option<OsString>);

impl Supervisor {
    /// The variable must still be there.
    pub fn from_environment() -> Supervisor {
        Supervisor(std::env::var_os(VARIABLE))
    }

    pub fn report_ready(&self) {
        if let Some(socket) = &self.0
            && let Err(errno) = send(socket.as_bytes(), b"READY=1")
        {
            tracing::warn!("the supervisor does not learn that the service is ready: {errno}");
        }
    }
}

fn send(address: &[u8], message: &[u8]) -> Result<(), Errno> {
    let address = match address {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, message, SendFlags::NOSIGNAL, &address)?;
    Ok(())
}
