//! Faults that random histories have found. Each test makes one by few calls.

use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{BeginOptions, CommitError, Durability};
use atomdir_fuse::{Filesystem, Request};
use rustix::fs::{XattrFlags, inotify, setxattr};

use crate::model::{Operation, Path, Tree};
use crate::program::{Files, REQUEST, ROOT, look, run};
use crate::world::{Open, World, options};

fn path(text: &str) -> Path {
    text.split('/').map(str::to_owned).collect()
}

fn file(text: &str) -> Operation {
    Operation::File(path(text), 0o644)
}

fn directory(text: &str) -> Operation {
    Operation::Directory(path(text), 0o755)
}

fn write(text: &str, byte: u8) -> Operation {
    Operation::Write(path(text), 0, 5000, byte)
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link(path(from), path(to))
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename(path(from), path(to), RenameMode::Replace)
}

fn unlink(text: &str) -> Operation {
    Operation::Unlink(path(text))
}

fn mark(text: &str, mark: u8) -> Operation {
    Operation::Mark(path(text), Some(mark))
}

fn mode(text: &str, mode: u32) -> Operation {
    Operation::Mode(path(text), mode)
}

impl World {
    fn with(operations: &[Operation]) -> World {
        let world = World::new();
        world.outside(operations);
        world
    }

    fn outside(&self, operations: &[Operation]) {
        for operation in operations {
            let done = run(&self.guarded, operation);
            done.unwrap_or_else(|errno| panic!("{operation:?}: {errno}"));
        }
    }

    fn begin(&self, durability: Durability, operations: &[Operation]) -> Open {
        let options = BeginOptions {
            durability,
            ..options()
        };
        let begun = self.store.begin(options).expect("it begins");
        for operation in operations {
            let done = run(&*begun, operation);
            done.unwrap_or_else(|errno| panic!("{operation:?}: {errno}"));
        }
        begun
    }

    fn lazy(&self, operations: &[Operation]) {
        let lazy = self.begin(Durability::Lazy, operations);
        self.store.commit(&lazy).expect("nobody is in the way");
    }

    fn tree(&self) -> Tree {
        look(&self.guarded).expect("it can be looked at").0
    }

    fn set_aside(&self) -> usize {
        self.store.sync().expect("nothing stalls");
        self.store.set_aside().len()
    }
}

fn tree(view: &Open) -> Tree {
    look(&**view).expect("it can be looked at").0
}

fn assert_conflict(world: &World, view: &Open) {
    let refused = world.store.commit(view);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    world.store.abort(view);
}

#[test]
fn a_file_that_has_lost_a_name_is_kept_when_it_is_written_by_another() {
    // More files than are kept open for snapshots.
    let names = |number: u8| (format!("a{number}"), format!("b{number}"));
    let world = World::new();
    for number in 0..20 {
        let (one, other) = names(number);
        world.outside(&[file(&one), write(&one, b'o'), link(&one, &other)]);
    }
    let before = world.tree();
    let view = world.begin(Durability::Durable, &[]);
    for number in 0..20 {
        let (one, other) = names(number);
        world.outside(&[unlink(&one), write(&other, b'n')]);
    }
    assert_eq!(tree(&view), before);
}

#[test]
fn a_commit_is_undone_after_guarded_calls_to_other_files() {
    let world = World::with(&[file("a"), file("b")]);
    let before = world.tree();
    let one = world.begin(Durability::Durable, &[write("a", b'i')]);
    let committed = world.store.commit(&one).expect("nobody is in the way");
    let older = world.begin(Durability::Durable, &[]);
    world.outside(&[write("b", b'o'), Operation::Cut(path("b"), 0)]);
    let commit = committed.sequence.expect("it has changed a file");
    let undo = world.store.undo(&[commit], &[], options());
    let undo = undo.expect("every commit since is known");
    assert_eq!(tree(&undo), before);
    world.store.commit(&undo).expect("nobody is in the way");
    assert_eq!(world.tree(), before);
    world.store.abort(&older);
}

#[test]
fn a_rename_that_fails_leaves_the_empty_directory_that_it_would_replace() {
    let world = World::with(&[directory("d"), directory("d/e"), directory("other")]);
    let before = world.tree();
    let view = world.begin(Durability::Durable, &[]);
    let refused = run(&world.guarded, &rename("d", "d/e"));
    assert_eq!(refused, Err(Errno::INVAL));
    assert_eq!(world.tree(), before);
    world.outside(&[file("d/f"), rename("d", "other"), mode("other/e", 0o700)]);
    assert!(world.tree().contains_key("other/f") && !world.tree().contains_key("d"));
    assert_eq!(tree(&view), before);
}

#[test]
fn snapshots_are_frozen_while_lazy_commits_are_on_the_way() {
    let world = World::with(&[file("a"), file("b"), directory("d"), mode("d", 0o700)]);
    let before = world.tree();
    let older = world.begin(Durability::Durable, &[]);
    world.lazy(&[write("a", b'i'), mode("d", 0o755), file("d/lazy")]);
    world.outside(&[write("b", b'o'), file("d/outside")]);
    assert_eq!(tree(&older), before);
    let between = world.begin(Durability::Durable, &[]);
    let shown = tree(&between);
    assert_eq!(shown, world.tree(), "what has returned is in the base");
    assert!(shown.contains_key("d/lazy") && shown.contains_key("d/outside"));
    world.lazy(&[write("b", b'j')]);
    world.outside(&[
        write("a", b'p'),
        mode("d", 0o711),
        unlink("d/lazy"),
        write("b", b'q'),
    ]);
    assert_eq!(world.set_aside(), 1, "a program has written the same");
    assert_eq!((tree(&older), tree(&between)), (before, shown));
}

