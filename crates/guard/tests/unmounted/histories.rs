//! Random histories of transactions of every kind and of programs that go through the guard,
//! compared with models.
//!
//! - A view shows the base as it was at its begin or last refresh, and what was changed in it.
//! - A commit has a conflict, or the base is what both sides have made of it: `Model::merge`.
//!   There is a conflict where one would lose what the other has done.
//! - Programs see each commit from when it is applied on, and nothing of one that is not.
//!
//! `ATOMDIR_SEED=n` replays one run.

use std::collections::{BTreeSet, VecDeque};

use atomdir_disk::Errno;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{BeginOptions, Durability, Sequence, Store, TransactionId};
use atomdir_fuse::Filesystem;
use atomdir_testing::{Random, pick};

use crate::model::{Model, Operation, Tree};
use crate::program::{REQUEST, look, run};
use crate::world::{Open, World, open, options};

const OPEN_MAX: usize = 4;
const STEPS: usize = 150;
/// The names of the root that transactions and programs prefer.
const INSIDE: [&str; 4] = ["c", "d", "e", "f"];
const OUTSIDE: [&str; 4] = ["a", "b", "c", "d"];

pub struct Client {
    pub open: Open,
    pub fork: Model,
    pub now: Model,
    /// As [`look`] shows it, if the transaction has changed nothing.
    pub times: Option<Tree>,
}

/// A commit that is not known to be in the base.
pub struct Pending {
    pub id: TransactionId,
    pub fork: Model,
    pub now: Model,
}

#[derive(Default)]
pub struct Counts {
    pub commits: usize,
    pub conflicts: usize,
    pub set_aside: usize,
    pub refreshed: usize,
    pub parts: usize,
    pub undone: usize,
    pub waited: usize,
}

