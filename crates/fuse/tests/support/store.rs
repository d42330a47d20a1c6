//! A real store and its views, mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use atomdir_disk::{LinuxDisk, Name, Timestamp};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, Conflicts, Durability, Isolation, LOG_STEP, Options,
    Privileges, Store, Transaction,
};
use atomdir_fuse::Session;
use atomdir_views::Views;

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

/// Drop unmounts it, even if the test fails.
pub struct Mounted {
    directory: PathBuf,
    pub base: PathBuf,
    pub place: PathBuf,
    pub store: Store<LinuxDisk>,
    pub views: Arc<Views>,
    session: Option<Session>,
}

pub fn mount() -> Option<Mounted> {
    // If no mount is possible, this one reports why.
    drop(super::mount()?);
    let directory = super::fresh_directory();
    let (base, place) = (directory.join("base"), directory.join("views"));
    fs::create_dir(&base).unwrap();
    fs::create_dir(base.join(".atomdir")).unwrap();
    fs::create_dir(&place).unwrap();
    let open = |path: &Path| LinuxDisk::open_root(path).unwrap();
    let (root, control) = (open(&base), open(&base.join(".atomdir")));
    Store::create(&LinuxDisk::new(), &root, &control, [7; 16]).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let options = Options {
        clock: Arc::new(RealClock),
        handles_max: 100,
        carried_bytes_max: CARRIED_BYTES_MAX,
        log_step: LOG_STEP,
        history: None,
        privileges: Privileges {
            user,
            groups: vec![rustix::process::getegid().as_raw()],
            all: user == 0,
        },
    };
    let hidden = Some(Name::new(b".atomdir").unwrap());
    let (store, _) = Store::open(LinuxDisk::new(), root, control, hidden, options).unwrap();
    let views = Arc::new(Views::new(b"base"));
    let session = super::serve(views.clone(), &place, &super::options());
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
    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub fn begin(&self) -> (Arc<Transaction<LinuxDisk>>, PathBuf) {
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

    pub fn commit(&self, transaction: &Transaction<LinuxDisk>) {
        self.session().run_barrier().unwrap();
        self.store.commit(transaction).unwrap();
        self.views.remove(transaction.id());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = super::end(session);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
