//! The graph of which transaction comes before which.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::{Anomaly, History, Key, Operation, Outcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// The second transaction replaced or followed the first one's version.
    WriteWrite(Key),
    /// The second read the first one's version.
    WriteRead(Key),
    /// The first read what the second then changed.
    ReadWrite(Key),
    /// The second began after the first had ended.
    RealTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub from: String,
    pub to: String,
    pub dependency: Dependency,
}

impl fmt::Display for Edge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (&self.from, &self.to);
        match self.dependency {
            Dependency::WriteWrite(key) => write!(formatter, "{to} overwrote {key:?} of {from}"),
            Dependency::WriteRead(key) => write!(formatter, "{to} read {key:?} of {from}"),
            Dependency::ReadWrite(key) => {
                write!(formatter, "{from} read {key:?} without what {to} wrote")
            }
            Dependency::RealTime => write!(formatter, "{to} began after {from} had ended"),
        }
    }
}

/// Nodes are the transactions that took part, then moments in time.
pub(super) struct Graph {
    names: Vec<String>,
    /// For each node, where its edges lead.
    pub edges: Vec<Vec<(usize, Dependency)>>,
}

impl Graph {
    pub fn new(history: &History) -> Result<Graph, Anomaly> {
        let mut builder = Builder::new(history)?;
        builder.check_writes()?;
        for reader in builder.took_part() {
            builder.add_reads(reader)?;
        }
        builder.order_versions();
        builder.order_time();
        let transactions = history.transactions.iter();
        Ok(Graph {
            names: transactions.map(|one| one.name.clone()).collect(),
            edges: builder.edges,
        })
    }

    pub fn transactions(&self) -> usize {
        self.names.len()
    }

    /// The transaction's name. Moments in time have none and are not reported.
    pub fn name(&self, node: usize) -> Option<&String> {
        self.names.get(node)
    }
}

struct Builder<'a> {
    history: &'a History,
    writers: HashMap<(Key, u64), usize>,
    /// The version of a register that each write replaced.
    replaced: HashMap<(Key, u64), Option<u64>>,
    /// All values that a key ever had, in order; those of a set are in any order.
    versions: BTreeMap<Key, Vec<u64>>,
    took_part: HashSet<usize>,
    edges: Vec<Vec<(usize, Dependency)>>,
}

