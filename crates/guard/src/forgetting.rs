//! Makes the kernel forget what a commit is about to change.
//!
//! The kernel takes the lock of a directory to forget names in it, and those of pages to forget
//! contents. It keeps these locked for calls that wait (`waits`). So while calls may wait, other
//! threads make it forget, and a commit goes on as soon as they have come to such a lock. They go on
//! when the call is answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atomdir_disk::{Identity, Kind, Name, sync};
use atomdir_engine::{Guarding, Touched};
use atomdir_fuse::Notifier;

use crate::Known;
use crate::waits::Waits;

/// Names that are to be forgotten, by directory.
struct Names {
    directories: Vec<Directory>,
    /// The first directory that no thread has taken.
    next: AtomicUsize,
    notifier: Notifier,
    waits: Arc<Waits>,
}

struct Directory {
    identity: Identity,
    node: u64,
    names: Vec<Name>,
    is_done: AtomicBool,
}

impl Names {
    fn forget(&self) {
        while let Some(directory) = {
            let next = self.next.fetch_add(1, Ordering::AcqRel);
            self.directories.get(next)
        } {
            // The next lines may wait for a call, which the commit is to find out.
            self.waits.wake();
            for name in &directory.names {
                // It fails if the kernel does not know the directory any more.
                let _ = self
                    .notifier
                    .invalidate_entry(directory.node, name.as_bytes());
            }
            directory.is_done.store(true, Ordering::Release);
            self.waits.wake();
        }
    }
}

impl Known {
    /// Makes the kernel forget names, each by its directory, which is known by a node.
    pub(crate) fn forget_names(&self, entries: &[(Identity, u64, &Name)], touched: &Touched) {
        let notifier = sync::lock(&self.notifier).clone();
        let Some(notifier) = notifier.filter(|_| self.may_wait()) else {
            for (_, directory, name) in entries {
                self.notify(|notifier| notifier.invalidate_entry(*directory, name.as_bytes()));
            }
            return;
        };
        let mut by_directory: HashMap<Identity, Directory> = HashMap::new();
        for (identity, node, name) in entries {
            let directory = by_directory.entry(*identity).or_insert_with(|| Directory {
                identity: *identity,
                node: *node,
                names: Vec::new(),
                is_done: AtomicBool::new(false),
            });
            directory.names.push((*name).clone());
        }
        let directories = by_directory.keys().copied().collect();
        self.waits
            .begin_commit(directories, touched.transactions.clone());
        // Those that give way are answered now.
        self.retry();
        let names = Arc::new(Names {
            directories: by_directory.into_values().collect(),
            next: AtomicUsize::new(0),
            notifier,
            waits: self.waits.clone(),
        });
        let mut threads = 0;
        self.waits.until(&mut |waiting| {
            let taken = names.next.load(Ordering::Acquire);
            let mut left = names.directories.iter().take(taken);
            let left = left
                .by_ref()
                .filter(|one| !one.is_done.load(Ordering::Acquire));
            let left: Vec<&Directory> = left.collect();
            let is_held = |one: &&Directory| waiting.contains(&one.identity);
            let held = left.iter().filter(|one| is_held(one)).count();
            if taken >= names.directories.len() {
                return held == left.len();
            }
            if threads == held {
                threads += 1;
                let names = names.clone();
                let forget = move || names.forget();
                if !start("guard-forget", forget) {
                    return true;
                }
            }
            false
        });
        self.waits.end_commit();
    }

    /// Makes the kernel forget attributes and contents. Pages that a waiting call is to write are left
    /// out: they are forgotten when it is answered.
    pub(crate) fn forget_object(&self, node: u64, object: Identity) {
        let is_file = || {
            self.nodes
                .get(node)
                .is_ok_and(|node| node.kind == Kind::File)
        };
        let notifier = sync::lock(&self.notifier).clone();
        let Some(notifier) = notifier.filter(|_| self.may_wait() && is_file()) else {
            return self.notify(|notifier| notifier.invalidate_inode(node, 0, 0));
        };
        self.notify(|notifier| notifier.invalidate_inode(node, -1, 0));
        loop {
            let (seen, parts) = self.waits.apart(object);
            let is_done = Arc::new(AtomicBool::new(false));
            let (notifier, waits, done) = (notifier.clone(), self.waits.clone(), is_done.clone());
            let forget = move || {
                for (start, length) in parts {
                    // It fails if the kernel does not know the file any more.
                    let _ = notifier.invalidate_inode(node, start, length);
                }
                done.store(true, Ordering::Release);
                waits.wake();
            };
            if !start("guard-forget", forget) {
                return;
            }
            // If a write has begun to wait, the thread waits for that one, and another goes on.
            let is_done = || is_done.load(Ordering::Acquire);
            self.waits.until_done_or_write(seen, &is_done);
            if is_done() {
                return;
            }
        }
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run);
    if let Err(error) = &started {
        tracing::warn!("the kernel goes on to show what it has cached: {error}");
    }
    started.is_ok()
}
