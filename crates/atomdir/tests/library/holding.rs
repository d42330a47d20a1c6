//! A store that is open in one process is not opened in another, and others learn who has it.

use crate::support::{Place, open_embedded};
use atomdir::{Door, OpenError, StoreError, StoreOptions};
use atomdir_testing::{capture_output, for_each_user, this_program};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const HOLD: &str = "ATOMDIR_TEST_HOLD";

/// Not a test by itself: the process that holds a store for the tests below, until its standard
/// input ends.
#[test]
fn hold() {
    let Some(base) = std::env::var_os(HOLD) else {
        return;
    };
    let store = open_embedded(Path::new(&base));
    let tx = store.begin().expect("begun");
    tx.write("held", "1").expect("written");
    tx.commit().expect("committed");
    println!("\nholding");
    std::io::stdin().lines().for_each(drop);
    store.close().expect("closed");
}

fn start_holder(base: &Path) -> Child {
    let mut command = this_program("holding::hold");
    command.env(HOLD, base);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().expect("started");
    let output = BufReader::new(holder.stdout.as_mut().expect("piped"));
    let mut lines = output.lines().map(|line| line.expect("a line"));
    assert!(lines.any(|line| line == "holding"), "the holder has ended");
    holder
}

#[test]
fn a_second_process_is_refused_and_the_error_names_the_holder() {
    for_each_user(
        "holding::a_second_process_is_refused_and_the_error_names_the_holder",
        || {
            let place = Place::new("library-held");
            let mut holder = start_holder(&place.base);
            for door in [Door::Any, Door::Embedded] {
                let refused = StoreOptions::new().door(door).open(&place.base);
                let refused = refused.expect_err("another process has it");
                let OpenError::Held { holder: found, .. } = &refused else {
                    panic!("{refused}");
                };
                let found = found.as_ref().expect("it is found");
                assert_eq!(found.process, holder.id());
                assert!(refused.to_string().contains(&found.program), "{refused}");
            }
            drop(holder.stdin.take());
            assert!(holder.wait().expect("it ends").success());
            let store = place.open();
            assert_eq!(place.read("held").as_deref(), Some("1"));
            store.close().expect("closed");
        },
    );
}

#[test]
fn a_store_is_opened_once_in_a_process() {
    let place = Place::new("library-twice");
    let store = place.open();
    let refused = StoreOptions::new().door(Door::Embedded).open(&place.base);
    let refused = refused.expect_err("it is open");
    assert!(
        matches!(&refused, OpenError::Held { holder: Some(holder), .. }
            if holder.process == std::process::id()),
        "{refused}"
    );
    let clone = store.clone();
    assert!(matches!(store.close(), Err(StoreError::InUse)));
    clone.close().expect("closed");
    place.open().close().expect("opened again");
}

#[test]
fn a_killed_holder_gives_the_store_back_with_its_commits() {
    let place = Place::new("library-killed");
    let mut holder = start_holder(&place.base);
    holder.kill().expect("killed");
    // It is still being ended.
    let store = place.open();
    holder.wait().expect("it has ended");
    let tx = store.begin().expect("begun");
    assert_eq!(tx.read_to_string("held").expect("read"), "1");
}

/// A child shares the parent's lock and open files, so both would write to one log.
const ALONE: &str = "ATOMDIR_TEST_ALONE";

#[test]
fn a_store_in_the_program_itself_needs_no_socket_mount_or_other_process() {
    if std::env::var_os(ALONE).is_none() {
        // Other tests of this process have files and processes, too.
        let name = "holding::a_store_in_the_program_itself_needs_no_socket_mount_or_other_process";
        capture_output(this_program(name).env(ALONE, "1")).expect(0);
        return;
    }
    let place = Place::new("library-alone");
    let mounts = || std::fs::read("/proc/self/mounts").expect("read");
    let mounted = mounts();
    let store = place.open();
    let tx = store.begin().expect("begun");
    tx.write("a", "1").expect("written");
    let files = std::fs::read_dir("/proc/self/fd").expect("listed");
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let of_services = |target: &PathBuf| {
        let name = target.to_string_lossy();
        name.starts_with("socket:") || name == "/dev/fuse"
    };
    let found: Vec<PathBuf> = targets.filter(of_services).collect();
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(mounts(), mounted);
    for thread in std::fs::read_dir("/proc/self/task").expect("listed") {
        let children = thread.expect("a thread").path().join("children");
        assert_eq!(std::fs::read_to_string(children).expect("read"), "");
    }
    tx.commit().expect("committed");
    assert_eq!(place.read("a").as_deref(), Some("1"));
}

/// The child inherits the descriptor that holds the store's lock.
#[test]
fn a_store_that_was_closed_opens_again_beside_a_forked_child() {
    let place = Place::new("library-fork-open");
    let store = place.open();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls only what is safe after a fork, and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "forked");
    if child == 0 {
        drop(writer);
        // Until the parent closes the pipe.
        let _ = std::io::Read::read(&mut reader, &mut [0]);
        // SAFETY: it ends the child without running the parent's destructors.
        unsafe { libc::_exit(0) }
    }
    store.close().expect("closed");
    drop(place.open());
    drop(writer);
    // SAFETY: the child is this process's own.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

#[test]
fn a_forked_child_cannot_use_the_store() {
    let place = Place::new("library-fork");
    let store = place.open();
    let tx = store.begin().expect("begun");
    tx.write("a", "1").expect("written");
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls only this library and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "forked");
    if child == 0 {
        let refused = matches!(
            store.begin(),
            Err(atomdir::BeginError::Store(StoreError::Forked { .. }))
        );
        let refused = refused && tx.write("a", "2").is_err() && tx.commit().is_err();
        drop(store);
        let _ = writer.write_all(&[u8::from(refused)]);
        // SAFETY: it ends the child without running the parent's destructors.
        unsafe { libc::_exit(0) }
    }
    let mut answer = [0];
    std::io::Read::read_exact(&mut reader, &mut answer).expect("an answer");
    assert_eq!(answer, [1]);
    // SAFETY: the child is this process's own.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    tx.commit().expect("the parent still can");
    assert_eq!(place.read("a").as_deref(), Some("1"));
}
