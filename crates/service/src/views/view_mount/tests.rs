use super::*;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{BeginOptions, Conflicts, Durability, Isolation, Options, Store};

/// A transaction may be aborted while its native view is being taken over. Then the
/// abort hides its view before the take-over shows it.
#[test]
fn a_transaction_that_has_ended_is_not_shown() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        let test = "a_transaction_that_has_ended_is_not_shown";
        return atomdir_testing::skip(test, "only root can mount without fusermount3");
    }
    let name = format!("atomdir-view-mount-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let place = |name: &str| {
        let place = directory.join(name);
        std::fs::create_dir_all(&place).unwrap();
        place
    };
    let (root, control) = (place("root"), place("control"));
    let open = |path| LinuxDisk::open_root(path).unwrap();
    Store::create(&LinuxDisk::new(), &open(&root), &open(&control), [7; 16]).unwrap();
    let options = Options {
        handles_max: 64,
        ..atomdir::hosting::engine_options(0)
    };
    let (control, site) = (open(&control), open(&root));
    let opened = Store::open(LinuxDisk::new(), site, control, None, options);
    let (store, _) = opened.unwrap();
    let begin = BeginOptions {
        owner: 0,
        isolation: Isolation::Snapshot,
        durability: Durability::Durable,
        conflicts: Conflicts::AtCommit,
        first_try: None,
        label: Vec::new(),
    };
    let transaction = store.begin(begin).unwrap();
    store.abort(&transaction);
    let claim = Arc::new(Claim::take(0, &open(&place("control"))).unwrap());
    let (at, flags) = (directory.join("views"), MountFlags::empty());
    let mount = ViewMount::new(claim.clone(), at, &root, "root".into(), flags);
    assert!(mount.show(&transaction).is_err());
    assert!(sync::lock(&mount.whole).is_empty());
    mount.unmount();
    claim.end();
    std::fs::remove_dir_all(&directory).unwrap();
}
