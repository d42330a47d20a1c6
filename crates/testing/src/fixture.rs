//! A store in a scratch directory, for tests that drive it step by step.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::command::{Outcome, shell};
use crate::scratch::Scratch;
use crate::skip::users_can_mount;
use crate::store::Store;
use crate::tree::{CaptureOptions, Tree, capture};
use crate::user::User;
use crate::wait_until::{WAIT_UNTIL, wait_until};

/// Makes the user who owns a store, with a home in this scratch directory.
pub type Owner = fn(&Path) -> User;

/// Checks what must hold for root, and for an ordinary user with a store of their own.
#[track_caller]
pub fn for_each_owner(test: &str, check: impl Fn(Owner)) {
    check(User::root);
    if users_can_mount(test) {
        check(User::ordinary);
    }
}

/// The fields are dropped in this order, so that the service ends before its files are removed.
#[derive(Debug)]
pub struct Fixture {
    pub store: Store,
    pub base: PathBuf,
    pub scratch: Scratch,
}

impl Fixture {
    /// Makes a store of root whose base the script has filled.
    #[track_caller]
    pub fn new(test: &str, prepare: &str) -> Self {
        Self::owned_by(test, User::root, prepare)
    }

    /// Makes a store of a user. Root fills its base by the script and then gives it to them.
    #[track_caller]
    pub fn owned_by(test: &str, owner: impl Fn(&Path) -> User, prepare: &str) -> Self {
        let scratch = Scratch::new(test);
        let base = scratch.join("base");
        fs::create_dir(&base).expect("the base can be made");
        shell(&base, prepare);
        let user = owner(scratch.path());
        if !user.is_root() {
            shell(&base, &format!("chown -R {}:{} .", user.uid, user.gid));
        }
        let store = Store::init(&base, &user);
        Self {
            store,
            base,
            scratch,
        }
    }

    /// Like [`for_each_owner`], with a new store for each owner. Afterwards the store must be at
    /// rest.
    #[track_caller]
    pub fn for_each_owner(test: &str, prepare: &str, check: impl Fn(&Fixture)) {
        for_each_owner(test, |owner| {
            let fixture = Self::owned_by(test, owner, prepare);
            check(&fixture);
            fixture.store.assert_at_rest();
        });
    }

    /// Like [`Fixture::for_each_owner`], first in exact views and then in native ones.
    #[track_caller]
    pub fn for_each_view(test: &str, prepare: &str, check: impl Fn(&Fixture, &str)) {
        for view in ["exact", "native"] {
            Self::for_each_owner(test, prepare, |fixture| check(fixture, view));
        }
    }

    /// Runs `first` in a transaction, then `meanwhile` outside it, and then ends
    /// the transaction.
    #[track_caller]
    pub fn run_and_meanwhile(
        &self,
        options: &[&str],
        first: &str,
        meanwhile: impl Fn(),
    ) -> Outcome {
        let [ready, go] = ["signs/ready", "signs/go"].map(|name| self.scratch.join(name));
        // A directory that every user can write.
        shell(self.scratch.path(), "rm -rf signs; mkdir -m 1777 signs");
        let script = format!(
            "{WAIT_UNTIL}{first}; : > {}; wait_until test -e {}",
            ready.display(),
            go.display()
        );
        std::thread::scope(|scope| {
            let running = scope.spawn(|| self.store.run_with(options, &script));
            let ends = Sign(&go);
            let has_begun = || ready.exists() || running.is_finished();
            wait_until("the end of the first part", has_begun);
            meanwhile();
            drop(ends);
            running.join().expect("the run did not panic")
        })
    }

    /// Another store of the same user, beside this one.
    pub fn beside(&self) -> Store {
        let path = self.base.with_file_name("beside");
        let user = self.store.user();
        fs::create_dir(&path).expect("the name is free");
        chown(&path, Some(user.uid), Some(user.gid)).expect("the tests run as root");
        Store::init(&path, user)
    }

    /// Captures the base as it is now.
    #[track_caller]
    pub fn look(&self) -> Tree {
        look(&self.base)
    }
}

/// A file that is made on drop, even by a panic. Otherwise the process that waits for it
/// would never end, and the test would wait for that process.
struct Sign<'a>(&'a Path);

impl Drop for Sign<'_> {
    fn drop(&mut self) {
        fs::write(self.0, "").expect("written");
    }
}

/// Captures everything except a control directory.
#[track_caller]
pub fn look(path: &Path) -> Tree {
    capture(path, &CaptureOptions::default())
        .unwrap_or_else(|error| panic!("cannot capture {}: {error}", path.display()))
}
