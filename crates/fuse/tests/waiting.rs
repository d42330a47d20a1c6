//! Requests that must wait keep no worker from others.

#![cfg(test)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::thread;

/// More than there are workers.
const WRITERS: usize = 8;

#[test]
fn what_waits_does_not_hold_up_others() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = |number: usize| mounted.join(&format!("file{number}"));
    *mounted.filesystem.put_off.lock().unwrap() = Some((b'w', BTreeSet::new()));
    thread::scope(|scope| {
        for number in 0..WRITERS {
            scope.spawn(move || fs::write(path(number), "waits").unwrap());
        }
        let put_off = || mounted.filesystem.put_off.lock().unwrap().clone();
        while put_off().is_some_and(|(_, nodes)| nodes.len() < WRITERS) {
            thread::yield_now();
        }
        fs::write(mounted.join("other"), "other").unwrap();
        assert_eq!(fs::read(mounted.join("other")).unwrap(), b"other");
        mounted.session().settle().unwrap();
        assert!((0..WRITERS).all(|number| fs::metadata(path(number)).unwrap().len() == 0));
        *mounted.filesystem.put_off.lock().unwrap() = None;
        // Whatever waited has been written when this returns.
        mounted.session().settle().unwrap();
        for number in 0..WRITERS {
            let name = format!("file{number}");
            assert_eq!(mounted.filesystem.contents(&name), b"waits");
        }
    });
}

#[test]
fn a_session_ends_while_requests_wait() {
    let Some(mut mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("file");
    *mounted.filesystem.put_off.lock().unwrap() = Some((b'w', BTreeSet::new()));
    let writer = thread::spawn(move || fs::write(path, "waits"));
    let put_off = || mounted.filesystem.put_off.lock().unwrap().clone();
    while put_off().is_some_and(|(_, nodes)| nodes.is_empty()) {
        thread::yield_now();
    }
    let session = mounted.session.take().unwrap();
    session.unmount().unwrap();
    session.join();
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
