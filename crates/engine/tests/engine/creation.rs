//! Making a store must detect what the file system cannot do.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::failing::FailingDisk;
use crate::support::{Scratch, create, open};
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{Store, StoreError};

struct Maker {
    scratch: Scratch,
    disk: FailingDisk,
}

impl Maker {
    fn new(error: Errno) -> Maker {
        let (scratch, disk) = (Scratch::new(), FailingDisk::new(error, false));
        Maker { scratch, disk }
    }

    fn control(&self) -> PathBuf {
        self.scratch.0.join(".atomdir")
    }

    fn make(&self) -> Result<(), StoreError> {
        let open = |path: &Path| LinuxDisk::open_root(path).expect("it opens");
        let (root, control) = (open(&self.scratch.0), open(&self.control()));
        Store::create(&self.disk, &root, &control, [7; 16])
    }

    fn is_empty(&self) -> bool {
        let mut entries = fs::read_dir(self.control()).expect("it is listed");
        entries.next().is_none()
    }

    fn assert_can_be_made(&self) {
        create(&self.scratch.0);
        drop(open(&self.scratch.0));
        assert!(!self.control().join("trial").exists());
    }
}

/// The calls of the trial that change something, in order.
fn calls() -> Vec<&'static str> {
    let maker = Maker::new(Errno::IO);
    maker.make().expect("a file system for tests can hold one");
    let calls = maker.disk.take_changes();
    let end = calls.iter().rposition(|call| *call == "remove_directory");
    calls[..end.expect("the trial ends") + 1].to_vec()
}

/// File systems without links, exchange and the like give these errors.
#[test]
fn file_system_without_a_required_call_is_refused_unchanged() {
    for (number, call) in calls().into_iter().enumerate() {
        let maker = Maker::new(Errno::INVAL);
        maker.disk.fail_after(number as i64);
        let refused = maker.make().expect_err(call);
        if call == "link" || call == "rename" {
            let message = refused.to_string();
            assert!(message.contains("cannot hold a store: it"), "{message}");
            assert!(maker.is_empty(), "{call}: {refused}");
        }
        maker.assert_can_be_made();
    }
}

/// A trial that was interrupted must not hinder the next.
#[test]
fn interrupted_trial_does_not_hinder_the_next() {
    for (number, call) in calls().into_iter().enumerate() {
        let maker = Maker {
            disk: FailingDisk::new(Errno::IO, true),
            ..Maker::new(Errno::IO)
        };
        maker.disk.fail_after(number as i64);
        maker.make().expect_err(call);
        maker.assert_can_be_made();
    }
}

/// Some file systems make up a new inode number at each lookup of a name.
#[test]
fn file_system_with_unstable_identities_is_refused() {
    let calls = calls();
    let first_of = |wanted| calls.iter().position(|call| *call == wanted);
    for (call, name) in [("rename", "first"), ("write_at", "link")] {
        let maker = Maker::new(Errno::IO);
        let path = maker.control().join("trial").join(name);
        let before = first_of(call).expect("the trial does it");
        maker.disk.intrude_before(before, move || {
            let (other, is_directory) = (path.with_extension("other"), path.is_dir());
            if is_directory {
                fs::create_dir(&other).expect("the name is free");
            } else {
                fs::write(&other, "").expect("the name is free");
            }
            fs::rename(&other, &path).expect("it is replaced");
        });
        let refused = maker.make().expect_err(call).to_string();
        assert!(refused.contains("it changes inode numbers"), "{refused}");
        assert!(!maker.disk.awaits_intruder() && maker.is_empty());
    }
}
