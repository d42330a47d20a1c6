//! Every sync of the engine is needed: with any one of them left out, some
//! crash breaks a promise. A sync is identified by the line that asks for it.

#![cfg(test)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use atomdir_sim::{
    Bounds, Explored, Ordering, Plan, Site, Workload, explore, explore_kills, explore_making,
    workloads,
};
use support::{in_parallel, plan};

/// How the engine's source asks for a sync. For the functions in `flusher`, `Log::flush` and
/// `Core::flush_base`, the line that calls them counts.
const CALLS: [&str; 8] = [
    ".sync(",
    ".sync_data(",
    ".sync_directory(",
    ".sync_file_system(",
    ".flush(&",
    ".flush_base()",
    ".flush_log(",
    ".flush_appended(",
];

/// With the log in the control directory, and elsewhere.
const MAKING: [(Ordering, bool); 2] = [(Ordering::Least, false), (Ordering::Least, true)];

/// Every place in the engine's source that asks for a sync.
fn sites_in_source() -> BTreeSet<(String, u32)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let mut found = BTreeSet::new();
    let mut directories = vec![root.join("crates/engine/src")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            // No workload adopts a copied store, moves its log, pins a commit or has it wait to be
            // confirmed. An adoption or a move that a crash interrupts is done again by its user.
            let without_workload = [
                "recovery/adopt.rs",
                "recovery/relocate.rs",
                "control/applied_mark.rs",
                "log/annotations.rs",
            ];
            let is_without = without_workload.iter().any(|end| name.ends_with(end));
            if name.ends_with("store/flusher.rs") || is_without {
                continue;
            }
            for (line, number) in text.lines().zip(1..) {
                let is_stores = line.contains("self.sync()");
                let is_flush_itself = line.contains("disk.sync_data(&self.file)")
                    || line.contains("self.disk.sync_file_system(&self.root)");
                let asks = CALLS.iter().any(|call| line.contains(call));
                if asks && !is_stores && !is_flush_itself {
                    found.insert((name.to_owned(), number));
                }
            }
        }
    }
    found
}

fn all_workloads() -> Vec<Workload> {
    // An older survivor asks for the same syncs with and without history.
    let survivors = workloads::survivors().into_iter();
    let mut all: Vec<Workload> = survivors.filter(|one| !one.keeps_history).collect();
    all.extend(workloads::kinds());
    all.extend(workloads::sequences());
    all.extend(workloads::transactions());
    all.extend(workloads::kept());
    all.extend(workloads::cancelled().into_iter().take(1));
    let sequences = workloads::sequences().into_iter();
    all.extend(sequences.map(Workload::with_log_elsewhere));
    all
}

/// Small bounds: each sync is left out in turn, and the lack of most is noticed at once. With all syncs
/// this finds only which of them each workload asks for; the crash tests look at its states.
fn small_plan(skipped: Option<Site>) -> Plan {
    let bounds = |exhaustive, random| Bounds { exhaustive, random };
    let first = match skipped {
        Some(_) => bounds(5, 3),
        None => bounds(2, 1),
    };
    Plan {
        levels: vec![first, bounds(1, 1)],
        deeper_one_in: vec![20],
        deeper_max: 300,
        skipped,
        ..plan()
    }
}

fn explore_one(workload: &Workload, skipped: Option<Site>) -> Explored {
    let run = workload.run(Ordering::Least, skipped);
    let mut explored = explore(&run.trace, &run.expected, &small_plan(skipped));
    explored.sites.extend(run.sites);
    explored
}

fn explore_kills_of(workload: &Workload, skipped: Option<Site>) -> Explored {
    let run = workload.run(Ordering::Least, skipped);
    let bounds = Bounds {
        exhaustive: 1,
        random: 0,
    };
    let plan = Plan {
        levels: vec![bounds; 2],
        deeper_one_in: vec![1],
        ..small_plan(skipped)
    };
    explore_kills(&run.trace, &run.expected, &plan)
}

/// The first crash that shows that the sync is missing. Workloads that ask for that sync are tried
/// first, and those with few states before others.
fn noticed(site: Site, all: &[(Workload, Explored)]) -> Option<String> {
    for how in MAKING {
        let made = explore_making(how, plan().levels[0], Some(site));
        if let Some(failure) = made.failure {
            return Some(format!("making a store: {}", failure.reason));
        }
    }
    let mut all: Vec<&(Workload, Explored)> = all.iter().collect();
    all.sort_by_key(|(_, explored)| explored.states);
    let (asking, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|(_, explored)| explored.sites.contains(&site));
    let tries = asking.into_iter().chain(others).flat_map(|(workload, _)| {
        let explorers = [explore_one, explore_kills_of];
        explorers.map(|explore| (explore, workload))
    });
    let mut failures = tries.filter_map(|(explore, workload)| {
        let failure = explore(workload, Some(site)).failure?;
        Some(format!("{}: {}", workload.name, failure.reason))
    });
    failures.next()
}

#[test]
fn removing_any_sync_fails_a_workload() {
    let all = all_workloads();
    let explored = in_parallel(&all, |workload| explore_one(workload, None));
    let all: Vec<_> = all.into_iter().zip(explored).collect();
    let made = MAKING.map(|how| explore_making(how, plan().levels[0], None).sites);
    let mut sites: BTreeSet<Site> = made.into_iter().flatten().collect();
    sites.extend(all.iter().flat_map(|(_, explored)| &explored.sites));
    sites.retain(|(file, _)| file.starts_with("crates/engine/"));
    let seen: BTreeSet<(String, u32)> = sites
        .iter()
        .map(|(file, line)| ((*file).to_owned(), *line))
        .collect();
    assert_eq!(
        seen,
        sites_in_source(),
        "the syncs that the workloads ask for, and those in the source"
    );
    let sites: Vec<Site> = sites.into_iter().collect();
    let results = in_parallel(&sites, |site| (*site, noticed(*site, &all)));
    let mut missed = Vec::new();
    for ((file, line), noticed) in results {
        match noticed {
            Some(reason) => println!("{file}:{line}: {}", reason.replace('\n', " ")),
            None => missed.push(format!("{file}:{line}")),
        }
    }
    assert!(missed.is_empty(), "nothing fails without {missed:#?}");
}
