//! The engine has no thread or clock of its own. This thread makes lazy commits
//! durable and runs checkpoints while there is work; otherwise it sleeps.

use crate::hosting::ticks::Ticks;
use crate::resolvers::take_back_unconfirmed;
use atomdir_disk::{LinuxDisk, reason};
use atomdir_engine::{NotConfirmed, SpaceWatch, Store, StoreError, SurvivalError, TakenBackOr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(50);
/// While a history is kept, the space left on the file system is looked at so often. Other ticks come
/// as often.
const TICK_PERIOD: Duration = Duration::from_secs(1);
/// And so often while it is short and nothing can be given up.
const SPACE_PERIOD_IN_VAIN: Duration = Duration::from_secs(60);
const PAUSE_WHILE_STALLED: Duration = Duration::from_millis(500);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);

/// Calls a function that starts a thread, which then has all signals blocked.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written before they are read, and the pointers are theirs.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

/// The note that is stored with a surviving transaction whose user has the host's rights and whose
/// age has no limit.
pub const PLAIN_NOTE: &[u8] = &[0];

/// Takes back the commits that nobody has confirmed in time. Returns whether any still waits.
pub fn tend_unconfirmed(store: &Store<LinuxDisk>) -> bool {
    if !store.awaits_confirmation() {
        return false;
    }
    for NotConfirmed { commit, outcome } in take_back_unconfirmed(store) {
        match outcome {
            TakenBackOr::TakenBack(None) => {}
            TakenBackOr::TakenBack(Some(by)) => {
                tracing::warn!("nobody has confirmed commit {commit}: commit {by} takes it back");
            }
            TakenBackOr::Refused(places) => tracing::error!(
                "nobody has confirmed commit {commit}, and it stays: what it changed was changed \
                 since, in {places} places; `atomdir undo --dry-run {commit}` names them"
            ),
            TakenBackOr::NotYet(reason) => {
                tracing::debug!("commit {commit} is not taken back yet: {reason}");
            }
        }
    }
    store.awaits_confirmation()
}

/// Looks after the commits that were set aside or wait to be confirmed, in a process that has no
/// other users. Returns whether to call it again within a second.
pub fn tend_own(store: &Store<LinuxDisk>) -> bool {
    keep_set_aside(store);
    for transaction in store.set_aside_due() {
        store.retry_set_aside(&transaction);
    }
    tend_unconfirmed(store)
}

/// Has the transactions survive whose commits were set aside, as far as they can.
pub fn keep_set_aside(store: &Store<LinuxDisk>) {
    for one in store.set_aside() {
        let Some(transaction) = store.transaction(one.transaction) else {
            continue;
        };
        // If others have replaced something that the history does not keep, it never comes back.
        let never = transaction.why_it_ends();
        let never = never.is_some_and(|why| matches!(why, SurvivalError::NotKept(_)));
        if never || transaction.survives() || transaction.may_survive().is_err() {
            continue;
        }
        let kept = store.survive(&transaction, PLAIN_NOTE.to_vec());
        if let Err(error) = kept {
            tracing::warn!(
                "transaction {} ends with the store: {error}",
                one.transaction
            );
        } else if let Err(errno) = transaction.flush() {
            tracing::warn!(errno = %reason(errno), "transaction {} may not survive a power cut", one.transaction);
        }
    }
}

/// Runs until the ticks end, and calls `tend` at each tick, which looks after commits that were
/// [set aside](Store::set_aside), and says whether it is to be called again within a second. The
/// caller must wake `ticks` after each commit, and should after each begin.
pub fn run(store: &Store<LinuxDisk>, ticks: &Ticks, tend: impl Fn() -> bool) {
    let (mut pause, mut sleep_max) = (PERIOD, watch_space(store));
    while ticks.next(pause, sleep_max) {
        // If this thread ended, lazy commits would stay in memory, and nobody would know. Locks go
        // on after a panic, and so does the next tick. The panic has been reported.
        let tick = AssertUnwindSafe(|| tick(store, ticks, &tend));
        let panicked = (PAUSE_AFTER_ERROR, Some(TICK_PERIOD));
        (pause, sleep_max) = catch_unwind(tick).unwrap_or(panicked);
    }
}

/// Returns how long to wait at least until the next tick, and at most; `None`: until woken.
fn tick(
    store: &Store<LinuxDisk>,
    ticks: &Ticks,
    tend: &impl Fn() -> bool,
) -> (Duration, Option<Duration>) {
    let pause = match store.maintain() {
        Ok(()) => PERIOD,
        // The engine has already reported the obstacle.
        Err(StoreError::Stalled(_)) => PAUSE_WHILE_STALLED,
        Err(error) => {
            tracing::error!("maintenance of the store failed: {error}");
            PAUSE_AFTER_ERROR
        }
    };
    let is_due_again = tend();
    let next_look = watch_space(store);
    if store.needs_maintenance() && store.status().poisoned.is_none() {
        ticks.wake();
    }
    (pause, is_due_again.then_some(TICK_PERIOD).or(next_look))
}

/// Returns the time until the next look; `None`: the next commit makes it necessary.
fn watch_space(store: &Store<LinuxDisk>) -> Option<Duration> {
    match store.watch_space() {
        SpaceWatch::Needless => None,
        SpaceWatch::Needed => Some(TICK_PERIOD),
        SpaceWatch::InVain => Some(SPACE_PERIOD_IN_VAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosting::options::engine_options;
    use atomdir_testing::Scratch;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_panic_ends_a_tick_and_not_the_thread() {
        let scratch = Scratch::new("maintenance-panics");
        crate::init(scratch.path(), None).expect("a store");
        let open = |path: &Path| LinuxDisk::open_root(path).expect("the directory opens");
        let (root, control) = (open(scratch.path()), open(&scratch.join(".atomdir")));
        let options = engine_options(0);
        let opened = Store::open(LinuxDisk::new(), root, control, None, options);
        let (store, _) = opened.expect("the store opens");
        let (ticks, calls) = (Ticks::default(), AtomicU32::new(0));
        let tend = || {
            assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
            ticks.end();
            false
        };
        ticks.wake();
        run(&store, &ticks, tend);
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}
