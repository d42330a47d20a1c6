//! Deliveries and services are killed at random moments, and the test, as mail servers do, tries
//! each message again until it is delivered.

use crate::support::{
    deliver, fixture, ids, indexed, is_delivered, message, read_maildir, read_mbox, run, start,
};
use atomdir_testing::{Random, pick, wait_until};
use std::time::{Duration, Instant};

/// More than one page. After some deliveries the mbox is longer than a megabyte, and commits change
/// it in place.
const SIZE: usize = 60_000;

#[test]
fn every_message_arrives_complete_and_once_despite_kills() {
    const TEST: &str = "every_message_arrives_complete_and_once_despite_kills";
    let Some(fixture) = fixture("mail-kill", "") else {
        return;
    };
    let mut random = Random::for_test(TEST);
    for mailbox in ["ann", "bob/"] {
        let count = pick(40, 400);
        let started = Instant::now();
        run(&mut deliver(&fixture, mailbox), &message(0, SIZE)).expect(0);
        let mut whole = started.elapsed();
        for id in 1..count {
            wait_until("a delivery", || {
                let started = Instant::now();
                let mut child = start(&mut deliver(&fixture, mailbox), &message(id, SIZE));
                // Kill at a random moment of the delivery; in a third of the cases, kill nothing.
                let moment = whole.mul_f64(random.below(1000) as f64 / 1000.0);
                let victim = random.below(3);
                std::thread::sleep(moment.min(Duration::from_secs(1)));
                match victim {
                    0 => drop(fixture.store.kill_service()),
                    1 => drop(child.kill()),
                    _ => {}
                }
                let is_delivered = is_delivered(child);
                if is_delivered {
                    whole = started.elapsed();
                }
                is_delivered
            });
        }
        let path = fixture.base.join(mailbox);
        let (messages, index) = match mailbox.ends_with('/') {
            true => (read_maildir(&path), path.join("deliveries")),
            false => (read_mbox(&path), fixture.base.join(".ann.deliveries")),
        };
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(ids(&messages, SIZE), all, "{mailbox}");
        assert_eq!(indexed(&index), all, "{mailbox}");
    }
    fixture.store.assert_at_rest();
}
