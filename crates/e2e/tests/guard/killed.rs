//! The service is killed while a guard lies over the store.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atomdir_testing::exit_code::{INPUT_OUTPUT, USAGE};
use atomdir_testing::{pick, wait_until};

use super::{Ends, Guarded};

#[test]
fn killed_service_leaves_a_guard_that_fails_until_it_is_cleared_away() {
    let test = "killed_service_leaves_a_guard_that_fails_until_it_is_cleared_away";
    let Some(guarded) = Guarded::new(test, "echo old > a") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    for clear in ["umount", "mount"] {
        store
            .run("echo committed > a; mkdir -p d; echo x > d/f")
            .expect(0);
        store.outside("echo outside > b");
        assert!(store.kill_service());
        wait_until("the end of the connection", || {
            fs::read_dir(base).is_err_and(|error| {
                error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
            })
        });
        assert!(fs::write(base.join("b"), "lost").is_err());
        store
            .call(["list"])
            .expect(INPUT_OUTPUT)
            .says(&["not connected", "atomdir umount"]);
        store.call([clear]).expect(0);
        assert_eq!(guarded.read("a"), "committed\n");
        assert_eq!(guarded.read("b"), "outside\n");
        store.run("echo again > a").expect(0);
        assert_eq!(guarded.read("a"), "again\n");
        store.call(["mount"]).expect(0);
    }
    // A service that is asked to end takes its guard with it.
    store.call(["service", "stop"]).expect(0);
    store.wait_until_ended();
    assert_eq!(guarded.read("a"), "again\n");
    store.call(["umount"]).expect(USAGE).says(&["no guard"]);
    store.assert_at_rest();
}

/// Commits and guarded writers go on while the service is killed: the base holds whole commits.
#[test]
fn killed_service_under_load_loses_no_guarded_write() {
    let test = "killed_service_under_load_loses_no_guarded_write";
    let Some(guarded) = Guarded::new(test, "echo 0 > a; echo 0 > b; mkdir out") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let written = AtomicU64::new(0);
    for round in 0..pick(4, 30) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let number = written.load(Ordering::Relaxed);
                    if fs::write(base.join(format!("out/{number}")), "whole").is_err() {
                        break;
                    }
                    written.store(number + 1, Ordering::Relaxed);
                }
            });
            let ends = Ends(&is_over);
            for number in 0..3 {
                let text = format!("{round}-{number}");
                store
                    .run(&format!("echo {text} > a; echo {text} > b"))
                    .expect(0);
            }
            assert!(store.kill_service());
            writer.join().expect("it does not panic");
            drop(ends);
        });
        store.call(["umount"]).expect(0);
        store.call(["mount"]).expect(0);
        assert_eq!(guarded.read("a"), guarded.read("b"));
        for number in 0..written.load(Ordering::Relaxed) {
            assert_eq!(guarded.read(&format!("out/{number}")), "whole");
        }
    }
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}
