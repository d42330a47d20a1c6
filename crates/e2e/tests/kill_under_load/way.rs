//! The ways to work in a transaction. Clients use them in turn.

use atomdir_testing::{Random, binary};

use crate::lane::PLACES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Exact,
    Native,
    /// Most of the work is in two nested transactions at a time, after another that fails.
    Nested,
    /// The work includes a rollback to a savepoint.
    Savepoint,
    /// The work takes locks, one of which all clients want.
    Locked,
    /// The transaction learns of conflicts while it writes.
    Early,
}

/// The file that all clients lock in turn and nobody changes.
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

    /// A script that goes from the number in the base to the next, and prints that at the end.
    /// In the file of pages a number ends at a zero byte.
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
                "echo $n > new; mv new a; echo 0 > b
                 {atomdir} run -- /bin/sh -ec 'echo 0 > a; rm -r sub; exit 3' || test $? = 3
                 {atomdir} run -- /bin/sh -ec 'echo $n > b; echo $n > sub/c' & beside=$!
                 {atomdir} run -- /bin/sh -ec '{second}'
                 wait $beside"
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