impl<'a> Builder<'a> {
    fn new(history: &'a History) -> Result<Builder<'a>, Anomaly> {
        let mut builder = Builder {
            history,
            writers: HashMap::new(),
            replaced: HashMap::new(),
            versions: BTreeMap::new(),
            took_part: HashSet::new(),
            edges: vec![Vec::new(); history.transactions.len()],
        };
        for (number, transaction) in history.transactions.iter().enumerate() {
            let mut known: HashMap<Key, Option<u64>> = HashMap::new();
            for operation in &transaction.operations {
                match operation {
                    Operation::Read(key, values) => {
                        known.insert(*key, values.last().copied());
                    }
                    Operation::Write(key, value) => {
                        let twice = builder.writers.insert((*key, *value), number);
                        assert!(twice.is_none(), "{value} is written to {key:?} twice");
                        if let Key::Register(_) = key {
                            let before = known.insert(*key, Some(*value));
                            let before = before.expect("a register is read before it is written");
                            builder.replaced.insert((*key, *value), before);
                        }
                    }
                }
            }
        }
        builder.find_versions()?;
        builder.find_took_part();
        Ok(builder)
    }

    fn name(&self, number: usize) -> String {
        self.history.transactions[number].name.clone()
    }

    fn find_versions(&mut self) -> Result<(), Anomaly> {
        for (key, last) in &self.history.last {
            let mut versions = last.clone();
            if let Key::Register(_) = key {
                let mut seen = HashSet::new();
                while let Some(Some(before)) = versions
                    .last()
                    .and_then(|value| self.replaced.get(&(*key, *value)))
                {
                    if !seen.insert(*before) {
                        break;
                    }
                    versions.push(*before);
                }
                versions.reverse();
            }
            for value in &versions {
                if !self.writers.contains_key(&(*key, *value)) {
                    return Err(Anomaly::DirtyRead {
                        reader: "the final state".to_owned(),
                        key: *key,
                        value: *value,
                    });
                }
            }
            self.versions.insert(*key, versions);
        }
        Ok(())
    }

    /// A transaction whose client got no answer to its commit took part if its writes are there.
    fn find_took_part(&mut self) {
        let present: HashSet<usize> = self
            .versions
            .iter()
            .flat_map(|(key, values)| values.iter().map(|value| self.writers[&(*key, *value)]))
            .collect();
        let all = self.history.transactions.iter().enumerate();
        let took_part = all.filter(|(number, transaction)| match transaction.outcome {
            Outcome::Committed => true,
            Outcome::Unknown => present.contains(number),
            Outcome::Aborted => false,
        });
        self.took_part = took_part.map(|(number, _)| number).collect();
    }

    fn took_part(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.took_part.iter().copied().collect();
        all.sort_unstable();
        all
    }

    /// The versions must be exactly the writes of the transactions that took part.
    fn check_writes(&self) -> Result<(), Anomaly> {
        for (key, values) in &self.versions {
            for value in values {
                if !self.took_part.contains(&self.writers[&(*key, *value)]) {
                    return Err(Anomaly::DirtyRead {
                        reader: "the final state".to_owned(),
                        key: *key,
                        value: *value,
                    });
                }
            }
        }
        let mut replacers: HashMap<(Key, Option<u64>), usize> = HashMap::new();
        let mut writes: Vec<_> = self.writers.iter().collect();
        writes.sort_unstable();
        writes.retain(|(_, writer)| self.took_part.contains(writer));
        for ((key, value), writer) in &writes {
            if let Some(before) = self.replaced.get(&(*key, *value))
                && let Some(other) = replacers.insert((*key, *before), **writer)
            {
                let writers = [self.name(other), self.name(**writer)];
                return Err(Anomaly::LostUpdate { writers, key: *key });
            }
        }
        for ((key, value), writer) in writes {
            if !self.versions_of(*key).contains(value) {
                return Err(Anomaly::LostWrite {
                    writer: self.name(*writer),
                    key: *key,
                    value: *value,
                });
            }
        }
        Ok(())
    }

    fn versions_of(&self, key: Key) -> &[u64] {
        self.versions.get(&key).map_or(&[], Vec::as_slice)
    }

    fn add_reads(&mut self, reader: usize) -> Result<(), Anomaly> {
        let mut own: HashMap<Key, Vec<u64>> = HashMap::new();
        for operation in &self.history.transactions[reader].operations {
            match operation {
                Operation::Write(key, value) => own.entry(*key).or_default().push(*value),
                Operation::Read(key, values) => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    self.add_read(reader, *key, values, own)?;
                }
            }
        }
        Ok(())
    }

    /// Adds one read of a transaction that has itself written `own` to the key.
    fn add_read(
        &mut self,
        reader: usize,
        key: Key,
        values: &[u64],
        own: &[u64],
    ) -> Result<(), Anomaly> {
        if let (Key::Register(_), Some(last)) = (key, own.last())
            && values == [*last]
        {
            return Ok(());
        }
        let is_others = |value: &u64| !own.contains(value);
        let others: Vec<u64> = values.iter().copied().filter(is_others).collect();
        for value in &others {
            let writer = self.writers.get(&(key, *value));
            if writer.is_none_or(|writer| !self.took_part.contains(writer)) {
                return Err(Anomaly::DirtyRead {
                    reader: self.name(reader),
                    key,
                    value: *value,
                });
            }
        }
        let sees_own = values.len() == others.len() + own.len();
        let unseen = self.unseen(key, values, &others).filter(|_| sees_own);
        let added = unseen.and_then(|unseen| self.add_read_edges(reader, key, &others, &unseen));
        added.ok_or_else(|| Anomaly::ImpossibleRead {
            reader: self.name(reader),
            key,
            read: values.to_vec(),
        })
    }

