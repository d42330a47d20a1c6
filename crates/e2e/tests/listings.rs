//! Directories of a view that are read while they change.

use std::fs;

use atomdir_testing::Fixture;

/// If a directory is removed while it is read, its listing must not be shown for a later
/// directory.
#[test]
fn a_listing_that_was_not_read_to_its_end_is_forgotten() {
    let fixture = Fixture::new("listings", "mkdir other; echo > other/file");
    let store = &fixture.store;
    let view = store.begin();
    let gone = view.path.join("gone");
    fs::create_dir(&gone).expect("made");
    for number in 0..3000 {
        fs::write(gone.join(number.to_string()), "").expect("written");
    }
    let first = fs::read_dir(&gone).expect("listed").next();
    assert!(first.is_some_and(|entry| entry.is_ok()));
    // Remove the names one by one: removing the tree would read the directory to its end.
    for number in 0..3000 {
        fs::remove_file(gone.join(number.to_string())).expect("removed");
    }
    fs::remove_dir(&gone).expect("removed");
    let names: Vec<_> = fs::read_dir(view.path.join("other"))
        .expect("listed")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names, ["file"]);
    store.abort(&view).expect(0);
    store.assert_at_rest();
}
