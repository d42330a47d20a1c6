//! Estimates how much memory decoded values take. The elements of a list may take one
//! byte each in a message and dozens in memory, so the length of a message does not
//! limit the memory of the decoded value.

use crate::{EndedTransaction, Reply, TransactionStatus};
use atomdir_types::{ChangeLine, CommitSummary, Conflict, LockStatus, MergeStep, Sequence};

/// About how much the allocator adds to each allocation.
const ALLOCATION: usize = 16;

trait Footprint: Sized {
    /// The bytes that the value has allocated, without its own size.
    fn heap(&self) -> usize;
}

impl Reply {
    /// About how many bytes the reply takes in memory, if it is a part that a client
    /// keeps until the last reply.
    pub fn memory(&self) -> usize {
        match self {
            Reply::Changes(part) => part.heap(),
            Reply::Conflicts(part) => part.heap(),
            Reply::Contents(part) => part.heap(),
            Reply::Problems(part) => part.heap(),
            Reply::Transactions(part) => part.heap(),
            Reply::Commits(part) => part.heap(),
            Reply::Ended(part) => part.heap(),
            Reply::MergeSteps(part) => part.heap(),
            Reply::Merge(_)
            | Reply::Lend(_)
            | Reply::Left(_)
            | Reply::Leave(_)
            | Reply::Progress(_)
            | Reply::Done(_)
            | Reply::Failed(_) => 0,
        }
    }
}

impl<T: Footprint> Footprint for Vec<T> {
    fn heap(&self) -> usize {
        let of_elements: usize = self.iter().map(Footprint::heap).sum();
        allocation(self.len() * size_of::<T>()) + of_elements
    }
}

impl Footprint for String {
    fn heap(&self) -> usize {
        allocation(self.len())
    }
}

impl<T: Footprint> Footprint for Option<T> {
    fn heap(&self) -> usize {
        self.as_ref().map_or(0, Footprint::heap)
    }
}

impl Footprint for u8 {
    fn heap(&self) -> usize {
        0
    }
}

impl Footprint for u32 {
    fn heap(&self) -> usize {
        0
    }
}

impl Footprint for ChangeLine {
    fn heap(&self) -> usize {
        self.path.heap() + self.from.heap()
    }
}

impl Footprint for Conflict {
    fn heap(&self) -> usize {
        self.path.heap() + allocation(self.by.label().len())
    }
}

impl Footprint for TransactionStatus {
    fn heap(&self) -> usize {
        self.label.heap()
            + self.locks.heap()
            + self.met.heap()
            + self.view_path.heap()
            + self.holders.heap()
            + self.savepoints.heap()
    }
}

impl Footprint for LockStatus {
    fn heap(&self) -> usize {
        self.path.heap()
    }
}

impl Footprint for MergeStep {
    fn heap(&self) -> usize {
        match self {
            MergeStep::Link { path, to } => path.heap() + to.heap(),
            MergeStep::Remove { path, .. }
            | MergeStep::Park { path, .. }
            | MergeStep::Place { path, .. }
            | MergeStep::Create { path }
            | MergeStep::Dress { path, .. } => path.heap(),
        }
    }
}

impl Footprint for EndedTransaction {
    fn heap(&self) -> usize {
        self.label.heap()
    }
}

impl Footprint for CommitSummary {
    fn heap(&self) -> usize {
        self.label.heap() + self.takes_back.heap()
    }
}

impl Footprint for Sequence {
    fn heap(&self) -> usize {
        0
    }
}

fn allocation(length: usize) -> usize {
    match length {
        0 => 0,
        length => length + ALLOCATION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[test]
    fn a_list_counts_as_what_it_decodes_to() {
        // A count of two bytes, then this many empty lists or strings.
        let elements = |tag: u8, zeros: usize| {
            let mut payload = vec![tag, 0xff, 0x7f];
            payload.resize(3 + zeros * 0x3fff, 0);
            frame::decode::<Reply>(&payload).expect("well formed")
        };
        let count = 0x3fff;
        for (reply, element) in [
            // For example, an addition without a path.
            (elements(1, 3), size_of::<ChangeLine>()),
            (elements(4, 1), size_of::<String>()),
        ] {
            assert_eq!(reply.memory(), count * element + ALLOCATION, "{element}");
        }
        let contents = Reply::Contents(vec![1; 1000]);
        assert_eq!(contents.memory(), 1000 + ALLOCATION);
    }
}
