//! Stores for these tests.

use atomdir::{Door, Store, StoreOptions};
use atomdir_testing::Scratch;
use std::path::{Path, PathBuf};

/// A store in a scratch directory of its own.
pub struct Place {
    pub scratch: Scratch,
    pub base: PathBuf,
}

impl Place {
    pub fn new(test: &str) -> Place {
        let scratch = Scratch::new(test);
        let base = scratch.join("base");
        std::fs::create_dir(&base).expect("a new directory");
        atomdir::init(&base, None).expect("a store");
        Place { scratch, base }
    }

    /// Opens the store in this process.
    pub fn open(&self) -> Store {
        open_embedded(&self.base)
    }

    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.base.join(name)).ok()
    }
}

pub fn open_embedded(base: &Path) -> Store {
    let mut options = StoreOptions::new();
    let store = options.door(Door::Embedded).open(base);
    store.expect("the store opens")
}
