//! Every rule is needed: with any one of them switched off, some scenario has another outcome.

#[path = "../../tests/engine/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Rule;
use super::scenarios::{Scenario, scenarios};
use atomdir_testing::skip;
use support::script::run;

thread_local! {
    pub(super) static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// The scenarios that this user can run.
fn runnable(test: &str) -> Vec<Scenario> {
    let mut all = scenarios();
    if !rustix::process::geteuid().is_root() {
        skip(test, "some scenarios tell users apart, which only root can");
        all.retain(|scenario| !scenario.needs_root);
    }
    all
}

#[test]
fn every_scenario_has_its_written_outcome() {
    let mut wrong = Vec::new();
    for scenario in runnable("every_scenario_has_its_written_outcome") {
        let outcome = run(&scenario.script);
        if outcome != scenario.outcome {
            let Scenario { name, script, .. } = scenario;
            wrong.push(format!("== {name}\n{script}> {}", outcome.join("\n> ")));
        }
    }
    assert!(wrong.is_empty(), "these came out as\n{}", wrong.join("\n"));
}

/// A store that fails or panics counts as another outcome.
fn differs_without(rule: Rule, scenario: &Scenario) -> bool {
    OFF.set(Some(rule));
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&scenario.script)));
    OFF.set(None);
    outcome.map_or(true, |outcome| outcome != scenario.outcome)
}

#[test]
fn every_rule_changes_a_scenario() {
    let shown: Vec<Rule> = scenarios().into_iter().flat_map(|one| one.shows).collect();
    let unshown = Rule::ALL.iter().filter(|rule| !shown.contains(rule));
    let mut missed: Vec<String> = unshown
        .map(|rule| format!("no scenario shows {rule:?}"))
        .collect();
    for scenario in runnable("every_rule_changes_a_scenario") {
        for rule in &scenario.shows {
            if !differs_without(*rule, &scenario) {
                missed.push(format!("'{}' does not show {rule:?}", scenario.name));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
