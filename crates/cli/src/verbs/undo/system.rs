//! Takes back a transaction of the whole system, in all of its stores or in none.

use super::Arguments;
use crate::attempt::{aborted, commit_all, side};
use crate::changes::{ChangeList, Listing};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::escaped;
use crate::system::{self, Joined, Mark, PackagesLocked};
use crate::verbs::{ExitCode, SUCCESS};
use crate::which::{Chosen, One, Which};
use atomdir::client::{BeginOptions, Others, ViewChoice};
use atomdir::{Sequence, TransactionId};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `directory` is the caller's, and `context` that of the stores.
pub(super) fn run(
    arguments: &Arguments,
    directory: &Path,
    context: &Context,
) -> Result<ExitCode, Error> {
    if arguments.keep {
        return Err(Error::usage(
            "--keep is not possible in several stores at once",
        ));
    }
    let mut stores = system::connect(context)?;
    let roots: Vec<PathBuf> = stores.iter().map(|store| store.root.clone()).collect();
    let _packages = PackagesLocked::take(&roots)?;
    refuse_in_doubt(&mut stores)?;
    let found = system::find(&mut stores)?;
    let chosen = choose(&found, &arguments.commits)?;
    for one in &chosen {
        let (mark, label) = (one.mark, escaped(&one.label));
        (context.output).note(format_args!("takes back {mark}: {label}"));
    }
    let mark = Mark::new()?;
    let label = match &arguments.message {
        Some(message) => message.clone(),
        None => {
            let marks: Vec<String> = chosen.iter().map(|one| one.mark.to_string()).collect();
            format!("undo {}", marks.join(" ")).into()
        }
    };
    let mut undo = Undoing {
        arguments,
        directory,
        label: mark.added_to(&label),
        begun: stores.iter().map(|_| None).collect(),
    };
    let ended = undo.end(context, &mut stores, &chosen);
    if ended.is_err() || arguments.dry_run {
        for (store, begun) in stores.iter_mut().zip(&undo.begun) {
            if let Some(id) = begun {
                // It may have ended with its service.
                let _ = store.connection.abort(*id);
            }
        }
    }
    ended.map_err(aborted)?;
    if !arguments.dry_run {
        system::report(context, mark, &Default::default())?;
    }
    Ok(SUCCESS)
}

/// What is in doubt is in no log yet, but decided perhaps.
fn refuse_in_doubt(stores: &mut [Connected]) -> Result<(), Error> {
    match system::in_doubt(stores)? {
        None => Ok(()),
        Some((store, one)) => Err(Error::Usage {
            message: format!(
                "transaction {} of '{}' is in doubt, and may belong to what is to be taken back",
                one.transaction,
                store.root.display()
            ),
            hint: Some("`atomdir recover --system` waits until it is decided".into()),
        }),
    }
}

fn choose<'a>(found: &'a [Joined], words: &[Which]) -> Result<Vec<&'a Joined>, Error> {
    let newest = [Which::Range(One::Back(0), Some(One::Back(0)))];
    let words = if words.is_empty() { &newest[..] } else { words };
    let none = || Error::NoCommit("the system's logs have no such transaction".to_owned());
    let mut chosen: Vec<&Joined> = Vec::new();
    for word in words {
        let one = match *word {
            Which::Marked(mark) => found.iter().find(|one| one.mark == mark),
            Which::Range(One::Back(back), Some(last)) if last == One::Back(back) => {
                usize::try_from(back)
                    .ok()
                    .and_then(|place| found.get(place))
            }
            Which::Range(..) | Which::Since(_) => {
                return Err(Error::usage(
                    "with `--system`, name transactions as `log --system` lists them, or `last`, \
                     `last~1`",
                ));
            }
        };
        let one = one.ok_or_else(none)?;
        if !chosen.iter().any(|known| known.mark == one.mark) {
            chosen.push(one);
        }
    }
    Ok(chosen)
}

