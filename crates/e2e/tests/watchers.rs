//! Programs outside that watch the store with inotify, as development servers and indexers do.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use atomdir_testing::{Fixture, for_each_owner, script};

/// What happened to the names in a directory, in order.
struct Watched {
    inotify: OwnedFd,
}

impl Watched {
    fn new(directory: &std::path::Path) -> Watched {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        add_watch(&inotify, directory, names | WatchFlags::MODIFY).expect("watched");
        Watched { inotify }
    }

    /// The events about each name so far.
    fn events(&self) -> BTreeMap<String, Vec<&'static str>> {
        let mut buffer = [MaybeUninit::uninit(); 1 << 16];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events: BTreeMap<String, Vec<_>> = BTreeMap::new();
        while let Ok(event) = reader.next() {
            let kind = event.events();
            let kinds = [
                (ReadFlags::CREATE, "created"),
                (ReadFlags::DELETE, "deleted"),
                (ReadFlags::MOVED_FROM, "gone"),
                (ReadFlags::MOVED_TO, "here"),
                (ReadFlags::MODIFY, "modified"),
            ];
            let kind = kinds.iter().find(|one| kind.contains(one.0));
            if let (Some(name), Some((_, kind))) = (event.file_name(), kind) {
                let name = name.to_string_lossy().into_owned();
                events.entry(name).or_default().push(*kind);
            }
        }
        events
    }
}

/// A program that handles events one by one, and forgets a name that is gone, must end with the
/// name.
#[test]
fn a_replaced_file_is_there_after_the_last_event() {
    for_each_owner("watchers", |owner| {
        let prepare = "mkdir dir; for n in 1 2 3; do echo old > dir/$n; done; mkdir dir/tree";
        let fixture = Fixture::owned_by("watchers", owner, prepare);
        let store = &fixture.store;
        let expected =
            BTreeMap::from(["1", "tree"].map(|name| (name.to_owned(), vec!["gone", "here"])));
        for view in ["exact", "auto"] {
            let watched = Watched::new(&fixture.base.join("dir"));
            let script = "echo new > dir/1; rm -r dir/tree; mkdir dir/tree; touch dir/tree/x";
            store.run_with(&["--view", view], script).expect(0);
            assert_eq!(watched.events(), expected, "in {view}");
            store.run("echo old > dir/1; rm dir/tree/x").expect(0);
        }
        store.assert_at_rest();
    });
}

/// A file that goes or comes is one event.
#[test]
fn other_changes_are_one_event_each() {
    let fixture = Fixture::new("watchers-one", "echo old > goes; echo old > from");
    let watched = Watched::new(&fixture.base);
    fixture
        .store
        .run("rm goes; echo new > comes; mv from to")
        .expect(0);
    let events = watched.events();
    let events: Vec<_> = events
        .iter()
        .map(|(name, kinds)| (name.as_str(), kinds[..].to_vec()))
        .collect();
    let expected = [
        ("comes", "here"),
        ("from", "gone"),
        ("goes", "gone"),
        ("to", "here"),
    ];
    assert_eq!(events, expected.map(|(name, kind)| (name, vec![kind])));
    fixture.store.assert_at_rest();
}

/// Whoever reads the whole directory, hidden or not, also reads the layers of native views. The access
/// times that this changes are no changes of the transaction.
#[test]
fn what_is_read_in_the_control_directory_is_not_committed() {
    Fixture::for_each_view(
        "watchers-read",
        "mkdir dir; echo 1 > dir/file; touch -d @1000000000 . dir dir/file",
        |one, view| {
            let text = r#"
                way=$(mktemp -d); mkfifo $way/ready $way/go
                $A run -q --view $VIEW -- sh -ec "
                    chmod 600 dir/file; chmod 644 dir/file
                    echo > $way/ready; cat $way/go > /dev/null; $LAST" &
                cat $way/ready > /dev/null
                find .atomdir -type d -exec ls {} + -o -exec cat {} + > /dev/null 2>&1 || :
                echo > $way/go; wait $!
                rm -r $way
            "#;
            let run = |last: &str| {
                let script = script(&format!("VIEW={view} LAST='{last}'\n{text}"));
                one.store.outside(&script).expect(0);
                one.store.call(["log"]).expect(0).text().lines().count()
            };
            assert_eq!(run("true"), 0, "{view}");
            // What programs set is a change.
            assert_eq!(run("touch -a dir/file"), 1, "{view}");
            assert_eq!(run("touch -a -d @1100000000 dir"), 2, "{view}");
            let set = one.store.outside("stat -c %X dir").expect(0);
            assert_eq!(set.text(), "1100000000\n", "{view}");
        },
    );
}