    /// The versions that came after this state, or `None` if the key never had this state.
    fn unseen(&self, key: Key, values: &[u64], others: &[u64]) -> Option<Vec<u64>> {
        let versions = self.versions_of(key);
        let place = match key {
            Key::Set(_) => {
                let seen: HashSet<u64> = others.iter().copied().collect();
                let unseen = versions.iter().filter(|value| !seen.contains(value));
                return Some(unseen.copied().collect());
            }
            Key::List(_) if versions.starts_with(others) && values.starts_with(others) => {
                others.len()
            }
            Key::Register(_) if others.is_empty() => 0,
            Key::Register(_) if others.len() == 1 => {
                1 + versions.iter().position(|version| *version == others[0])?
            }
            _ => return None,
        };
        Some(versions[place..].to_vec())
    }

    /// Returns `None` if the read saw only a part of a transaction's writes.
    fn add_read_edges(
        &mut self,
        reader: usize,
        key: Key,
        seen: &[u64],
        unseen: &[u64],
    ) -> Option<()> {
        let is_set = matches!(key, Key::Set(_));
        let newest = if is_set {
            seen
        } else {
            &seen[seen.len().saturating_sub(1)..]
        };
        for value in newest {
            self.add(
                self.writers[&(key, *value)],
                reader,
                Dependency::WriteRead(key),
            );
        }
        let next = unseen
            .iter()
            .filter(|value| self.writers[&(key, **value)] != reader);
        let next: Vec<usize> = next
            .take(if is_set { usize::MAX } else { 1 })
            .map(|value| self.writers[&(key, *value)])
            .collect();
        for writer in next {
            let is_partly_seen = newest
                .iter()
                .any(|value| self.writers[&(key, *value)] == writer);
            if is_partly_seen {
                return None;
            }
            self.add(reader, writer, Dependency::ReadWrite(key));
        }
        Some(())
    }

    fn order_versions(&mut self) {
        let ordered = self
            .versions
            .iter()
            .filter(|(key, _)| !matches!(key, Key::Set(_)));
        let pairs: Vec<(usize, usize, Key)> = ordered
            .flat_map(|(key, values)| {
                let writer = |value: &u64| self.writers[&(*key, *value)];
                let pairs = values.windows(2);
                pairs.map(move |pair| (writer(&pair[0]), writer(&pair[1]), *key))
            })
            .collect();
        for (from, to, key) in pairs {
            self.add(from, to, Dependency::WriteWrite(key));
        }
    }

    /// Adds a chain of moments, which each transaction enters at its end and leaves at its
    /// begin. This has the same meaning as an edge for each pair of transactions.
    fn order_time(&mut self) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for number in self.took_part() {
            let transaction = &self.history.transactions[number];
            events.push((transaction.began, false, number));
            if transaction.outcome == Outcome::Committed {
                events.push((transaction.ended, true, number));
            }
        }
        events.sort_unstable();
        let mut moment: Option<usize> = None;
        for (_, is_end, number) in events {
            match (is_end, moment) {
                (false, Some(moment)) => self.add(moment, number, Dependency::RealTime),
                (false, None) => {}
                (true, before) => {
                    let next = self.edges.len();
                    self.edges.push(Vec::new());
                    self.add(number, next, Dependency::RealTime);
                    if let Some(before) = before {
                        self.add(before, next, Dependency::RealTime);
                    }
                    moment = Some(next);
                }
            }
        }
    }

    fn add(&mut self, from: usize, to: usize, dependency: Dependency) {
        if from != to {
            self.edges[from].push((to, dependency));
        }
    }
}
