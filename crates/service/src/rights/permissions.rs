//! Checks who may do what. Only its owner and root may use a transaction. Only the service's user
//! and root may control the service and the store as a whole.

use atomdir::client::{describe_user, peer_credentials};
use atomdir_engine::Credentials;
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid};
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end of a connection, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) user: u32,
    /// 0 if the process is not in the service's process namespace.
    pub(crate) process: u32,
    pub(crate) group: u32,
    /// With that one.
    pub(crate) groups: Vec<u32>,
    pub(crate) reach: Reach,
}

/// Which of its user's transactions a peer may act on. A program in a view
/// reaches only its own transaction and those that began in it. So it cannot
/// commit or abort the user's other work without the user's consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All: the peer connected to the socket in the control directory.
    All,
    /// None yet: the peer connected to the inner socket, and has not presented a secret.
    Nothing,
    Within(TransactionId),
}

impl Peer {
    /// The peer's ids are those from when it connected.
    pub(crate) fn of(socket: impl AsFd) -> Result<Peer, Errno> {
        let credentials = peer_credentials(&socket)?;
        let mut groups = supplementary_groups(socket)?;
        groups.push(credentials.group);
        Ok(Peer {
            user: credentials.user,
            process: Pid::as_raw(credentials.process).unsigned_abs(),
            group: credentials.group,
            groups,
            reach: Reach::All,
        })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.user == 0
    }

    /// The peer's credentials, if the base's permissions must be checked for
    /// them because the service has more rights.
    pub(crate) fn less_than_service(&self) -> Option<Credentials> {
        let service_user = geteuid().as_raw();
        (self.user != 0 && self.user != service_user).then(|| Credentials {
            user: self.user,
            groups: self.groups.clone(),
        })
    }

    pub(crate) fn may_use(&self, owner: u32) -> bool {
        self.is_root() || self.user == owner
    }

    pub(crate) fn may_administer(&self) -> bool {
        self.reach == Reach::All && self.may_use(geteuid().as_raw())
    }

    pub(crate) fn require_administer(&self, what: &str) -> Result<(), Failure> {
        if self.may_administer() {
            return Ok(());
        }
        if self.reach != Reach::All {
            let message = format!("a command inside a transaction may not {what}");
            return Err(Failure::new(FailureKind::NotPermitted, message)
                .with_hint("do it outside of the transaction"));
        }
        let who = match geteuid().as_raw() {
            0 => "root".to_owned(),
            user => format!("{}, who owns the store, or root", describe_user(user)),
        };
        let message = format!("only {who} may {what}");
        Err(Failure::new(FailureKind::NotPermitted, message))
    }

    /// If the service runs as an ordinary user, even root cannot enter its views.
    pub(crate) fn require_views(&self) -> Result<(), Failure> {
        let service_user = geteuid().as_raw();
        if service_user == 0 || service_user == self.user {
            return Ok(());
        }
        let message = format!(
            "the store's service runs as {}, and only that user can enter its views",
            describe_user(service_user)
        );
        let hint = format!("run it as that user, for example with `sudo -u '#{service_user}'`");
        Err(Failure::new(FailureKind::NotPermitted, message).with_hint(hint))
    }

    /// A process that mounts a native view must be able to use the control directory.
    pub(crate) fn require_native(&self) -> Result<(), Failure> {
        let service_user = geteuid().as_raw();
        if service_user == self.user {
            return Ok(());
        }
        let message = format!(
            "only {}, who owns the store, can have native views",
            describe_user(service_user)
        );
        Err(Failure::new(FailureKind::NoViews, message).with_hint("`--view exact` works for all"))
    }
}

/// The failure is the same whether the transaction never existed, has ended or
/// is another user's: ids are easy to guess.
pub(crate) fn no_such_transaction(id: TransactionId) -> Failure {
    let message = format!("no open transaction {id}");
    Failure::new(FailureKind::NoSuchTransaction, message)
        .with_hint("`atomdir list` shows the open ones")
}

fn supplementary_groups(socket: impl AsFd) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut length = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the buffer has `length` bytes, and any bytes are valid numbers.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut length,
            )
        };
        // The kernel sets this even if the buffer was too short.
        let needed = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        match Errno::from_io_error(&error) {
            Some(Errno::RANGE) if needed > groups.len() => groups.resize(needed, 0),
            errno => return Err(errno.unwrap_or(Errno::IO)),
        }
    }
}
