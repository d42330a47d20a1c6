//! The end of a command in a native view, in which others may be.
//!
//! When its command has ended, the process that mounted the view, the mounter, waits until the
//! others have left, or makes them leave. Then nobody can enter any more. Now it makes the overlay
//! read-only, which the kernel refuses as long as any process has a file of it open for writing. So
//! the commit lands exactly what was written until then.
//!
//! If the mounter shall not wait, the transaction stays open, as one with an exact view would. But a
//! native view needs its mounter. So a process stays behind, the heir: it waits for the others, and
//! turns the view into an exact one.

use super::deviations;
use super::hear::{hear, hear_missed};
use crate::context::{Connected, Context};
use crate::enter::{
    AlsoBound, Background, Ended, EnterError, HeldHangUp, Overlay, Remainder, Tree, stand_apart,
};
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{Deviation, DeviationKind, FailureKind, Others, RequestError, Transaction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long others may take to end their commands after they were asked to leave.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(15);

/// A command that has ended.
pub struct Ran {
    pub ended: Ended,
    /// The root of the store.
    pub(super) base: PathBuf,
    pub(super) view: Tree,
    /// The views of other stores.
    pub(super) also: Vec<AlsoBound>,
    pub(super) remainder: Remainder,
    /// The paths of what overlayfs has refused to rename, as far as they are known.
    pub(super) refused: RefCell<Vec<Vec<u8>>>,
    pub(super) hang_up: Option<HeldHangUp>,
}

/// How a view is to be closed.
pub struct Closing {
    pub others: Others,
    /// Whether the exact view is to be looked at, and is opened.
    pub opened: bool,
    /// Whether the transaction stays open if we end before we commit or abort it: the user is
    /// asked, or wants to keep it. SIGHUP then waits until the view is closed.
    pub stays_open: bool,
}

/// The state of the view after its command has ended.
pub enum Closed {
    /// The view is exact now.
    Exact(Transaction),
    /// Others are in the native view, and the transaction stays open.
    InUse(Error),
}

/// How often a process that was left behind tries to take a view over.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The exit code of an ssh that did not get to the command.
const SSH_FAILED: u8 = 255;

/// Attaches to an open transaction.
pub fn attach(
    connected: &mut Connected,
    transaction: TransactionId,
) -> Result<(Transaction, Tree), Error> {
    let transaction = connected.connection.attach(transaction)?;
    let view = match transaction.lent_mount() {
        Some(mount) => Tree::Native(Overlay::lent(mount).map_err(EnterError::NotLent)?),
        None => Tree::Exact(connected.connection.enterable_root(&transaction)?),
    };
    Ok((transaction, view))
}

impl Ran {
    pub(super) fn explain_failure(&self, context: &Context) {
        if let Tree::Native(overlay) = &self.view
            && overlay.is_limited
            && matches!(self.ended, Ended::Exited(1..))
        {
            // The kernel does not show whether overlayfs refused a call, so this may be needless.
            context.output.note(
                "if the command met EPERM, ENODATA or EXDEV, use `--view exact` or \
                 ATOMDIR_VIEW=exact: in a native view ordinary users cannot change every old file",
            );
        }
        if self.ended == Ended::Exited(SSH_FAILED) && !rustix::process::geteuid().is_root() {
            context.output.note(
                "if ssh found bad owners of its configuration: an ordinary user's command sees \
                 nobody as the owner of root's files; work in the path that `atomdir begin` prints",
            );
        }
    }

    /// The view that the command had.
    pub fn view(&self) -> &Tree {
        &self.view
    }

    /// The processes that the command has left running, to be reported when the transaction has ended.
    pub fn background(&self) -> Background {
        self.remainder.background()
    }

    /// For a command that has joined a transaction, which others commit: warns if overlayfs has refused it
    /// a rename.
    pub fn warn_of_refused(&self, context: &Context) {
        let bases = std::iter::once(&self.base).chain(self.also.iter().map(|one| &one.base));
        let refused: Vec<Deviation> = bases.flat_map(|base| self.refused_in(base)).collect();
        if !refused.is_empty() {
            context.output.warn(format_args!(
                "{}; the commit lands what the command has made instead",
                deviations::described(&refused)
            ));
        }
    }

    fn overlays(&self) -> impl Iterator<Item = &Overlay> {
        let views = std::iter::once(&self.view).chain(self.also.iter().map(|one| &one.view));
        views.filter_map(|view| match view {
            Tree::Native(overlay) => Some(overlay),
            Tree::Exact(_) => None,
        })
    }

    /// The files and directories of this store that overlayfs has refused to rename.
    fn refused_in(&self, base: &Path) -> Vec<Deviation> {
        let mut known = self.refused.borrow_mut();
        known.extend(self.remainder.refused_renames());
        let within = known.iter().filter_map(|path| {
            let path = Path::new(OsStr::from_bytes(path));
            path.strip_prefix(base).ok()
        });
        let deviation = |path: &Path| Deviation {
            path: path.as_os_str().as_bytes().to_vec(),
            kind: DeviationKind::ChangeRefused,
        };
        within.map(deviation).collect()
    }

    /// Ends the processes that the command has left behind in native views. The transaction stays
    /// as it is, or is about to be aborted.
    pub fn end_writing(&self, context: &Context) -> Result<(), EnterError> {
        let mut were_killed = false;
        for overlay in self.overlays() {
            were_killed |= self.remainder.end_writing(overlay)?;
        }
        if were_killed {
            context.output.note(
                "background processes of the command were still writing in the view and were \
                 killed",
            );
        }
        Ok(())
    }

    /// The view of a store, if it is native.
    fn native_view(&self, connected: &Connected) -> Option<&Tree> {
        let own = (&self.base, &self.view);
        let also = self.also.iter().map(|one| (&one.base, &one.view));
        let mut all = std::iter::once(own).chain(also);
        let (_, view) = all.find(|(base, _)| **base == connected.root)?;
        matches!(view, Tree::Native(_)).then_some(view)
    }

    /// Lets nobody enter the view of a store any more, if it is native.
    pub(super) fn close_view(
        &self,
        context: &Context,
        (connected, transaction): (&Connected, &Transaction),
        others: Others,
    ) -> Result<(), Error> {
        if let Some(view) = self.native_view(connected) {
            wait_until_alone(context, connected, (transaction, view), others)?;
        }
        Ok(())
    }

    /// Turns the native view of another store into an exact one, once nothing writes in it.
    pub(super) fn take_other(
        &self,
        connected: &mut Connected,
        transaction: Transaction,
    ) -> Result<Transaction, Error> {
        if self.native_view(connected).is_none() {
            return Ok(transaction);
        }
        let mut taken = connected.connection.take_over(transaction.id, false)?;
        taken
            .deviations
            .splice(..0, self.refused_in(&connected.root));
        taken.deviations.sort_by_key(|one| one.kind);
        Ok(taken)
    }

    /// Makes others leave, without waiting for them, and ends the processes that the command has
    /// left behind. The transaction is about to be aborted.
    pub fn give_up(
        &self,
        context: &Context,
        connected: &Connected,
        transaction: TransactionId,
    ) -> Result<(), EnterError> {
        if self.overlays().next().is_none() {
            return Ok(());
        }
        // This fails while others are there, and if they have aborted the transaction.
        let _ = connected.connection.close_view(transaction, true);
        match self.end_writing(context) {
            // They have a moment to leave, and nothing of theirs is committed.
            Err(EnterError::LeftBehind(Errno::BUSY)) => Ok(()),
            ended => ended,
        }
    }

    /// Turns a native view into an exact one, once nobody else is in it.
    pub fn close(
        mut self,
        context: &Context,
        connected: &mut Connected,
        transaction: Transaction,
        Closing {
            others,
            opened,
            stays_open,
        }: Closing,
    ) -> Result<Closed, Error> {
        if stays_open {
            connected.connection.keep_on_close(transaction.id)?;
        } else {
            self.hang_up = None;
        }
        if !matches!(self.view, Tree::Native(_)) {
            self.end_writing(context)?;
            return Ok(Closed::Exact(transaction));
        }
        match self.wait_until_alone(context, connected, &transaction, others) {
            Ok(()) => {}
            // Those of other stores end with it.
            Err(error) if !self.also.is_empty() => return Err(error.into()),
            Err(error) if error.kind() == Some(FailureKind::InUse) => {
                self.leave_open(context, connected, &transaction)?;
                return Ok(Closed::InUse(Error::Commit {
                    transaction: transaction.id,
                    source: error.into(),
                    open: true,
                }));
            }
            Err(error) => return Err(error.into()),
        }
        match self.end_writing(context) {
            // Others have left this behind.
            Err(EnterError::LeftBehind(Errno::BUSY)) if self.also.is_empty() => {
                let Tree::Native(overlay) = &self.view else {
                    return Ok(Closed::Exact(transaction));
                };
                let error = EnterError::still_writing(transaction.id, overlay);
                self.leave_open(context, connected, &transaction)?;
                return Ok(Closed::InUse(error.into()));
            }
            ended => ended?,
        }
        match connected.connection.take_over(transaction.id, opened) {
            Err(error) if may_pass(&error) && self.also.is_empty() => {
                self.leave_open(context, connected, &transaction)?;
                Ok(Closed::InUse(Error::Commit {
                    transaction: transaction.id,
                    source: error.into(),
                    open: true,
                }))
            }
            taken => {
                let mut taken = taken?;
                // The path that the program has named comes before those of what overlayfs met there.
                let refused = self.refused_in(&self.base);
                taken.deviations.splice(..0, refused);
                taken.deviations.sort_by_key(|one| one.kind);
                Ok(Closed::Exact(taken))
            }
        }
    }

    fn wait_until_alone(
        &self,
        context: &Context,
        connected: &Connected,
        transaction: &Transaction,
        others: Others,
    ) -> Result<(), RequestError> {
        wait_until_alone(context, connected, (transaction, &self.view), others)
    }

    /// Lets the transaction stay open with others in its native view. A process that stays behind
    /// has our connection then.
    fn leave_open(
        &self,
        context: &Context,
        connected: &mut Connected,
        transaction: &Transaction,
    ) -> Result<(), Error> {
        connected.connection.keep(transaction.id)?;
        let stay_behind = |errno: Errno| EnterError::StayBehind(errno.into());
        let (apart, not_yet) = pipe_with(PipeFlags::CLOEXEC).map_err(stay_behind)?;
        // SAFETY: this process has one thread, so its child may do anything.
        match unsafe { libc::fork() } {
            -1 => Err(EnterError::StayBehind(std::io::Error::last_os_error()).into()),
            0 => {
                let inherited = self.inherit(context, connected, transaction);
                // SAFETY: it runs nothing of the parent's.
                unsafe { libc::_exit(i32::from(inherited.is_err())) }
            }
            _ => {
                connected.has_heir = true;
                drop(not_yet);
                // The heir closes its end when no signal from our terminal reaches it any more.
                let _ = retry_on_intr(|| rustix::io::read(&apart, &mut [0; 1]));
                Ok(())
            }
        }
    }

    /// In the heir. If it fails, the service aborts the transaction.
    fn inherit(
        &self,
        context: &Context,
        connected: &mut Connected,
        transaction: &Transaction,
    ) -> Result<(), Error> {
        let mut kept = vec![connected.connection.descriptor().as_raw_fd()];
        if let Tree::Native(overlay) = &self.view {
            kept.extend(overlay.descriptors().map(|one| one.as_raw_fd()));
        }
        stand_apart(kept).map_err(|errno| EnterError::StayBehind(errno.into()))?;
        self.wait_until_alone(context, connected, transaction, Others::Wait)?;
        while let Err(error) = self.end_writing(context) {
            if !matches!(error, EnterError::LeftBehind(Errno::BUSY)) {
                return Err(error.into());
            }
            // Each try takes a second. If the transaction or the service has ended meanwhile, this
            // fails.
            self.wait_until_alone(context, connected, transaction, Others::Wait)?;
        }
        while let Err(error) = connected.connection.take_over(transaction.id, false) {
            if !may_pass(&error) {
                return Err(error.into());
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        Ok(connected.connection.keep(transaction.id)?)
    }
}

/// Keeps others out of a native view, once they have left.
fn wait_until_alone(
    context: &Context,
    connected: &Connected,
    inside: (&Transaction, &Tree),
    others: Others,
) -> Result<(), RequestError> {
    let connection = &connected.connection;
    let transaction = inside.0;
    let deadline = (others == Others::End).then(|| Instant::now() + LEAVE_TIME_MAX);
    let mut is_reported = false;
    loop {
        let error = match connection.close_view(transaction.id, others == Others::End) {
            Err(error) if error.kind() == Some(FailureKind::InUse) => error,
            closed => return closed,
        };
        if others == Others::Refuse || deadline.is_some_and(|end| end <= Instant::now()) {
            return Err(error);
        }
        if others == Others::Wait && !is_reported {
            context.output.note(format_args!("{error}: waiting"));
            is_reported = true;
        }
        if connection.has_missed() {
            hear_missed(context, connection, inside);
            continue;
        }
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let descriptor = connection.descriptor();
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        // If the service has gone, the next request fails.
        if poll(&mut polled, left.as_ref()).is_ok_and(|count| count > 0) {
            hear(context, connection, inside);
        }
    }
}

/// Whether it may be possible later to read what was changed: the disk is full, for example. The
/// transaction stays open for that.
fn may_pass(error: &RequestError) -> bool {
    matches!(error.kind(), Some(FailureKind::Io | FailureKind::NoSpace))
}
