//! Which transaction a node number belongs to.
//!
//! A node number consists of a slot and a number within it. Transaction ids are too
//! large for a slot, so slots are lent. A slot goes to another transaction only when its last
//! one has ended or got another slot, the kernel has forgotten all nodes of the slot, and no
//! request for it is under way. So a program that outlives its transaction can never reach
//! another.

use atomdir_disk::sync;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use atomdir_disk::Disk;
use atomdir_engine::{NodeId, Transaction, TransactionId};

/// Bits of a node number that name the node within its slot.
const NODE_BITS: u32 = 40;
const NODE_MASK: u64 = (1 << NODE_BITS) - 1;
/// The number, within its slot, of the directory that holds a view.
const WRAPPER: u64 = NODE_MASK;
/// Slot 0 belongs to the mount's root; the last slot would contain the session's own node.
const SLOTS_MAX: usize = (1 << 24) - 1;
/// How many used slots a new transaction tries before it takes one that was never lent.
const REUSE_ATTEMPTS: usize = 4;

/// What a node number of a slot stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    Wrapper,
    Node(NodeId),
}

/// A transaction, borrowed for one request.
pub struct Borrowed<D: Disk> {
    pub transaction: Arc<Transaction<D>>,
    slot: u64,
    known: Arc<AtomicU64>,
}

impl<D: Disk> Borrowed<D> {
    /// The kernel's number for a node in a reply. It raises the node's lookup count.
    pub fn give(&self, within: Within) -> u64 {
        self.known.fetch_add(1, Ordering::Relaxed);
        self.number(within)
    }

    /// The kernel's number for a node.
    pub fn number(&self, within: Within) -> u64 {
        let node = match within {
            Within::Wrapper => WRAPPER,
            Within::Node(node) => node.0,
        };
        assert!(node <= NODE_MASK, "a node's number fits beside its slot's");
        self.slot << NODE_BITS | node
    }

    pub fn is_same_slot(&self, other: &Borrowed<D>) -> bool {
        self.slot == other.slot
    }
}

struct Slot<D: Disk> {
    /// `None` once the transaction has ended, or has another slot.
    transaction: Option<Arc<Transaction<D>>>,
    /// The sum of the lookup counts of the slot's nodes. Each request under way holds a
    /// reference to it, so the reference count shows whether there is one.
    known: Arc<AtomicU64>,
}

pub struct Slots<D: Disk> {
    table: RwLock<Table<D>>,
}

struct Table<D: Disk> {
    /// Slot n is at n - 1.
    slots: Vec<Slot<D>>,
    by_id: HashMap<TransactionId, usize>,
    /// The places of slots whose transaction has ended or got another slot.
    ended: VecDeque<usize>,
}

impl<D: Disk> Slots<D> {
    pub fn new() -> Slots<D> {
        let table = Table {
            slots: Vec::new(),
            by_id: HashMap::new(),
            ended: VecDeque::new(),
        };
        Slots {
            table: RwLock::new(table),
        }
    }

    /// Returns whether there was room.
    pub fn add(&self, transaction: Arc<Transaction<D>>) -> bool {
        let mut table = sync::write(&self.table);
        table.by_id.contains_key(&transaction.id()) || table.add(transaction)
    }

    /// Lends the transaction another slot. For nodes of the old slot, the transaction then appears
    /// to have ended. Returns whether the kernel knows any of them.
    pub fn renew(&self, id: TransactionId) -> bool {
        let mut table = sync::write(&self.table);
        let place = table.by_id.get(&id).copied();
        let transaction = place.and_then(|place| table.slots[place].transaction.clone());
        let is_known = table.remove(id);
        if let Some(transaction) = transaction
            && !table.add(transaction)
        {
            tracing::error!(%id, "no room for another view; end programs in views that are over");
        }
        is_known
    }

    /// Returns whether the kernel knows any of the transaction's nodes, and so its name.
    pub fn remove(&self, id: TransactionId) -> bool {
        let mut table = sync::write(&self.table);
        table.remove(id)
    }

    /// Whether the kernel knows any of the transaction's nodes.
    pub fn is_known(&self, id: TransactionId) -> bool {
        let table = sync::read(&self.table);
        let slot = table.by_id.get(&id).map(|place| &table.slots[*place]);
        slot.is_some_and(|slot| slot.known.load(Ordering::Relaxed) > 0)
    }

    /// A new connection begins, whose kernel side knows no node yet.
    pub fn forget_all(&self) {
        let table = sync::read(&self.table);
        for slot in &table.slots {
            slot.known.store(0, Ordering::Relaxed);
        }
    }

    pub fn ids(&self) -> Vec<TransactionId> {
        let table = sync::read(&self.table);
        table.by_id.keys().copied().collect()
    }

    pub fn by_id(&self, id: TransactionId) -> Option<Borrowed<D>> {
        let table = sync::read(&self.table);
        table.borrow(*table.by_id.get(&id)?)
    }

    /// `None` for the mount's root, and for a transaction that has ended.
    pub fn by_node(&self, node: u64) -> Option<(Borrowed<D>, Within)> {
        let table = sync::read(&self.table);
        let borrowed = table.borrow(place_of(node)?)?;
        Some((borrowed, within_of(node)))
    }

    /// Lowers a node's lookup count. `None` if its transaction has ended; the slot's count
    /// is lowered all the same.
    pub fn forget(&self, node: u64, count: u64) -> Option<(Arc<Transaction<D>>, Within)> {
        let table = sync::read(&self.table);
        let slot = table.slots.get(place_of(node)?)?;
        let lower = |known: u64| Some(known.saturating_sub(count));
        let _ = slot
            .known
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        Some((Arc::clone(slot.transaction.as_ref()?), within_of(node)))
    }
}

impl<D: Disk> Table<D> {
    fn borrow(&self, place: usize) -> Option<Borrowed<D>> {
        let slot = self.slots.get(place)?;
        Some(Borrowed {
            transaction: Arc::clone(slot.transaction.as_ref()?),
            slot: place as u64 + 1,
            known: Arc::clone(&slot.known),
        })
    }

    fn add(&mut self, transaction: Arc<Transaction<D>>) -> bool {
        let id = transaction.id();
        let slot = Slot {
            transaction: Some(transaction),
            known: Arc::default(),
        };
        let place = if let Some(place) = self.take_ended() {
            self.slots[place] = slot;
            place
        } else if self.slots.len() < SLOTS_MAX - 1 {
            self.slots.push(slot);
            self.slots.len() - 1
        } else {
            return false;
        };
        self.by_id.insert(id, place);
        true
    }

    fn remove(&mut self, id: TransactionId) -> bool {
        let Some(place) = self.by_id.remove(&id) else {
            return false;
        };
        self.ended.push_back(place);
        let slot = &mut self.slots[place];
        slot.transaction = None;
        slot.known.load(Ordering::Relaxed) > 0
    }

    fn take_ended(&mut self) -> Option<usize> {
        for _ in 0..self.ended.len().min(REUSE_ATTEMPTS) {
            let place = self.ended.pop_front()?;
            // The table is locked and the slot has no transaction, so nobody can borrow one now.
            let known = Arc::get_mut(&mut self.slots[place].known);
            if known.is_some_and(|known| *known.get_mut() == 0) {
                return Some(place);
            }
            self.ended.push_back(place);
        }
        None
    }
}

fn place_of(node: u64) -> Option<usize> {
    ((node >> NODE_BITS) as usize).checked_sub(1)
}

fn within_of(node: u64) -> Within {
    match node & NODE_MASK {
        WRAPPER => Within::Wrapper,
        node => Within::Node(NodeId(node)),
    }
}
