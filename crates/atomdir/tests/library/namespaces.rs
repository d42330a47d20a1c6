//! The library in user namespaces.

use crate::support::Place;
use atomdir_testing::{for_each_user, skip, this_program};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const BASE: &str = "ATOMDIR_TEST_NAMESPACE";

/// Not a test by itself: the program that runs in the namespace.
#[test]
fn commits_in_a_namespace() {
    let Some(base) = std::env::var_os(BASE) else {
        return;
    };
    assert!(rustix::process::geteuid().is_root());
    let store = atomdir::Store::open(PathBuf::from(base)).expect("opened");
    let tx = store.begin().expect("begun");
    tx.write("a", "inside").expect("written");
    tx.commit().expect("committed");
    store.close().expect("closed");
}

/// Root's directories above the store belong to nobody there.
#[test]
fn a_store_opens_under_unshare_as_root() {
    let name = "namespaces::a_store_opens_under_unshare_as_root";
    for_each_user(name, || {
        let can = Command::new("unshare")
            .args(["-r", "true"])
            .stderr(Stdio::null())
            .status();
        if !can.is_ok_and(|can| can.success()) {
            return skip(name, "this user may not make user namespaces");
        }
        let place = Place::new("library-unshare");
        let program = this_program("namespaces::commits_in_a_namespace");
        let mut command = Command::new("unshare");
        command
            .arg("-r")
            .arg(program.get_program())
            .args(program.get_args());
        let status = command.env(BASE, &place.base).status().expect("it runs");
        assert!(status.success(), "{status}");
        assert_eq!(place.read("a").as_deref(), Some("inside"));
    });
}
