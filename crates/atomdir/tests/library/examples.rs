//! The example programs do what they say.

use crate::support::Place;
use std::os::unix::fs::PermissionsExt;

#[allow(dead_code, reason = "the tests call what `main` calls")]
#[path = "../../examples/add_user.rs"]
mod add_user;

#[test]
fn add_user_changes_all_three_files_or_none() {
    let place = Place::new("library-add-user");
    let files = [
        ("passwd", "root:x:0:0::/root:/bin/sh\n", 0o644),
        ("shadow", "root:*:::::::\n", 0o600),
        ("group", "root:x:0:\n", 0o644),
    ];
    for (name, contents, mode) in files {
        let path = place.base.join(name);
        std::fs::write(&path, contents).expect("written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("set");
    }
    let base = place.base.to_str().expect("it is text");
    add_user::add_user(base, "ann", 1001).expect("added");
    let lines = |name: &str| place.read(name).expect("read").lines().count();
    let counts = || files.map(|(name, ..)| lines(name));
    assert_eq!(counts(), [2, 2, 2]);
    for (name, _, mode) in files {
        let found = std::fs::metadata(place.base.join(name)).expect("found");
        assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
    }
    // The group file refuses it after the other two were written.
    let path = place.base.join("group");
    let group = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, group + "staff:x:1002:\n").expect("written");
    let refused = add_user::add_user(base, "bob", 1002).expect_err("the id is taken");
    let message = refused.to_string();
    assert!(message.contains("staff:x:1002:"), "{message}");
    assert_eq!(counts(), [2, 2, 3]);
}
