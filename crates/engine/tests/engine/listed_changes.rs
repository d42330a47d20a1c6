//! The list of changes has one line for each path, and none for what is as it was.

use atomdir_types::ChangeLine;

use crate::support::failing::FailingDisk;
use crate::support::{Scratch, begin, create_with, open_with, script};

/// What a transaction lists that takes these steps. Its commit must list the same.
fn listed(given: &[&str], steps: &[&str]) -> Vec<String> {
    let scratch = Scratch::new();
    let disk = FailingDisk::without_flushes();
    create_with(&disk, &scratch.0);
    for line in given {
        script::outside(&scratch.0, &line.split(' ').collect::<Vec<_>>());
    }
    let store = open_with(disk, &scratch.0).expect("the store opens");
    let view = begin(&store);
    for line in steps {
        script::inside(&view, &line.split(' ').collect::<Vec<_>>());
    }
    let changes = view.changes().expect("the changes are listed");
    store.commit(&view).expect("nobody is in the way");
    let commits = store.commits().expect("the history is read");
    assert_eq!(commits[0].changes, changes);
    changes.iter().map(described).collect()
}

fn described(line: &ChangeLine) -> String {
    let path = line.path.escape_ascii();
    let from = line.from.as_ref().map(|from| from.escape_ascii());
    let from = from.map_or(String::new(), |from| format!("{from} -> "));
    format!("{} {from}{path}", line.change.letter())
}

#[test]
fn path_in_a_directory_made_again_is_one_change() {
    let given = ["mkdir d", "put d/1 one", "put d/2 two", "mkdir d/sub"];
    let steps = [
        "rm-r d",
        "mkdir d",
        "chmod d 700",
        "put d/1 new",
        "put d/sub new",
        "put d/3 three",
    ];
    assert_eq!(
        listed(&given, &steps),
        ["M d", "M d/1", "D d/2", "A d/3", "T d/sub"]
    );
}

/// The new file is known by the old path of its directory.
#[test]
fn path_in_a_directory_that_took_anothers_place_is_one_change() {
    let given = ["mkdir d", "put d/1 one", "mkdir other"];
    let steps = ["rm-r d", "mv other d", "put d/1 new"];
    assert_eq!(listed(&given, &steps), ["R other -> d", "A d/1"]);
    let steps = [
        "mv d/1 kept",
        "rmdir d",
        "mkdir d",
        "chmod d 700",
        "mv kept d/1",
    ];
    assert_eq!(listed(&given, &steps), ["M d"]);
}

#[test]
fn file_replaced_by_its_like_is_no_change() {
    let given = [
        "put f text",
        "touch f 5",
        "mkdir d",
        "put d/1 one",
        "touch d/1 6",
    ];
    let alike = ["renew f text", "touch f 5"];
    assert_eq!(listed(&given, &alike), [""; 0]);
    for other in [
        &["append f x", "touch f 5"][..],
        &["touch f 7"],
        &["chmod f 600"],
        &["setx f x"],
        &["ln f second"],
    ] {
        let changes = listed(&given, &[&alike, other].concat());
        assert!(changes.contains(&"M f".into()), "{other:?}: {changes:?}");
    }
    let other_contents = ["renew f tex2", "touch f 5"];
    assert_eq!(listed(&given, &other_contents), ["M f"]);
    let again = ["rm-r d", "mkdir d", "put d/1 one", "touch d/1 6"];
    assert_eq!(listed(&given, &again), [""; 0]);
}
