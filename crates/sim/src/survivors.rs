//! Transactions that survive the death of the program or the machine, and what their views may show
//! afterwards.

use std::sync::Arc;

use atomdir_engine::{Durability, Partner, Portion, Transaction, TransactionId};

use crate::disk::SimDisk;
use crate::expected::Expected;
use crate::opening::{SimStore, begin};
use crate::operation::Operation;
use crate::transactions::{commit_nested, copy, work_beside};
use crate::tree::Tree;
use crate::workload::{Driver, act};

/// What is done in a transaction that survives. Each operation is one call of a program.
#[derive(Debug, Clone)]
pub enum SurvivorAct {
    Do(Vec<Operation>),
    Flush,
    /// Another transaction commits these. They touch nothing that this one changes.
    Others(Vec<Operation>),
    /// Done in transactions that are nested in this one, and are all open before the first of them
    /// commits.
    Siblings(Vec<Vec<Operation>>),
    /// Done after a savepoint and then rolled back.
    RolledBack(Vec<Operation>),
    /// The transaction gets a snapshot of the newest commit.
    Refresh,
    /// It votes for a commit that another store decides. Nothing but that ends it from then on.
    Vote,
    /// Does the operations and commits the part at and below the paths. Then a refresh lets the
    /// transaction survive again. Others have committed nothing since its snapshot.
    Land(Vec<Operation>, Vec<&'static str>),
}

#[derive(Debug, Clone)]
pub struct Survivor {
    /// Done before the transaction is made to survive.
    pub before: Vec<Operation>,
    pub acts: Vec<SurvivorAct>,
    /// Whether it is committed or aborted.
    pub is_committed: bool,
}

/// The trees that the transaction's view may show, without times. `None` means that it is not open
/// any more.
#[derive(Debug, Clone, Hash)]
pub struct Surviving {
    boots: u64,
    /// Others have committed since its begin.
    is_older: bool,
    /// Whether it is in doubt. `None`: it may be.
    doubt: Option<bool>,
    /// After the death of the program, under the same boot.
    after_kill: Vec<Option<Tree>>,
    /// After the death of the machine.
    after_crash: Vec<Option<Tree>>,
}

impl Surviving {
    /// Whether nothing may be open, as without this.
    pub(crate) fn is_none(&self) -> bool {
        let is_none =
            |trees: &[Option<Tree>]| !trees.is_empty() && trees.iter().all(Option::is_none);
        is_none(&self.after_kill) && is_none(&self.after_crash)
    }

