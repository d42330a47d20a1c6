//! A program that has a store open in its own process hands it over to others who want it.

use atomdir::{
    Conflicts, Door, Durability, HeldHow, OpenError, Sequence, StartService, Store, StoreError,
    StoreLocation, StoreOptions,
};
use atomdir_testing::exit_code::CANNOT_CREATE;
use atomdir_testing::{Scratch, User, binary, for_each_user, users_can_mount, wait_until};
use std::path::{Path, PathBuf};

struct Place {
    // Ends the service if the test fails.
    command: atomdir_testing::Store,
    base: PathBuf,
    _scratch: Scratch,
}

impl Place {
    fn new(test: &str) -> Place {
        let scratch = Scratch::new(test);
        let base = scratch.join("base");
        std::fs::create_dir(&base).expect("made");
        atomdir::init(&base, None).expect("a store");
        let user = match rustix::process::geteuid().is_root() {
            true => User::root(scratch.path()),
            false => User::ordinary(scratch.path()),
        };
        let command = atomdir_testing::Store::existing(&base, &user);
        Place {
            command,
            base,
            _scratch: scratch,
        }
    }

    fn open(&self, door: Door) -> Store {
        let store = StoreOptions::new().door(door).open(&self.base);
        store.expect("the store opens")
    }

    fn starting_service(&self) -> StoreOptions {
        let location = StoreLocation::at(&self.base).expect("a store");
        let mut options = StoreOptions::new();
        options.start_service(StartService::with_program(binary(), &location));
        options.door(Door::Service);
        options
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.base.join(name)).expect("it is there")
    }

    fn pipe(&self) -> PathBuf {
        self.base.join(".atomdir/wanted")
    }

    fn stop_service(&self) {
        self.command.call(["service", "stop"]).expect(0);
    }
}

impl Drop for Place {
    /// An ordinary user can remove no mount that a killed service leaves.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.command.call(["service", "stop"]);
        }
    }
}

fn add(store: &Store, name: &str) {
    let tx = store.begin().expect("begun");
    tx.write(name, name).expect("written");
    tx.commit().expect("committed");
}

fn for_each_user_with_views(test: &str, check: impl Fn()) {
    for_each_user(test, || {
        if rustix::process::geteuid().is_root() || users_can_mount(test) {
            check();
        }
    });
}

#[test]
fn command_gets_a_store_that_is_idle_in_a_program_which_goes_on_through_the_service() {
    let test = "command_gets_a_store_that_is_idle_in_a_program_which_goes_on_through_the_service";
    for_each_user_with_views(test, || {
        let place = Place::new("handed-over");
        let store = place.open(Door::Any);
        assert!(store.is_embedded());
        let tx = store
            .transaction()
            .durability(Durability::Lazy)
            .label("first");
        let tx = tx.begin().expect("begun");
        tx.write("a", "a").expect("written");
        let lazy = tx.commit().expect("committed");

        let log = place.command.call(["log"]).expect(0);
        assert!(
            String::from_utf8_lossy(&log.stdout).contains("first"),
            "{log}"
        );
        assert!(!store.is_embedded() && !place.pipe().exists());
        lazy.wait_until_durable().expect("it was durable before");
        assert_eq!(place.read("a"), "a");

        add(&store, "b");
        assert!(!store.is_embedded());
        assert_eq!(store.log(10).expect("listed").len(), 2);
        // The service holds what the program keeps open in it, and others work beside that.
        let tx = store.begin().expect("begun");
        tx.write("c", "c").expect("written");
        place.command.run("echo d > d").expect(0);
        tx.commit().expect("committed");

        place.stop_service();
        add(&store, "e");
        assert!(store.is_embedded(), "no service runs");
        place.command.run("cat a b c d e").expect(0);
        store.close().expect("closed");
        assert!(!place.pipe().exists());
    });
}

/// Nobody could ask for the store otherwise, now and later.
#[test]
fn whatever_is_left_at_the_place_of_the_pipe_is_replaced() {
    let test = "whatever_is_left_at_the_place_of_the_pipe_is_replaced";
    for_each_user_with_views(test, || {
        let place = Place::new("handed-over-left");
        for is_link in [true, false] {
            match is_link {
                true => std::os::unix::fs::symlink("elsewhere", place.pipe()),
                false => std::fs::write(place.pipe(), ""),
            }
            .expect("made");
            let store = place.open(Door::Any);
            add(&store, "a");
            place.command.call(["log"]).expect(0);
            assert!(!store.is_embedded() && !place.pipe().exists());
            store.close().expect("closed");
            place.stop_service();
        }
    });
}

