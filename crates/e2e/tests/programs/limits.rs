//! What overlayfs refuses to an ordinary user: real programs do it all the same in the view that `run` takes.

use std::process::Command;

use atomdir_testing::exit_code::NOT_PERMITTED;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Scenario, User, capture_output, helper, shell, tools_present, users_can_mount,
};

struct Program {
    name: &'static str,
    tools: &'static [&'static str],
    prepare: &'static str,
    script: &'static str,
    /// Paths whose contents differ between two runs even outside.
    without: &'static [&'static str],
}

const fn program(
    name: &'static str,
    tools: &'static [&'static str],
    prepare: &'static str,
    script: &'static str,
) -> Program {
    Program {
        name,
        tools,
        prepare,
        script,
        without: &[],
    }
}

const TWO_NAMES: &str = "echo abc > one; ln one two";
const TREE: &str = "mkdir -p old/in/ner new; echo a > old/a; echo b > old/in/b; ln -s a old/link
    chmod 750 old/in; chmod 700 old/in/ner; touch -d '2001-02-03' old/a old/in/ner old/in";

/// Scripts call `src/bin/posix_programs` by its bare name.
const PROGRAMS: [Program; 25] = [
    Program {
        // It holds inode numbers and times.
        without: &[".git/index"],
        ..program(
            "git-mv",
            &["git"],
            // Otherwise the store's `init` sets these two.
            "git init -q .; git config core.checkStat minimal; git config core.trustctime false
             mkdir -p old new; echo a > old/a; git add .",
            "git mv old new/moved; git status --short",
        )
    },
    Program {
        // In an ordinary user's native view git copies the objects instead of linking them.
        without: &["old/.git", "new/.git"],
        ..program(
            "git-clone",
            &["git"],
            "git init -q old; echo a > old/a; cd old; git add a
             git -c user.email=a@b -c user.name=n commit -qm 1",
            "git clone -q old new; git -C new fsck; git -C old fsck; cat new/a",
        )
    },
    program(
        "rsync-inplace",
        &["rsync"],
        "echo a > one; ln one two; mkdir from; echo longer > from/one",
        "rsync -a --inplace from/one one",
    ),
    program(
        "rsync-link-dest",
        &["rsync"],
        "mkdir old; echo a > old/a; echo b > old/b; rsync -a old/ day1
         rsync -a --link-dest=../day1 old/ day2",
        "echo more >> old/b; rsync -a --link-dest=../day2 old/ day3; chmod 600 day2/a; cat day*/*",
    ),
    program(
        "tar-overwrite",
        &["tar"],
        "echo a > one; tar -cf one.tar one; ln one two; echo b > two",
        "tar -xf one.tar --overwrite",
    ),
    program(
        "tar-replaces",
        &["tar"],
        "echo a > one; ln one two; tar -cf all.tar one two; echo b > two; ln two three",
        "tar -xf all.tar; cat one two three; tar -cf - one two three | tar -tv | grep -c ' link to '",
    ),
    program(
        "make-appends",
        &["make"],
        "echo a > one; ln one two; printf 'all:\\n\\techo b >> one\\n' > Makefile",
        "make",
    ),
    program(
        "dd-notrunc",
        &[],
        TWO_NAMES,
        "echo x | dd of=two bs=1 conv=notrunc status=none",
    ),
    program(
        "python-mmap",
        &["python3"],
        TWO_NAMES,
        "python3 -c 'import mmap, os; mmap.mmap(os.open(\"two\", os.O_RDWR), 0)[0] = 120'",
    ),
    program(
        "vim",
        &["vim"],
        TWO_NAMES,
        "vim -Nes -u NONE -c 's/a/x/' -c wq one; cat two",
    ),
    program("sed", &[], TWO_NAMES, "sed -i s/a/x/ one; cat one two"),
    program(
        "mv-linked",
        &[],
        TWO_NAMES,
        "mv one three; echo more >> three; mv two one; ls -l",
    ),
    program(
        "cp-links",
        &[],
        TREE,
        "cp -al old linked; echo more >> linked/a; cat old/a linked/in/b",
    ),
    program(
        "link-farm",
        &[],
        "mkdir store; echo a > store/a; echo b > store/b; cp -al store one; cp -al store two",
        "echo more >> one/a; rm two/a; ln store/b two/c; mv one three; cat three/* two/*",
    ),
    program(
        "mv",
        &[],
        TREE,
        "mv old new; mv new/old/in .; mv new old; find . | sort",
    ),
    program(
        "perl",
        &["perl"],
        TREE,
        "perl -e 'rename(\"old\", \"new\") or die $!; rename(\"new/in\", \"in\") or die $!'; cat new/a in/b",
    ),
    program(
        "python-rename",
        &["python3"],
        TREE,
        "python3 -c 'import os; os.rename(\"old/in\", \"in\"); os.replace(\"old\", \"new\")'",
    ),
    program(
        "node-rename",
        &["node"],
        TREE,
        "node -e 'fs.renameSync(\"old\", \"new\"); fs.renameSync(\"new/in\", \"in\")'",
    ),
    program(
        "changed-and-moved",
        &[],
        TREE,
        "echo more >> old/a; rm old/in/b; echo c > old/in/c; mkdir old/in/d; rm old/link
         mv old/in old/out; mv -T old new; cd new/out; mv ../a here; cd ../..; find . | sort",
    ),
    program(
        "moved-from-within",
        &[],
        TREE,
        "cd old; mv in ../new; cd ..; mv new/in old/; mv old new; exec 3< new/old/a; mv new x; cat <&3",
    ),
    program(
        "moved-from-a-closed-directory",
        &[],
        "mkdir -p old/in; echo a > old/in/a; chmod 555 old/in",
        "mv old new; ls -ld new/in | cut -c 1-10; rmdir new/in || chmod 755 new/in",
    ),
    program(
        "open_files",
        &[],
        "posix_programs prepare open_files",
        "posix_programs run open_files",
    ),
    program(
        "hard_links",
        &[],
        "posix_programs prepare hard_links",
        "posix_programs run hard_links",
    ),
    program(
        "renames",
        &[],
        "posix_programs prepare renames",
        "posix_programs run renames",
    ),
    program(
        "chmod-linked",
        &[],
        TWO_NAMES,
        "chmod 600 one; touch -d 2001-02-03 two; ln two three; ls -l | cut -c 1-12",
    ),
];

