//! Random changes inside files in many rounds, each a transaction. What the model in the
//! helper program predicts must be in the base after every commit, and in every view that
//! began in the meantime until that view ends. After an abort it must be nowhere.

use std::process::Command;

use atomdir_testing::{Fixture, Owner, Random, View, capture_output, for_each_owner, helper, pick};

struct Rounds {
    fixture: Fixture,
    seed: String,
    committed: u64,
    /// Views, each with how many rounds were committed when it began.
    old_views: Vec<(View, u64)>,
}

impl Rounds {
    fn new(seed: u64, owner: Owner) -> Self {
        let seed = seed.to_string();
        let prepare = format!("'{}' child random_file_io prepare {seed}", program());
        Self {
            fixture: Fixture::owned_by("random-files", owner, &prepare),
            seed,
            committed: 0,
            old_views: Vec::new(),
        }
    }

    fn script(&self, role: &str, rounds: u64) -> String {
        format!(
            "exec '{}' child random_file_io {role} {} {rounds}",
            program(),
            self.seed
        )
    }

    fn write(&mut self, end: &str) {
        let script = self.script("write", self.committed);
        let options = ["--on-success", end, "--on-error", "abort"];
        self.fixture.store.run_with(&options, &script).expect(0);
        if end == "commit" {
            self.committed += 1;
        }
    }

    fn check_base(&self) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.script("check", self.committed)]);
        capture_output(command.current_dir(&self.fixture.base)).expect(0);
    }

    fn begin(&mut self) {
        self.old_views
            .push((self.fixture.store.begin(), self.committed));
    }

    /// An old view must still show the state at its begin.
    fn check_old_view(&self, number: usize) {
        let (view, rounds) = &self.old_views[number];
        self.fixture
            .store
            .exec(view, &self.script("check", *rounds))
            .expect(0);
    }

    fn end_old_view(&mut self, number: usize) {
        let (view, _) = self.old_views.swap_remove(number);
        self.fixture.store.abort(&view).expect(0);
    }
}

fn program() -> String {
    helper("posix_programs").to_string_lossy().into_owned()
}

#[test]
fn files_agree_with_the_model_round_after_round() {
    for_each_owner("random_files", |owner| {
        let mut random = Random::for_test("random_files");
        for _ in 0..pick(1, 8) {
            thirty_rounds(&mut random, owner);
        }
    });
}

fn thirty_rounds(random: &mut Random, owner: Owner) {
    let mut rounds = Rounds::new(random.number() >> 32, owner);
    for _ in 0..30 {
        match random.below(10) {
            0 => rounds.write("abort"),
            1 if rounds.old_views.len() < 4 => rounds.begin(),
            2 if !rounds.old_views.is_empty() => {
                rounds.end_old_view(random.below(rounds.old_views.len()));
            }
            _ => rounds.write("commit"),
        }
        if !rounds.old_views.is_empty() {
            rounds.check_old_view(random.below(rounds.old_views.len()));
        } else if random.chance(4) {
            rounds
                .fixture
                .store
                .call(["service", "stop", "--abort"])
                .expect(0);
        }
        rounds.check_base();
    }
    while let Some(number) = rounds.old_views.len().checked_sub(1) {
        rounds.check_old_view(number);
        rounds.end_old_view(number);
    }
    rounds.check_base();
    rounds.fixture.store.assert_at_rest();
}
