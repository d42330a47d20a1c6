//! Requests to a store's service, and views.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use atomdir::client::{BeginOptions, Connection};
//! use atomdir::{StartService, find};
//!
//! let store = find("/srv/site".as_ref())?;
//! let start = StartService::with_program("atomdir", &store);
//! let mut connection = Connection::open(&store, &start)?;
//! let transaction = connection.begin(&BeginOptions::default())?;
//! std::fs::write(transaction.view_path.join("index.html"), "new")?;
//! connection.commit(transaction.id, &mut |_| {})?;
//! # Ok(()) }
//! ```
//!
//! A transaction that was begun without [`BeginOptions::detached`] is aborted when its
//! [`Connection`] is dropped or this process dies.

pub use crate::accounts::{Account, Group, describe_user};
pub use crate::connection::Connection;
pub use crate::current::Current;
pub use crate::ended::{Notice, describe_end};
pub use crate::entered::Entered;
pub use crate::error::{CommitError, RequestError};
pub use crate::joint::{NotTogether, Side, commit_together, link, why_not_together};
pub use crate::layers::{Layers, OpenLayers};
pub use crate::lent::{receive_message, refuse_mount, send_descriptor};
pub use crate::location::find_with;
pub use crate::locks::LockOptions;
pub use crate::peer::{PeerCredentials, peer_credentials};
pub use crate::requests::{CommittedPortion, SnapshotContents};
pub use crate::settings::{
    ALLOW, Allow, GUARD, GuardChoice, HISTORY_AGE, KEYS as SETTING_KEYS, ReadError, Settings,
    SettingsError, TIMES_WORDS, VIEW,
};
pub use crate::start::{SERVICE_ENVIRONMENT, bring_guard_back};
pub use crate::surroundings::own as own_surroundings;
pub use crate::transaction::Transaction;
pub use crate::view_root::ViewRootError;
pub use atomdir_disk::{io_reason, reason};
pub use atomdir_protocol::{
    BeginOptions, Committed, EndedTransaction, Failure, FailureKind, InDoubt, Numbers, Others,
    PastView, Portion, Progress, Restore, ServiceStatus, Sides, SnapshotObject, StopReport,
    Survival, TransactionStatus, Undo, View, ViewChoice,
};
pub use atomdir_types::{
    ChangeLine, CheckReport, Checked, CommitDetails, CommitFilter, CommitMarks, Conflict,
    Deviation, DeviationKind, EarlyReason, EndedHow, ForgottenEarly, HistoryStatus, LOCK_ALLOW,
    LockStatus, MergeStep, Outcome, Partner, RecoveryReport, SidePaths, Terms, Unconfirmed,
};

pub mod profiles {
    //! The profiles of a store: which programs run in transactions without being asked to.
    pub use crate::settings::{
        BadLine, FILES_WHOLE, Profile, ProfileOption, change_profiles, check_program, is_comment,
        is_header, parse_profiles, profile_of, profiles, profiles_in, split_option,
    };
}

pub mod compare {
    //! What differs between a view and its snapshot, or between two views of the past.
    pub use crate::compare::*;
}

pub mod three_way {
    //! Merging what a transaction and others have changed in the same text.
    pub use crate::three_way::*;
}

pub mod services {
    //! Which processes are services of stores.
    pub use crate::services::*;
}

pub mod mounts {
    //! What is mounted, and where.
    pub use crate::mounts::*;
}
