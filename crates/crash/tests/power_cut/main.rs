//! The power is cut under a real file system while real transactions run. After the file system's
//! own recovery and the store's, the base holds a prefix of the commits with every durable one, and
//! nothing else. An open transaction shows what was flushed in it, and the commits can be undone.
#![cfg(test)]

mod changes;
mod kept;
mod native;
mod workload;

use std::path::Path;

use atomdir_crash::{BlockFile, FileSystem, Image, Mounted, Recording, Span, mount_shared};
use atomdir_testing::tree::{Tree, compare};
use atomdir_testing::{
    Random, Scratch, Store, User, look, pick, skip, tools_present, users_can_mount,
};

use kept::Survivor;
use workload::{Expected, options};

#[test]
fn power_cuts_on_ext4() {
    cut_power_on("power_cuts_on_ext4", FileSystem::Ext4);
}

#[test]
fn power_cuts_on_xfs() {
    cut_power_on("power_cuts_on_xfs", FileSystem::Xfs);
}

#[test]
fn power_cuts_on_btrfs() {
    cut_power_on("power_cuts_on_btrfs", FileSystem::Btrfs);
}

/// Counts of what the images contained, printed at the end.
#[derive(Debug, Default)]
struct Tally {
    images: usize,
    in_recovery: usize,
    undone: usize,
    oldest_allowed: usize,
    newest_allowed: usize,
}

fn cut_power_on(test: &str, file_system: FileSystem) {
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may mount file systems");
    }
    if !Path::new("/dev/loop-control").exists() {
        return skip(test, "there are no loop devices here");
    }
    if !tools_present(test, file_system.tools()) {
        return;
    }
    let mut random = Random::for_test(test);
    let scratch = Scratch::new(test);
    let mut tally = Tally::default();
    let bench = Bench::new(file_system, &scratch);
    let mut round = 0;
    while tally.images < pick(80, 1000) {
        round += 1;
        // Root and an ordinary user own the store by turns.
        let user = match round % 2 {
            0 if users_can_mount(test) => User::ordinary(scratch.path()),
            _ => User::root(scratch.path()),
        };
        let recorded = bench.record(user, &mut random);
        bench.check_images(&recorded, pick(40, 200), &mut tally, &mut random);
    }
    println!("{file_system:?}, {round} workloads: {tally:?}");
}

/// The recording of a workload, the expected trees, and a transaction that was open all the time.
struct Recorded {
    user: User,
    recording: Recording,
    expected: Expected,
    survivor: Survivor,
}

/// Where a disk is served and mounted.
struct Bench<'a> {
    file_system: FileSystem,
    scratch: &'a Scratch,
}

impl<'a> Bench<'a> {
    fn new(file_system: FileSystem, scratch: &'a Scratch) -> Self {
        mount_shared(&scratch.join("mounts"));
        Self {
            file_system,
            scratch,
        }
    }

    fn serve(&self, image: Image) -> BlockFile {
        BlockFile::serve(image, &self.scratch.join("mounts/disk"))
    }

    fn mount(&self, disk: &BlockFile) -> Mounted {
        Mounted::mount(
            self.file_system,
            &disk.path(),
            &self.scratch.join("mounts/mounted"),
        )
    }

    /// Runs the workload on a fresh store and records the disk's writes.
    fn record(&self, user: User, random: &mut Random) -> Recorded {
        let disk = self.serve(Image::new(self.file_system.length_min()));
        self.file_system.make(&disk.path());
        let mounted = self.mount(&disk);
        let base = mounted.point().join("base");
        std::fs::create_dir(&base).unwrap();
        workload::fill(&base, &user);
        let store = Store::init(&base, &user);
        store.call(["sync"]).expect(0);
        // The store does not flush what plain programs have written.
        rustix::fs::syncfs(std::fs::File::open(&base).unwrap()).unwrap();
        let mut expected = Expected::new(&user);
        let survivor = Survivor::begin(&store);
        disk.start_recording();
        for _ in 0..8 {
            workload::run_round(&disk, &store, &mut expected, random);
        }
        let recording = disk.stop_recording();
        self.end(store, mounted, &disk);
        Recorded {
            user,
            recording,
            expected,
            survivor,
        }
    }

