//! Handles messages that the service sends without a request while a command runs.

use super::native;
use crate::context::Context;
use crate::ended;
use crate::enter::{self, Tree};
use atomdir::client::{Connection, Notice, Transaction};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A transaction's service, and the view in which the command is.
type Heard<'a> = (&'a Connection, (&'a Transaction, &'a Tree));

/// The services that may send messages while a command runs.
pub(super) struct Services<'a> {
    context: &'a Context,
    own: Heard<'a>,
    others: Vec<Heard<'a>>,
    /// Readable when one of them has sent something, if there are several.
    any: Option<OwnedFd>,
}

impl<'a> Services<'a> {
    pub(super) fn new(
        context: &'a Context,
        own: Heard<'a>,
        others: Vec<Heard<'a>>,
    ) -> io::Result<Services<'a>> {
        let mut services = Services {
            context,
            own,
            others,
            any: None,
        };
        if !services.others.is_empty() {
            let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for (connection, _) in services.all() {
                let data = epoll::EventData::new_u64(0);
                epoll::add(&any, connection.descriptor(), data, epoll::EventFlags::IN)?;
            }
            services.any = Some(any);
        }
        Ok(services)
    }

    fn all(&self) -> impl Iterator<Item = Heard<'a>> {
        std::iter::once(self.own).chain(self.others.iter().copied())
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(any) => any.as_fd(),
            None => self.own.0.descriptor(),
        }
    }

    /// Whether the command is to end with one of them. In an exact view it gets errors itself.
    pub(super) fn are_vital(&self) -> bool {
        self.all()
            .any(|(_, (_, view))| matches!(view, Tree::Native(_)))
    }

    /// Acts on what they have sent. False if one has gone whose view is native, or if there is only one.
    pub(super) fn hear(&self) -> bool {
        let Some(any) = &self.any else {
            return hear(self.context, self.own.0, self.own.1);
        };
        self.all().all(|(connection, inside)| {
            let descriptor = connection.descriptor();
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            let is_quiet =
                poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count == 0);
            if is_quiet || hear(self.context, connection, inside) {
                return true;
            }
            // Or it would be readable for ever.
            let _ = epoll::delete(any, descriptor);
            matches!(inside.1, Tree::Exact(_))
        })
    }

    /// Like [`hear`](Self::hear), for messages that came before replies to requests.
    pub(super) fn hear_missed(&self) -> bool {
        self.all()
            .all(|(connection, inside)| hear_missed(self.context, connection, inside))
    }
}

/// Acts on messages that the service has sent while a command runs. False if the service has gone,
/// or the transaction cannot be committed any more.
pub(super) fn hear(
    context: &Context,
    connection: &Connection,
    inside: (&Transaction, &Tree),
) -> bool {
    let notice = connection.receive_notice();
    notice.is_some_and(|notice| act_on(notice, context, connection, inside))
        && hear_missed(context, connection, inside)
}

/// Like [`hear`], for messages that the service has sent before its reply to a request.
pub(super) fn hear_missed(
    context: &Context,
    connection: &Connection,
    inside: (&Transaction, &Tree),
) -> bool {
    while let Some(notice) = connection.missed_notice() {
        if !act_on(notice, context, connection, inside) {
            return false;
        }
    }
    true
}

fn act_on(
    notice: Notice,
    context: &Context,
    connection: &Connection,
    (transaction, view): (&Transaction, &Tree),
) -> bool {
    match (notice, view) {
        (Notice::Ended(ended), _) => {
            ended::tell_at_once(&ended, transaction.id, context.output);
            true
        }
        (Notice::Merge(nested), Tree::Native(overlay)) => {
            native::merge(context, connection, (transaction.id, overlay), nested)
        }
        (Notice::Lend(_, socket), Tree::Native(overlay)) => {
            enter::lend(overlay, &socket);
            true
        }
        (Notice::Left(_), _) => true,
        (Notice::Leave(id), _) if id == transaction.id => {
            context.output.warn(format_args!(
                "the native view of transaction {id} has ended, and with it this command"
            ));
            false
        }
        (Notice::Leave(_), _) => true,
        _ => false,
    }
}
