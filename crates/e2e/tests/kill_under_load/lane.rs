//! A client's own directory. Every commit in it goes from one number to the next, and all
//! its files then contain that number.

use std::fs;
use std::path::Path;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH};
use atomdir_testing::{Fixture, Random};

use crate::Harm;
use crate::client::{Ended, Victim};
use crate::way::{COMMON, Way};

/// A file of this length is changed in place.
const PAGES_LENGTH: usize = 2 << 20;
pub const PLACES: [usize; 2] = [4096, 1_500_000];
/// The service is never killed so often during one call of the command.
const KILLS_OF_ONE_MAX: usize = 20;
const FILES: [&str; 3] = ["a", "b", "sub/c"];

/// Aborts a transaction that survives the service. Tries again if the service is killed meanwhile
/// or while it starts. Returns the exit code: 0, or NO_SUCH if the transaction had ended before.
fn abort(fixture: &Fixture, id: &str) -> i32 {
    for _ in 0..KILLS_OF_ONE_MAX {
        let aborted = fixture.store.call(["abort", id]);
        if [0, NO_SUCH].contains(&aborted.code) {
            return aborted.code;
        }
    }
    panic!("transaction {id} cannot be aborted");
}

/// The script that fills the base before it becomes a store.
pub fn preparation(lanes: usize) -> String {
    let mut script = format!("touch {COMMON}\n");
    for lane in 0..lanes {
        script += &format!(
            "mkdir -p lane{lane}/sub lane{lane}/dir0; cd lane{lane}
             for file in a b sub/c dir0/in; do echo 0 > $file; done
             head -c {PAGES_LENGTH} /dev/zero > pages; cd ..\n"
        );
    }
    script
}

#[derive(Debug)]
pub struct Lane {
    number: usize,
    /// The number in the base must be between these two.
    certain: u64,
    possible: u64,
    /// The last commit that returned, if it was lazy.
    returned_lazy: u64,
    pub commits: u64,
    pub failures: usize,
    /// The messages of clients that failed although neither they nor their commands were
    /// killed.
    complaints: Vec<String>,
    unheard_begin: bool,
    /// Whether a client was killed in this round.
    client_was_killed: bool,
}

/// What is known about the commit when its client has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Committed,
    Aborted,
    Unknown,
}

