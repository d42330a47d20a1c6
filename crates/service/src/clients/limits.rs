//! Limits the service's resources that one user may take, so that enough are left for others.
//!
//! They do not apply to root and the store's owner, as whom the service runs: these
//! could end the service as well.
//!
//! Bytes of contents have no limit here. The file system limits what a user stages,
//! like anything that the user writes outside.

use atomdir_disk::sync;
use atomdir_engine::Budget;
use atomdir_protocol::Limits;
use rustix::process::{Resource, geteuid, getrlimit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Each connection has a thread and may have an answer of some hundred kilobytes in memory.
const USER_CONNECTIONS_MAX: u64 = 64;
const USER_TRANSACTIONS_MAX: u64 = 1024;
/// Each takes about a kilobyte of memory.
const USER_CHANGED_OBJECTS_MAX: u64 = 1_000_000;
/// After this time the service closes a connection that holds no transaction.
const CONNECTION_IDLE: Duration = Duration::from_secs(600);
/// The limit for all users together.
const CONNECTIONS_MAX: u64 = 256;
const TRANSACTIONS_MAX: u64 = 65_536;

pub(crate) fn limits() -> Limits {
    Limits {
        connections_max: CONNECTIONS_MAX,
        transactions_max: TRANSACTIONS_MAX,
        user_connections_max: USER_CONNECTIONS_MAX,
        user_transactions_max: USER_TRANSACTIONS_MAX,
        user_changed_objects_max: USER_CHANGED_OBJECTS_MAX,
        connection_idle_seconds: CONNECTION_IDLE.as_secs(),
        descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

pub(crate) fn bind(user: u32) -> bool {
    user != 0 && user != geteuid().as_raw()
}

/// How long a connection of the user may be idle while it holds no transaction.
pub(crate) fn idle_time(user: u32) -> Duration {
    if bind(user) {
        CONNECTION_IDLE
    } else {
        Duration::MAX
    }
}

/// The budgets of users who have transactions and are subject to limits.
#[derive(Default)]
pub(crate) struct Budgets(Mutex<HashMap<u32, Weak<Budget>>>);

impl Budgets {
    /// Returns `None` if the user may change any number of objects.
    pub(crate) fn of(&self, user: u32) -> Option<Arc<Budget>> {
        if !bind(user) {
            return None;
        }
        let mut budgets = sync::lock(&self.0);
        if let Some(budget) = budgets.get(&user).and_then(Weak::upgrade) {
            return Some(budget);
        }
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let budget = Arc::new(Budget::new(USER_CHANGED_OBJECTS_MAX));
        budgets.insert(user, Arc::downgrade(&budget));
        Some(budget)
    }
}
