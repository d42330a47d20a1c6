//! `Store::run` loses no update, and retries nothing but conflicts.

use crate::support::Place;
use atomdir::{Conflicts, Error, UndoError};
use atomdir_testing::{for_each_user, pick};

#[test]
fn no_update_is_lost_when_two_threads_count_in_one_file() {
    for_each_user(
        "retry::no_update_is_lost_when_two_threads_count_in_one_file",
        || {
            for conflicts in [Conflicts::AtCommit, Conflicts::Early] {
                count(conflicts);
            }
        },
    );
}

fn count(conflicts: Conflicts) {
    let counts = pick(50, 1000);
    let place = Place::new("library-counter");
    std::fs::write(place.base.join("counter"), "0").expect("written");
    let store = place.open();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..counts {
                    let options = store.transaction().conflicts(conflicts);
                    let counted = options.tries_max(u32::MAX).run(|tx| {
                        let old = tx.read_to_string("counter")?;
                        let new = old.parse::<u32>().map_err(Error::other)? + 1;
                        tx.write("counter", new.to_string())?;
                        Ok(())
                    });
                    counted.expect("counted");
                }
            });
        }
    });
    assert_eq!(place.read("counter"), Some((2 * counts).to_string()));
}

#[test]
fn an_error_of_the_program_aborts_at_once() {
    let place = Place::new("library-own-error");
    let store = place.open();
    let mut tries = 0;
    let failed: Result<(), Error> = store.run(|tx| {
        tries += 1;
        tx.write("a", "1")?;
        Err(Error::other("not today"))
    });
    assert_eq!(
        failed.expect_err("as the body says").to_string(),
        "not today"
    );
    assert_eq!((tries, place.read("a")), (1, None));
}

#[test]
fn the_number_of_tries_has_a_limit() {
    let place = Place::new("library-tries");
    let store = place.open();
    let mut tries = 0;
    let options = store.transaction().tries_max(3);
    let failed = options.run(|tx| {
        tries += 1;
        tx.write("a", "mine")?;
        let other = store.begin()?;
        other
            .remove_file("a")
            .or_else(|error| match error.is_not_found() {
                true => Ok(()),
                false => Err(error),
            })?;
        other.write("a", "theirs")?;
        other.commit()?;
        Ok(())
    });
    assert!(failed.expect_err("others are always first").is_conflict());
    assert_eq!((tries, place.read("a").as_deref()), (3, Some("theirs")));
}

/// A later commit has changed the file again, so every further try would fail as well.
#[test]
fn a_conflict_of_an_undo_is_not_tried_again() {
    let place = Place::new("library-undo-once");
    let store = place.open();
    for contents in ["1", "2"] {
        let tx = store.begin().expect("begun");
        tx.write("a", contents).expect("written");
        tx.commit().expect("committed");
    }
    let first = store.log(2).expect("listed")[1].sequence;
    let mut tries = 0;
    let failed = store.run(|_| {
        tries += 1;
        store.undo(&[first], &[])?;
        Ok(())
    });
    let error = failed.expect_err("the second commit is in the way");
    assert!(matches!(error, Error::Undo(UndoError::Conflict { .. })));
    assert_eq!((tries, place.read("a").as_deref()), (1, Some("2")));
}
