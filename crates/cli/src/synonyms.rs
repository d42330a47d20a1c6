//! Verbs that users may try because other programs have them, and what to do here instead.

const SYNONYMS: [(&[&str], &str); 10] = [
    (
        &["revert", "reset"],
        "`atomdir undo COMMIT` takes back what a commit changed, `atomdir restore COMMIT -- PATH` \
         brings files back as they were then, `atomdir abort` drops the changes \
         of an open transaction, `atomdir rollback NAME` goes back to a savepoint in it",
    ),
    (
        &["checkout", "switch", "worktree", "mount", "view"],
        "`atomdir begin` prints the path of a directory that shows the store as of now, \
         `atomdir shell` runs a shell in one",
    ),
    (
        &["stash"],
        "`atomdir run --on-success keep` keeps changes in an open transaction, for `atomdir commit` \
         or `atomdir abort` later",
    ),
    (
        &["ls", "ps", "transactions", "tx"],
        "`atomdir list` lists the open transactions; for files, `atomdir exec -- ls`",
    ),
    (
        &["rm", "remove", "delete", "mv", "cp", "add"],
        "Atomdir has no verbs for files: run any program in a transaction, as in \
         `atomdir run -- rm FILE`",
    ),
    (
        &["cancel", "discard", "drop", "kill"],
        "`atomdir abort` drops a transaction's changes",
    ),
    (
        &["start", "open", "new", "transaction"],
        "`atomdir begin` begins a transaction, `atomdir run` runs a command as one, \
         `atomdir service start` starts the service",
    ),
    (
        &["stop", "umount", "unmount", "close"],
        "`atomdir commit` and `atomdir abort` end a transaction and its view, \
         `atomdir service stop` ends the service",
    ),
    (
        &["create", "clone"],
        "`atomdir init DIR` makes a directory a store",
    ),
    (
        &["fsck", "verify", "repair"],
        "`atomdir check` looks for damage, `atomdir recover` recovers the store",
    ),
];

pub fn instead_of(verb: &str) -> Option<&'static str> {
    let found = SYNONYMS.iter().find(|(words, _)| words.contains(&verb));
    found.map(|(_, instead)| *instead)
}
