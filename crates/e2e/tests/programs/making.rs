//! `atomdir make`: each recipe takes effect whole or not at all.

use std::os::unix::process::CommandExt;
use std::process::Command;

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, Scratch, binary, capture_output, debian_source, only_in_full_tier, pick,
    shell, skip, tools_present,
};

fn make(fixture: &Fixture, words: &[&str]) -> Outcome {
    fixture.store.call([&["make", "--"], words].concat())
}

/// Its recipes do what recipes do in many projects. `check-lines` fails unless each line has a
/// shell of its own; `inner` is made by `$(MAKE)`.
const MAKEFILE: &str = r#"
cat > Makefile <<'END'
SHELL := /usr/bin/env bash
.SHELLFLAGS := -o pipefail -c
objects := $(addprefix out/,one two three four five six)
all: check-lines $(objects) inner
.PHONY: all check-lines inner lost whole
check-lines:
	@cd / && here=there
	@test "$$PWD" = "$(CURDIR)" && test -z "$$here"
	@echo first; \
	echo second
	-false
	@$(SHELL) -c 'test -n "$$BASH_VERSION"'
	@test -n "$$BASH_VERSION"
	@! false | true
$(objects):
	mkdir -p out
	echo $(notdir $@) > $@
	echo $(shell echo end) >> $@
inner:
	$(MAKE) -C deeper -f other.mk made
half:
	echo part > half
	false
	echo rest >> half
lost:
	-false
	echo never > lost
later:
	-true
	false
dry:
	rm -f Makefile
	$(MAKE) --version > version
ignored:
	-$(MAKE) lost
END
mkdir deeper
printf 'made:\n\techo $$(MAKELEVEL) > $@\n' > deeper/other.mk
"#;

#[test]
fn recipes_are_transactions_that_run_like_those_of_make() {
    const TEST: &str = "making";
    if !tools_present(TEST, &["make", "bash"]) {
        return;
    }
    Fixture::for_each_owner(TEST, MAKEFILE, |one| {
        make(one, &["-j6"]).expect(0);
        let log = one.store.call(["log"]).expect(0).text();
        assert_eq!(log.matches("make out/").count(), 6, "{log}");
        assert_eq!(log.matches("make made").count(), 1, "{log}");
        let plain = Fixture::owned_by("plain", |_| one.store.user().clone(), MAKEFILE);
        let mut command = Command::new("make");
        one.store.user().dress(&mut command);
        capture_output(command.arg("-j6").current_dir(plain.store.path())).expect(0);
        let options = CompareOptions::alike();
        let expected = plain.look();
        assert_equal(
            "plain (left), a store (right)",
            &expected,
            &one.look(),
            &options,
        );
        make(one, &["half"]).expect(2);
        assert_equal("after a failure", &expected, &one.look(), &options);
        for target in ["lost", "later"] {
            make(one, &[target])
                .expect(2)
                .says(&[target, "not run to its end"]);
            make(one, &[target, "half"])
                .expect(2)
                .says(&["no recipe is run"]);
            assert_equal(target, &expected, &one.look(), &options);
        }
        make(one, &["ignored"]).expect(0);
        // With -n make runs only the lines that call make.
        make(one, &["-n", "dry"]).expect(0);
        shell(&one.base, "rm version");
        assert_equal("after -n", &expected, &one.look(), &options);
    });
}

/// Our makefile comes last, and must not give a project a target that it lacks.
#[test]
fn without_a_target_it_fails_as_make_does() {
    const TEST: &str = "making-nothing";
    if !tools_present(TEST, &["make"]) {
        return;
    }
    Fixture::for_each_owner(TEST, "echo true > hello.sh", |one| {
        make(one, &[]).expect(2).says(&["No targets"]);
        // Make has rules of its own.
        make(one, &["hello"]).expect(0);
        assert_eq!(shell(&one.base, "cat hello").text(), "true\n");
        shell(&one.base, "echo X = 1 > Makefile");
        make(one, &[]).expect(2).says(&["No targets"]);
        shell(
            &one.base,
            "printf '.DEFAULT_GOAL = b\\na:\\nb:\\n\\techo > $@\\n' > Makefile",
        );
        make(one, &[]).expect(0);
        assert!(one.base.join("b").exists());
    });
}

/// The recipe of `$(VICTIM)` kills the whole job when it has written a part of the target.
const KILLS: &str = r"
cat > Makefile <<'END'
targets := a b c d e f
all: $(targets)
$(targets):
	printf part > $@
	[ $@ != '$(VICTIM)' ] || kill -KILL 0
	printf rest >> $@
END
";

