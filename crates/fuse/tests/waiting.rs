//! Requests that must wait do not keep workers from serving others.

#![cfg(test)]

mod support;

use std::fs;
use std::sync::Arc;
use std::thread;

use atomdir_testing::wait_until;
use support::memory::Memory;

/// More writers than there are workers.
const WRITERS: usize = 8;

/// Puts off writes until it is dropped, even if the test fails: otherwise a failed test
/// would wait for its writers for ever.
struct PutsOff(Arc<Memory>);

impl PutsOff {
    fn begin(filesystem: &Arc<Memory>) -> PutsOff {
        filesystem.put_off.begin(b'w');
        PutsOff(Arc::clone(filesystem))
    }

    /// Waits until so many files have had writes put off.
    fn wait_for(&self, files: usize) {
        wait_until("a write that waits", || self.0.put_off.files() >= files);
    }
}

impl Drop for PutsOff {
    fn drop(&mut self) {
        self.0.put_off.resume();
    }
}

#[test]
fn waiting_request_does_not_block_others() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = |number: usize| mounted.join(&format!("file{number}"));
    let mounted = &mounted;
    thread::scope(|scope| {
        let puts_off = PutsOff::begin(&mounted.filesystem);
        for number in 0..WRITERS {
            scope.spawn(move || fs::write(path(number), "waits").unwrap());
        }
        puts_off.wait_for(WRITERS);
        fs::write(mounted.join("other"), "other").unwrap();
        assert_eq!(fs::read(mounted.join("other")).unwrap(), b"other");
        mounted.session().run_barrier().unwrap();
        assert!((0..WRITERS).all(|number| fs::metadata(path(number)).unwrap().len() == 0));
        drop(puts_off);
        // When this returns, all writes that waited have been done.
        mounted.session().run_barrier().unwrap();
        for number in 0..WRITERS {
            let name = format!("file{number}");
            assert_eq!(mounted.filesystem.contents(&name), b"waits");
        }
    });
}

/// No wake-up is lost, whether it comes before the request waits or after.
#[test]
fn waiting_request_continues_when_woken() {
    let Some(mounted) = support::mount() else {
        return;
    };
    for round in 0..200 {
        let path = mounted.join(&format!("file{round}"));
        let puts_off = PutsOff::begin(&mounted.filesystem);
        let writer = thread::spawn(move || fs::write(path, "waits"));
        puts_off.wait_for(1);
        if round % 2 == 1 {
            // When this returns, the write has been tried again and waits.
            mounted.session().run_barrier().unwrap();
        }
        drop(puts_off);
        writer.join().unwrap().unwrap();
    }
}

#[test]
fn waiting_request_is_not_retried_without_a_wakeup() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = |number: usize| mounted.join(&format!("file{number}"));
    thread::scope(|scope| {
        let puts_off = PutsOff::begin(&mounted.filesystem);
        for number in 0..WRITERS {
            scope.spawn(move || fs::write(path(number), "waits").unwrap());
        }
        puts_off.wait_for(WRITERS);
        // When this returns, all writes wait and none is being tried.
        mounted.session().run_barrier().unwrap();
        let before = mounted.filesystem.put_off.tries();
        for number in 0..1000 {
            fs::write(mounted.join("other"), number.to_string()).unwrap();
        }
        assert_eq!(mounted.filesystem.put_off.tries(), before);
        mounted.filesystem.put_off.retry();
        wait_until("another try of each write", || {
            mounted.filesystem.put_off.tries() >= before + WRITERS as u64
        });
    });
}

#[test]
fn a_session_ends_while_requests_wait() {
    let Some(mut mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("file");
    let puts_off = PutsOff::begin(&mounted.filesystem);
    let writer = thread::spawn(move || fs::write(path, "waits"));
    puts_off.wait_for(1);
    mounted.unmount();
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