#[test]
fn store_with_an_open_transaction_or_file_is_kept_until_it_has_ended() {
    let test = "store_with_an_open_transaction_or_file_is_kept_until_it_has_ended";
    for_each_user_with_views(test, || {
        let place = Place::new("handed-over-busy");
        let store = place.open(Door::Any);
        add(&store, "a");
        let tx = store.begin().expect("begun");
        tx.write("b", "b").expect("written");
        assert!(matches!(store.hand_over(), Err(StoreError::InUse)));
        let refused = place.command.call(["log"]).expect(CANNOT_CREATE);
        let message = String::from_utf8_lossy(&refused.stderr);
        let holder = format!("process {} (", std::process::id());
        assert!(message.contains(&holder), "{refused}");
        assert!(
            message.contains("no transaction and no file of it is open"),
            "{refused}"
        );
        let refused = StoreOptions::new().open(&place.base);
        let refused = refused.expect_err("it is open in this process");
        let OpenError::Held { how, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(*how, HeldHow::UntilIdle);
        tx.commit().expect("nobody has taken the store away");
        let past = store.at(Sequence(1)).expect("a view of the past");
        assert!(matches!(store.hand_over(), Err(StoreError::InUse)));
        drop(past);
        place.command.run("cat a b").expect(0);
        assert!(!store.is_embedded());
    });
}

#[test]
fn store_that_a_program_has_for_itself_is_kept_until_it_hands_it_over() {
    let test = "store_that_a_program_has_for_itself_is_kept_until_it_hands_it_over";
    for_each_user_with_views(test, || {
        let place = Place::new("handed-over-by-call");
        let store = place.open(Door::Embedded);
        add(&store, "a");
        let refused = place.command.call(["log"]).expect(CANNOT_CREATE);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("handed it over"), "{refused}");
        let refused = StoreOptions::new().door(Door::Service).open(&place.base);
        let refused = refused.expect_err("no service runs");
        let OpenError::Held { how, holder, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(*how, HeldHow::UntilClosed);
        let holder = holder.as_ref().map(|holder| holder.process);
        assert_eq!(holder, Some(std::process::id()));
        store.hand_over().expect("handed over");
        store.hand_over().expect("nothing is left to do");
        assert!(!store.is_embedded());
        place.command.run("cat a; echo b > b").expect(0);
        add(&store, "c");
        assert!(!store.is_embedded());
        assert_eq!(place.read("b"), "b\n");
        place.stop_service();
        // From now on others get it without a call.
        add(&store, "d");
        assert!(store.is_embedded());
        let served = place.starting_service().open(&place.base).expect("opened");
        assert!(!served.is_embedded());
        add(&served, "e");
        add(&store, "f");
    });
}

#[test]
fn two_programs_without_a_service_take_turns() {
    for_each_user("two_programs_without_a_service_take_turns", || {
        let place = Place::new("taking-turns");
        let (one, other) = (place.open(Door::Any), place.open(Door::Any));
        for turn in 0..5 {
            add(&one, &format!("one {turn}"));
            assert!(one.is_embedded() && !other.is_embedded());
            add(&other, &format!("other {turn}"));
            assert!(other.is_embedded() && !one.is_embedded());
        }
        one.close()
            .expect("closed, and the other's pipe is left alone");
        assert!(place.pipe().exists());
        assert_eq!(other.log(100).expect("listed").len(), 10);
        other.close().expect("closed");
        assert!(!place.pipe().exists());
    });
}

/// Adds one to the number in a file, again and again.
fn count(store: &Store, times: usize) {
    for _ in 0..times {
        let counted = store
            .transaction()
            .conflicts(Conflicts::AtCommit)
            .run(|tx| {
                let count: usize = tx.read_to_string("count")?.trim().parse().unwrap_or(0);
                tx.write("count", (count + 1).to_string())?;
                Ok::<_, atomdir::Error>(())
            });
        counted.expect("counted");
    }
}

/// Transactions follow one another without a pause, so the store is hardly ever found idle.
#[test]
fn no_commit_is_lost_while_the_store_goes_back_and_forth() {
    let test = "no_commit_is_lost_while_the_store_goes_back_and_forth";
    for_each_user_with_views(test, || {
        let place = Place::new("back-and-forth");
        std::fs::write(place.base.join("count"), "0").expect("written");
        let store = place.open(Door::Any);
        let (threads, times, commands) = (3, 40, 6);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| count(&store, times));
            }
            for _ in 0..commands {
                let add = "echo $(($(cat count) + 1)) > count";
                let run = ["run", "--retry", "1000", "--", "sh", "-c", add];
                // With three threads it may never be idle; then the command says so.
                let counted = || place.command.call(run);
                while counted().code != 0 {}
                let _ = place.command.call(["service", "stop"]);
            }
        });
        let found: usize = place.read("count").trim().parse().expect("a number");
        assert_eq!(found, threads * times + commands);
    });
}

#[test]
fn pipe_that_a_killed_program_has_left_is_used_again() {
    let place = Place::new("pipe-left");
    let left = std::process::Command::new("mkfifo")
        .arg(place.pipe())
        .status();
    assert!(left.expect("started").success());
    let alone = place.open(Door::Embedded);
    // Nobody listens there.
    place.command.call(["log"]).expect(CANNOT_CREATE);
    alone.close().expect("closed");
    let store = place.open(Door::Any);
    add(&store, "a");
    place.command.call(["log"]).expect(0);
    assert!(!Path::new(&place.pipe()).exists());
}

fn listening_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("listed");
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name == "atomdir-asked\n").count()
}

/// Whoever gives the store up, the thread that listened for others ends.
#[test]
fn a_store_that_is_opened_again_has_one_thread_that_listens() {
    let test = "a_store_that_is_opened_again_has_one_thread_that_listens";
    for_each_user(test, || {
        let place = Place::new("one-listener");
        let store = place.open(Door::Any);
        for _ in 0..20 {
            let tx = store.begin().expect("begun");
            std::fs::write(place.pipe(), "x").expect("asked");
            // The thread finds the store in use, and the next call gives it up.
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(tx);
            store.log(1).expect("listed");
            assert!(store.is_embedded());
        }
        // Stores of the tests beside this one have such threads as well, until these tests end.
        wait_until("only one listening thread", || listening_threads() == 1);
    });
}