    fn allows(&self, disk: &SimDisk, found: Option<&Tree>, is_in_doubt: bool) -> bool {
        if found.is_some() && self.doubt.is_some_and(|doubt| doubt != is_in_doubt) {
            return false;
        }
        let allowed = match disk.image().boots == self.boots {
            true => &self.after_kill,
            false => &self.after_crash,
        };
        allowed.iter().any(|tree| tree.as_ref() == found)
    }
}

/// A transaction that was open when the program died, and what its view shows.
pub(crate) type Found = Option<(Arc<Transaction<SimDisk>>, Tree)>;

/// Finds the transaction that has survived, and compares its view.
pub(crate) fn check(
    disk: &SimDisk,
    store: &SimStore,
    expected: &Expected,
) -> Result<Found, String> {
    if let Some(stranded) = store.stranded().first() {
        return Err(format!("stranded: {}", stranded.reason));
    }
    let found = match store.transactions().pop() {
        Some(open) => {
            let tree = Tree::of_view(&open);
            let tree = tree.map_err(|errno| format!("the view of a survivor: {errno}"))?;
            Some((open, tree.without_times()))
        }
        None => None,
    };
    let tree = found.as_ref().map(|(_, tree)| tree);
    let is_in_doubt = found.as_ref().is_some_and(|(open, _)| open.is_in_doubt());
    match &expected.surviving {
        None if found.is_none() => Ok(None),
        None => Err("a transaction is open that has ended".to_owned()),
        Some(surviving) if surviving.allows(disk, tree, is_in_doubt) => Ok(found),
        Some(surviving) => {
            let wanted = surviving.after_crash.iter().flatten().next();
            let difference = match (tree, wanted) {
                (Some(tree), Some(wanted)) => tree.difference(wanted),
                (tree, _) => format!("there is one: {}", tree.is_some()),
            };
            Err(format!(
                "a survivor is not as expected (in doubt: {is_in_doubt}):\n{difference}"
            ))
        }
    }
}

/// What may survive once the store is open again and has flushed the survivor. A crash while the
/// store opens may also leave what was flushed before.
fn found_again(disk: &SimDisk, expected: &mut [Expected], found: &Found) -> Surviving {
    let doubt = found.as_ref().map(|(open, _)| open.is_in_doubt());
    let found = found.as_ref().map(|(_, tree)| tree.clone());
    let boots = disk.image().boots;
    for surviving in expected.iter_mut().filter_map(|one| one.surviving.as_mut()) {
        surviving.boots = boots;
        surviving.after_crash.push(found.clone());
    }
    Surviving {
        boots,
        is_older: false,
        doubt,
        after_kill: vec![found.clone()],
        after_crash: vec![found],
    }
}

/// Adds what may survive after the store was opened again. Returns its index in `expected`.
pub(crate) fn expect_again(
    disk: &SimDisk,
    expected: &mut Vec<Expected>,
    found: usize,
    survivor: &Found,
) -> usize {
    let mut surviving = found_again(disk, expected, survivor);
    let before = expected[found].surviving.as_ref();
    surviving.is_older = before.is_some_and(|before| before.is_older);
    expected.push(Expected {
        surviving: Some(surviving),
        ..expected[found].clone()
    });
    expected.len() - 1
}

/// The transaction that has survived, or a new one beside it if it is in doubt, or if others have
/// committed since its snapshot: then its view does not show the base after its commit. Also returns what survives the
/// commit.
pub(crate) fn or_begin(
    store: &SimStore,
    survivor: Found,
    expected: &Expected,
) -> Result<(Arc<Transaction<SimDisk>>, Option<Surviving>), String> {
    let is_in_doubt = survivor
        .as_ref()
        .is_some_and(|(open, _)| open.is_in_doubt());
    let stays = expected
        .surviving
        .as_ref()
        .filter(|one| one.is_older || is_in_doubt);
    match survivor {
        Some((survivor, _)) if stays.is_none() => Ok((survivor, None)),
        _ => Ok((begin(store, Durability::Durable)?, stays.cloned())),
    }
}

/// The surviving transaction while a workload runs.
struct Running {
    open: Arc<Transaction<SimDisk>>,
    /// A disk without transactions that shows what the view shows.
    plain: SimDisk,
    /// What others have committed since its snapshot, each with its salt. It does not overlap with
    /// the changes of this transaction, so the order does not matter.
    unseen: Vec<(Vec<Operation>, u64)>,
    /// What the view showed at its last flush.
    flushed: Option<Tree>,
    boots: u64,
    doubt: Option<bool>,
}

impl Running {
    fn tree(&self) -> Tree {
        Tree::of_image(&self.plain.image()).without_times()
    }

    /// Others have committed since its snapshot.
    fn is_older(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// The base after its commit.
    fn with_unseen(&self) -> SimDisk {
        let plain = copy(&self.plain);
        for (operations, salt) in &self.unseen {
            act(&plain, operations, *salt);
        }
        plain
    }
}

impl Driver {
    /// From now on a kill or a crash may leave one of these trees.
    fn may_leave(&mut self, running: &Running, kill: &[Option<Tree>], crash: &[Option<Tree>]) {
        self.expected.push(Expected {
            surviving: Some(Surviving {
                boots: running.boots,
                is_older: running.is_older(),
                doubt: running.doubt,
                after_kill: kill.to_vec(),
                after_crash: crash.to_vec(),
            }),
            ..self.newest().clone()
        });
        self.all_is_durable();
    }

