//! What real programs cannot do in an ordinary user's native view: they fail, nothing is lost,
//! and the same works with `--view exact`.

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Scenario, User, helper, shell, tools_present, users_can_mount};

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

/// Scripts call `src/bin/posix_programs` by its bare name.
const LIMITS: [Limit; 10] = [
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
    Limit {
        name: "dd-notrunc",
        tools: &[],
        prepare: "echo abc > one; ln one two",
        script: "echo x | dd of=two bs=1 conv=notrunc status=none",
        says: "No data available",
        without: &[],
    },
    Limit {
        name: "python-mmap",
        tools: &["python3"],
        prepare: "echo abc > one; ln one two",
        script: "python3 -c 'import mmap, os; mmap.mmap(os.open(\"two\", os.O_RDWR), 0)[0] = 120'",
        says: "No data available",
        without: &[],
    },
    Limit {
        name: "hard_links",
        tools: &[],
        prepare: "posix_programs prepare hard_links",
        script: "posix_programs run hard_links",
        says: "No data available",
        without: &[],
    },
    Limit {
        name: "open_files",
        tools: &[],
        prepare: "posix_programs prepare open_files",
        script: "posix_programs run open_files",
        says: "Invalid cross-device link",
        without: &[],
    },
    Limit {
        name: "renames",
        tools: &[],
        prepare: "posix_programs prepare renames",
        script: "posix_programs run renames",
        says: "Invalid cross-device link",
        without: &[],
    },
];

#[test]
fn programs_that_fail_in_a_users_native_view_work_in_an_exact_one() {
    let test = "programs_that_fail_in_a_users_native_view_work_in_an_exact_one";
    if !users_can_mount(test) {
        return;
    }
    for limit in LIMITS {
        if !tools_present(test, limit.tools) {
            continue;
        }
        let helpers = helper("posix_programs").with_file_name("");
        let helpers = format!("PATH=$PATH:{}\n", helpers.display());
        let [prepare, script] = [limit.prepare, limit.script].map(|one| format!("{helpers}{one}"));
        let fixture = Fixture::owned_by(limit.name, User::ordinary, "");
        let prepared = fixture.store.run(&prepare).expect(0);
        assert_eq!(prepared.text(), "");
        let before = fixture.look();
        let outcome = fixture
            .store
            .run_with(&["--view", "auto"], &script)
            .says(&[limit.says, "--view exact"]);
        assert_ne!(outcome.code, 0, "{outcome}");
        let untouched = CompareOptions::untouched();
        assert_equal(limit.name, &before, &fixture.look(), &untouched);
        fixture.store.assert_at_rest();

        let scenario = Scenario::shell(limit.name, &script)
            .as_ordinary_user()
            .prepare(&prepare)
            .same_output();
        let without = limit.without.iter();
        without
            .fold(scenario, |scenario, path| scenario.without(path))
            .exact()
            .check();
    }
}

/// In the namespace of a user's command no other user and no other group exists. A program that
/// copies an access control list which names one reports an error and leaves that entry out.
#[test]
fn a_users_command_cannot_name_others() {
    let test = "a_users_command_cannot_name_others";
    if !users_can_mount(test) || !tools_present(test, &["setfacl", "getfacl", "tar"]) {
        return;
    }
    for view in ["exact", "native"] {
        // The owner is not the user nobody, whose number stands for all others in the view.
        let prepare = "echo old > listed; setfacl -m u:1000:rw listed; echo new > plain";
        let fixture = Fixture::owned_by(test, User::stranger, prepare);
        let foreign = fixture.base.join("foreign");
        std::fs::write(&foreign, "root's").expect("written");
        let run = |script| fixture.store.run_with(&["--view", view], script);
        for refused in ["setfacl -m u:1000:r plain", "cp -p listed copy"] {
            run(refused).expect(1).says(&["Invalid argument"]);
        }
        let recorded = run("tar -cf - foreign | tar -tv --numeric-owner").expect(0);
        assert!(recorded.text().contains("65534/65534"), "{recorded}");
        let lists = || shell(&fixture.base, "getfacl -cn listed").text();
        run("echo more >> listed; chmod g-w listed").expect(0);
        assert!(lists().contains("user:1000:rw-"), "{}", lists());
        let edited = run("sed -i s/old/new/ listed").expect(0);
        edited.says(&["preserving permissions"]);
        assert!(!lists().contains("user:1000"), "{}", lists());
        fixture.store.assert_at_rest();
    }
}
