use super::*;

#[test]
fn a_place_is_of_one_service_until_it_ends() {
    let directory = std::env::temp_dir().join(format!("atomdir-claim-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let parent = rustix::fs::open(&directory, flags, Mode::empty()).unwrap();
    let path = mounts::claim_of(&directory.join("place"));
    let first = lock(&parent, &path, "1-2\n").unwrap();
    assert_eq!(lock(&parent, &path, "3-2\n").err(), Some(Errno::WOULDBLOCK));
    assert!(lock_dead(&parent, path.file_name().unwrap()).is_none());
    assert_eq!(std::fs::read(&path).unwrap(), b"1-2\n");
    drop(first);
    // A process that another test has just forked keeps the lock until it runs its program.
    let second = loop {
        match lock(&parent, &path, "3-20\n") {
            Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
            locked => break locked.unwrap(),
        }
    };
    assert_eq!(std::fs::read(&path).unwrap(), b"3-20\n");
    drop(second);
    while lock_dead(&parent, path.file_name().unwrap()).is_none() {
        std::thread::yield_now();
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