    fn act_in(&mut self, running: &mut Running, operation: &Operation, salt: u64) {
        let before = running.tree();
        // A truncation of a staged file flushes first, since an earlier flush may include the
        // file's contents.
        let cuts = matches!(operation, Operation::Truncate(_, 1..)) && running.flushed.is_some();
        let operation = std::slice::from_ref(operation);
        act(&running.plain, operation, salt);
        let after = running.tree();
        let mut crash = vec![running.flushed.clone()];
        if cuts {
            running.flushed = Some(after.clone());
            crash.push(running.flushed.clone());
        }
        let flushed = running.flushed.clone();
        self.may_leave(running, &[Some(before), Some(after.clone())], &crash);
        act(&*running.open, operation, salt);
        self.may_leave(running, &[Some(after)], &[flushed]);
    }

    pub fn survivor(&mut self, survivor: &Survivor, salt: u64) {
        let store = self.store();
        let open = begin(&store, Durability::Durable).expect("a transaction begins");
        self.all_is_durable();
        let mut running = Running {
            open: open.clone(),
            plain: copy(&self.plain),
            unseen: Vec::new(),
            flushed: None,
            boots: self.disk.image().boots,
            doubt: Some(false),
        };
        act(&*open, &survivor.before, salt << 8);
        act(&running.plain, &survivor.before, salt << 8);
        let now = Some(running.tree());
        self.may_leave(&running, &[None, now.clone()], &[None]);
        let kept = store.survive(&open, Vec::new());
        kept.expect("it can survive");
        self.may_leave(&running, &[now], &[None]);
        for (salt, one) in (salt << 8 | 1..).zip(&survivor.acts) {
            self.survivor_act(&mut running, one, salt << 8);
        }
        let (now, flushed) = (Some(running.tree()), running.flushed.clone());
        let has_voted = running.doubt == Some(true);
        if !survivor.is_committed {
            if has_voted {
                running.doubt = None;
                self.may_leave(
                    &running,
                    std::slice::from_ref(&now),
                    std::slice::from_ref(&now),
                );
                store.withdraw_vote(&open).expect("it is open");
                running.doubt = Some(false);
            }
            self.may_leave(&running, &[None, now], &[None, flushed]);
            assert!(store.abort(&open), "it is open");
            self.expected.push(Expected {
                surviving: None,
                ..self.newest().clone()
            });
            self.all_is_durable();
            return;
        }
        self.plain = running.with_unseen();
        self.commit_unseen_by(|store| match has_voted {
            true => store.commit_decided(&open, Portion::All, &mut |_| {}),
            false => store.commit(&open),
        });
    }

