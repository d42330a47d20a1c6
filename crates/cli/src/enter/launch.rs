//! Between fork and exec: enters the view, and reports a failure on the way.

use super::namespace::{Namespace, Sealed};
use super::seal::{self, Seal, Unseen};
use super::signals::HeldSignals;
use super::{EnterError, SetUpFailure, Step, Tree, ViewBinding, c_path, lent_mount, renames};
use atomdir::client::{receive_message, send_descriptor};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;

/// Which namespaces a command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// None: it runs in the view at the view's own path.
    Nothing,
    Mounts,
    /// For a sealed command.
    MountsAndProcesses,
}

/// A command to start in a view.
pub(super) struct Launch<'a> {
    pub(super) binding: &'a ViewBinding,
    /// The first word is the program.
    pub(super) command: &'a [OsString],
    /// Added to our own environment.
    pub(super) environment: &'a [(&'a str, OsString)],
    /// Where the helper for renames waits for the command, if it needs one.
    pub(super) renames: Option<BorrowedFd<'a>>,
}

impl Launch<'_> {
    pub(super) fn spawn(&self, signals: &HeldSignals, apart: Apart) -> Result<Child, EnterError> {
        let entry = self
            .prepare(apart)
            .map_err(|source| self.cannot_prepare(source))?;
        let (reader, writer) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| self.cannot_start(errno.into()))?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        let sealing = self.binding.sealing.as_ref();
        if let Some(environment) = sealing.and_then(|sealing| sealing.environment.as_ref()) {
            command.env_clear();
            command.envs(environment.iter().map(|(name, value)| (name, value)));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let place = self.place_wanted()?;
        let place_sender = place.as_ref().map(|(_, sender)| sender.as_raw_fd());
        let release = signals.release_in_child();
        // SAFETY: the closure only makes system calls.
        unsafe {
            command.pre_exec(move || {
                let fail = |step, errno| {
                    let _ = rustix::io::write(&writer, &encode(step, errno));
                };
                if let Err((step, errno)) = entry.enter(&fail) {
                    fail(step, errno);
                    return Err(errno.into());
                }
                if let Some(sender) = place_sender {
                    // SAFETY: the process that starts the command keeps it open. If this fails,
                    // others cannot enter the view.
                    let _ = lent_mount::send_place(BorrowedFd::borrow_raw(sender));
                }
                release()
            });
        }
        let result = command.spawn();
        // It holds the last writing end of the pipe.
        drop(command);
        let Some(failure) = read_failure(&reader) else {
            if let Some((receiver, _)) = &place {
                receive_place(receiver, self.binding);
            }
            return result.map_err(|source| self.cannot_execute(source));
        };
        if let Ok(mut child) = result {
            // The child failed in a process that `spawn` does not report on.
            child.wait().map_err(|error| self.cannot_start(error))?;
        }
        Err(EnterError::SetUp {
            base: self.binding.base.clone(),
            failure,
        })
    }

    /// A pair of sockets on which the child sends its mount namespace, if others may enter its view.
    fn place_wanted(&self) -> Result<Option<(OwnedFd, OwnedFd)>, EnterError> {
        if self.binding.overlays().next().is_none() || self.binding.sealing.is_some() {
            return Ok(None);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        pair.map(Some)
            .map_err(|errno| self.cannot_start(errno.into()))
    }

    fn prepare(&self, apart: Apart) -> io::Result<Entry> {
        let ViewBinding {
            base,
            view,
            directory,
            sealing,
            ..
        } = self.binding;
        let (way, directory) = match view {
            // chdir(2) to an empty path would fail.
            Tree::Exact(root) if apart == Apart::Nothing => {
                (Way::Plain(root.as_raw_fd()), Path::new(".").join(directory))
            }
            _ => (
                Way::Namespace(Namespace::new(base, view, &self.binding.also)?),
                base.join(directory),
            ),
        };
        let seal = sealing
            .as_ref()
            .map(|sealing| Seal::prepare(self.binding, sealing));
        Ok(Entry {
            way,
            seal: seal.transpose()?,
            processes: apart == Apart::MountsAndProcesses,
            directory: c_path(&directory)?,
            renames: self.renames.map(|helper| helper.as_raw_fd()),
        })
    }

    fn cannot_prepare(&self, source: io::Error) -> EnterError {
        match source.downcast() {
            Ok(Unseen { place, errno }) => EnterError::Unseen {
                base: self.binding.base.clone(),
                place,
                errno,
            },
            Err(source) => self.cannot_start(source),
        }
    }

    pub(super) fn cannot_start(&self, source: io::Error) -> EnterError {
        EnterError::Start {
            program: PathBuf::from(&self.command[0]),
            source,
        }
    }

    fn cannot_execute(&self, source: io::Error) -> EnterError {
        let program = PathBuf::from(&self.command[0]);
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => EnterError::NoSuchProgram { program },
            Some(Errno::AGAIN | Errno::NOMEM) => EnterError::Start { program, source },
            _ => EnterError::NotExecutable { program, source },
        }
    }
}

