//! Mounts with fusermount3, or else with fusermount, as libfuse does. The helper opens
//! the device, mounts, and passes the descriptor back over a socket.

use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use atomdir_disk::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::{MountFlags, MountOptions, SUBTYPE};
use crate::error::{MountError, UnmountError};

const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// The environment variable in which the helper finds the socket's number.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

pub fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |source| MountError::Mount {
        path: path.to_owned(),
        source,
    };
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("default_permissions,subtype={SUBTYPE},fsname={source}");
    if options.flags.contains(MountFlags::RDONLY) {
        list.push_str(",ro");
    }
    for helper in HELPERS {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed)?;
        // The socket is the helper's standard input, descriptor 0.
        let mut command = Command::new(helper);
        command.args(["-o", &list, "--"]).arg(path);
        command.env(SOCKET_VARIABLE, "0").stdin(theirs);
        let Some(output) = run(&mut command).map_err(failed)? else {
            continue;
        };
        if output.status.success() {
            return receive_device(&ours).map_err(failed);
        }
        return Err(refusal(path, &output));
    }
    Err(MountError::NoFusermount)
}

/// Unmounts lazily. fusermount does nothing where there is no `/etc/mtab`, so umount is tried after
/// it: that one looks into `/proc` for who has mounted a file system.
pub fn unmount(path: &Path) -> Result<(), UnmountError> {
    let helpers = HELPERS.map(|helper| (helper, &["-u", "-z", "--"][..]));
    let mut refusal = None;
    for (helper, options) in helpers.into_iter().chain([("umount", &["-l", "--"][..])]) {
        let mut command = Command::new(helper);
        command.args(options).arg(path).stdin(Stdio::null());
        let output = run(&mut command).map_err(|source| UnmountError::Unmount {
            path: path.to_owned(),
            source,
        })?;
        match output {
            None => {}
            Some(output) if output.status.success() => return Ok(()),
            Some(output) => refusal = refusal.or(Some(message_of(&output))),
        }
    }
    Err(UnmountError::Fusermount {
        path: path.to_owned(),
        message: refusal.unwrap_or_else(|| "it is not installed".to_owned()),
    })
}

/// `None` when there is no such program.
fn run(command: &mut Command) -> Result<Option<Output>, Errno> {
    match command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
    {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

fn refusal(path: &Path, output: &Output) -> MountError {
    let message = message_of(output);
    let path = path.to_owned();
    if message.contains("/dev/fuse") {
        // The helper opens the device as the user. Only its message says that this failed.
        let denied = message.contains("ermission denied");
        let source = if denied { Errno::ACCESS } else { Errno::NODEV };
        MountError::NoDevice { source }
    } else if message.contains("not permitted") || message.contains("ermission denied") {
        MountError::NotPermitted { path }
    } else {
        MountError::Fusermount { path, message }
    }
}

fn message_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    if text.is_empty() {
        output.status.to_string()
    } else {
        text.to_owned()
    }
}

fn receive_device(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or(Errno::PROTO)
}
