//! Several commits of different kinds, for tests of the past.

use crate::fixture::Fixture;
use crate::tree::Tree;

/// What the base holds before the first step.
pub const PREPARE: &str = "
    mkdir -p etc/conf.d data/old/deep; echo one > etc/one; echo two > etc/two
    ln etc/two data/link; ln -s etc/one pointer; echo kept > data/old/deep/file
    seq 300000 > data/large; printf 'mode' > run.sh; chmod 640 run.sh; touch -d 2001-01-01 etc/one
";

/// Each step is one commit.
pub const STEPS: [&str; 6] = [
    "echo new > etc/one; sed -i s/two/zwei/ etc/two; echo created > etc/conf.d/created",
    "rm -r data/old; mkdir data/old; echo other > data/old/other",
    "mv etc/conf.d etc/conf; mv etc/one etc/first; ln -sf etc/first pointer",
    "printf page | dd of=data/large bs=1 seek=200000 conv=notrunc status=none; chmod 755 run.sh",
    "rm data/link; echo more >> etc/two; touch -d 1999-01-01 run.sh
     printf other | dd of=data/large bs=1 seek=200001 conv=notrunc status=none",
    "rm -r etc data run.sh pointer; mkdir only; echo left > only/file",
];

/// Commits all steps, by turns in the view that `run` chooses and in an exact view. Returns the
/// trees before the first, between them and at the end.
#[track_caller]
pub fn commit_all(fixture: &Fixture) -> Vec<Tree> {
    let mut trees = vec![fixture.look()];
    for (number, step) in STEPS.iter().enumerate() {
        match number % 2 {
            0 => fixture.store.run(step).expect(0),
            _ => fixture.store.run_exact(step).expect(0),
        };
        trees.push(fixture.look());
    }
    trees
}
