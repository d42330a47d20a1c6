//! Transactions of a real store, seen through the kernel.

#![cfg(test)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use atomdir_disk::{LinuxDisk, Name, Timestamp};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, Conflicts, Durability, Isolation, Options, Privileges,
    Store, Transaction,
};
use atomdir_fuse::{Session, Views};

struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp {
            seconds: since.as_secs() as i64,
            nanoseconds: since.subsec_nanos(),
        }
    }
}

struct Mounted {
    directory: PathBuf,
    base: PathBuf,
    place: PathBuf,
    store: Store<LinuxDisk>,
    views: Arc<Views>,
    session: Option<Session>,
}

fn mount() -> Option<Mounted> {
    // The plain mount says why there can be none.
    drop(support::mount()?);
    let directory = support::fresh_directory();
    let (base, place) = (directory.join("base"), directory.join("views"));
    fs::create_dir(&base).unwrap();
    fs::create_dir(base.join(".atomdir")).unwrap();
    fs::create_dir(&place).unwrap();
    let open = |path: &Path| LinuxDisk::open_root(path).unwrap();
    let (root, control) = (open(&base), open(&base.join(".atomdir")));
    Store::create(&LinuxDisk::new(), &control, [7; 16]).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let options = Options {
        clock: Arc::new(RealClock),
        handles_max: 100,
        carried_bytes_max: CARRIED_BYTES_MAX,
        privileges: Privileges {
            user,
            groups: vec![rustix::process::getegid().as_raw()],
            all: user == 0,
        },
    };
    let hidden = Some(Name::new(b".atomdir").unwrap());
    let (store, _) = Store::open(LinuxDisk::new(), root, control, hidden, options).unwrap();
    let views = Arc::new(Views::new(b"base"));
    let session = Session::mount(views.clone(), &place, &support::options()).unwrap();
    support::start_child(&session);
    Some(Mounted {
        directory,
        base,
        place,
        store,
        views,
        session: Some(session),
    })
}

impl Mounted {
    fn begin(&self) -> (Arc<Transaction<LinuxDisk>>, PathBuf) {
        let options = BeginOptions {
            conflicts: Conflicts::AtCommit,
            first_try: None,
            owner: rustix::process::geteuid().as_raw(),
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            label: Vec::new(),
        };
        let transaction = self.store.begin(options).unwrap();
        self.views.add(transaction.clone());
        let wrapper = self.place.join(transaction.id().to_string());
        (transaction, wrapper.join("base"))
    }

    fn commit(&self, transaction: &Transaction<LinuxDisk>) {
        self.session.as_ref().unwrap().settle().unwrap();
        self.store.commit(transaction).unwrap();
        self.views.remove(transaction.id());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = support::end(session);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_transaction_is_a_directory() {
    let Some(mounted) = mount() else { return };
    fs::create_dir(mounted.base.join("old")).unwrap();
    fs::write(mounted.base.join("old/file"), "old").unwrap();
    let (first, one) = mounted.begin();
    let (second, two) = mounted.begin();
    let mut ids = vec![first.id().to_string(), second.id().to_string()];
    ids.sort();
    assert_eq!(names(&mounted.place), ids);
    assert_eq!(names(one.parent().unwrap()), ["base"]);
    assert_eq!(fs::metadata(&mounted.place).unwrap().mode() & 0o7777, 0o711);
    let wrapper = fs::metadata(one.parent().unwrap()).unwrap();
    assert_eq!(wrapper.mode() & 0o7777, 0o700);
    assert_eq!(wrapper.uid(), first.owner());

    fs::write(one.join("old/file"), "new").unwrap();
    fs::rename(one.join("old"), one.join("moved")).unwrap();
    fs::write(one.join("added"), "added").unwrap();
    assert_eq!(names(&one), ["added", "moved"], "without .atomdir");
    assert_eq!(fs::read(two.join("old/file")).unwrap(), b"old");
    assert_eq!(names(&two), ["old"]);
    let error = fs::rename(one.join("added"), two.join("added")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices);
    let error = fs::write(mounted.place.join("x"), "").unwrap_err();
    assert!(error.raw_os_error().is_some());

    mounted.commit(&first);
    assert_eq!(names(&mounted.base), [".atomdir", "added", "moved"]);
    assert_eq!(fs::read(mounted.base.join("moved/file")).unwrap(), b"new");
    assert_eq!(fs::read(two.join("old/file")).unwrap(), b"old", "snapshot");
    assert_eq!(names(&mounted.place), [second.id().to_string()]);
    mounted.store.abort(&second);
}

#[test]
fn who_stays_in_a_view_that_ended_gets_errors() {
    let Some(mounted) = mount() else { return };
    let (transaction, view) = mounted.begin();
    fs::create_dir(view.join("d")).unwrap();
    let inside = fs::File::open(view.join("d")).unwrap();
    let file = fs::File::create(view.join("d/f")).unwrap();
    mounted.store.abort(&transaction);
    mounted.views.remove(transaction.id());
    assert!(!view.exists());
    let stale = Some(rustix::io::Errno::STALE.raw_os_error());
    let error = std::os::unix::fs::FileExt::write_at(&file, b"x", 0).unwrap_err();
    assert_eq!(error.raw_os_error(), stale);

    // Others begin and end; none takes over what is still in use.
    for _ in 0..20 {
        let (other, path) = mounted.begin();
        fs::create_dir(path.join("d")).unwrap();
        fs::write(path.join("d/g"), "secret").unwrap();
        let flags = rustix::fs::OFlags::RDONLY;
        let mode = rustix::fs::Mode::empty();
        let error = rustix::fs::openat(&inside, "g", flags, mode).unwrap_err();
        assert!([rustix::io::Errno::STALE, rustix::io::Errno::NOENT].contains(&error));
        mounted.store.abort(&other);
        mounted.views.remove(other.id());
    }
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
