//! The library beside the command and its service: it does the same in the program's own process
//! and through the service, and commands name a program that has a store open.

use std::io::Write;
use std::path::Path;

use atomdir::client::Connection;
use atomdir::{
    CommitError, Conflict, ConflictKind, Conflicts, Door, Error, FileError, FindError, LockError,
    LockMode, OpenError, OpenOptions, Permissions, Sequence, StartService, Store, StoreLocation,
    StoreOptions, Take, Transaction, UndoError,
};
use atomdir_testing::exit_code::CANNOT_CREATE;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Scratch, User, binary, for_each_user, look, users_can_mount};

/// What a program sees of each step.
type Seen = Vec<String>;

fn files(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let tx = store.begin()?;
    tx.create_dir_all("conf/deep")?;
    tx.write("conf/a", "one")?;
    tx.hard_link("conf/a", "conf/b")?;
    tx.symlink("conf/a", "link")?;
    let mut log = tx.open_with("log", OpenOptions::new().append(true).create(true))?;
    log.write_all(b"first\n")?;
    log.write_all(b"second\n")?;
    drop(log);
    tx.set_permissions("conf/a", Permissions::from_mode(0o640))?;
    tx.set_xattr("conf/a", "user.origin", "test")?;
    tx.rename("old", "conf/new")?;
    tx.copy("conf/new", "copied")?;
    seen.push(format!("{:?}", tx.read_to_string("link")?));
    seen.push(format!("{:?}", tx.read_link("link")?));
    let entries = tx.read_dir("conf")?.into_iter();
    seen.extend(entries.map(|entry| format!("{:?} {:?}", entry.file_name, entry.kind)));
    let found = tx.metadata("conf/b")?;
    let described = (found.kind, found.mode, found.len, found.links);
    seen.push(format!("{described:?}"));
    seen.push(format!("{:?}", tx.xattr("conf/b", "user.origin")?));
    seen.push(format!("{:?}", tx.xattr("conf/b", "user.none")?));
    for path in ["none", "../up", "link/x", "conf", "conf/deep/../../.."] {
        let error = tx.read(path).expect_err(path);
        seen.push(format!("{path}: {:?} {error}", error.kind()));
    }
    seen.push(format!(
        "{:?}",
        tx.remove_dir("conf").map_err(|error| error.kind())
    ));
    tx.remove_dir_all("tree")?;
    let changes = tx.changes()?.into_iter();
    seen.extend(changes.map(|change| format!("{change:?}")));
    let receipt = tx.commit()?;
    seen.push(format!("{} {:?}", receipt.changes(), receipt.stalled()));
    Ok(())
}

fn transactions(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let (first, second) = (store.begin()?, store.begin()?);
    first.write("log", "mine")?;
    second.write("log", "theirs")?;
    first.commit()?;
    let failed = second.try_commit().expect_err("both wrote it");
    let CommitError::Conflict { conflicts } = &failed.error else {
        panic!("{failed}");
    };
    seen.push(format!("{:?} {}", conflicts[0].path, conflicts[0].what));
    seen.push(failed.transaction.read_to_string("log")?);
    drop(failed);

    let mut tx = store.begin()?;
    tx.write("kept", "1")?;
    tx.set_savepoint("here")?;
    tx.write("dropped", "2")?;
    tx.roll_back("here")?;
    seen.push(format!(
        "{:?}",
        tx.roll_back("nowhere").map_err(|error| error.to_string())
    ));
    let inner = tx.nest()?;
    inner.write("inner", "3")?;
    let receipt = inner.commit()?;
    assert!(!receipt.is_durable() && receipt.wait_until_durable().is_err());
    let inner = tx.nest()?;
    inner.remove_file("kept")?;
    drop(inner);
    tx.lock("kept-for-later", LockMode::Exclusive)?;
    let other = store.begin()?;
    other.write("kept-for-later", "4")?;
    seen.push(format!(
        "{}",
        other.commit().expect_err("it is locked").is_conflict()
    ));
    tx.commit()?;
    store.begin()?.write("aborted", "5")?;

    let counted = store.run(|tx| {
        let count = tx.read_to_string("count")?;
        let count = count.parse::<u32>().map_err(Error::other)? + 1;
        tx.write("count", count.to_string())?;
        Ok(count)
    });
    seen.push(format!("{:?}", counted?));
    store.sync()?;

    let mut tx = store.begin()?;
    tx.write("long work", "6")?;
    let other = store.begin()?;
    other.write("meanwhile", "7")?;
    other.commit()?;
    let refreshed = tx.refresh()?;
    seen.push((refreshed.to.0 - refreshed.from.0).to_string());
    seen.push(tx.read_to_string("meanwhile")?);
    tx.write("meanwhile", "8")?;
    tx.commit()?;
    Ok(())
}

