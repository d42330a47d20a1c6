//! Scripts that show what the rules decide. `tests/engine/support/script.rs` describes
//! their form.
//!
//! A scenario begins with its name after `==`. `shows` lists the rules that change
//! its outcome when any one of them is off. `needs root` says that it uses several
//! users. The outcome, each line after `>`, is what the commits returned and the
//! final tree.

use super::Rule;

const FILES: [&str; 6] = [
    include_str!("scenarios/names.txt"),
    include_str!("scenarios/objects.txt"),
    include_str!("scenarios/parts.txt"),
    include_str!("scenarios/reads.txt"),
    include_str!("scenarios/sides.txt"),
    include_str!("scenarios/waiting.txt"),
];

#[derive(Default)]
pub(super) struct Scenario {
    pub name: &'static str,
    pub shows: Vec<Rule>,
    pub needs_root: bool,
    pub script: String,
    pub outcome: Vec<&'static str>,
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let all = FILES.iter().flat_map(|file| file.split("\n== ").skip(1));
    all.map(parse).collect()
}

fn parse(text: &'static str) -> Scenario {
    let (name, lines) = text.split_once('\n').expect("a name has a script");
    let mut scenario = Scenario {
        name,
        ..Scenario::default()
    };
    for line in lines.lines() {
        if let Some(outcome) = line.strip_prefix("> ") {
            scenario.outcome.push(outcome);
        } else if let Some(rules) = line.strip_prefix("shows ") {
            scenario.shows = rules.split(", ").map(rule).collect();
        } else if line == "needs root" {
            scenario.needs_root = true;
        } else {
            scenario.script.push_str(line);
            scenario.script.push('\n');
        }
    }
    scenario
}

fn rule(name: &str) -> Rule {
    let mut all = Rule::ALL.iter();
    let found = all.find(|rule| format!("{rule:?}") == name);
    *found.unwrap_or_else(|| panic!("there is no rule {name}"))
}
