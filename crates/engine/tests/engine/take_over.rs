//! Taking over an overlay's upper layer can fail, for example because the disk is full. Then the
//! layer is as it was, and taking it over later has the same result.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::permissions::{become_ordinary, fill_upper_layer, landed};
use crate::support::failing::FailingDisk;
use crate::support::{Scratch, begin, create, open_with};
use atomdir_disk::Errno;

#[test]
fn upper_layer_is_taken_over_after_a_failed_attempt() {
    become_ordinary();
    let mut expected = None;
    for number in 0.. {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::create_dir(scratch.0.join("locked")).expect("it is new");
        fs::write(scratch.0.join("locked/old"), "locked").expect("it is new");
        let closed = Permissions::from_mode(0o555);
        fs::set_permissions(scratch.0.join("locked"), closed).expect("its owner may");
        let disk = FailingDisk::new(Errno::NOSPC, false);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let transaction = begin(&store);
        transaction.become_lower().expect("there is room");
        let layers = transaction.layers().expect("it has layers");
        let upper = scratch.0.join(".atomdir").join(layers).join("upper");
        fill_upper_layer(&upper);
        for name in ["made/again", "locked/third"] {
            let above = upper.join(name).with_file_name("");
            fs::set_permissions(&above, Permissions::from_mode(0o700)).expect("its owner may");
            fs::hard_link(upper.join("locked/new"), upper.join(name)).expect("it is new");
            fs::set_permissions(&above, Permissions::from_mode(0o555)).expect("its owner may");
        }
        let wanted = expected.is_some();
        disk.take_changes();
        if wanted {
            disk.fail_after(number);
        }
        let has_failed = transaction.take_over_upper().is_err();
        let changes = disk.take_changes();
        if has_failed && transaction.take_over_upper().is_err() {
            // A full disk refuses none of the others.
            let failed = usize::try_from(number).ok().and_then(|at| changes.get(at));
            assert_ne!(failed, Some(&"rename"), "change {number}");
            continue;
        }
        // A failure that the takeover has not reached must not hit the commit.
        let is_past_the_last = wanted && !disk.has_failed();
        disk.fail_after(i64::MAX);
        store.commit(&transaction).expect("nothing is in the way");
        let found = landed(&scratch.0);
        let links = fs::metadata(scratch.0.join("locked/new")).map(|file| file.nlink());
        assert_eq!(links.ok(), Some(3), "change {number}");
        match &expected {
            None => expected = Some(found),
            Some(expected) => assert_eq!(&found, expected, "change {number}"),
        }
        if is_past_the_last {
            break;
        }
    }
}
