//! Commits of trees that were rearranged. A commit writes the difference between two
//! trees, and no order of renames may confuse it. Each case is compared with the same
//! commands in a plain directory, and two transactions that began before it must keep
//! their snapshots.

use std::fs;
use std::path::Path;

use atomdir_testing::tree::{CompareOptions, Times, assert_equal};
use atomdir_testing::{Fixture, Scenario, Store, look, pick, tools_present};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const TREE: &str = r#"
mkdir -p a/sub b/sub c/deep/er/still d empty
for dir in a a/sub b b/sub c c/deep c/deep/er c/deep/er/still; do echo "in $dir" > $dir/file; done
echo one > one; echo two > two; echo three > three
seq 5000 > numbers
ln one b/one-again
ln -s one link
mkfifo fifo
chmod 640 two
chmod 1711 b/sub
setfattr -n user.colour -v blue two
setfacl -m u:games:r three
truncate -s 64K sparse
printf x | dd of=sparse bs=1 seek=32768 conv=notrunc status=none
find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
"#;

fn case(name: &str, script: &str) {
    if !tools_present(name, &["setfattr", "setfacl"]) {
        return;
    }
    Scenario::shell(name, script)
        .prepare(TREE)
        .holes()
        .in_views(&["exact", "native"])
        .check();
    snapshots_survive(name, |store| {
        store.run(script).expect(0);
    });
}

/// The snapshot stays for a transaction that read everything before the commit, and for
/// one that first reads it afterwards.
fn snapshots_survive(name: &str, change: impl Fn(&Store)) {
    let fixture = Fixture::new(name, TREE);
    let store = &fixture.store;
    let before = fixture.look();
    let (reader, sleeper) = (store.begin(), store.begin());
    let kept = CompareOptions::copied();
    assert_equal(
        "base (left) and fresh view (right)",
        &before,
        &look(&reader.path),
        &kept,
    );
    change(store);
    for (view, what) in [
        (&reader, "that had read it"),
        (&sleeper, "that had not read it"),
    ] {
        let what = format!("{name}: snapshot (left), and view {what} after a commit (right)");
        assert_equal(&what, &before, &look(&view.path), &kept);
        store.commit(view).expect(0);
    }
    store.assert_at_rest();
}

#[test]
fn renamed_directory_with_changed_files_inside() {
    case(
        "renamed-directory",
        "echo new > a/sub/new; mv a A; echo more >> A/file; mkdir A/made; echo in > A/made/in
         rm A/sub/file; chmod 700 A/sub; mv c/deep A/sub/",
    );
}

#[test]
fn swapped_files() {
    case(
        "swapped-files",
        "mv one t; mv two one; mv t two; echo more >> one",
    );
}

#[test]
fn swapped_directories() {
    case(
        "swapped-directories",
        "mv a t; mv b a; mv t b; echo more >> a/file; rm b/sub/file",
    );
}

#[test]
fn swapped_file_and_directory() {
    case(
        "swapped-types",
        "mv one t; mv a one; mv t a; echo more >> one/file",
    );
}

#[test]
fn exchanged_in_one_call() {
    let exchange = |root: &Path, left: &str, right: &str| {
        let (left, right) = (root.join(left), root.join(right));
        renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE).expect("exchanged");
    };
    let change = move |root: &Path| {
        exchange(root, "a", "c/deep");
        exchange(root, "one", "b");
        exchange(root, "two", "three");
        exchange(root, "link", "empty");
    };
    Scenario::code("exchanged", change)
        .prepare(TREE)
        .holes()
        .check();
    snapshots_survive("exchanged", |store| {
        let view = store.begin();
        change(&view.path);
        store.commit(&view).expect(0);
    });
}

#[test]
fn names_reused_for_other_types() {
    case(
        "reused-names",
        "rm one; mkdir one; echo in > one/in; rm -r a; ln -s b a; rm link; mkfifo link
         rm fifo; echo file > fifo; rm two; mknod two c 1 3; rm -r c; echo c > c
         rmdir empty; ln three empty",
    );
}

#[test]
fn chains_and_rings_of_renames() {
    case(
        "rename-chains",
        "mv three t; mv two three; mv one two; mv t one
         mv a b/sub/t; mv c/deep a; mv b c/deep; mv c/deep/sub/t b; mv d empty/; mv empty d2",
    );
}

#[test]
fn a_long_chain_of_names_shifted_by_one() {
    let count = pick(300, 5000);
    let prepare = format!("i=0; while [ $i -lt {count} ]; do echo $i > f$i; i=$((i+1)); done");
    let script = format!(
        "import os\nfor i in range({count}, 0, -1): os.rename(f'f{{i-1}}', f'f{{i}}')\n\
         open('f0', 'w').write('new')"
    );
    if tools_present("shifted-names", &["python3"]) {
        Scenario::program("shifted-names", &["python3", "-c", &script])
            .prepare(&prepare)
            .check();
    }
}

