use std::any::Any;

/// While it lives, its thread acts at the expense of a user: see
/// [`Disk::charge`](crate::Disk::charge).
#[must_use = "it ends when it is dropped"]
pub struct Charge {
    /// What ends it.
    _end: Option<Box<dyn Any>>,
}

impl Charge {
    /// Nothing is to be undone.
    pub fn none() -> Charge {
        Charge { _end: None }
    }

    pub(crate) fn new(end: impl Any) -> Charge {
        Charge {
            _end: Some(Box::new(end)),
        }
    }
}
