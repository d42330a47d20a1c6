//! The engine over a disk whose flushes take longer, as on a slow disk.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use atomdir::hosting::{privileges, store_options};
use atomdir_disk::{Errno, LinuxDisk, Name};
use atomdir_engine as engine;
use atomdir_layers::PassThrough;

use super::{Peer, Session, Work};
use crate::error::{Describe, Error, Result};

type Done<T> = atomdir_disk::Result<T>;

type DelayedDisk = PassThrough<LinuxDisk>;

/// A disk whose flushes take this much longer.
fn delayed(delay: Duration) -> DelayedDisk {
    PassThrough::with_hook(LinuxDisk::new(), move |call| {
        if call.is_sync() {
            sleep(delay);
        }
        Ok(())
    })
}

/// The engine with the library's settings, but another disk.
pub struct Engine {
    store: engine::Store<DelayedDisk>,
    durability: engine::Durability,
    ends: Arc<AtomicBool>,
    maintainer: Option<JoinHandle<()>>,
}

/// How often the library's thread maintains a store.
const MAINTENANCE_PERIOD: Duration = Duration::from_millis(50);
const DESCRIPTORS_RESERVED: u64 = 256;

impl Engine {
    pub fn open(work: &Work) -> Result<Engine> {
        let disk = delayed(Duration::from_micros(work.delay_us));
        let root = LinuxDisk::open_root(&work.directory).describe("open", &work.directory)?;
        let control = work.directory.join(atomdir::CONTROL_NAME);
        let control = File::open(&control).describe("open", &control)?;
        let options = store_options(&control, DESCRIPTORS_RESERVED);
        let options = options.describe("examine", &work.directory)?;
        let hidden = Name::new(atomdir::CONTROL_NAME.as_bytes()).ok();
        let opened = engine::Store::open(disk, root, control.into(), hidden, options);
        let (store, _) = opened.map_err(peer)?;
        let ends = Arc::new(AtomicBool::new(false));
        let maintain = {
            let (store, ends) = (store.clone(), ends.clone());
            move || {
                while !ends.load(Ordering::Acquire) {
                    sleep(MAINTENANCE_PERIOD);
                    if let Err(error) = store.maintain() {
                        eprintln!("maintenance of the store failed: {error}");
                    }
                }
            }
        };
        Ok(Engine {
            store,
            durability: match work.is_lazy {
                true => engine::Durability::Lazy,
                false => engine::Durability::Durable,
            },
            ends,
            maintainer: Some(std::thread::spawn(maintain)),
        })
    }

    fn write(
        &self,
        tx: &engine::Transaction<DelayedDisk>,
        name: &str,
        contents: &[u8],
    ) -> Done<()> {
        let caller = engine::Caller {
            user: privileges().user,
            group: rustix::process::getegid().as_raw(),
        };
        let path = Path::new(name);
        let mut parent = engine::NodeId::ROOT;
        for above in path.parent().into_iter().flat_map(Path::components) {
            parent = tx
                .lookup(parent, above.as_os_str().as_encoded_bytes())?
                .node;
        }
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let file = match tx.lookup(parent, name) {
            Err(Errno::NOENT) => {
                tx.create(parent, name, engine::NewNode::File, 0o666, 0o022, caller)?
            }
            found => {
                let found = found?;
                let empty = engine::SetAttributes {
                    length: Some(0),
                    ..engine::SetAttributes::default()
                };
                tx.set_attributes(found.node, empty, caller)?;
                found
            }
        };
        tx.write(file.node, 0, contents, false).map(drop)
    }
}

fn peer(error: impl std::fmt::Display) -> Error {
    Error::Peer(error.to_string())
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(maintainer) = self.maintainer.take() {
            // The thread has printed its panic.
            let _ = maintainer.join();
        }
        if let Err(error) = self.store.close() {
            eprintln!("the store could not be closed: {error}");
        }
    }
}

impl Peer for Engine {
    fn session(&self, _thread: u64) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Engine {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        let options = engine::BeginOptions {
            owner: privileges().user,
            isolation: engine::Isolation::Snapshot,
            durability: self.durability,
            conflicts: engine::Conflicts::AtCommit,
            first_try: None,
            label: Vec::new(),
        };
        let tx = self.store.begin(options).map_err(peer)?;
        for name in names {
            self.write(&tx, name, contents)
                .describe("write", name.as_ref())?;
        }
        self.store.commit(&tx).map_err(peer)?;
        Ok(())
    }
}
