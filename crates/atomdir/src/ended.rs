//! Transactions that have ended otherwise than their users wanted.

use crate::accounts::describe_user;
use crate::connection::Connection;
use crate::error::RequestError;
use atomdir_protocol::{Answer, EndedHow, EndedTransaction, Reply, Request, TransactionId};
use atomdir_types::sync;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A message that a service sends without a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Others have ended transactions that this connection holds; sent only after
    /// [`Connection::news_of_ended`].
    Ended(Vec<EndedTransaction>),
    /// A transaction nested in the native view that this connection has mounted commits, and waits
    /// for [`Connection::merged`].
    Merge(TransactionId),
    /// Another client is to enter the native view that this connection has mounted, and waits at the
    /// other end of this socket for a mount of it.
    Lend(TransactionId, OwnedFd),
    /// Another client has left a transaction whose native view this connection has mounted.
    Left(TransactionId),
    /// A native view that another process has mounted, and that this connection holds, ends.
    Leave(TransactionId),
}

impl Notice {
    /// Those about others in a native view.
    pub(crate) fn of_sharing(reply: Reply, descriptor: Option<OwnedFd>) -> Option<Notice> {
        match (reply, descriptor) {
            (Reply::Lend(id), Some(socket)) => Some(Notice::Lend(id, socket)),
            (Reply::Left(id), _) => Some(Notice::Left(id)),
            (Reply::Leave(id), _) => Some(Notice::Leave(id)),
            _ => None,
        }
    }
}

impl Connection {
    /// Lists transactions that have ended otherwise than their users wanted, the oldest first: this
    /// user's own, or all for the store's owner and root.
    pub fn ended(&mut self) -> Result<Vec<EndedTransaction>, RequestError> {
        self.list_ended(false)
    }

    /// Like [`ended`](Self::ended), without those that an earlier call has returned to this user.
    pub fn news_of_ended(&mut self) -> Result<Vec<EndedTransaction>, RequestError> {
        self.list_ended(true)
    }

    /// Receives a message that the service sends without a request. Waits for it; call it when
    /// [`descriptor`](Self::descriptor) is readable. `None`: the service has gone.
    pub fn receive_notice(&self) -> Option<Notice> {
        let mut descriptor = None;
        match self.receive(&mut descriptor) {
            Ok(Reply::Ended(ended)) => Some(Notice::Ended(ended)),
            Ok(Reply::Merge(nested)) => Some(Notice::Merge(nested)),
            Ok(reply) => Notice::of_sharing(reply, descriptor),
            Err(_) => None,
        }
    }

    /// A notice that came before the reply to a request. Nothing is readable for it.
    pub fn missed_notice(&self) -> Option<Notice> {
        let mut missed = sync::lock(&self.missed);
        missed.pop_front()
    }

    /// Whether [`missed_notice`](Self::missed_notice) would return one.
    pub fn has_missed(&self) -> bool {
        let missed = sync::lock(&self.missed);
        !missed.is_empty()
    }

    fn list_ended(&mut self, news: bool) -> Result<Vec<EndedTransaction>, RequestError> {
        match self.ask(&Request::ListEnded { news })? {
            (Answer::Nothing, parts) => Ok(parts.ended),
            _ => Err(self.unexpected()),
        }
    }
}

/// Why a transaction ended, as part of a sentence.
pub fn describe_end(how: EndedHow) -> String {
    match how {
        EndedHow::Aborted { by } => format!("{} has aborted it", describe_user(by)),
        EndedHow::Age { age_ms } => {
            let age = Duration::from_millis(age_ms);
            format!("it had reached its maximum age, {age:?}")
        }
        EndedHow::Stopped { by: Some(by) } => {
            format!("{} has stopped the store's service", describe_user(by))
        }
        EndedHow::Stopped { by: None } => "a signal has ended the store's service".to_owned(),
        EndedHow::Died => "the store's service was killed, or the machine went down".to_owned(),
    }
}
