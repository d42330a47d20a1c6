#![cfg(test)]

//! Forks of open transactions, through the command.

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::{Fixture, script};

/// A transaction is forked while its command runs, from outside of its view. The fork has the old and
/// new files as they are at that moment, and lands without the first.
#[test]
fn a_running_command_is_forked_and_its_fork_lands_alone() {
    Fixture::for_each_view(
        "fork",
        "mkdir dir; echo old > dir/old; echo gone > gone; ln -s dir/old link",
        |one, view| {
            let text = r#"
                way=$(mktemp -d); mkfifo $way/ready $way/go
                $A run -q --view $VIEW --on-success abort -- sh -ec "
                    mkdir new; echo inner > new/inner; chmod 640 new/inner; ln new/inner second
                    echo more >> dir/old; rm gone; mv dir moved
                    echo \$ATOMDIR_TX > $way/ready; cat $way/go > /dev/null
                    echo late > late" &
                first=$(cat $way/ready)
                $A fork $first -m fork > $way/fork
                echo > $way/go; wait $!
                { read fork; read -r shown; } < $way/fork
                rm -r $way
                test "$(cat "$shown/moved/old")" = "old
more"
                test ! -e "$shown/late" && test ! -e "$shown/gone" && test "$(readlink "$shown/link")" = dir/old
                echo landed > "$shown/mark"
                $A commit -q $fork
            "#;
            let script = script(&format!("VIEW={view}\n{text}"));
            one.store.outside(&script).expect(0);
            let found = one
                .store
                .outside("ls -R moved new; ls; stat -c '%a %h' second; cat new/inner");
            assert_eq!(
                found.expect(0).text(),
                "moved:\nold\n\nnew:\ninner\nlink\nmark\nmoved\nnew\nsecond\n640 2\ninner\n",
                "{view}"
            );
        },
    );
}

/// A fork lands beside the first one as far as they have changed different things. New files that are
/// the same in both are no conflict. An old file that both have changed is one, even from before the
/// fork.
#[test]
fn the_first_of_two_forks_wins_and_a_fork_survives_its_service() {
    Fixture::for_each_owner("fork-survives", "echo 1 > file", |one| {
        let store = &one.store;
        let begin = |words: &[&str]| {
            let begun = store.call(words).expect(0).text();
            let mut lines = begun.lines().map(str::to_owned);
            (lines.next().expect("an id"), lines.next().expect("a view"))
        };
        let (first, view) = begin(&["begin"]);
        let script = format!("echo common > '{view}/common'");
        store.outside(&script).expect(0);
        let (fork, shown) = begin(&["fork", &first]);
        let script = format!("echo 2 > '{shown}/file'; echo fork > '{shown}/fork'");
        store.outside(&script).expect(0);
        let (other, shown) = begin(&["fork", &fork]);
        let script = format!("echo other > '{shown}/other'");
        store.outside(&script).expect(0);
        assert!(store.kill_service());
        store.call(["commit", &first]).expect(0);
        store.call(["commit", &other]).expect(0);
        store
            .call(["commit", &fork])
            .expect(CONFLICT)
            .says(&["in 1 place", "file"]);
        store.call(["abort", &fork]).expect(0);
        let found = store.outside("cat common file fork other").expect(0);
        assert_eq!(found.text(), "common\n2\nfork\nother\n");
    });
}

#[test]
fn what_cannot_be_forked_says_why() {
    let fixture = Fixture::new("fork-refused", "");
    let store = &fixture.store;
    store
        .call(["fork", "77"])
        .expect(NO_SUCH)
        .says(&["no open transaction 77"]);
    let begun = store.call(["begin", "--conflicts", "early"]).expect(0);
    let begun = begun.text();
    let early = begun.lines().next().expect("an id");
    store
        .call(["fork", early])
        .expect(USAGE)
        .says(&["early conflicts cannot be forked"]);
    store.call(["abort", early]).expect(0);
    // A command forks the transaction that it runs in.
    let text = "echo 1 > made; $A fork | head -n 1 > id; $A commit -q $(cat id); exit 3";
    store
        .run_with(&["--view", "exact"], &script(text))
        .expect(3);
    assert_eq!(store.outside("cat made").expect(0).text(), "1\n");
}
