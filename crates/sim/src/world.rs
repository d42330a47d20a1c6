//! The state of a simulated disk: what programs see, what is durable, what is
//! pending, and which faults occur.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::sync::Arc;

use atomdir_disk::{Errno, Kind, Name, Owner, Result, Times, Timestamp};

use crate::effect::{Effect, EntryChange, Ordering, Scope, Volatile, What};
use crate::fault::{AfterFailedSync, Call, Fault, Struck};
use crate::group::Meeting;
use crate::hash::Known;
use crate::image::{Body, DEVICE, Device, Image, Inode, Number, ROOT};
use crate::trace::{Event, Trace};

/// The place in the program that asks for a sync.
pub type Site = (&'static str, u32);

/// The clock of file systems and programs when a new disk is made.
const EPOCH_NANOSECONDS: u64 = 1_700_000_000_000_000_000;
/// How long a call takes.
const CALL_NANOSECONDS: u64 = 1_000;
pub(crate) const BILLION: u64 = 1_000_000_000;

pub(crate) struct World {
    pub live: Image,
    pub disk: Volatile,
    pub now: u64,
    pub calls: u64,
    pub faults: Vec<Fault>,
    pub after_failed_sync: AfterFailedSync,
    /// What the faults have struck.
    pub struck: Struck,
    pub trace: Option<Trace>,
    /// A sync to skip.
    pub skipped: Option<Site>,
    pub sites: BTreeSet<Site>,
    open: HashMap<Number, u32>,
    pub locks: BTreeMap<Number, u64>,
    pub next_handle: u64,
    pub meeting: Meeting,
    /// An object that programs see as immutable.
    pub immutable: Option<Number>,
    /// Files that another program has open for writing. A crash ends it.
    pub in_use: BTreeSet<Number>,
}

impl World {
    pub fn new() -> World {
        let now = EPOCH_NANOSECONDS;
        let mut root = inode(
            Kind::Directory,
            0o755,
            Body::Directory(BTreeMap::new()),
            now,
        );
        root.links = 2;
        World::boot(Image::new(root), Ordering::default())
    }

    pub fn boot(mut image: Image, ordering: Ordering) -> World {
        image.boots += 1;
        let birth = |number| {
            image
                .get(number)
                .map(|inode| nanoseconds(inode.changed).max(inode.birth))
        };
        let latest = (ROOT..image.end()).filter_map(birth).max();
        World {
            live: image.clone(),
            now: latest.unwrap_or(EPOCH_NANOSECONDS).max(EPOCH_NANOSECONDS) + BILLION,
            disk: Volatile {
                durable: image,
                pending: Vec::new(),
                ordering,
            },
            calls: 0,
            faults: Vec::new(),
            after_failed_sync: AfterFailedSync::default(),
            struck: Struck::default(),
            trace: None,
            skipped: None,
            sites: BTreeSet::new(),
            open: HashMap::new(),
            locks: BTreeMap::new(),
            next_handle: 0,
            meeting: Meeting::default(),
            immutable: None,
            in_use: BTreeSet::new(),
        }
    }

    /// Every call begins here.
    pub fn enter(&mut self, call: Call) -> Result<()> {
        self.now += CALL_NANOSECONDS;
        let number = self.calls;
        self.calls += 1;
        for index in 0..self.faults.len() {
            match self.faults[index] {
                Fault::Fails {
                    call: failing,
                    errno,
                } if failing == number => {
                    match call {
                        Call::Sync => self.struck = Struck::Sync,
                        _ => self.strike_call(),
                    }
                    return Err(errno);
                }
                Fault::Full { call: first } if number >= first && call == Call::Grow => {
                    self.strike_call();
                    return Err(Errno::NOSPC);
                }
                Fault::Clock { call, seconds } if call == number => {
                    self.strike_call();
                    self.now = self.now.saturating_add_signed(seconds * BILLION as i64);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn strike_call(&mut self) {
        if self.struck == Struck::Nothing {
            self.struck = Struck::Call;
        }
    }

    pub fn time(&self) -> Timestamp {
        timestamp(self.now)
    }

    /// The object's file system.
    pub fn device(&self, number: Number) -> Device {
        let inode = self.live.get(number).or(self.disk.durable.get(number));
        inode.map_or(DEVICE, |inode| inode.device)
    }

    /// Adds a second, empty file system. It is not to be found in the first.
    pub fn add_file_system(&mut self) {
        let number = self.live.end();
        let body = Body::Directory(BTreeMap::new());
        let mut root = inode(Kind::Directory, 0o755, body, self.now);
        (root.links, root.device) = (2, DEVICE + 1);
        let root = Arc::new(root);
        for image in [&mut self.live, &mut self.disk.durable] {
            image.insert(number, root.clone());
            image.second = Some(number);
        }
    }

    fn record(&mut self, event: Event) {
        if let Some(trace) = &mut self.trace {
            trace.events.push(event);
        }
    }

    pub fn allow(&mut self, trees: &[usize]) {
        self.record(Event::Allowed(trees.into()));
    }

    pub fn inode(&self, number: Number) -> Result<&Inode> {
        self.live.get(number).ok_or(Errno::STALE)
    }

    pub fn directory(&self, number: Number) -> Result<&BTreeMap<Name, Number>> {
        self.inode(number)?.entries().ok_or(Errno::NOTDIR)
    }

    /// The object at a path that is there.
    pub fn object_at(&self, path: &str) -> Number {
        path.split('/').fold(ROOT, |directory, name| {
            let name = Name::new(name.as_bytes()).expect("it is a name");
            self.find(directory, &name).expect("it is there")
        })
    }

    pub fn find(&self, directory: Number, name: &Name) -> Result<Number> {
        let entries = self.directory(directory)?;
        entries.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Changes what programs see; the change is pending on the disk.
    pub fn change(&mut self, what: What) {
        let at = self.time();
        let device = self.device(what.object());
        let effect = Arc::new(Effect { at, device, what });
        effect.apply(&mut self.live, crate::effect::Keep::All);
        self.disk.pending.push(effect.clone());
        self.record(Event::Effect(effect));
    }

    pub fn change_entries(&mut self, change: EntryChange) {
        let before: Vec<Option<Number>> = change
            .set
            .iter()
            .map(|(parent, name, _)| self.find(*parent, name).ok())
            .collect();
        let set = change.set.clone();
        self.change(What::Entries(change));
        // Count new names first, so that a moved object is never without a
        // name.
        for (parent, _, child) in &set {
            self.count(*parent, *child, 1);
        }
        for ((parent, ..), before) in set.iter().zip(before) {
            self.count(*parent, before, -1);
        }
    }

    fn count(&mut self, parent: Number, child: Option<Number>, difference: i32) {
        let Some(number) = child else { return };
        let Some(inode) = self.live.get_mut(number) else {
            return;
        };
        if inode.entries().is_some() {
            // A directory's own `.` is added and removed with its name; its `..` counts for its
            // parent.
            inode.links = inode.links.saturating_add_signed(2 * difference);
            if let Some(parent) = self.live.get_mut(parent) {
                parent.links = parent.links.saturating_add_signed(difference);
            }
        } else {
            inode.links = inode.links.saturating_add_signed(difference);
        }
        if difference < 0 {
            self.forget_unused(number);
        }
    }

    pub fn create(&mut self, directory: Number, name: &Name, mut new: Inode) -> Number {
        (new.links, new.device) = (0, self.device(directory));
        let unused =
            |number: &Number| self.live.get(*number).is_none() && self.disk.is_unknown(*number);
        let number = (ROOT + 1..).find(unused).unwrap_or(ROOT);
        let new = Arc::new(new);
        self.live.insert(number, new.clone());
        self.disk.durable.insert(number, new.clone());
        self.record(Event::Born(number, new));
        self.change_entries(EntryChange {
            set: vec![(directory, name.clone(), Some(number))],
            found_at: None,
            moves_directory: false,
        });
        number
    }

    pub fn hold(&mut self, number: Number) {
        *self.open.entry(number).or_default() += 1;
    }

    pub fn release(&mut self, number: Number) {
        if let Some(count) = self.open.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&number);
                self.forget_unused(number);
            }
        }
    }

    fn forget_unused(&mut self, number: Number) {
        let is_unnamed = self.live.get(number).is_some_and(|inode| inode.links == 0);
        if is_unnamed && !self.open.contains_key(&number) {
            self.live.remove(number);
        }
    }

    pub fn sync(
        &mut self,
        number: Number,
        scope: Scope,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let site = (site.file(), site.line());
        self.sites.insert(site);
        if let Err(errno) = self.enter(Call::Sync) {
            self.lose(number, scope);
            return Err(errno);
        }
        if self.skipped != Some(site) {
            let device = self.device(number);
            self.record(Event::Sync(scope, device));
            self.disk.sync(scope, device);
            if scope == Scope::Everything {
                self.forget_durable(device);
            }
        }
        Ok(())
    }

    /// Frees inode numbers that the disk no longer has.
    fn forget_durable(&mut self, device: Device) {
        let mut repaired = self.disk.durable.clone();
        repaired.repair();
        for number in ROOT..self.disk.durable.end() {
            let is_known = repaired.get(number).is_some() || self.live.get(number).is_some();
            let found = self.disk.durable.get(number);
            if found.is_some_and(|inode| inode.device == device) && !is_known {
                self.disk.durable.remove(number);
                self.record(Event::Gone(number));
            }
        }
    }

    /// Loses the contents that a failed sync should have written.
    fn lose(&mut self, number: Number, scope: Scope) {
        let lost = match scope {
            Scope::Object(number) | Scope::Data(number) => vec![number],
            Scope::Directory(_) => Vec::new(),
            Scope::Everything => {
                let device = self.device(number);
                let all = ROOT..self.live.end();
                all.filter(|number| self.device(*number) == device)
                    .collect()
            }
        };
        for number in lost {
            self.record(Event::LostContents(number));
            self.disk.lose_contents(number);
            if self.after_failed_sync == AfterFailedSync::Durable {
                self.disk.evict(&mut self.live, number);
            }
        }
    }
}

pub(crate) fn inode(kind: Kind, mode: u32, body: Body, now: u64) -> Inode {
    let time = timestamp(now);
    Inode {
        kind,
        mode: mode & 0o7777,
        owner: Owner { user: 0, group: 0 },
        times: Times {
            accessed: time,
            modified: time,
        },
        changed: time,
        birth: now,
        links: 0,
        device_number: 0,
        device: DEVICE,
        xattrs: BTreeMap::new(),
        body,
        hash: Known::default(),
    }
}

pub(crate) fn timestamp(now: u64) -> Timestamp {
    Timestamp {
        seconds: (now / BILLION) as i64,
        nanoseconds: (now % BILLION) as u32,
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds * BILLION + u64::from(time.nanoseconds)
}
