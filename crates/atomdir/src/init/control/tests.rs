use super::*;
use atomdir_testing::Scratch;
use std::fs;

/// Makes the control directory of a store while another user acts on it, before
/// the directory is closed to them.
fn make_beside(act: impl FnOnce(&Path)) -> (Scratch, Result<OwnedFd, InitError>) {
    let scratch = Scratch::new("beside-init");
    let site = scratch.join("site");
    fs::create_dir(&site).unwrap();
    let root = Root::open(&site).unwrap();
    let control = scratch.join("control");
    let made = make_by(&root, Some(&control), Trust::Everyone, |path, handle| {
        act(path);
        set_mode(path, handle)
    });
    (scratch, made)
}

#[test]
fn a_control_directory_that_others_wrote_in_before_it_was_closed_is_refused() {
    let (scratch, refused) = make_beside(|control| {
        fs::write(control.join("header"), "planted").unwrap();
    });
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("not empty"), "{refused}");
    assert!(!scratch.join("site").join(CONTROL_NAME).exists());
}

#[test]
fn a_control_directory_that_was_exchanged_while_it_was_made_is_refused() {
    let (scratch, refused) = make_beside(|control| {
        fs::rename(control, control.with_extension("old")).unwrap();
        fs::create_dir(control).unwrap();
    });
    assert!(matches!(refused, Err(InitError::ControlUnfit { .. })));
    assert!(!scratch.join("site").join(CONTROL_NAME).exists());
    let (scratch, made) = make_beside(|_| {});
    made.unwrap();
    assert!(scratch.join("site").join(CONTROL_NAME).exists());
}
