//! How transactions of a history end, land parts, and go on with a newer snapshot.

use atomdir_engine::{CommitError, Durability, Portion, RefreshError, UndoError};

use crate::histories::{Client, Pending, Run};
use crate::model::{Model, join};
use crate::world::options;

impl Run {
    /// Whether the transaction goes on.
    pub fn commit(&mut self, client: &mut Client) -> bool {
        let id = client.open.id();
        self.pending.push_back(Pending {
            id,
            fork: client.fork.clone(),
            now: client.now.clone(),
        });
        let committed = self.store().commit(&client.open);
        self.note(format!("commit {id}: {committed:?}"));
        match committed {
            Ok(committed) if committed.sequence.is_some() => {
                self.counts.commits += 1;
                let durability = client.open.durability();
                self.follow(None);
                if durability == Durability::Durable && self.pending.iter().any(|one| one.id == id)
                {
                    self.fail("it is not in the base");
                }
                false
            }
            Ok(_) => {
                self.pending.retain(|one| one.id != id);
                self.follow(None);
                if client.fork != client.now && client.fork.tree() != client.now.tree() {
                    self.fail("it has changed something");
                }
                false
            }
            Err(CommitError::Conflict(_)) => {
                self.counts.conflicts += 1;
                self.follow(Some(id));
                if self.random.chance(2) {
                    return true;
                }
                self.store().abort(&client.open);
                false
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Lands what the transaction has done to one file.
    pub fn land(&mut self, client: &mut Client) {
        let files: Vec<_> = client
            .now
            .paths()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let path = self.random.choose(&files).clone();
        let Some(part) = client.fork.with_contents_of(&client.now, &path) else {
            return;
        };
        let id = client.open.id();
        self.pending.push_back(Pending {
            id,
            fork: client.fork.clone(),
            now: part.clone(),
        });
        let paths = [join(&path).into_bytes()];
        let landed = self
            .store()
            .commit_portion(&client.open, Portion::part(&paths), &mut |_| {});
        self.note(format!("land {path:?} of {id}: {landed:?}"));
        match landed {
            Ok(_) => {
                self.follow(None);
                self.pending.retain(|one| one.id != id);
                self.counts.parts += 1;
                client.fork = part;
            }
            Err(CommitError::Conflict(_) | CommitError::Unchanged { .. }) => self.follow(Some(id)),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    pub fn refresh(&mut self, client: &mut Client) {
        let id = client.open.id();
        let refreshed = self.store().refresh(&client.open);
        self.note(format!("refresh {id}: {refreshed:?}"));
        self.follow(None);
        match refreshed {
            Ok(_) => {
                let merged = Model::merge(&client.fork, &client.now, &self.base);
                client.now = merged.unwrap_or_else(|lost| self.fail(&lost));
                client.fork = self.base.clone();
                client.times = None;
                self.counts.refreshed += 1;
            }
            Err(RefreshError::Commit(CommitError::Conflict(_))) => {}
            Err(error) => self.fail(&error.to_string()),
        }
    }

    pub fn undo(&mut self) {
        let Some((_, before, after)) = self.applied.last().cloned() else {
            return;
        };
        let commits = self.store().commits().expect("listed");
        self.follow(None);
        if self.applied.last().is_none_or(|last| last.2 != after) {
            return;
        }
        let Some(newest) = commits.last().map(|commit| &commit.summary) else {
            return;
        };
        if newest.label != options().label {
            // The model does not follow what programs outside have changed.
            return;
        }
        let newest = newest.sequence;
        let listed: Vec<_> = commits
            .iter()
            .map(|one| (one.summary.sequence, one.summary.transaction))
            .collect();
        self.note(format!("commits {listed:?}"));
        match self.store().undo(&[newest], &[], options()) {
            Ok(open) => {
                self.note(format!("undo {newest}: {}", open.id()));
                self.follow(None);
                if self.base != after {
                    // The model does not follow the contents of removed files.
                    self.store().abort(&open);
                    return;
                }
                let now = before;
                self.counts.undone += 1;
                let fork = self.base.clone();
                let client = Client {
                    open,
                    fork,
                    now,
                    times: None,
                };
                self.check(&client);
                self.clients.push(client);
            }
            Err(UndoError::Conflict(conflicts)) => {
                self.note(format!("undo {newest}: {conflicts:?}"));
            }
            Err(UndoError::AlreadyUndone { .. }) => {}
            Err(error) => self.fail(&error.to_string()),
        }
    }
}
