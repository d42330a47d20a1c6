//! Records what happened to a disk, so that crashes can be tried at every point
//! of it.

use std::sync::Arc;

use crate::effect::{Effect, Scope, Volatile};
use crate::image::{Device, Inode, Number};

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Born(Number, Arc<Inode>),
    Effect(Arc<Effect>),
    Sync(Scope, Device),
    LostContents(Number),
    Gone(Number),
    /// From here on a crash must leave one of these trees.
    Allowed(Arc<[usize]>),
}

#[derive(Debug, Clone)]
pub struct Trace {
    pub(crate) start: Volatile,
    pub(crate) events: Vec<Event>,
}

impl Trace {
    pub(crate) fn new(start: Volatile) -> Trace {
        Trace {
            start,
            events: Vec::new(),
        }
    }
}

impl Event {
    /// Whether one call did both.
    pub(crate) fn is_of_call(&self, other: &Event) -> bool {
        match (self, other) {
            (Event::Effect(one), Event::Effect(other)) => one.at == other.at,
            (Event::Effect(_), Event::Born(..)) => true,
            _ => false,
        }
    }

    /// Brings the disk to its state after this event.
    pub(crate) fn replay(&self, disk: &mut Volatile) {
        match self {
            Event::Born(number, inode) => disk.durable.insert(*number, inode.clone()),
            Event::Effect(effect) => disk.pending.push(effect.clone()),
            Event::Sync(scope, device) => disk.sync(*scope, *device),
            Event::LostContents(number) => disk.lose_contents(*number),
            Event::Gone(number) => disk.durable.remove(*number),
            Event::Allowed(_) => {}
        }
    }
}
