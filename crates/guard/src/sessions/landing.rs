//! What a copy holds becomes the file's contents.

use std::sync::Arc;

use atomdir_disk::{Disk, LinuxDisk, sync};
use atomdir_fuse::Result;
use rustix::io::Errno;

use super::{Landing, Session};
use crate::{Guarded, Known, calls};

impl Guarded {
    /// Lands what a copy holds, on a thread of its own.
    pub(super) fn land_apart(
        &self,
        session: Arc<Session>,
        then: impl FnOnce(&Session, Result<()>) + Send + 'static,
    ) -> Result<()> {
        let (known, sessions) = (self.known.clone(), self.sessions.clone());
        let land = move || {
            let before = LinuxDisk::new().stat(&session.copy.object);
            let landed = match (path_to_land(&known, &session), sessions.service.get()) {
                (Some(path), Some(service)) => service.land(&Landing {
                    path,
                    copy: &session.copy.object,
                    user: session.user,
                    label: &session.label,
                }),
                // The file has lost its name, and what is written to it goes with it.
                _ => Ok(()),
            };
            let mut state = sync::lock(&session.state);
            state.is_landing = false;
            if landed.is_ok() {
                state.landed = before.ok().map(|stat| stat.changed);
            }
            drop(state);
            then(&session, landed);
            known.retry_requests();
        };
        let thread = std::thread::Builder::new().name("guard-session".to_owned());
        let started = thread.spawn(land);
        started.map(drop).map_err(|_| Errno::NOMEM)
    }
}

/// Where a session's contents are to land: at the name by which the program has opened the file; or, if
/// somebody has moved the file, where that is now. `None`: it was removed.
fn path_to_land(known: &Known, session: &Session) -> Option<Vec<u8>> {
    let state = sync::lock(&session.state);
    let directory = state.directory.located(known).path()?;
    let named = [&directory[..], b"/", state.name.as_bytes()].concat();
    let Some(file) = &session.file else {
        return Some(named);
    };
    let found = calls::find(&state.directory.object, state.name.as_bytes());
    let disk = LinuxDisk::new();
    let found = found.and_then(|found| disk.stat(&found));
    match found {
        Ok(found) if found.identity == file.identity => Some(named),
        found => {
            let moved = file.located(known).path();
            let moved = moved.filter(|_| disk.stat(&file.object).is_ok_and(|stat| stat.links > 0));
            // Somebody has put another file in its place, as a commit does. The last one wins.
            moved.or(found.is_ok().then_some(named))
        }
    }
}
