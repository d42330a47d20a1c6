//! Locks that go on after a panic.
//!
//! The standard library poisons a lock if a thread panics while it holds it, and every later use
//! then fails. Here locks are taken nevertheless: code changes the guarded value last, and as a
//! whole, so a panic leaves the value as it was before. If a panic leaves more work undone, it is
//! handled by other means: a FUSE session ends, and a store refuses changes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::sync::{RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// Locks a mutex.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex, unless it is locked already.
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks for reading.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until another thread notifies, or for no reason.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits as long as `is_waiting` is true.
pub fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    is_waiting: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let woken = changed.wait_while(guard, is_waiting);
    woken.unwrap_or_else(PoisonError::into_inner)
}

/// Like [`wait`], at most for the time. Also returns whether that was over.
pub fn wait_for<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let woken = changed.wait_timeout(guard, time);
    let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Like [`wait_while`], at most for the time. Also returns whether that was over.
pub fn wait_for_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
    is_waiting: impl FnMut(&mut T) -> bool,
) -> (MutexGuard<'a, T>, bool) {
    let woken = changed.wait_timeout_while(guard, time, is_waiting);
    let (guard, result) = woken.unwrap_or_else(PoisonError::into_inner);
    (guard, result.timed_out())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_on_after_a_panic() {
        let (number, rights) = (Mutex::new(1), RwLock::new(2));
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let (_one, _two) = (lock(&number), write(&rights));
                panic!("with both locks");
            });
            assert!(panics.join().is_err());
        });
        assert!(number.is_poisoned() && rights.is_poisoned());
        assert_eq!((*lock(&number), *read(&rights)), (1, 2));
        let held = try_lock(&number).expect("nobody holds it");
        assert_eq!((*held, try_lock(&number).is_none()), (1, true));
        drop(held);
        let changed = Condvar::new();
        let (guard, is_over) = wait_for_while(&changed, lock(&number), Duration::ZERO, |_| true);
        assert!(is_over && *guard == 1);
        assert_eq!(*wait_while(&changed, guard, |number| *number > 1), 1);
    }
}
