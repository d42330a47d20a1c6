//! Which cells are tried, when the outside writers act, and who all of them are.

use std::path::Path;

use atomdir_testing::{Fixture, User};

/// When the outside writers act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// After the transaction's steps.
    After,
    /// When the transaction has looked at all objects, and before its steps.
    Between,
}

/// What of the matrix is tried: one in so many of its cells, chosen by the seed.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    pub order: Order,
    pub one_in: usize,
    pub seed: u64,
    /// The overlay lies over the base.
    pub is_exclusive: bool,
}

impl Trial {
    pub fn to_text(self) -> String {
        let is_between = self.order == Order::Between;
        let bits = u64::from(is_between) | u64::from(self.is_exclusive) << 1;
        format!("{bits} {} {}", self.one_in, self.seed)
    }

    pub fn from_text(text: &str) -> Option<Trial> {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next()?;
        let bits = next()?;
        let order = match bits & 1 {
            1 => Order::Between,
            _ => Order::After,
        };
        Some(Trial {
            is_exclusive: bits & 2 != 0,
            order,
            one_in: next()? as usize,
            seed: next()?,
        })
    }
}

/// Who runs the transaction. Outside writers are of the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    Root,
    Owner,
    /// In a store of root's.
    Admitted,
}

impl Actor {
    pub fn user(self, scratch: &Path) -> User {
        match self {
            Actor::Root => User::root(scratch),
            Actor::Owner => User::ordinary(scratch),
            Actor::Admitted => User::stranger(scratch),
        }
    }

    pub fn store(self) -> Fixture {
        let prepare = "mkdir -m 777 cells";
        match self {
            Actor::Root => Fixture::new("outside-writers", prepare),
            Actor::Owner => Fixture::owned_by("outside-writers", User::ordinary, prepare),
            Actor::Admitted => {
                let fixture = Fixture::new("outside-writers", prepare);
                let user = self.user(fixture.scratch.path());
                fixture.store.call(["config", "allow", user.name]).expect(0);
                fixture.store.call(["service", "start"]).expect(0);
                fixture
            }
        }
    }
}
