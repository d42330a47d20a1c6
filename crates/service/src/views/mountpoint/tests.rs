use super::*;
use std::fs;

#[test]
fn a_name_that_a_stranger_has_taken_keeps_nobody_out() {
    let scratch = atomdir_testing::Scratch::new("shared");
    let user = rustix::process::geteuid().as_raw();
    let usual = scratch.join(format!("atomdir-{user}"));
    assert_eq!(in_shared(scratch.path(), user), usual);
    // What others can write is as good as a stranger's.
    fs::create_dir(&usual).unwrap();
    rustix::fs::chmod(&usual, Mode::RWXU | Mode::RWXG | Mode::RWXO).unwrap();
    let own = in_shared(scratch.path(), user);
    assert_ne!(own, usual);
    assert!(is_private(&lstat(&own).unwrap(), user));
    let squatted = scratch.join(format!("atomdir-{user}.0"));
    fs::create_dir(&squatted).unwrap();
    rustix::fs::chmod(&squatted, Mode::RWXU | Mode::RWXG | Mode::RWXO).unwrap();
    assert_eq!(in_shared(scratch.path(), user), own, "it is found again");
    fs::remove_dir(&usual).unwrap();
    std::os::unix::fs::symlink("/etc", &usual).unwrap();
    assert_eq!(
        in_shared(scratch.path(), user),
        own,
        "links are not followed"
    );
    fs::remove_file(&usual).unwrap();
    assert_eq!(in_shared(scratch.path(), user), usual);
}
