//! Two small commits on any disk over the simulated one.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Name, NewNode as Made};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Caller, Conflicts, Durability, Isolation, NewNode, NodeId,
    Options, Privileges, Store, StoreError,
};
use atomdir_sim::{Handle, SimDisk};

const CONTROL: &[u8] = b".atomdir";
const FILES: [(&str, &[u8]); 2] = [("a", b"first"), ("b", b"second")];

fn name(name: &[u8]) -> Name {
    Name::new(name).expect("a valid name")
}

/// Makes an empty store that no crash loses.
pub fn make_store(disk: &SimDisk) {
    let root = disk.root();
    let made = disk.make(&root, &name(CONTROL), &Made::Directory, 0o700);
    made.expect("an empty disk");
    let control = disk.open(&root, &name(CONTROL), Access::Directory);
    let control = control.expect("it was just made");
    Store::create(disk, &root, &control, [7; 16]).expect("an empty disk");
    disk.sync_directory(&root).expect("nothing fails");
}

/// Opens the store through a layer. Its handles are those of the disk below.
pub fn open<D: Disk<Handle = Handle>>(disk: D, below: &SimDisk) -> Result<Store<D>, StoreError> {
    let control = below.open(&below.root(), &name(CONTROL), Access::Directory);
    let options = Options {
        clock: Arc::new(below.clone()),
        handles_max: 64,
        carried_bytes_max: CARRIED_BYTES_MAX,
        log_step: 8 << 10,
        history: None,
        privileges: Privileges {
            user: 0,
            groups: vec![0],
            all: true,
        },
    };
    let control = control.expect("the store was made");
    let hidden = Some(name(CONTROL));
    let opened = Store::open(disk, below.root(), control, hidden, options);
    opened.map(|(store, _)| store)
}

/// Makes a file by each of two durable commits. Returns how many were committed, as an error if one
/// was not.
pub fn commit_twice<D: Disk>(store: &Store<D>) -> Result<usize, usize> {
    let caller = Caller { user: 0, group: 0 };
    for (done, (file, contents)) in FILES.into_iter().enumerate() {
        let options = BeginOptions {
            conflicts: Conflicts::AtCommit,
            first_try: None,
            owner: 0,
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            label: Vec::new(),
        };
        let tx = store.begin(options).map_err(|_| done)?;
        let file = file.as_bytes();
        let made = tx.create(NodeId::ROOT, file, NewNode::File, 0o644, 0, caller);
        let node = made.map_err(|_| done)?.node;
        tx.write(node, 0, contents, false).map_err(|_| done)?;
        store.commit(&tx).map_err(|_| done)?;
    }
    Ok(FILES.len())
}

/// Recovers the store, and returns what the files hold whose commits it has.
pub fn recovered(disk: &SimDisk) -> Vec<Vec<u8>> {
    let store = open(disk.clone(), disk).expect("recovery succeeds without faults");
    let read = |file: &str| {
        let file = disk
            .open(&disk.root(), &name(file.as_bytes()), Access::Read)
            .ok()?;
        let mut buffer = [0; 64];
        let read = disk.read_at(&file, &mut buffer, 0).expect("nothing fails");
        Some(buffer[..read].to_vec())
    };
    let found = FILES.iter().map_while(|(file, _)| read(file)).collect();
    drop(store);
    found
}
