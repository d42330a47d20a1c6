//! What a power cut must leave besides the base: an open transaction, and the history.

use atomdir_testing::tree::compare;
use atomdir_testing::{Store, View, look};

use crate::workload::{Expected, options};

/// A transaction that was flushed before the workload began, and is open while others commit.
pub struct Survivor {
    view: View,
    shown: String,
}

impl Survivor {
    pub fn begin(store: &Store) -> Self {
        let view = store.begin();
        let changes = "mkdir mine; seq 5000 > mine/new; echo more >> lane0/old1; rm lane1/old2
            mv lane2/sub mine/sub; printf X | dd of=lane2/long bs=1 seek=2000000 conv=notrunc \
            status=none";
        store.exec(&view, changes).expect(0);
        store.call(["sync", &view.id]).expect(0);
        let shown = shown(store, &view);
        Self { view, shown }
    }

    /// Checks that the view shows what it showed before, although others have changed the base.
    pub fn check(&self, store: &Store) {
        assert_eq!(shown(store, &self.view), self.shown);
    }
}

fn shown(store: &Store, view: &View) -> String {
    let script = "find . -type f -printf '%P %m %n %T@\\n' | sort; find . -type l -printf '%P %l\\n' | sort
        find . -type d -printf '%P %m\\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum";
    store.exec(view, script).expect(0).text()
}

/// Undoes the commits after `first` up to `newest`, and compares the base with the tree after
/// `first`.
pub fn check_undo(store: &Store, expected: &Expected, (first, newest): (usize, usize)) {
    let (oldest, last) = (expected.numbers[first] + 1, expected.numbers[newest]);
    if oldest <= last {
        let undone = store.call(["undo", &format!("{oldest}..{last}")]);
        undone.expect(0);
    }
    let found = look(store.path());
    let differences = compare(&expected.trees[first], &found, &options());
    assert!(differences.is_empty(), "{differences:#?}");
}
