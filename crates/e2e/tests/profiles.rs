//! Programs that run in transactions because a store has a profile of them, and that know nothing of it.

#![cfg(test)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atomdir_testing::exit_code::{CONFIGURATION, NO_SUCH, NOT_PERMITTED, USAGE};
use atomdir_testing::{
    Fixture, Outcome, User, binary, capture_output, shell, users_can_mount, wait_until,
};

/// What it does is the first argument, after it has changed one file and before it changes the other.
const WORK: &str = "#!/bin/sh
echo new > a
case $1 in
fail) exit 3 ;;
die) kill -9 $$ ;;
status) $2 --json status ;;
wait) : > $2; while test -e $2; do sleep 0.1; done ;;
esac
cat > b
printf '%s' \"$ATOMDIR_TX\"
";

struct Programs<'a> {
    fixture: &'a Fixture,
    links: PathBuf,
    own: PathBuf,
}

impl<'a> Programs<'a> {
    /// Puts the program `work` into `PATH`, with links before it.
    fn new(fixture: &'a Fixture, options: &[&str]) -> Programs<'a> {
        let [own, links] = ["programs", "links"].map(|name| fixture.scratch.join(name));
        fs::create_dir(&own).expect("made");
        fs::write(own.join("work"), WORK).expect("written");
        shell(
            fixture.scratch.path(),
            "chmod 755 programs/work; mkdir -m 777 links",
        );
        let add = [&["profile", "add", "work"], options].concat();
        fixture.store.call(add).expect(0);
        let link = ["profile".as_ref(), "link".as_ref(), links.as_os_str()];
        fixture.store.call(link).expect(0);
        Programs {
            fixture,
            links,
            own,
        }
    }

    fn command(&self, user: &User, directory: &Path, words: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/env");
        user.dress(&mut command);
        let mut path = OsString::new();
        for one in [&self.links, &self.own] {
            path.push(one);
            path.push(":");
        }
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).current_dir(directory).args(words);
        command
    }

    #[track_caller]
    fn call_as(&self, user: &User, directory: &Path, words: &[&str]) -> Outcome {
        capture_output(&mut self.command(user, directory, words))
    }

    /// In the store, as its owner.
    #[track_caller]
    fn call(&self, words: &[&str]) -> Outcome {
        self.call_as(self.fixture.store.user(), &self.fixture.base, words)
    }

    #[track_caller]
    fn assert_files(&self, expected: &str) {
        assert_eq!(shell(&self.fixture.base, "cat a b").text(), expected);
    }
}

fn program() -> String {
    binary().display().to_string()
}

const OLD: &str = "echo old > a; echo old > b";

#[test]
fn each_run_of_a_program_is_a_transaction() {
    Fixture::for_each_owner("profile-run", OLD, |one| {
        let programs = Programs::new(one, &["message=the = work"]);
        programs.call(&["work", "fail"]).expect(3);
        programs.call(&["work", "die"]).expect(128 + 9);
        programs.assert_files("old\nold\n");
        // Its input and output are its own.
        let piped = ["sh", "-c", "echo piped | work"];
        let outcome = programs.call(&piped).expect(0);
        assert_ne!(outcome.text(), "", "{outcome}");
        assert_eq!(outcome.error_text(), "", "{outcome}");
        programs.assert_files("new\npiped\n");
        let log = one.store.call(["log"]).expect(0).text();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("the = work"), "{log}");
        // Inside of a transaction it is a part of that one.
        let inside = "work < /dev/null; test ! -s b; exit 7";
        let words = [&program(), "run", "--", "sh", "-c", inside];
        programs.call(&words).expect(7);
        programs.assert_files("new\npiped\n");
        // Outside of the store it runs as ever.
        let user = one.store.user();
        let outcome = programs.call_as(user, user.home(), &["work"]).expect(0);
        assert_eq!(outcome.text(), "", "{outcome}");
        // So does a program without a profile.
        one.store.call(["profile", "remove", "work"]).expect(0);
        programs.call(&["work", "fail"]).expect(3);
        programs.assert_files("new\npiped\n");
        one.store
            .call(["profile", "remove", "work"])
            .expect(NO_SUCH);
    });
}

