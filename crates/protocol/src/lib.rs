//! The messages between a client and the service: bytes only, no I/O.
//!
//! The client sends its [`hello`](handshake) over a Unix stream socket, and the
//! service answers with a verdict. From then on each side sends frames: a 32-bit
//! little-endian length and that many bytes of one postcard-encoded message. The
//! client sends one [`Request`] and reads [`Reply`] frames until [`Reply::Done`]
//! or [`Reply::Failed`]; only then may it send the next request. A client that has asked for
//! news of ended transactions must expect a [`Reply::Ended`] at any time. The `Done` that
//! answers `Attach` or `TakeOver`, or a `Begin` that asks for it, carries one
//! file descriptor (SCM_RIGHTS): the view's root directory. That of `LendMount` carries a mount.
//!
//! The `Done` that answers `Attach` for a native view carries one end of a pair of sockets
//! instead. The other end goes with a [`Reply::Lend`] to the process that mounted the view.
//! That process sends one message over the pair: a byte and a mount of the view, or the reason
//! why it cannot, as text. The service itself never receives a descriptor.
//!
//! The handshake's bytes never change. Anything else may change whenever
//! [`VERSION`] does.
//!
//! Modules
//! - `handshake`, `frame`: the first bytes in each direction; one message as bytes
//! - `messages`, `joint`, `records`, `failure`: requests, those for commits of several stores, and replies;
//!   the values in them; failures
//! - `surroundings`: the restrictions under which a process runs
//! - `footprint`: the memory that a decoded message takes

mod failure;
mod footprint;
pub mod frame;
pub mod handshake;
mod joint;
mod messages;
mod records;
mod surroundings;

pub use atomdir_types::{
    Change, ChangeLine, ChangedBy, CheckReport, CommitAuthor, CommitFilter, CommitMarks,
    CommitSummary, Conflict, ConflictKind, Conflicts, Deviation, DeviationKind, Durability,
    EarlyReason, EndedHow, EqualFile, FileRead, ForgottenEarly, HistoryStatus, Isolation, Kind,
    LockMode, LockScope, LockStatus, MergeStep, Outcome, Partner, RecoveryReport, Sequence, Side,
    SidePaths, SnapshotObject, Terms, Timestamp, TransactionId, Unconfirmed, Undo,
};
pub use failure::{Failure, FailureKind};
pub use joint::JointRequest;
pub use messages::{
    Annotate, Answer, BeginOptions, BeginRequest, CommitRequest, LockRequest, LogRequest, Numbers,
    Past, PastView, Portion, Readiness, RefreshRequest, Reply, Request, Restore, Sides,
};
pub use records::{
    Begun, Committed, EndedTransaction, GuardStatus, InDoubt, Layers, Limits, Others, Progress,
    ServiceStatus, StopReport, Survival, TransactionStatus, View, ViewChoice, WhileOpen, Within,
};
pub use surroundings::Surroundings;

/// The version of the messages, not of the program.
pub const VERSION: u32 = 37;

/// The longest label of a `Begin`.
pub const LABEL_LENGTH_MAX: usize = 4096;

/// The longest name of a savepoint.
pub const SAVEPOINT_LENGTH_MAX: usize = 255;