fn history(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let tx = store.transaction().label("first").begin()?;
    tx.write("past", "old")?;
    tx.commit()?;
    let tx = store.transaction().label("second").begin()?;
    tx.write("past", "new")?;
    tx.write("elsewhere", "1")?;
    seen.push(format!(
        "{:?}",
        tx.commit_part(&["elsewhere".as_ref()])?.landed
    ));
    let nowhere = tx.commit_part(&["elsewhere".as_ref()]);
    let is_refused = matches!(nowhere, Err(CommitError::Refused(_)));
    assert!(
        is_refused,
        "nothing has changed there any more: {nowhere:?}"
    );
    seen.push(format!("{:?}", tx.conflicts()?));
    let mut tx = tx;
    tx.write("dropped", "2")?;
    tx.create_dir("made")?;
    tx.rename("elsewhere", "made/moved")?;
    // The directory is needed by what was moved into it.
    let dropped = tx.abort_part(&["dropped".as_ref(), "made".as_ref()])?;
    seen.extend(dropped.iter().map(|change| format!("{change:?}")));
    seen.extend(tx.changes()?.iter().map(|change| format!("{change:?}")));
    let nowhere = tx.abort_part(&["dropped".as_ref()]);
    let is_refused = matches!(nowhere, Err(CommitError::Refused(_)));
    assert!(is_refused, "nothing is changed there: {nowhere:?}");
    let second = tx.commit()?.sequence().expect("something has changed");
    let last = store.log(3)?.into_iter();
    seen.extend(last.map(|commit| format!("{:?} {}", commit.label, commit.changes)));
    let undo = store.undo(&[second], &[])?;
    seen.push(undo.read_to_string("past")?);
    undo.write("past", "something else")?;
    drop(undo);
    store.undo(&[second], &["past".as_ref()])?.commit()?;
    seen.push(store.begin()?.read_to_string("past")?);
    // An undo never takes back a later change.
    let tx = store.begin()?;
    tx.write("past", "later")?;
    seen.push(format!("{:?}", tx.conflicts()?));
    tx.commit()?;
    let Err(UndoError::Conflict { conflicts }) = store.undo(&[second], &[]) else {
        panic!("it was changed again");
    };
    seen.push(format!("{:?} {}", conflicts[0].path, conflicts[0].what));
    let unknown = store.undo(&[Sequence(1_000_000)], &[]);
    assert!(matches!(unknown, Err(UndoError::NotKept(_))), "{unknown:?}");
    Ok(())
}

fn the_past(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let write = |contents: &str| -> Result<Sequence, Error> {
        let tx = store.begin()?;
        tx.write("restored", contents)?;
        match tx.exists("beside")? {
            true => tx.set_permissions("beside", Permissions::from_mode(0o600))?,
            false => tx.write("beside", contents)?,
        }
        Ok(tx.commit()?.sequence().expect("something has changed"))
    };
    let (one, _two) = (write("one")?, write("two")?);
    let past = store.at(one)?;
    seen.push(past.read_to_string("restored")?);
    let refused = past.write("restored", "three").expect_err("it is past");
    seen.push(format!("{:?}", refused.kind()));
    let refused = past.commit().expect_err("it is past");
    assert!(matches!(refused, CommitError::Refused(_)), "{refused:?}");
    let restored = store.restore(one, &["restored".as_ref()])?;
    seen.push(restored.read_to_string("restored")?);
    restored.commit()?;
    let tx = store.begin()?;
    seen.push(tx.read_to_string("restored")? + &tx.read_to_string("beside")?);
    drop(tx);
    seen.push(format!("{:?}", store.log(1)?[0].label));
    for unknown in [
        store.at(Sequence(1_000_000)),
        store.restore(Sequence(1_000_000), &["restored".as_ref()]),
        store.restore(one, &["nothing was there".as_ref()]),
    ] {
        assert!(matches!(unknown, Err(UndoError::NotKept(_))), "{unknown:?}");
    }
    // The contents that an outside writer has overwritten are lost.
    std::fs::write(store.root().join("beside"), "outside")?;
    let Err(UndoError::Conflict { conflicts }) = store.at(one) else {
        panic!("it was overwritten");
    };
    seen.push(format!("{:?} {}", conflicts[0].path, conflicts[0].what));
    let (past, not_as_then) = store.at_outside_as_now(one)?;
    assert_eq!(not_as_then, conflicts);
    seen.push(past.read_to_string("restored")? + &past.read_to_string("beside")?);
    Ok(())
}

