use std::any::Any;

/// As long as this lives, its thread acts at a user's expense: see
/// [`Disk::charge`](crate::Disk::charge).
#[must_use = "it ends when it is dropped"]
pub struct Charge {
    /// Dropping this ends the charge.
    _end: Option<Box<dyn Any>>,
}

impl Charge {
    /// A charge that has nothing to undo.
    pub fn none() -> Charge {
        Charge { _end: None }
    }

    pub(crate) fn new(end: impl Any) -> Charge {
        Charge {
            _end: Some(Box::new(end)),
        }
    }
}
