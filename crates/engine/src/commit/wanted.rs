//! What is to be committed, and how much of it.

use atomdir_types::Partner;

use crate::transaction::listed::Sides;

/// How much of a transaction's changes a commit lands.
#[derive(Debug, Clone, Copy)]
pub enum Portion<'a> {
    All,
    /// The changes at and below these paths, and the changes that these need. The transaction stays
    /// open with the rest.
    Part {
        paths: &'a [Vec<u8>],
        /// The label of this commit in the log, if it is not the transaction's.
        label: Option<&'a [u8]>,
    },
    /// All but the changes for which their side is taken. Sides are taken by the numbers of conflicts
    /// in the list that [`Store::list_conflicts`] returned last; any other conflict refuses the commit.
    Sides(&'a Sides),
}

impl<'a> Portion<'a> {
    /// A part that has the transaction's label.
    pub fn part(paths: &'a [Vec<u8>]) -> Portion<'a> {
        let label = None;
        Portion::Part { paths, label }
    }
}

/// What is to be committed.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    Portion(Portion<'a>),
    /// All, if nothing has changed since the commit was set aside.
    AsSetAside,
    /// All, up to the log: the transaction votes for the commit, which this one decides.
    Vote(&'a Partner),
    /// All of a transaction that coordinates others.
    Coordinated,
    /// So much of a transaction that has voted for the commit.
    Decided(Portion<'a>),
}