/// With `.ONESHELL` each recipe is one script.
const WHOLE: &str = r"
cat > Makefile <<'END'
SHELL := /bin/bash
.SHELLFLAGS := -ec
.ONESHELL:
made:
	here=there
	@cat > made <<-EOF
	$$here
	
	EOF
END
";

#[test]
fn recipe_of_a_makefile_with_one_shell_is_one_script() {
    const TEST: &str = "making-whole";
    if !tools_present(TEST, &["make", "bash"]) {
        return;
    }
    Fixture::for_each_owner(TEST, WHOLE, |one| {
        make(one, &[]).expect(0);
        let made = shell(&one.base, "cat made; rm made; make > /dev/null; cat made");
        assert_eq!(made.text(), "there\n\n".repeat(2));
    });
}

/// Two of the recipes wait for each other. Two others make the same directory, so that one of them
/// may have to run again.
#[test]
fn recipes_run_at_the_same_time_within_a_run() {
    const TEST: &str = "making-nested";
    if !tools_present(TEST, &["make"]) {
        return;
    }
    let makefile = r"
cat > Makefile <<'END'
all: ping pong one two
ping:
	echo > $(WAY)/ping && cat $(WAY)/pong > /dev/null
	echo ping > ping
pong:
	cat $(WAY)/ping > /dev/null && echo > $(WAY)/pong
	echo pong > pong
one two:
	mkdir -p out
	echo $@ > out/$@
END
";
    Fixture::for_each_view(TEST, makefile, |one, view| {
        let script = format!(
            "way=$(mktemp -d); mkfifo $way/ping $way/pong
            {} make -- -s -j2 WAY=$way; rm -r $way; cat ping pong out/*",
            binary().display()
        );
        let outcome = one.store.run_with(&["--view", view], &script).expect(0);
        assert_eq!(outcome.text(), "ping\npong\none\ntwo\n");
    });
}

#[test]
fn killed_make_leaves_whole_targets_only() {
    const TEST: &str = "making-kill";
    if !tools_present(TEST, &["make"]) {
        return;
    }
    Fixture::for_each_owner(TEST, KILLS, kill_and_finish);
    // Without Atomdir the same leaves half a target.
    let plain = Scratch::new("plain");
    shell(plain.path(), KILLS);
    shell(
        plain.path(),
        "setsid --wait make VICTIM=c > /dev/null 2>&1 || true",
    );
    assert_eq!(shell(plain.path(), "cat c").text(), "part");
}

fn kill_and_finish(fixture: &Fixture) {
    for (round, victim) in (0..pick(6, 60)).zip(["a", "c", "f"].iter().cycle()) {
        shell(fixture.store.path(), "rm -f a b c d e f");
        let victim = format!("VICTIM={victim}");
        let jobs = format!("-j{}", round % 3 + 1);
        let mut command = fixture.store.command(["make", "--", &jobs, &victim]);
        command
            .env("TMPDIR", fixture.store.user().home())
            .process_group(0);
        capture_output(&mut command).expect(128 + 9);
        let left = shell(fixture.store.path(), "grep -L '^partrest$' [a-f] || true").text();
        assert_eq!(
            left.trim(),
            left.trim().replace(['a', 'b', 'c', 'd', 'e', 'f'], ""),
            "{left}"
        );
        make(fixture, &["-j3"]).expect(0);
        shell(
            fixture.store.path(),
            "for one in a b c d e f; do grep -q '^partrest$' $one; done",
        );
    }
}

/// Automake's makefiles call `$(SHELL)` and `$(MAKE)` in loops, and ignore errors. To configure the
/// project takes most of the time, so this is in the long tier only.
#[test]
fn automake_project_is_built_and_installed() {
    const TEST: &str = "making-project";
    if !only_in_full_tier(TEST)
        || !tools_present(TEST, &["apt-get", "dpkg-source", "gcc", "make", "xz"])
    {
        return;
    }
    let scratch = Scratch::new(TEST);
    let archive = match debian_source(&scratch, "gzip") {
        Ok(archive) => archive,
        Err(outcome) => return skip(TEST, &format!("no source of gzip: {outcome}")),
    };
    let prepare = format!(
        "tar xf '{}' --no-same-owner --strip-components=1
         ./configure --disable-silent-rules > configure.out",
        archive.display()
    );
    let fixture = Fixture::new(TEST, &prepare);
    make(&fixture, &["-j2"]).expect(0);
    make(&fixture, &["install", "DESTDIR=installed"]).expect(0);
    let installed = "./installed/usr/local/bin/gzip --version";
    let installed = shell(fixture.store.path(), installed).text();
    assert!(installed.contains("gzip"), "{installed}");
    // Everything is up to date for a plain make as well.
    let again = shell(fixture.store.path(), "make").text();
    assert!(!again.contains("gcc"), "{again}");
}