    fn check_images(
        &self,
        recorded: &Recorded,
        count: usize,
        tally: &mut Tally,
        random: &mut Random,
    ) {
        let Recorded {
            user,
            recording,
            expected,
            survivor,
        } = recorded;
        let spans = recording.spans();
        for number in 0..count {
            // First cuts right after a flush, in order, then cuts in random spans.
            let span = if number < spans.len().min(count / 2) {
                let span = &spans[number * spans.len() / (count / 2).min(spans.len())];
                span.end..span.end
            } else {
                random.choose(&spans).clone()
            };
            let what = format!("image {number}, span {span:?}");
            let (image, end) =
                recording.crash_image(&span, &self.file_system.atomic_units(), random);
            let (durable, started) = recording.commits_at(end);
            let kept = random.chance(3).then(|| image.clone());
            let disk = self.serve(image);
            let found = self.recover(user, &disk, &what, &expected.trees, durable..=started);
            let recovery = disk.stop_recording();
            drop(disk);
            tally.images += 1;
            tally.oldest_allowed += usize::from(found == durable);
            tally.newest_allowed += usize::from(found == started);
            if let Some(image) = kept {
                let first = found - random.below(found + 1);
                let disk = self.serve(image);
                let mounted = self.mount(&disk);
                let base = mounted.point().join("base");
                let store = Store::existing(&base, user);
                println!("{what}: undo of all after commit {first}");
                survivor.check(&store);
                kept::check_undo(&store, expected, (first, found));
                self.end(store, mounted, &disk);
                tally.undone += 1;
            }
            if random.chance(8) {
                let spans: Vec<Span> = recovery.spans();
                let span = random.choose(&spans);
                let (image, _) =
                    recovery.crash_image(span, &self.file_system.atomic_units(), random);
                let disk = self.serve(image);
                let what = format!("{what}, power cut again in recovery, span {span:?}");
                self.recover(user, &disk, &what, &expected.trees, found..=found);
                tally.in_recovery += 1;
            }
        }
    }

    /// Mounts the disk, recovers the store, and returns the commit after which the base is.
    fn recover(
        &self,
        user: &User,
        disk: &BlockFile,
        what: &str,
        expected: &[Tree],
        allowed: std::ops::RangeInclusive<usize>,
    ) -> usize {
        println!("{what}: one of commits {allowed:?}");
        disk.start_recording();
        let mounted = self.mount(disk);
        let store = Store::existing(&mounted.point().join("base"), user);
        store.call(["recover"]).expect(0);
        let found = look(store.path());
        let number = allowed
            .clone()
            .rev()
            .find(|number| compare(&expected[*number], &found, &options()).is_empty());
        let Some(number) = number else {
            explain(expected, &found, allowed);
        };
        store.call(["check"]).expect(0);
        self.end(store, mounted, disk);
        number
    }

    fn end(&self, store: Store, mounted: Mounted, disk: &BlockFile) {
        store.call(["abort", "--all"]).expect(0);
        store.assert_at_rest();
        drop(store);
        mounted.unmount();
        disk.wait_until_closed();
        self.file_system.check(&disk.path());
    }
}

fn explain(expected: &[Tree], found: &Tree, allowed: std::ops::RangeInclusive<usize>) -> ! {
    for (number, tree) in expected.iter().enumerate() {
        let differences = compare(tree, found, &options());
        println!("after commit {number}: {} differences", differences.len());
        for difference in differences.iter().take(12) {
            println!("  {difference}");
        }
    }
    panic!("after recovery the base is none of the states after commits {allowed:?}");
}
