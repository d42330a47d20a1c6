//! Tests of the harness itself, without a store: what it must clean up and report.

use std::fs;

use atomdir_testing::{Random, Scratch, capture_output, mounts, shell, skip};

#[test]
fn scratch_directories_are_removed_after_panics_and_with_mounts() {
    if !rustix::process::geteuid().is_root() {
        let test = "scratch_directories_are_removed_after_panics_and_with_mounts";
        return skip(test, "only root may mount file systems");
    }
    let path = std::thread::spawn(|| {
        let scratch = Scratch::new("harness");
        let path = scratch.path().to_owned();
        let point = scratch.join("a mount\nwith an odd name");
        fs::create_dir(&point).expect("made");
        rustix::mount::mount(
            "none",
            &point,
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            None,
        )
        .expect("root may mount");
        assert!(
            mounts().iter().any(|mount| mount.point == point),
            "odd names are read right"
        );
        std::panic::resume_unwind(Box::new(path));
    })
    .join()
    .expect_err("it panicked")
    .downcast::<std::path::PathBuf>()
    .expect("with the path");
    assert!(!path.exists());
    assert!(!mounts().iter().any(|mount| mount.point.starts_with(&*path)));
}

#[test]
fn outcome_reports_how_a_command_ended() {
    let scratch = Scratch::new("harness");
    let outcome = shell(scratch.path(), "echo out; echo err >&2");
    assert_eq!(
        (outcome.text().as_str(), outcome.error_text().as_str()),
        ("out\n", "err\n")
    );
    let mut killed = std::process::Command::new("sh");
    capture_output(killed.args(["-c", "kill -TERM $$"])).expect(143);
}

#[test]
fn seed_reproduces_the_numbers() {
    let numbers = |mut random: Random| [random.number(), random.number(), random.number()];
    assert_eq!(numbers(Random::from_seed(7)), numbers(Random::from_seed(7)));
    assert_ne!(numbers(Random::from_seed(7)), numbers(Random::from_seed(8)));
}