fn sides(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let theirs = |contents: &str| -> Result<(), Error> {
        let tx = store.begin()?;
        tx.write("side-a", contents)?;
        tx.write("side-b", contents)?;
        tx.commit()?;
        Ok(())
    };
    theirs("before")?;
    let mine = store.begin()?;
    mine.write("side-a", "mine")?;
    mine.write("side-b", "mine")?;
    mine.write("side-c", "mine")?;
    theirs("theirs")?;
    // No side is taken before there is a list.
    let Err(uncommitted) = mine.commit_with_sides(&[Take::Mine]) else {
        panic!("there is no list");
    };
    let mine = uncommitted.transaction;
    let conflicts = mine.conflicts()?;
    let shown = conflicts
        .iter()
        .map(|one| format!("{:?} {}", one.path, one.what));
    seen.extend(shown);
    let side = |conflict: &Conflict| match conflict.path.ends_with("side-a") {
        true => Take::Mine,
        false => Take::Theirs,
    };
    let sides: Vec<Take> = conflicts.iter().map(side).collect();
    // A side that is not given, and a change after the list was made, refuse the commit.
    let uncommitted = mine
        .commit_with_sides(&sides[1..])
        .expect_err("one is left");
    let mine = uncommitted.transaction;
    theirs("later")?;
    let uncommitted = mine.commit_with_sides(&sides).expect_err("it has changed");
    assert!(uncommitted.error.is_conflict(), "{uncommitted}");
    let mine = uncommitted.transaction;
    let sides: Vec<Take> = mine.conflicts()?.iter().map(side).collect();
    mine.commit_with_sides(&sides)
        .map_err(|failed| failed.error)?;
    let tx = store.begin()?;
    for name in ["side-a", "side-b", "side-c"] {
        seen.push(tx.read_to_string(name)?);
    }
    assert_eq!(seen[seen.len() - 3..], ["mine", "later", "mine"]);
    Ok(())
}

/// `view_directory` returns the view's root, for openat(2), or `None` where there is no view.
fn view_directory(store: &Store) -> Result<(), Error> {
    let tx = store.begin()?;
    tx.write("in the view", "1")?;
    let Some(view) = tx.view_directory()? else {
        assert!(store.is_embedded());
        return Ok(());
    };
    let flags = rustix::fs::OFlags::RDONLY;
    let file = rustix::fs::openat(&view, "in the view", flags, rustix::fs::Mode::empty());
    let file = file.expect("it is in the transaction");
    let mut byte = [0];
    assert_eq!(rustix::io::read(&file, &mut byte), Ok(1));
    let made = rustix::fs::mkdirat(&view, "by mkdirat", 0o755.into());
    made.expect("made in the transaction");
    assert!(tx.metadata("by mkdirat")?.is_dir());
    // A store cannot be opened by the path of a view.
    let path = tx.view().expect("it has a view");
    let refused = Store::open(path).expect_err("it is a view");
    let is_told = matches!(refused, OpenError::Find(FindError::InView { .. }));
    assert!(is_told, "{refused}");
    Ok(())
}

fn prepare(base: &Path) {
    std::fs::create_dir_all(base.join("tree/with/branches")).expect("made");
    for (name, contents) in [("old", "old"), ("count", "41"), ("tree/with/leaf", "leaf")] {
        std::fs::write(base.join(name), contents).expect("written");
    }
    atomdir::init(base, None).expect("a store");
}

type Call = fn(&Transaction) -> Result<(), Error>;

/// A transaction with early conflicts fails at its first conflicting write, whichever call makes
/// it, and is tried again.
fn early(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let first = store.transaction().conflicts(Conflicts::Early).begin()?;
    first.write("copied", "first")?;
    let calls: [Call; 3] = [
        |tx| Ok(tx.write("copied", "second")?),
        |tx| {
            let mut file = tx.open_with("copied", OpenOptions::new().write(true))?;
            Ok(file.write_all(b"second")?)
        },
        |tx| Ok(tx.copy("log", "copied").map(drop)?),
    ];
    for call in calls {
        let second = store.transaction().conflicts(Conflicts::Early).begin()?;
        let error = call(&second).expect_err("the first has written it");
        let Error::File(FileError::Conflict { conflicts, .. }) = &error else {
            panic!("{error:?}");
        };
        let paths: Vec<_> = conflicts.iter().map(|conflict| &conflict.path).collect();
        seen.push(format!(
            "{} {paths:?} {}",
            error.is_conflict(),
            conflicts[0].what
        ));
    }
    let mut first = Some(first);
    let mut tries = 0;
    let options = store.transaction().conflicts(Conflicts::Early);
    options.run(|tx| {
        tries += 1;
        let done = calls[1](tx);
        // The first transaction is dropped after it has caused one conflict.
        first.take();
        done
    })?;
    seen.push(format!("{tries}"));
    Ok(())
}

