//! Between fork and exec: into the view, and word of what failed on the way.

use super::namespace::Namespace;
use super::signals::HeldSignals;
use super::{EnterError, Place, SetUpFailure, Step, Tree, c_path};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A command that is to be started in a view.
pub(super) struct Launch<'a> {
    pub(super) place: &'a Place,
    /// The first word is the program.
    pub(super) command: &'a [OsString],
    /// Set on top of our own.
    pub(super) environment: &'a [(&'a str, OsString)],
}

impl Launch<'_> {
    pub(super) fn spawn(
        &self,
        signals: &HeldSignals,
        in_namespace: bool,
    ) -> Result<Child, EnterError> {
        let entry = self
            .prepare(in_namespace)
            .map_err(|source| self.cannot_start(source))?;
        let (reader, writer) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| self.cannot_start(errno.into()))?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let release = signals.release_in_child();
        // SAFETY: the closure makes system calls and nothing else.
        unsafe {
            command.pre_exec(move || {
                if let Err((step, errno)) = entry.enter() {
                    let _ = rustix::io::write(&writer, &encode(step, errno));
                    return Err(errno.into());
                }
                release()
            });
        }
        let result = command.spawn();
        // Holds the last writing end of the pipe.
        drop(command);
        result.map_err(|source| match read_failure(&reader) {
            Some(failure) => EnterError::SetUp {
                base: self.place.base.clone(),
                failure,
            },
            None => self.cannot_execute(source),
        })
    }

    fn prepare(&self, in_namespace: bool) -> io::Result<Entry> {
        let Place {
            base,
            view,
            directory,
            ..
        } = self.place;
        Ok(match view {
            Tree::Exact(root) if !in_namespace => Entry {
                way: Way::Plain(root.as_raw_fd()),
                // An empty path names nothing.
                directory: c_path(&Path::new(".").join(directory))?,
            },
            _ => Entry {
                way: Way::Namespace(Namespace::new(base, view)?),
                directory: c_path(&base.join(directory))?,
            },
        })
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

/// What the child does between fork and exec, all prepared.
struct Entry {
    way: Way,
    directory: CString,
}

enum Way {
    Namespace(Namespace),
    /// Into the view's root itself.
    Plain(RawFd),
}

impl Entry {
    fn enter(&self) -> Result<(), (Step, Errno)> {
        let changing = |errno| (Step::ChangeDirectory, errno);
        match &self.way {
            Way::Namespace(namespace) => namespace.enter()?,
            Way::Plain(root) => {
                // SAFETY: whoever starts the command keeps the view's root meanwhile.
                let root = unsafe { BorrowedFd::borrow_raw(*root) };
                rustix::process::fchdir(root).map_err(changing)?;
            }
        }
        rustix::process::chdir(&*self.directory).map_err(changing)
    }
}

fn encode(step: Step, errno: Errno) -> [u8; 5] {
    let [a, b, c, d] = errno.raw_os_error().to_le_bytes();
    [step as u8, a, b, c, d]
}

/// The child wrote it all at once or not at all.
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
