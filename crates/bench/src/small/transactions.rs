//! Atomdir's library, in this process or through the service, and the crate fstx.

use atomdir::{Door, Durability, Store, StoreOptions};

use super::{Peer, Session, Work};
use crate::error::Result;
use crate::measure::Side;

pub struct Library {
    store: Store,
    durability: Durability,
}

impl Library {
    /// Opens the store, which the parent has made.
    pub fn open(work: &Work) -> Result<Library> {
        let door = match work.side {
            Side::Service => Door::Service,
            _ => Door::Embedded,
        };
        let store = StoreOptions::new().door(door).open(&work.directory);
        Ok(Library {
            store: store.map_err(atomdir::Error::from)?,
            durability: match work.is_lazy {
                true => Durability::Lazy,
                false => Durability::Durable,
            },
        })
    }
}

impl Peer for Library {
    fn session(&self, _thread: u64) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Library {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        let commit = || -> std::result::Result<(), atomdir::Error> {
            let tx = self.store.transaction().durability(self.durability);
            let tx = tx.begin()?;
            for name in names {
                tx.write(name, contents)?;
            }
            tx.commit()?;
            Ok(())
        };
        Ok(commit()?)
    }
}

#[cfg(feature = "fstx")]
pub struct Fstx(Work);

#[cfg(feature = "fstx")]
impl Fstx {
    /// Makes the first transaction here, since it would fail if several threads made it at once.
    pub fn open(work: &Work) -> Result<Fstx> {
        let first = fstx::Transaction::begin(&work.directory);
        first.map_err(|error| crate::error::Error::Peer(error.to_string()))?;
        Ok(Fstx(work.clone()))
    }
}

#[cfg(feature = "fstx")]
impl Peer for Fstx {
    fn session(&self, _thread: u64) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

#[cfg(feature = "fstx")]
impl Session for &Fstx {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        let commit = || -> fstx::Result<()> {
            let mut tx = fstx::Transaction::begin(&self.0.directory)?;
            for name in names {
                tx.write(name, contents)?;
            }
            tx.commit()?;
            Ok(())
        };
        commit().map_err(|error| crate::error::Error::Peer(error.to_string()))
    }
}