/// Two transactions wait for each other, and the younger one gets an error that names both locks.
fn deadlock(store: &Store, seen: &mut Seen) -> Result<(), Error> {
    let (older, younger) = (store.begin()?, store.begin()?);
    older.lock("conf", LockMode::Exclusive)?;
    younger.lock("log", LockMode::Exclusive)?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| older.lock("log", LockMode::Exclusive));
        let refused = younger.lock("conf", LockMode::Exclusive);
        let LockError::Conflict { conflicts, .. } = refused.expect_err("the older one has it")
        else {
            panic!("it is a deadlock");
        };
        for Conflict { path, what, .. } in conflicts {
            let of_younger = ConflictKind::LockedInDeadlock {
                waiting: younger.id(),
            };
            let is_locked = matches!(what, ConflictKind::LockedInDeadlock { .. });
            seen.push(format!("{path:?} {is_locked} {}", what == of_younger));
        }
        younger.abort();
        waiting.join().expect("it does not panic")
    })?;
    Ok(())
}

#[test]
fn the_same_program_does_the_same_with_a_service_and_without() {
    let name = "the_same_program_does_the_same_with_a_service_and_without";
    for_each_user(name, || {
        if !rustix::process::geteuid().is_root() && !users_can_mount(name) {
            return;
        }
        let scratch = Scratch::new("doors");
        // Ends the service if the test fails.
        let user = User::root(scratch.path());
        let _guard = atomdir_testing::Store::existing(&scratch.join("served"), &user);
        let open = |name: &str, door| {
            let base = scratch.join(name);
            std::fs::create_dir(&base).expect("made");
            prepare(&base);
            let location = StoreLocation::at(&base).expect("a store");
            let start = StartService::with_program(binary(), &location);
            let mut options = StoreOptions::new();
            if door == Door::Service {
                options.start_service(start);
            }
            let store = options.door(door).open(&base).expect("opened");
            assert_eq!(store.is_embedded(), door == Door::Embedded);
            let mut seen = Seen::new();
            files(&store, &mut seen).expect("it works");
            transactions(&store, &mut seen).expect("it works");
            history(&store, &mut seen).expect("it works");
            sides(&store, &mut seen).expect("it works");
            early(&store, &mut seen).expect("it works");
            the_past(&store, &mut seen).expect("it works");
            deadlock(&store, &mut seen).expect("it works");
            view_directory(&store).expect("it works");
            store.close().expect("closed");
            (base, seen)
        };
        let (own, seen) = open("own", Door::Embedded);
        let (served, seen_served) = open("served", Door::Service);
        // Another program finds the service running, and uses it.
        let met = Store::open(&served).expect("opened");
        assert!(!met.is_embedded());
        drop(met);
        assert_eq!(seen, seen_served);
        assert_equal(
            "the two stores",
            &look(&own),
            &look(&served),
            &CompareOptions::alike(),
        );
        let location = StoreLocation::at(&served).expect("a store");
        let service = Connection::open(&location, &StartService::Never).expect("it runs");
        service.stop().expect("stopped");
    });
}

#[test]
fn commands_name_the_program_that_has_the_store_open() {
    let fixture = Fixture::new("embedded-held", "echo old > a");
    let store = StoreOptions::new()
        .door(Door::Embedded)
        .open(&fixture.base)
        .expect("the store opens");
    let holder = format!("process {} (", std::process::id());
    for command in [&["begin"][..], &["run", "--", "true"], &["recover"]] {
        let refused = fixture.store.call(command).expect(CANNOT_CREATE);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains(&holder), "{command:?}: {refused}");
    }
    store.close().expect("closed");
    fixture.store.run("echo new > a").expect(0);
    // Now the service has it.
    let refused = StoreOptions::new()
        .door(Door::Embedded)
        .open(&fixture.base)
        .expect_err("the service has it");
    let OpenError::Held { holder, .. } = &refused else {
        panic!("{refused}");
    };
    let service = fixture.store.service_processes();
    let holder = holder.as_ref().expect("it is found");
    let is_it = |process: &rustix::process::Pid| {
        process.as_raw_nonzero().get().unsigned_abs() == holder.process
    };
    assert!(service.iter().any(is_it), "{refused}: {service:?}");
    fixture.store.assert_at_rest();
}