#[test]
fn directory_removed_and_made_again() {
    case(
        "made-again",
        "rm -r a; mkdir a; chmod 700 a; echo new > a/file; mkdir a/sub
         mv c/deep/file keep; rm -r c; mkdir -p c/deep; mv keep c/deep/file
         mkdir n; mv b/* n/; rmdir b; mv n b",
    );
}

#[test]
fn hard_links_added_to_and_taken_from_old_files() {
    case(
        "hard-links",
        "ln one a/link1; ln one c/deep/link2; rm one; ln numbers d/n; rm numbers; mv d/n numbers
         ln two a/two; rm two; ln three three-again; echo new > new; ln new a/new",
    );
}

#[test]
fn a_write_through_one_name_shows_under_the_other() {
    case(
        "write-through-link",
        "echo more >> b/one-again; chmod 600 one; mv b/one-again a/",
    );
}

#[test]
fn a_replaced_name_leaves_the_other_link_alone() {
    case(
        "broken-link",
        "cp one t; echo more >> t; mv t b/one-again; sed -i s/two/TWO/ two",
    );
}

#[test]
fn renames_between_two_names_of_one_file_do_nothing() {
    // rename(2): if both names are links of one file, nothing happens.
    Scenario::code("same-file-rename", |root| {
        fs::rename(root.join("one"), root.join("b/one-again")).expect("renamed");
        assert!(root.join("one").exists());
    })
    .prepare(TREE)
    .check();
}

#[test]
fn deep_trees_moved_across_directories() {
    case(
        "cross-moves",
        "mv c/deep a/; mv a/deep/er b/; mv b/er/still .; echo more >> still/file
         mv b/er still/; mkdir -p x/y/z; mv a x/y/z/; mv x/y/z b/; rm -r x",
    );
}

#[test]
fn parent_and_child_inverted() {
    case(
        "inverted",
        "mv a/sub sub; mv a sub/a
         mv c/deep x; mv c x/deep; mv x c
         mkdir new; mv b new/b; mv new b",
    );
}

#[test]
fn unwrapped_and_wrapped_in_place() {
    case(
        "unwrapped",
        "mv c/deep t; rm -r c; mv t c; mkdir n; mv a n/a; mv n a; echo x >> a/a/file",
    );
}

#[test]
fn renames_that_replace() {
    case(
        "replacing",
        "mv one two; mv three a/file; mkdir e2; chmod 700 e2; mv -T e2 empty; mv link fifo
         mv a/sub/file b/one-again; mv numbers link",
    );
}

#[test]
fn attributes_alone() {
    case(
        "attributes",
        "chmod 4711 one; chown 12:34 a two; chown -h 5:6 link; setfattr -n user.k -v v a three
         setfattr -x user.colour two; setfacl -m g:games:rwx c; setfacl -d -m u:5:r c
         setfacl -b three; touch -d '2011-01-01 00:00:00.000000001' b numbers
         touch -h -d '2012-01-01' link; chmod 600 fifo; chmod 0 d; chmod 711 .",
    );
}

#[test]
fn holes_punched_and_files_resized() {
    case(
        "resized",
        "truncate -s 100 numbers; truncate -s 1M one; truncate -s 0 two
         fallocate -p -o 4096 -l 8192 sparse; fallocate -l 20000 three
         printf y | dd of=sparse bs=1 seek=60000 conv=notrunc status=none; mv sparse a/",
    );
}

#[test]
fn changes_that_cancel_out_are_not_written() {
    let fixture = Fixture::new("cancelled", TREE);
    let before = fixture.look();
    fixture
        .store
        .run(
            "mv a A; mv A a; mv one a/t; mv a/t one; mkdir -p x/y; echo t > x/y/t; rm -r x
             ln two t; rm t; mv b/sub c/; mv c/sub b/; mv -T a t; mv -T b a; mv -T a b; mv -T t a",
        )
        .expect(0);
    fixture.store.assert_at_rest();
    let after = fixture.look();
    // The directories' own times did change.
    let options = CompareOptions {
        directory_times: Times::Ignored,
        ..CompareOptions::untouched()
    };
    assert_equal(
        "before (left) and after (right) changes that cancel out",
        &before,
        &after,
        &options,
    );
}

#[test]
fn a_directory_deeper_than_a_path_may_be_long() {
    let build = "import os\nfor i in range(40):\n os.mkdir('d'*150); os.chdir('d'*150)\n \
                 open('leaf', 'w').write(str(i))";
    let change = "import os\nos.rename('d'*150, 'moved'); os.chdir('moved')\n\
                  for i in range(39): os.chdir('d'*150)\n\
                  open('leaf', 'a').write('changed'); os.mkdir('bottom')";
    if tools_present("deep", &["python3"]) {
        Scenario::shell(
            "deep",
            &format!("python3 -c \"{build}\"; python3 -c \"{change}\""),
        )
        .check();
    }
}