#[test]
fn attributes_of_a_directory_that_programs_change_are_not_lost() {
    let world = World::with(&[directory("d"), mode("d", 0o700), mark("d", b'0')]);
    let removed = Operation::RemoveDirectory(path("d"));
    let inside = [mark("d", b'i'), mode("d", 0o755), removed];
    let outside = [mark("d", b'o'), mode("d", 0o711), mark("d", b'p')];
    for (inside, outside) in inside
        .iter()
        .flat_map(|one| outside.iter().map(move |other| (one, other)))
    {
        let view = world.begin(Durability::Durable, std::slice::from_ref(inside));
        world.outside(std::slice::from_ref(outside));
        assert_conflict(&world, &view);
        // Also while the commit waits.
        world.lazy(std::slice::from_ref(inside));
        world.outside(std::slice::from_ref(outside));
        assert_eq!(world.set_aside(), 1, "{inside:?}, {outside:?}");
        let aside = world.store.transactions();
        aside.iter().for_each(|one| _ = world.store.abort(one));
        world.outside(&[mode("d", 0o700)]);
    }
}

#[test]
fn a_commit_that_links_what_a_program_has_moved_since_is_refused_as_a_whole() {
    let world = World::with(&[file("a"), write("a", b'o')]);
    world.lazy(&[link("a", "b"), file("c")]);
    world.outside(&[rename("a", "d")]);
    assert_eq!(world.set_aside(), 1);
    assert_eq!(world.tree().into_keys().collect::<Vec<_>>(), ["d"]);
}

#[test]
fn a_commit_that_moves_or_links_a_file_hides_no_write_to_it() {
    for moves in [rename("a", "c"), link("a", "c"), unlink("b")] {
        let world = World::with(&[file("a"), write("a", b'o'), link("a", "b")]);
        let writer = world.begin(Durability::Durable, &[write("a", b'i')]);
        world.lazy(std::slice::from_ref(&moves));
        world.outside(&[write("a", b'p')]);
        assert_eq!(world.set_aside(), 0, "{moves:?}");
        assert_conflict(&world, &writer);
    }
}

#[test]
fn what_is_removed_has_no_names_whatever_snapshots_need() {
    let world = World::with(&[file("a"), link("a", "b"), directory("d"), file("c")]);
    let view = world.begin(Durability::Durable, &[]);
    let nodes = ["a", "c", "d"].map(|name| world.guarded.find(ROOT, name.as_bytes()));
    let nodes = nodes.map(|found| found.expect("it is there").0);
    let links = || nodes.map(|node| Files::attributes(&world.guarded, node).map(|one| one.links));
    let removed = Operation::RemoveDirectory(path("d"));
    world.outside(&[unlink("a"), unlink("c"), removed]);
    assert_eq!(links(), [Ok(1), Ok(0), Ok(0)]);
    world.outside(&[unlink("b")]);
    assert_eq!(links(), [Ok(0), Ok(0), Ok(0)]);
    world.store.abort(&view);
    assert_eq!(links(), [Ok(0), Ok(0), Ok(0)]);
}

/// Otherwise somebody could run what is written with the rights of the file's owner.
#[test]
fn a_write_takes_rights_away_before_it_changes_the_contents() {
    let world = World::with(&[file("a"), mode("a", 0o4755)]);
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("made");
    let wanted = inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MODIFY;
    inotify::add_watch(&watch, world.root().join("a"), wanted).expect("watched");
    let (node, _) = world.guarded.find(ROOT, b"a").expect("it is there");
    let written = Filesystem::write(&world.guarded, &REQUEST, node, 0, b"new", true);
    written.expect("written");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut next = || events.next().expect("an event").events();
    assert_eq!(
        [next(), next()],
        [inotify::ReadFlags::ATTRIB, inotify::ReadFlags::MODIFY]
    );
    let (_, attributes) = world.guarded.find(ROOT, b"a").expect("it is there");
    assert_eq!(attributes.mode, 0o755);
}

#[test]
fn names_of_trusted_attributes_are_shown_to_root_only() {
    if !rustix::process::geteuid().is_root() {
        return atomdir_testing::skip("unmounted", "only root can set trusted attributes");
    }
    let world = World::with(&[file("a"), mark("a", b'x')]);
    let set = setxattr(
        world.root().join("a"),
        "trusted.secret",
        b"x",
        XattrFlags::empty(),
    );
    set.expect("set");
    let (node, _) = world.guarded.find(ROOT, b"a").expect("it is there");
    let names = |user| {
        let request = Request { user, ..REQUEST };
        let mut names = world.guarded.xattr_names(&request, node).expect("listed");
        names.sort();
        names
    };
    assert_eq!(
        names(0),
        [b"trusted.secret".to_vec(), b"user.mark".to_vec()]
    );
    assert_eq!(names(4321), [b"user.mark".to_vec()]);
}