struct Undoing<'a> {
    arguments: &'a Arguments,
    directory: &'a Path,
    label: OsString,
    /// The transaction in each store.
    begun: Vec<Option<TransactionId>>,
}

impl Undoing<'_> {
    /// After an error nothing has been taken back, and the transactions that were begun are open.
    fn end(
        &mut self,
        context: &Context,
        stores: &mut [Connected],
        chosen: &[&Joined],
    ) -> Result<(), Error> {
        for (place, store) in stores.iter_mut().enumerate() {
            let parts = chosen.iter().flat_map(|one| &one.parts);
            let of_store = parts
                .filter(|part| part.0 == place)
                .map(|part| part.1.sequence);
            let mut commits: Vec<Sequence> = of_store.collect();
            commits.sort();
            if let Some(arguments) = self.in_store(&store.root)
                && !commits.is_empty()
            {
                let begun = self.begin(context, store, &arguments, commits);
                self.begun[place] = Some(begun.map_err(|error| Error::Elsewhere {
                    store: store.root.clone(),
                    source: Box::new(error),
                })?);
            }
        }
        if self.arguments.dry_run {
            return Ok(());
        }
        let sides = stores.iter_mut().zip(&self.begun);
        let mut sides: Vec<_> = sides
            .filter_map(|(store, begun)| {
                begun.map(|id| side(&mut store.connection, &store.root, id))
            })
            .collect();
        if sides.is_empty() {
            return Err(Error::NoCommit(
                "nothing was changed at these paths".to_owned(),
            ));
        }
        commit_all(context, &mut sides, None, Others::Refuse).map(|_| ())
    }

    fn begin(
        &self,
        context: &Context,
        store: &mut Connected,
        arguments: &Arguments,
        commits: Vec<Sequence>,
    ) -> Result<TransactionId, Error> {
        let undo = arguments.undo(
            store,
            &Chosen {
                commits,
                found: Vec::new(),
            },
        )?;
        let sides = (undo.mine.clone(), undo.theirs.clone());
        let options = BeginOptions {
            label: self.label.as_bytes().to_vec(),
            view: ViewChoice::Exact,
            opened: true,
            ..BeginOptions::default()
        };
        let connection = &mut store.connection;
        let begun = super::showing_progress(context, |progress| {
            connection.undo(undo, &options, progress)
        });
        let (transaction, sided) = begun.map_err(|source| Error::NotUndone {
            source,
            lists_all: arguments.all,
        })?;
        super::name_sides(&context.output, &sided, &sides);
        if arguments.dry_run {
            let lines = connection.changes(transaction.id)?;
            let listing = Listing::new(transaction.id, ChangeList::new(&lines));
            context
                .output
                .note(format_args!("in '{}':", store.root.display()));
            context.output.print(&listing)?;
        }
        Ok(transaction.id)
    }

    /// The arguments with the paths that lie in this store. `None`: only paths elsewhere are meant.
    fn in_store(&self, root: &Path) -> Option<Arguments> {
        let arguments = self.arguments;
        let within = |path: &Path| {
            let path = self.directory.join(path);
            path.starts_with(root).then_some(path)
        };
        let paths = |paths: &[PathBuf]| paths.iter().filter_map(|path| within(path)).collect();
        let sides = |values: &[OsString]| {
            let value = |value: &OsString| match value.is_empty() {
                true => Some(OsString::new()),
                false => within(Path::new(value)).map(PathBuf::into_os_string),
            };
            values.iter().filter_map(value).collect()
        };
        let own: Vec<PathBuf> = paths(&arguments.paths);
        if own.is_empty() && !arguments.paths.is_empty() {
            return None;
        }
        Some(Arguments {
            take_mine: sides(&arguments.take_mine),
            take_theirs: sides(&arguments.take_theirs),
            skip: paths(&arguments.skip),
            paths: own,
            ..arguments.clone()
        })
    }
}
