#![cfg(test)]

//! After a conflict a `run` leaves its transaction open. Sides are taken and texts are merged in it,
//! whichever view its command ran in.

use std::fs;

use atomdir_testing::Fixture;
use atomdir_testing::exit_code::CONFLICT;

const PREPARE: &str = "for name in both clash one two; do seq 9 > $name; done";
const MINE: &str = "sed -i 's/9/mine/' both; sed -i 's/5/mine/' clash one two";
const THEIRS: &str = "sed -i 's/1/theirs/' both; sed -i 's/5/theirs/' clash one two";

#[test]
fn conflicts_of_a_kept_run_end_by_merging_and_taking_sides() {
    Fixture::for_each_view("conflicts-of-run", PREPARE, |one, view| {
        let store = &one.store;
        let commit_meanwhile = || {
            store.run(THEIRS).expect(0);
        };
        let refused = one.run_and_meanwhile(&["--view", view], MINE, commit_meanwhile);
        refused
            .expect(CONFLICT)
            .says(&["atomdir conflicts", "--merge"]);
        let listed = store.call(["conflicts", "--patch"]).expect(0).text();
        for (number, path) in (1..).zip(["both", "clash", "one", "two"]) {
            assert!(listed.contains(&format!("{number}  {path}:")), "{listed}");
        }
        for side in ["\n-5\n+mine\n", "\n-5\n+theirs\n", "\n-1\n+theirs\n"] {
            assert!(listed.contains(side), "{side:?}: {listed}");
        }
        let sides = [
            "commit",
            "--take-mine",
            "3",
            "--take-theirs",
            "4",
            "--merge",
        ];
        let refused = store
            .call(sides.iter().chain(&["--markers"]))
            .expect(CONFLICT);
        let refused = refused.says(&["2  clash: it has markers in the view now"]);
        let is_marked = "grep -q '^[<]\\{7\\} ' clash";
        let unmark = "sed -i -e '/^[<|=>]\\{7\\}/d' -e 's/^5$/by hand/' clash";
        let open = store.call(["--json", "list"]).expect(0).text();
        let open: serde_json::Value = serde_json::from_str(&open).expect("it is JSON");
        let id = open["transactions"][0]["transaction"].to_string();
        let edit = format!("{is_marked} && {unmark}");
        store
            .call(["exec", &id, "--", "sh", "-ec", &edit])
            .expect(0);
        assert_eq!(
            open["transactions"].as_array().map(Vec::len),
            Some(1),
            "{refused}"
        );
        let sides = [
            "commit",
            "--take-mine",
            "2,3",
            "--take-theirs",
            "4",
            "--merge",
        ];
        store.call(sides).expect(0);
        let read = |path| fs::read_to_string(one.base.join(path)).expect("it is there");
        assert_eq!(read("both"), "theirs\n2\n3\n4\n5\n6\n7\n8\nmine\n");
        assert_eq!(read("one"), "1\n2\n3\n4\nmine\n6\n7\n8\n9\n");
        assert_eq!(read("two"), "1\n2\n3\n4\ntheirs\n6\n7\n8\n9\n");
        let clash = read("clash");
        assert!(
            clash.contains("mine") && clash.contains("theirs"),
            "{clash}"
        );
        assert!(!clash.contains("<<<<<<<"), "{clash}");
    });
}
