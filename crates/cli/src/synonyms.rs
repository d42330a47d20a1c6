//! Verbs that users may try because other programs have them, and what to do here instead.

const SYNONYMS: [(&[&str], &str); 17] = [
    (
        &["revert", "reset"],
        "`atomdir undo COMMIT` takes back what a commit changed, `atomdir restore COMMIT -- PATH` \
         brings files back as they were then, `atomdir abort` drops the changes \
         of an open transaction, `atomdir rollback NAME` goes back to a savepoint in it",
    ),
    (
        &["checkout", "switch", "worktree", "view"],
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
        &["stop", "unmount", "close"],
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
    (
        &["merge"],
        "`atomdir commit TX --merge` keeps both changes of a text that others have changed, too; \
         `atomdir conflicts TX` lists what is in the way",
    ),
    (
        &["rebase", "pull", "fetch"],
        "`atomdir refresh TX` puts a transaction's changes on top of what others have committed \
         meanwhile",
    ),
    (
        &["push", "remote"],
        "a store has no remotes: `atomdir commit TX` makes a transaction's changes take effect in \
         the store itself",
    ),
    (
        &["branch", "branches"],
        "several transactions can be open at once: `atomdir begin` begins one, `atomdir list` \
         lists them",
    ),
    (
        &["tag"],
        "commits have numbers: `atomdir log` lists them with what `-m TEXT` of `run`, `shell` or \
         `begin` says of them; `atomdir savepoint NAME` names a state of an open transaction",
    ),
    (
        &["reflog", "history", "blame"],
        "`atomdir log` lists the commits, `atomdir log -- PATH` those that changed PATH, and \
         `atomdir show COMMIT` shows what one changed",
    ),
    (
        &["cat", "less", "grep"],
        "run any program in a transaction or in the past: `atomdir exec -- cat FILE` shows a file \
         as the open transaction has it, `atomdir at COMMIT -- cat FILE` as it was after a commit",
    ),
];

/// Shorter words are one slip away from too many others.
const SLIP_LENGTH_MIN: usize = 4;

/// Also if there is one slip in the word, unless it is as near to one of our own verbs.
pub fn instead_of(word: &str, own: &[&str]) -> Option<&'static str> {
    let find = |is_meant: &dyn Fn(&str) -> bool| {
        let found = SYNONYMS
            .iter()
            .find(|(words, _)| words.iter().any(|one| is_meant(one)));
        found.map(|(_, instead)| *instead)
    };
    let is_slip = |meant: &str| word.len() >= SLIP_LENGTH_MIN && is_one_slip(word, meant);
    find(&|one| one == word).or_else(|| match own.iter().any(|verb| is_slip(verb)) {
        true => None,
        false => find(&is_slip),
    })
}

/// Whether one letter is missing, too much or another one, or two are swapped.
fn is_one_slip(typed: &str, meant: &str) -> bool {
    let (typed, meant) = (typed.as_bytes(), meant.as_bytes());
    let pairs = typed.iter().zip(meant);
    let start = pairs.take_while(|(one, other)| one == other).count();
    let (typed, meant) = (&typed[start..], &meant[start..]);
    let pairs = typed.iter().rev().zip(meant.iter().rev());
    let end = pairs.take_while(|(one, other)| one == other).count();
    match (&typed[..typed.len() - end], &meant[..meant.len() - end]) {
        ([one, two], [first, second]) => (one, two) == (second, first),
        (typed, meant) => typed.len() <= 1 && meant.len() <= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_one_letter_or_two_swapped_ones() {
        for typed in ["checkot", "checkouut", "chekcout", "checkour", "checkout"] {
            assert!(is_one_slip(typed, "checkout"), "{typed}");
        }
        for typed in ["check", "chekot", "chekcuot", "", "tuokcehc"] {
            assert!(!is_one_slip(typed, "checkout"), "{typed}");
        }
    }

    #[test]
    fn own_verbs_are_preferred_unless_the_word_is_exactly_another_programs() {
        let own = ["status", "list"];
        assert_eq!(instead_of("stats", &own), None);
        assert_eq!(instead_of("stash", &own), instead_of("stasg", &own));
        assert_eq!(instead_of("lst", &[]), None, "too short");
    }
}
