//! What the kernel has to forget for a commit.

use std::collections::HashSet;

use atomdir_disk::{Identity, Kind, Name};
use atomdir_format::record::{CommitRecord, Locator};

use crate::ids::TransactionId;

/// What a commit is about to change in the base.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Names that lead to other objects afterwards or to none, and those of files that change.
    pub entries: HashSet<(Identity, Name)>,
    /// Objects of which attributes, contents or entries change.
    pub objects: HashSet<Identity>,
    /// Objects that lose their last name.
    pub dying: Vec<Identity>,
    /// Those that commit.
    pub transactions: HashSet<TransactionId>,
}

impl Touched {
    /// Adds what a commit changes.
    pub(super) fn note(&mut self, record: &CommitRecord) {
        let touched = self;
        let directory = |number: u32| record.directories[number as usize].identity;
        let note_object = |touched: &mut Touched, number: u32| {
            let object = &record.objects[number as usize];
            touched.objects.insert(object.identity);
            if let Locator::Entry {
                directory: above,
                name,
            } = &object.locator
            {
                touched.entries.insert((directory(*above), name.clone()));
            }
        };
        for entry in &record.entries {
            let above = directory(entry.directory);
            touched.objects.insert(above);
            touched.entries.insert((above, entry.name.clone()));
            touched.objects.extend(entry.before);
            if let Some(after) = entry.after {
                note_object(touched, after);
            }
        }
        for update in &record.updates {
            let object = &record.objects[update.object as usize];
            match object.kind {
                // It is never replaced, so its name stays. Programs whose current directory it is
                // would have none if the kernel forgot the name.
                Kind::Directory => {
                    touched.objects.insert(object.identity);
                }
                _ => note_object(touched, update.object),
            }
        }
    }
}