pub struct Run {
    pub world: Option<World>,
    pub random: Random,
    pub base: Model,
    pub next: usize,
    pub pending: VecDeque<Pending>,
    pub clients: Vec<Client>,
    /// The base before and after each commit that was applied.
    pub applied: Vec<(Sequence, Model, Model)>,
    pub trace: Vec<String>,
    /// What a program is about to do that waits.
    pub held: Option<Operation>,
    pub counts: Counts,
    pub seed: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let world = World::new();
        // What programs change are commits then, too.
        world
            .store
            .remember_outside(seed % 2 == 1)
            .expect("it can be set");
        world.store.wait_for_writers(seed % 3 == 2);
        Run {
            world: Some(world),
            random: Random::from_seed(seed),
            base: Model::new(),
            next: 1,
            pending: VecDeque::new(),
            clients: Vec::new(),
            applied: Vec::new(),
            trace: Vec::new(),
            held: None,
            counts: Counts::default(),
            seed,
        }
    }

    fn world(&self) -> &World {
        self.world.as_ref().expect("it is there")
    }

    pub fn store(&self) -> Store<LinuxDisk> {
        self.world().store.clone()
    }

    pub fn note(&mut self, what: String) {
        self.trace.push(what);
    }

    pub fn fail(&self, what: &str) -> ! {
        panic!(
            "{}\n{what}: ATOMDIR_SEED={}",
            self.trace.join("\n"),
            self.seed
        );
    }

    fn assert_same(&self, what: &str, found: &Tree, wanted: &Tree) {
        if found == wanted {
            return;
        }
        let lines = |one: &Tree, other: &Tree| -> Vec<String> {
            let differing = one
                .iter()
                .filter(|(path, what)| other.get(*path) != Some(*what));
            differing
                .map(|(path, what)| format!("{path}: {what}"))
                .collect()
        };
        let (found, wanted) = (lines(found, wanted), lines(wanted, found));
        self.fail(&format!("{what}: found {found:#?}, not {wanted:#?}"));
    }

    /// Takes note of which commits have reached the base, or never will.
    pub fn follow(&mut self, refused: Option<TransactionId>) {
        let aside = self.store().set_aside();
        let mut cancelled: BTreeSet<TransactionId> =
            aside.iter().map(|one| one.transaction).collect();
        self.counts.set_aside += aside.len();
        cancelled.extend(refused);
        let gone: BTreeSet<TransactionId> = self.pending.iter().map(|one| one.id).collect();
        let gone: BTreeSet<TransactionId> = gone.intersection(&cancelled).copied().collect();
        self.pending.retain(|one| !gone.contains(&one.id));
        let changed = self.world().take_changed();
        for _ in changed.into_iter().filter(|applied| *applied) {
            let Some(one) = self.pending.pop_front() else {
                self.fail("a commit was applied that nobody has made");
            };
            let merged = Model::merge(&one.fork, &one.now, &self.base);
            let merged = merged
                .unwrap_or_else(|lost| self.fail(&format!("the commit of {}: {lost}", one.id)));
            let before = std::mem::replace(&mut self.base, merged);
            self.note(format!("  {} is applied", one.id));
            let newest = Sequence(0);
            self.applied.push((newest, before, self.base.clone()));
        }
        for one in aside {
            self.note(format!(
                "  {} is set aside: {}",
                one.transaction, one.reason
            ));
            if let Some(transaction) = self.store().transaction(one.transaction) {
                self.store().abort(&transaction);
            }
        }
    }

    fn begin(&mut self) {
        let durability = *self.random.choose(&[
            Durability::Durable,
            Durability::Lazy,
            Durability::Lazy,
            Durability::Deferred,
        ]);
        let options = BeginOptions {
            durability,
            ..options()
        };
        let in_base = self.random.chance(3);
        let open = match in_base {
            true => self.store().begin_in_base(options),
            false => self.store().begin(options),
        };
        let open = open.unwrap_or_else(|error| self.fail(&error.to_string()));
        self.note(format!(
            "begin {} {durability:?}, in base: {in_base}",
            open.id()
        ));
        self.follow(None);
        if !self.pending.is_empty() {
            self.fail("a snapshot shows what is not in the base");
        }
        let fork = self.base.clone();
        let seen = look(&self.world().guarded);
        let times = Some(seen.expect("it can be looked at").1);
        if self.random.chance(4) {
            let survives = self.store().survive(&open, Vec::new()).is_ok();
            self.note(format!("{} survives: {survives}", open.id()));
            self.follow(None);
        }
        let now = fork.clone();
        self.clients.push(Client {
            open,
            fork,
            now,
            times,
        });
    }

    fn operate(&mut self, client: &mut Client) {
        let operation = client.now.some_operation(&mut self.random, &INSIDE);
        let done = run(&*client.open, &operation);
        self.note(format!("{}: {operation:?}: {done:?}", client.open.id()));
        client.times = None;
        if client.now.apply(&operation, &mut self.next) != done.is_ok() {
            self.fail("the model disagrees");
        }
    }

    fn operate_nested(&mut self, client: &mut Client) {
        let nested = self.store().begin_nested(&client.open, options());
        let nested = nested.unwrap_or_else(|error| self.fail(&error.to_string()));
        let mut within = Client {
            open: nested,
            fork: client.now.clone(),
            now: client.now.clone(),
            times: None,
        };
        for _ in 0..1 + self.random.below(4) {
            match self.random.chance(3) {
                true => self.some_act_outside(),
                false => self.operate(&mut within),
            }
        }
        self.check(&within);
        client.times = None;
        if self.random.chance(2) {
            self.note(format!("commit nested {}", within.open.id()));
            let committed = self.store().commit(&within.open);
            if let Err(error) = committed {
                self.fail(&format!("nobody is in the way: {error}"));
            }
            client.now = within.now;
        } else {
            self.note(format!("abort nested {}", within.open.id()));
            self.store().abort(&within.open);
        }
        self.follow(None);
    }

    fn operate_and_roll_back(&mut self, client: &mut Client) {
        let before = client.now.clone();
        client.open.set_savepoint(b"here").expect("set");
        self.operate(client);
        client.open.roll_back(b"here").expect("it was set");
        self.note(format!("{} rolled back", client.open.id()));
        client.now = before;
    }

    fn some_act_outside(&mut self) {
        let operation = self.base.some_operation(&mut self.random, &OUTSIDE);
        self.act_outside(&operation);
    }

    fn act_outside(&mut self, operation: &Operation) {
        let held = self.held.take();
        let operation = held.as_ref().unwrap_or(operation);
        let guarded = &self.world().guarded;
        let mut done = run(guarded, operation);
        if done == Err(Errno::STALE) {
            // As the kernel does.
            done = run(guarded, operation);
        }
        self.note(format!("outside: {operation:?}: {done:?}"));
        self.follow(None);
        if done == Err(Errno::INPROGRESS) && self.random.chance(2) {
            self.counts.waited += 1;
            self.held = Some(operation.clone());
            return;
        }
        // It may have failed on its way, or a signal ends the wait.
        self.world().guarded.gave_up(REQUEST.unique);
        if matches!(done, Err(Errno::INPROGRESS | Errno::BUSY)) {
            return;
        }
        if self.base.apply(operation, &mut self.next) != done.is_ok() {
            self.fail("the model disagrees");
        }
    }

    pub fn check(&mut self, client: &Client) {
        let (id, store) = (client.open.id(), self.store());
        let seen = look(&*client.open);
        // To look may bring commits into the base, or set them aside.
        self.follow(None);
        if store.transaction(id).is_none() {
            return;
        }
        let (tree, times) = match seen {
            Ok(seen) => seen,
            Err(errno) => self.fail(&format!("{id} cannot be looked at: {errno}")),
        };
        self.assert_same(&format!("the view of {id}"), &tree, &client.now.tree());
        if let Some(began) = &client.times {
            self.assert_same(&format!("times in the view of {id}"), &times, began);
        }
    }

    fn check_base(&self) {
        let guarded = &self.world().guarded;
        let seen = look(guarded);
        let (tree, _) = seen.unwrap_or_else(|errno| self.fail(&format!("the base: {errno}")));
        self.assert_same("the base", &tree, &self.base.tree());
    }

    fn step(&mut self) {
        if self.clients.len() < OPEN_MAX && self.random.chance(4) {
            self.begin();
        }
        let of_client = !self.clients.is_empty() && self.random.below(5) < 3;
        if !of_client {
            match self.random.below(30) {
                0 => self.store().sync().expect("well"),
                1 => self.store().checkpoint().expect("well"),
                2 => self.undo(),
                _ => self.some_act_outside(),
            }
            self.follow(None);
            return;
        }
        let place = self.random.below(self.clients.len());
        let mut client = self.clients.swap_remove(place);
        let goes_on = match self.random.below(24) {
            0..=2 => self.commit(&mut client),
            3 => {
                self.note(format!("abort {}", client.open.id()));
                self.store().abort(&client.open);
                false
            }
            4 => {
                self.operate_nested(&mut client);
                true
            }
            5 => {
                self.operate_and_roll_back(&mut client);
                true
            }
            6 => {
                self.refresh(&mut client);
                true
            }
            7 | 8 => {
                self.land(&mut client);
                true
            }
            9..=11 => {
                self.check(&client);
                true
            }
            _ => {
                self.operate(&mut client);
                true
            }
        };
        if goes_on {
            self.clients.push(client);
        }
        self.follow(None);
        self.check_base();
    }

    fn run(mut self) -> Counts {
        for _ in 0..30 {
            let operation = self
                .base
                .some_operation(&mut self.random, &["a", "b", "c", "d", "e", "f"]);
            self.act_outside(&operation);
        }
        for _ in 0..STEPS {
            self.step();
        }
        while let Some(mut client) = self.clients.pop() {
            self.check(&client);
            if self.store().transaction(client.open.id()).is_none() {
                continue;
            }
            if self.commit(&mut client) {
                self.store().abort(&client.open);
            }
        }
        self.store().sync().expect("well");
        self.follow(None);
        if let Some(operation) = self.held.clone() {
            self.act_outside(&operation);
        }
        if self.held.is_some() || self.world().guarded.waiting() > 0 {
            self.fail("a call waits for nobody");
        }
        self.check_base();
        self.store().checkpoint().expect("well");
        let scratch = self.world.take().map(World::close).expect("it is there");
        let store = open(&scratch.0);
        let problems = store.check().problems;
        if !problems.is_empty() {
            self.fail(&problems.join("\n"));
        }
        let recovered = store.begin(options()).expect("begun");
        let seen = look(&*recovered).expect("it can be looked at");
        self.assert_same("recovered", &seen.0, &self.base.tree());
        std::mem::take(&mut self.counts)
    }
}

#[test]
fn transactions_and_programs_that_go_through_the_guard_lose_nothing_of_each_other() {
    let seeds = match std::env::var("ATOMDIR_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("ATOMDIR_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 1..pick(60, 400),
    };
    let is_one = seeds.end - seeds.start == 1;
    let mut all = Counts::default();
    for seed in seeds {
        let counts = Run::new(seed).run();
        all.commits += counts.commits;
        all.conflicts += counts.conflicts;
        all.set_aside += counts.set_aside;
        all.refreshed += counts.refreshed;
        all.parts += counts.parts;
        all.undone += counts.undone;
        all.waited += counts.waited;
    }
    println!(
        "{} commits, {} conflicts, {} set aside, {} refreshed, {} parts, {} undone, {} waited",
        all.commits, all.conflicts, all.set_aside, all.refreshed, all.parts, all.undone, all.waited
    );
    let all_happen = all.commits > 50 && all.refreshed > 0 && all.parts > 0 && all.waited > 0;
    assert!(is_one || all_happen);
}