/// What overlayfs refuses to an ordinary user works in the view that `run` takes by itself.
#[test]
fn everyday_programs_of_a_user_work_in_the_default_view() {
    let test = "everyday_programs_of_a_user_work_in_the_default_view";
    if !users_can_mount(test) {
        return;
    }
    for one in PROGRAMS {
        if !tools_present(test, one.tools) {
            continue;
        }
        let helpers = helper("posix_programs").with_file_name("");
        let helpers = format!("PATH=$PATH:{}\n", helpers.display());
        let [prepare, script] = [one.prepare, one.script].map(|one| format!("{helpers}{one}"));
        let scenario = Scenario::shell(one.name, &script)
            .as_ordinary_user()
            .prepare(&prepare)
            .same_output()
            .without_directory_times()
            .in_views(&["auto", "exact"]);
        let without = one.without.iter();
        without
            .fold(scenario, |scenario, path| scenario.without(path))
            .check();
    }
}

/// Objects that an ordinary user's overlay cannot change, made outside when the store is in use.
#[test]
fn objects_made_outside_are_changed_in_the_default_view() {
    let test = "objects_made_outside_are_changed_in_the_default_view";
    if !users_can_mount(test) || !tools_present(test, &["setpriv"]) {
        return;
    }
    let fixture = Fixture::owned_by(
        test,
        User::ordinary,
        "mkdir d; echo a > one; echo a > d/group",
    );
    let run = |script| fixture.store.run(script).expect(0);
    assert_eq!(run("echo b >> one; stat -fc %T .").text(), "overlayfs\n");
    let link = |name: &str| std::fs::hard_link(fixture.base.join("one"), fixture.base.join(name));
    link("d/two").expect("linked");
    run("echo c >> d/two; test $(stat -c %i one) = $(stat -c %i d/two)");
    run("rm d/two; echo d >> one");
    let group = fixture.base.join("d/group");
    std::os::unix::fs::chown(&group, None, Some(60)).expect("given away");
    std::fs::rename(&group, fixture.base.join("group")).expect("moved");
    run("echo b >> group");
    let read = |name| std::fs::read_to_string(fixture.base.join(name)).expect("read");
    assert_eq!(
        (read("one"), read("group")),
        ("a\nb\nc\nd\n".into(), "a\nb\n".into())
    );
    // In a directory that gives its group to what is made in it. A commit sets that group, so the
    // service's process must belong to it.
    let shared = fixture.base.join("d");
    std::os::unix::fs::chown(&shared, None, Some(60)).expect("given away");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o2775);
    std::fs::set_permissions(&shared, mode).expect("shared");
    let make = "echo new > d/new; mkdir d/e; echo new > d/e/new";
    let before = fixture.look();
    let refused = fixture.store.run(make).expect(NOT_PERMITTED);
    refused.says(&["d/new", "not permitted", "nothing was changed"]);
    assert_equal(test, &before, &fixture.look(), &CompareOptions::untouched());
    fixture.store.call(["abort", "--all"]).expect(0);
    fixture.store.call(["service", "stop"]).expect(0);
    let as_member = "--reuid 65534 --regid 65534 --groups 60";
    let run = fixture.store.command(["run", "--", "/bin/sh", "-ec", make]);
    let mut member = Command::new("setpriv");
    member.args(as_member.split(' ')).arg(run.get_program());
    member.args(run.get_args()).env_clear();
    for (name, value) in run.get_envs() {
        member.env(name, value.expect("set"));
    }
    capture_output(&mut member).expect(0);
    for name in ["d/new", "d/e", "d/e/new"] {
        let made = std::fs::metadata(fixture.base.join(name)).expect("made");
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&made), 60, "{name}");
    }
    fixture.store.assert_at_rest();
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