impl Lane {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            certain: 0,
            possible: 0,
            returned_lazy: 0,
            commits: 0,
            failures: 0,
            complaints: Vec::new(),
            unheard_begin: false,
            client_was_killed: false,
        }
    }

    /// Runs one transaction, by one command or by several.
    pub fn operate(&mut self, fixture: &Fixture, victim: &Victim, random: &mut Random) {
        let lazy = random.chance(3);
        let durability = if lazy { "lazy" } else { "durable" };
        let isolation = *random.choose(&["snapshot", "serializable"]);
        let options = ["--durability", durability, "--isolation", isolation];
        let way = Way::choose(random);
        if way != Way::Native && random.chance(3) {
            self.begin_and_commit(fixture, victim, way, &options);
            return;
        }
        let script = way.script(self.number);
        let shell = ["--", "/bin/sh", "-ec", &script];
        let run = ["run", "--on-conflict=abort"];
        let arguments = [&run, way.options(), &options, &shell].concat();
        let ended = self.run(fixture, victim, &arguments);
        // A transaction in which other processes work stays open. The message names the command
        // that aborts it.
        for rest in ended.stderr.split("`atomdir abort ").skip(1) {
            let id = rest.split([' ', '`']).next().unwrap_or_default();
            abort(fixture, id);
        }
        let outcome = match () {
            () if ended.status.success() => Outcome::Committed,
            () if ended.killed.before_commit => Outcome::Aborted,
            () if ended.status.code() == Some(CONFLICT) => Outcome::Aborted,
            () => Outcome::Unknown,
        };
        self.note(outcome, &ended, lazy);
    }

    /// Begins a transaction detached, so that no client's death ends it, and commits it.
    fn begin_and_commit(&mut self, fixture: &Fixture, victim: &Victim, way: Way, options: &[&str]) {
        let lazy = options.contains(&"lazy");
        let begun = self.run(fixture, victim, &[&["begin"], options].concat());
        let id = begun.stdout.lines().next().unwrap_or_default();
        if !begun.status.success() {
            // The client may have kept the transaction, which survives the service, without
            // printing its id yet.
            self.unheard_begin |= id.is_empty();
            if !id.is_empty() {
                abort(fixture, id);
            }
            return self.note(Outcome::Aborted, &begun, lazy);
        }
        let script = way.script(self.number);
        let written = self.run(
            fixture,
            victim,
            &["exec", id, "--", "/bin/sh", "-ec", &script],
        );
        if !written.status.success() {
            // The transaction is still open, even if the service was killed.
            abort(fixture, id);
            return self.note(Outcome::Aborted, &written, lazy);
        }
        let mut committed = self.run(fixture, victim, &["commit", id]);
        committed.stdout = written.stdout;
        if committed.status.success() {
            return self.note(Outcome::Committed, &committed, lazy);
        }
        let outcome = if abort(fixture, id) == 0 {
            Outcome::Aborted
        } else {
            Outcome::Unknown
        };
        self.note(outcome, &committed, lazy);
    }

    /// Whether a `begin` was killed between keeping its transaction and printing the id. It
    /// may have left a transaction whose id nobody knows.
    pub fn take_unheard_begin(&mut self) -> bool {
        std::mem::take(&mut self.unheard_begin)
    }

    fn run(&self, fixture: &Fixture, victim: &Victim, arguments: &[&str]) -> Ended {
        let outputs = fixture.scratch.join(format!("clients/{}", self.number));
        victim.run(fixture.store.command(arguments), &outputs)
    }

    fn note(&mut self, outcome: Outcome, ended: &Ended, lazy: bool) {
        // A killed client's commit may come after the begin of later transactions, and
        // its abort after their first writes.
        let may_meet_own = self.possible > self.certain || self.client_was_killed;
        let is_own_conflict = may_meet_own && ended.status.code() == Some(CONFLICT);
        self.client_was_killed |= ended.killed.client;
        let was_killed = ended.killed.client || ended.killed.command;
        if outcome != Outcome::Committed && !was_killed && !is_own_conflict {
            self.complaints
                .push(format!("{}: {}", ended.status, ended.stderr));
        }
        match outcome {
            Outcome::Committed => {
                let last = ended.stdout.lines().last().map(str::parse);
                let said: u64 = match last {
                    Some(Ok(number)) => number,
                    _ => panic!("the script must print its number last: {ended:?}"),
                };
                assert!(
                    (self.certain + 1..=self.possible + 1).contains(&said),
                    "{self:?} {said}"
                );
                self.possible = said;
                self.commits += 1;
                if lazy {
                    self.returned_lazy = said;
                } else {
                    self.certain = said;
                }
            }
            Outcome::Aborted => self.failures += 1,
            Outcome::Unknown => {
                self.failures += 1;
                self.possible += 1;
            }
        }
    }

    /// Checks the base after everything has come to rest.
    pub fn verify(&mut self, base: &Path, harm: Harm) {
        let lane = base.join(format!("lane{}", self.number));
        let complaints = std::mem::take(&mut self.complaints);
        self.client_was_killed = false;
        assert!(
            complaints.is_empty() || harm != Harm::default(),
            "nobody disturbed it: {complaints:?}"
        );
        if !harm.service_killed {
            self.certain = self.certain.max(self.returned_lazy);
        }
        let number = read_number(&lane.join("a"));
        assert!(
            (self.certain..=self.possible).contains(&number),
            "{number} in the base: {self:?}, {harm:?}"
        );
        for file in FILES {
            assert_eq!(read_number(&lane.join(file)), number, "{file} of {self:?}");
        }
        let pages = fs::read(lane.join("pages")).expect("read");
        assert_eq!(pages.len(), PAGES_LENGTH);
        for place in PLACES {
            let text: Vec<u8> = pages[place..]
                .iter()
                .copied()
                .take_while(|byte| *byte != 0)
                .collect();
            let text = String::from_utf8(text).expect("numbers only");
            let found = if text.is_empty() {
                0
            } else {
                text.trim().parse().expect("a number")
            };
            assert_eq!(found, number, "at {place} of {self:?}");
        }
        assert_eq!(
            names(&lane),
            ["a", "b", &format!("dir{number}"), "pages", "sub"]
        );
        assert_eq!(names(&lane.join(format!("dir{number}"))), ["in"]);
        assert_eq!(names(&lane.join("sub")), ["c"]);
        (self.certain, self.possible, self.returned_lazy) = (number, number, number);
    }
}

fn read_number(path: &Path) -> u64 {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{} says {text:?}", path.display()))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("listed").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().expect("names are text"))
        .collect();
    names.sort();
    names
}