/// What the child needs between fork and exec, prepared before the fork.
struct Entry {
    way: Way,
    seal: Option<Seal>,
    /// Whether the command has a process namespace.
    processes: bool,
    directory: CString,
    renames: Option<RawFd>,
}

enum Way {
    Namespace(Namespace),
    /// Enter the view's root itself.
    Plain(RawFd),
}

impl Entry {
    /// `fail` reports a failure in a process that does not return from here.
    fn enter(&self, fail: &dyn Fn(Step, Errno)) -> Result<(), (Step, Errno)> {
        let changing = |errno| (Step::ChangeDirectory, errno);
        let processes = self.processes;
        let sealed = self.seal.as_ref().map(|seal| Sealed { seal, processes });
        match &self.way {
            Way::Namespace(namespace) => namespace.enter(sealed)?,
            Way::Plain(root) => {
                // SAFETY: the process that starts the command keeps the view's root open.
                let root = unsafe { BorrowedFd::borrow_raw(*root) };
                rustix::process::fchdir(root).map_err(changing)?;
            }
        }
        if let Some(Sealed {
            processes: true, ..
        }) = sealed
        {
            seal::supervise(fail)?;
        }
        rustix::process::chdir(&*self.directory).map_err(changing)?;
        if let Some(helper) = self.renames {
            // SAFETY: the process that starts the command keeps it open.
            let helper = unsafe { BorrowedFd::borrow_raw(helper) };
            // This takes the right to mount, which a sealed command gives up.
            ask_about_renames(helper).map_err(|errno| (Step::WatchRenames, errno))?;
        }
        if sealed.is_some() {
            seal::give_up_capabilities().map_err(|errno| (Step::GiveUp, errno))?;
        }
        Ok(())
    }
}

/// Has the kernel ask the helper about each rename.
fn ask_about_renames(helper: BorrowedFd<'_>) -> Result<(), Errno> {
    lent_mount::send_place(helper)?;
    let listener = renames::install()?;
    send_descriptor(helper, listener.as_fd())
}

/// The child has sent it by now, or never will.
fn receive_place(receiver: &OwnedFd, binding: &ViewBinding) {
    if let Ok((_, Some(place))) = receive_message(receiver, &mut [0]) {
        let place = Rc::new(place);
        for (_, overlay) in binding.overlays() {
            overlay.set_place(place.clone());
        }
    }
}

fn encode(step: Step, errno: Errno) -> [u8; 5] {
    let [a, b, c, d] = errno.raw_os_error().to_le_bytes();
    [step as u8, a, b, c, d]
}

/// The child writes its failure in one piece or not at all.
fn read_failure(reader: &OwnedFd) -> Option<SetUpFailure> {
    let mut bytes = [0; 5];
    if retry_on_intr(|| rustix::io::read(reader, &mut bytes)).ok()? != bytes.len() {
        return None;
    }
    let [step, errno @ ..] = bytes;
    Some(SetUpFailure {
        step: *Step::ALL.get(usize::from(step))?,
        errno: Errno::from_raw_os_error(i32::from_le_bytes(errno)),
    })
}
