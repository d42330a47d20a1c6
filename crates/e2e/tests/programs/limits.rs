//! What real programs cannot do in an ordinary user's native view: they fail, nothing is lost,
//! and the same works with `--view exact`.

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Scenario, User, tools_present, users_can_mount};

struct Limit {
    name: &'static str,
    tools: &'static [&'static str],
    prepare: &'static str,
    script: &'static str,
    /// What the program itself says.
    says: &'static str,
    /// Paths whose contents differ between two runs even outside.
    without: &'static [&'static str],
}

const LIMITS: [Limit; 5] = [
    Limit {
        name: "git-mv",
        tools: &["git"],
        prepare: "git init -q .; mkdir -p old new; echo a > old/a; git add .",
        script: "git mv old new/moved",
        says: "Invalid cross-device link",
        // It holds inode numbers and times.
        without: &[".git/index"],
    },
    Limit {
        name: "git-clone-links",
        tools: &["git"],
        prepare: "git init -q old; echo a > old/a; git -C old add a",
        script: "git clone -q --local old new",
        says: "hardlink different from source",
        without: &[],
    },
    Limit {
        name: "rsync-inplace",
        tools: &["rsync"],
        prepare: "echo a > one; ln one two; mkdir from; echo longer > from/one",
        script: "rsync -a --inplace from/one one",
        says: "No data available",
        without: &[],
    },
    Limit {
        name: "tar-overwrite",
        tools: &["tar"],
        prepare: "echo a > one; tar -cf one.tar one; ln one two; echo b > two",
        script: "tar -xf one.tar --overwrite",
        says: "No data available",
        without: &[],
    },
    Limit {
        name: "make-appends",
        tools: &["make"],
        prepare: "echo a > one; ln one two; printf 'all:\\n\\techo b >> one\\n' > Makefile",
        script: "make",
        says: "No data available",
        without: &[],
    },
];

#[test]
fn a_users_native_view_refuses_and_an_exact_one_does_it() {
    let test = "a_users_native_view_refuses_and_an_exact_one_does_it";
    if !users_can_mount(test) {
        return;
    }
    for limit in LIMITS {
        if !tools_present(test, limit.tools) {
            continue;
        }
        let fixture = Fixture::owned_by(limit.name, User::ordinary, "");
        let prepared = fixture.store.run(limit.prepare).expect(0);
        assert_eq!(prepared.text(), "");
        let before = fixture.look();
        let outcome = fixture
            .store
            .run_with(&["-v", "--view", "auto"], limit.script)
            .says(&[limit.says, "--view exact"]);
        assert_ne!(outcome.code, 0, "{outcome}");
        let untouched = CompareOptions::untouched();
        assert_equal(limit.name, &before, &fixture.look(), &untouched);
        fixture.store.assert_at_rest();

        let scenario = Scenario::shell(limit.name, limit.script)
            .as_ordinary_user()
            .prepare(limit.prepare)
            .same_output();
        let without = limit.without.iter();
        without
            .fold(scenario, |scenario, path| scenario.without(path))
            .exact()
            .check();
    }
}
