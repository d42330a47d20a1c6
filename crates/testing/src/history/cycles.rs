//! Cycles that a level of isolation forbids.
//!
//! Serializable allows none. Snapshot allows those in which two edges from a reader to a later
//! writer follow one another (Fekete et al., "Making snapshot isolation serializable", 2005). In
//! other words, no cycle may consist of steps that are a dependency, or a dependency and then one
//! such edge (Cerone and Gotsman, "Analysing snapshot isolation", 2016).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::Level;
use super::graph::{Dependency, Edge, Graph};

/// The node a step leads to, its first edge, and perhaps a second.
type Step = (usize, (usize, Dependency), Option<Dependency>);

pub fn forbidden(graph: &Graph, level: Level) -> Option<Vec<Edge>> {
    let steps: Vec<Vec<Step>> = (0..graph.edges.len())
        .map(|node| steps_from(graph, node, level))
        .collect();
    let start = on_a_cycle(&steps)?;
    Some(report(graph, &shortest(&steps, start)))
}

fn steps_from(graph: &Graph, node: usize, level: Level) -> Vec<Step> {
    let mut steps = Vec::new();
    for (to, dependency) in &graph.edges[node] {
        let is_anti = matches!(dependency, Dependency::ReadWrite(_));
        if level == Level::Serializable || !is_anti {
            steps.push((*to, (*to, *dependency), None));
        }
        if level == Level::Snapshot && !is_anti {
            let then = graph.edges[*to].iter();
            let anti = then.filter(|(_, second)| matches!(second, Dependency::ReadWrite(_)));
            steps.extend(anti.map(|(end, second)| (*end, (*to, *dependency), Some(*second))));
        }
    }
    steps
}

/// Finds a node that lies on a cycle, by a depth-first search.
fn on_a_cycle(steps: &[Vec<Step>]) -> Option<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Not; steps.len()];
    for root in 0..steps.len() {
        if visits[root] != Visit::Not {
            continue;
        }
        visits[root] = Visit::Open;
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some((to, ..)) = steps[*node].get(*next) else {
                visits[*node] = Visit::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match visits[*to] {
                Visit::Open => return Some(*to),
                Visit::Not => {
                    visits[*to] = Visit::Open;
                    path.push((*to, 0));
                }
                Visit::Done => {}
            }
        }
    }
    None
}

/// The steps of a shortest cycle through a node.
fn shortest(steps: &[Vec<Step>], start: usize) -> Vec<(usize, Step)> {
    let mut from: HashMap<usize, (usize, Step)> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for step in &steps[node] {
            if let Entry::Vacant(unseen) = from.entry(step.0) {
                unseen.insert((node, *step));
                queue.push_back(step.0);
            }
        }
        if from.contains_key(&start) {
            break;
        }
    }
    let mut cycle = Vec::new();
    let mut at = start;
    while let Some((node, step)) = from.get(&at) {
        cycle.push((*node, *step));
        at = *node;
        if at == start {
            break;
        }
    }
    cycle.reverse();
    cycle
}

/// The edges between transactions, to report. A path through moments becomes one edge.
fn report(graph: &Graph, cycle: &[(usize, Step)]) -> Vec<Edge> {
    let mut hops: Vec<(usize, usize, Dependency)> = Vec::new();
    for (node, (end, (middle, first), second)) in cycle {
        hops.push((*node, *middle, *first));
        if let Some(second) = second {
            hops.push((*middle, *end, *second));
        }
    }
    // Begin at a transaction, so that one precedes every run of moments.
    let first = hops.iter().position(|hop| graph.name(hop.0).is_some());
    hops.rotate_left(first.unwrap_or(0));
    let mut edges = Vec::new();
    let mut from: Option<&String> = None;
    for (node, to, dependency) in hops {
        from = graph.name(node).or(from);
        if let (Some(from), Some(to)) = (from, graph.name(to)) {
            edges.push(Edge {
                from: from.clone(),
                to: to.clone(),
                dependency,
            });
        }
    }
    edges
}