    fn survivor_act(&mut self, running: &mut Running, one: &SurvivorAct, salt: u64) {
        match one {
            SurvivorAct::Do(operations) => {
                for (salt, operation) in (salt..).zip(operations) {
                    self.act_in(running, operation, salt);
                }
            }
            SurvivorAct::Flush => {
                let (now, flushed) = (Some(running.tree()), running.flushed.clone());
                self.may_leave(running, std::slice::from_ref(&now), &[flushed, now.clone()]);
                running.open.flush().expect("an undisturbed flush succeeds");
                running.flushed.clone_from(&now);
                self.may_leave(
                    running,
                    std::slice::from_ref(&now),
                    std::slice::from_ref(&now),
                );
            }
            SurvivorAct::Others(operations) => {
                let (now, flushed) = (Some(running.tree()), running.flushed.clone());
                running.unseen.push((operations.clone(), salt));
                self.survives_commit = Some(Surviving {
                    boots: running.boots,
                    is_older: true,
                    doubt: running.doubt,
                    after_kill: vec![now],
                    after_crash: vec![flushed],
                });
                self.commit(operations, Durability::Durable, salt);
                self.survives_commit = None;
            }
            SurvivorAct::Vote => {
                let (now, flushed) = (Some(running.tree()), running.flushed.clone());
                running.doubt = None;
                let crash = [flushed, now.clone()];
                self.may_leave(running, std::slice::from_ref(&now), &crash);
                let coordinator = Partner {
                    store: [1; 16],
                    root: b"/other".to_vec(),
                    transaction: TransactionId(1),
                };
                let store = self.store();
                let voted = store.vote(&running.open, &coordinator, Vec::new(), &mut |_| {});
                assert!(
                    voted.expect("nobody is in the way"),
                    "it has changed something"
                );
                running.flushed.clone_from(&now);
                running.doubt = Some(true);
                let now = std::slice::from_ref(&now);
                self.may_leave(running, now, now);
            }
            SurvivorAct::Siblings(all) => self.siblings(running, all, salt),
            SurvivorAct::Refresh => self.refresh(running),
            SurvivorAct::Land(operations, paths) => self.land(running, (operations, paths), salt),
            SurvivorAct::RolledBack(operations) => {
                let saved = running.plain.image();
                running.open.set_savepoint(b"here").expect("it is set");
                for (salt, operation) in (salt..).zip(operations) {
                    self.act_in(running, operation, salt);
                }
                let now = Some(running.tree());
                running.plain = SimDisk::boot(saved, Default::default());
                self.changes_whole(running, now, |running| {
                    running.open.roll_back(b"here").expect("it is there");
                });
            }
        }
    }

    /// After a death the view shows none of a nested transaction's changes if it had not committed,
    /// otherwise all of them.
    fn siblings(&mut self, running: &mut Running, all: &[Vec<Operation>], salt: u64) {
        let store = self.store();
        let (fork, flushed) = (Some(running.tree()), running.flushed.clone());
        self.may_leave(running, &[fork], &[flushed]);
        let after_all = copy(&running.plain);
        let opened = work_beside(&store, &running.open, &after_all, all, salt);
        for (salt, (nested, operations)) in (salt << 4..).zip(opened.iter().zip(all)) {
            let before = Some(running.tree());
            act(&running.plain, operations, salt);
            self.changes_whole(running, before, |_| commit_nested(&store, nested));
        }
    }

    /// The view changes in one step, and its log is rewritten. The new log is flushed if the old
    /// one was.
    fn changes_whole(
        &mut self,
        running: &mut Running,
        before: Option<Tree>,
        change: impl FnOnce(&mut Running),
    ) {
        let after = Some(running.tree());
        let mut crash = vec![running.flushed.clone()];
        if running.flushed.is_some() {
            crash.push(after.clone());
        }
        self.may_leave(running, &[before, after.clone()], &crash);
        change(running);
        if running.flushed.is_some() {
            running.flushed.clone_from(&after);
        }
        let flushed = running.flushed.clone();
        self.may_leave(running, &[after], &[flushed]);
    }

    fn land(
        &mut self,
        running: &mut Running,
        (operations, paths): (&[Operation], &[&str]),
        salt: u64,
    ) {
        for (salt, operation) in (salt..).zip(operations) {
            self.act_in(running, operation, salt);
            act(&self.plain, std::slice::from_ref(operation), salt);
        }
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let open = running.open.clone();
        self.commit_unseen_by(|store| {
            store.commit_portion(&open, Portion::part(&paths), &mut |_| {})
        });
        let store = self.store();
        let refreshed = store.refresh(&open);
        refreshed.expect("others have committed nothing");
        running.flushed = None;
        let now = Some(running.tree());
        self.may_leave(running, &[None, now.clone()], &[None]);
        store.survive(&open, Vec::new()).expect("it can survive");
        self.may_leave(running, &[now], &[None]);
    }

    fn refresh(&mut self, running: &mut Running) {
        let before = Some(running.tree());
        running.plain = running.with_unseen();
        let store = self.store();
        self.changes_whole(running, before, |running| {
            let refreshed = store.refresh(&running.open);
            refreshed.expect("it conflicts with nothing");
            running.unseen.clear();
        });
    }
}
