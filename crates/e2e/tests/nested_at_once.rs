#![cfg(test)]

//! Several transactions nested in one at the same time, through the command.

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, script};

/// The first run waits for the second one, which begins and commits meanwhile.
#[test]
fn runs_nested_at_the_same_time_join_their_changes_or_conflict() {
    Fixture::for_each_view(
        "nest-beside",
        "mkdir dir; echo old > dir/old",
        |one, view| {
            // In a native view a moved directory conflicts with all changes in it.
            let (moves, moved) = match view {
                "exact" => ("mv dir moved", "moved"),
                _ => (":", "dir"),
            };
            let outcome = one.store.run_with(
            &["--view", view],
            &script(&format!("moves='{moves}' moved={moved}\n{}",
                r#"
            way=$(mktemp -d); mkfifo $way/begun $way/go
            beside() {
                $A run -q -- sh -ec "$1; echo > $way/begun; cat $way/go > /dev/null" &
                cat $way/begun > /dev/null
                $A run -q -- sh -ec "$2"
                echo > $way/go
                wait $!
            }
            exec 3< dir/old
            beside "echo 1 > dir/one; $moves" 'echo 2 > dir/two; test ! -e dir/one; rm dir/old'
            test "$(cd $moved; echo *) $(cat $moved/one $moved/two - <&3 | tr -d '\n')" = "one two 12old"
            beside 'echo 1 > same' 'echo 2 > same' && exit 1 || test $? = 75
            test $(cat same) = 2
            beside 'mkdir -p a b; mv a b' "rm -r $moved; test ! -e a"
            rm -r $way; ls
            "#)),
        );
            assert_eq!(outcome.expect(0).text(), "b\nsame\n");
            assert!(one.base.join("b/a").is_dir());
        },
    );
}

/// Each run counts in two files. A run that saw half of another's commit would find two different
/// numbers.
#[test]
fn nested_runs_see_whole_commits_and_lose_no_update() {
    Fixture::for_each_view("nest-count", "echo 0 > x; echo 0 > y", |one, view| {
        let text = r#"
            count='test $(cat x) = $(cat y) || exit 9
                   n=$(($(cat x) + 1)); echo $n > x; echo $n > y; : > $0'
            for worker in 1 2 3; do
                for turn in 1 2 3 4 5; do
                    $A run -q --retry 1000 -- sh -ec "$count" $worker-$turn || echo failed $?
                done &
            done
            wait
            echo $(cat x y) $(ls | wc -l)
        "#;
        let outcome = one.store.run_with(&["--view", view], &script(text));
        assert_eq!(outcome.expect(0).text(), "15 15 17\n", "{view}");
    });
}

#[test]
fn second_nested_in_a_serializable_transaction_waits() {
    Fixture::for_each_owner("nest-turns", "", |one| {
        let options = [
            "--view",
            "exact",
            "--isolation",
            "serializable",
            "--on-conflict",
            "keep",
        ];
        let outcome = one.store.run_with(&options, &script(
            r#"
            for i in 1 2 3 4; do $A run -q -- sh -ec "echo \$ATOMDIR_TX >> turns; ls | wc -l" > /dev/null & done
            wait
            test $(sort -u turns | wc -l) = 4
            nested=$($A begin | head -n 1)
            ! echo no > created
            # A commit that would wait for itself is refused.
            $A commit --wait && exit 1 || test $? = 64
            $A run --in none -- true
            # Commands in the nested transaction cannot name the outer one.
            $A exec $nested -- $A run --in $ATOMDIR_TX -- true && exit 1 || test $? = 66
            $A commit && exit 1 || test $? = 75
            $A begin && exit 1 || test $? = 75
            $A run -- true && exit 1 || test $? = 75
            $A exec $nested -- sh -c 'echo yes > created'
            test ! -e created
            $A commit $nested
            test $(cat created) = yes
            $A begin > /dev/null
            "#,
        ));
        outcome.expect(CONFLICT).says(&["nested in transaction"]);
        let listed = one.store.call(["--json", "list"]).expect(0).text();
        assert!(listed.contains(r#""outer":null,"nested":"#), "{listed}");
        one.store.call(["abort", "--all"]).expect(0);
        assert!(!one.base.join("created").exists());
    });
}
