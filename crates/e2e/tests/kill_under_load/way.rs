//! The ways to work in a transaction that clients take in turn.

use atomdir_testing::{Random, binary};

use crate::lane::PLACES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Exact,
    Native,
    /// Half of it in a nested transaction, after another that fails.
    Nested,
    /// With a savepoint that is gone back to.
    Savepoint,
    /// With locks, of which all clients want one.
    Locked,
    /// Told of conflicts while it writes.
    Early,
}

/// What all clients lock in turn, and nobody changes.
pub const COMMON: &str = "common";

impl Way {
    pub fn choose(random: &mut Random) -> Self {
        let ways = [
            Self::Exact,
            Self::Exact,
            Self::Native,
            Self::Nested,
            Self::Savepoint,
            Self::Locked,
            Self::Early,
        ];
        *random.choose(&ways)
    }

    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["--view", "native"],
            Self::Early => &["--view", "exact", "--conflicts", "early"],
            _ => &["--view", "exact"],
        }
    }

    /// From the number in the base to the next one, said when it is done. The
    /// numbers in the file of pages end where a zero byte is.
    pub fn script(self, lane: usize) -> String {
        let atomdir = binary();
        let atomdir = atomdir.display();
        let first = "echo $n > new; mv new a; echo $n > b; echo $n > sub/c";
        let places = PLACES.map(|place| {
            format!("echo $n | dd of=pages bs=1 seek={place} conv=notrunc status=none")
        });
        let second = format!(
            "{}
             mkdir dir$n; mv dir$old/in dir$n/in; echo $n > dir$n/in; rmdir dir$old",
            places.join("; ")
        );
        let work = match self {
            Self::Exact | Self::Native | Self::Early => format!("{first}\n{second}"),
            Self::Nested => format!(
                "{first}
                 {atomdir} run -- /bin/sh -ec 'echo 0 > a; rm -r sub; exit 3' || test $? = 3
                 {atomdir} run -- /bin/sh -ec '{second}'"
            ),
            Self::Savepoint => format!(
                "{first}
                 {atomdir} savepoint here
                 echo 0 > a; rm -r sub dir$old; mkdir sub; echo 0 > sub/d
                 {atomdir} rollback here
                 {second}"
            ),
            Self::Locked => format!(
                "{atomdir} lock --exclusive --subtree ../lane{lane}
                 {atomdir} lock --exclusive ../{COMMON}
                 {first}
                 {atomdir} unlock ../{COMMON}
                 {second}"
            ),
        };
        format!("cd lane{lane}; old=$(cat a); n=$((old + 1)); export old n\n{work}\necho $n")
    }
}