/// Killed are the program, what started it for us, and both.
#[test]
fn a_program_that_is_killed_has_changed_nothing() {
    Fixture::for_each_owner("profile-kill", OLD, |one| {
        let programs = Programs::new(one, &[]);
        for whom in ["$work", "$link", "$link $work"] {
            shell(one.scratch.path(), "mkdir -m 777 signs");
            let sign = one.scratch.join("signs/ready");
            let text = sign.to_str().expect("text");
            let mut waiting =
                programs.command(one.store.user(), &one.base, &["work", "wait", text]);
            let waiting = waiting.stdout(Stdio::null()).stderr(Stdio::null());
            let mut waiting = waiting.spawn().expect("started");
            wait_until("the first change", || sign.exists());
            let link = waiting.id();
            let script = format!(
                "link={link}; work=$(pgrep -f '^/bin/sh {}/work wait'); kill -9 {whom}",
                programs.own.display()
            );
            shell(one.scratch.path(), &script);
            waiting.wait().expect("ended");
            programs.assert_files("old\nold\n");
            shell(one.scratch.path(), "rm -r signs");
            let open = || one.store.call(["list"]).expect(0).text();
            wait_until("the end of the transaction", || open().is_empty());
        }
        programs.call(&["sh", "-c", "echo later | work"]).expect(0);
        programs.assert_files("new\nlater\n");
    });
}

#[test]
fn a_profile_chooses_isolation_durability_and_label() {
    let one = Fixture::new("profile-options", OLD);
    let options = ["isolation=serializable", "durability=lazy", "message=ours"];
    let programs = Programs::new(&one, &options);
    let shown = programs
        .call(&["work", "status", &program()])
        .expect(0)
        .text();
    for expected in [
        r#""isolation":"serializable""#,
        r#""durability":"lazy""#,
        r#""label":"ours""#,
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[test]
fn without_its_transaction_a_program_is_not_started() {
    let one = Fixture::new("profile-refused", OLD);
    let programs = Programs::new(&one, &["view=exact"]);
    let file = one.store.control().join("profiles");
    fs::write(&file, "[work]\n\nview = sharp\n").expect("written");
    programs
        .call(&["work"])
        .expect(CONFIGURATION)
        .says(&["line 3", "profiles", "exact, native"]);
    one.store.call(["profile", "list"]).expect(CONFIGURATION);
    // Nothing is written over a file that is not understood.
    let add = ["profile", "add", "other", "retry=1"];
    one.store.call(add).expect(CONFIGURATION);
    fs::write(&file, "# Ours\n[work]\nview = exact\n").expect("written");
    // The store is root's, and does not admit this user, whom the plain directory would let write.
    let stranger = User::stranger(one.scratch.path());
    shell(&one.base, "chmod 777 .; chmod 666 a b");
    programs
        .call_as(&stranger, &one.base, &["work"])
        .expect(NOT_PERMITTED);
    programs.assert_files("old\nold\n");
    one.store.call_as(&stranger, ["profile", "list"]).expect(0);
    one.store
        .call_as(&stranger, ["profile", "add", "work"])
        .expect(NOT_PERMITTED);
    one.store.call(["profile", "add", "./work"]).expect(USAGE);
    one.store
        .call(["profile", "add", "work", "ask=1"])
        .expect(USAGE);
    one.store
        .call(["profile", "add", "work", "retry=2"])
        .expect(0);
    let text = fs::read_to_string(&file).expect("read");
    assert_eq!(text, "# Ours\n\n[work]\nretry = 2\n");
}

/// A user who does not trust the store runs the program as ever: its owner decides nothing for them.
#[test]
fn a_strangers_store_decides_nothing() {
    if !users_can_mount("a_strangers_store_decides_nothing") {
        return;
    }
    let one = Fixture::owned_by("profile-stranger", User::ordinary, OLD);
    let programs = Programs::new(&one, &[]);
    let stranger = User::stranger(one.scratch.path());
    shell(&one.base, "chmod 777 .; chmod 666 a b");
    let outcome = programs.call_as(&stranger, &one.base, &["work"]).expect(0);
    assert_eq!(outcome.text(), "", "{outcome}");
    programs.assert_files("new\n");
}

#[test]
fn try_says_what_a_call_would_do() {
    let one = Fixture::new("profile-try", OLD);
    let programs = Programs::new(&one, &["retry=2"]);
    let atomdir = program();
    let says = |directory: &Path, path: &str, expected: &str| {
        let call = format!("PATH={path}; {atomdir} profile try work");
        let root = one.store.user();
        let outcome = programs.call_as(root, directory, &["sh", "-c", &call]);
        let text = outcome.expect(0).text();
        assert!(text.contains(expected), "{expected}: {text}");
    };
    let own = programs.own.display();
    says(&one.base, "$PATH", "line 1 of the profiles");
    says(
        &one.base,
        "$PATH",
        &format!("atomdir run --retry=2 -- {own}/work"),
    );
    says(&one.base, &format!("{own}:$PATH"), "no link");
    says(one.scratch.path(), "$PATH", "in no store");
    let path = format!("{own}/work");
    one.store
        .call(["profile", "add", &path, "retry=5"])
        .expect(0);
    says(&one.base, "$PATH", "--retry=5");
    for program in ["work", &path] {
        one.store.call(["profile", "remove", program]).expect(0);
    }
    says(&one.base, "$PATH", "no profile");
}
