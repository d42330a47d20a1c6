use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::{
    self, Finished, Linked, OthersArguments, Outcome, PartDone, Terminal, TermsArguments,
};
use crate::changes::{ChangeList, Named};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::merging::{self, Otherwise};
use crate::output::{InStore, Painter, Show, Stores, counted};
use crate::picking;
use atomdir::TransactionId;
use atomdir::client::{ChangeLine, Committed, Numbers, Others, Portion, Sides};
use clap::{Args, ValueHint};
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Make a transaction's changes take effect
///
/// If someone else has changed the same things since it began, it is a
/// conflict: nothing is committed, and the transaction stays open. The commit is
/// also refused while others use the transaction, unless --wait or --force is
/// given. A nested transaction becomes part of the outer one. Transactions of other stores that are
/// linked with it are committed with it: all of them or none.
///
/// In a conflict it can take a side: `atomdir conflicts TX` numbers them. --take-mine
/// replaces what others have changed, --take-theirs gives up the transaction's change, and
/// --merge keeps both changes of a text where they are in different lines. Any other conflict
/// still refuses the commit.
///
/// With paths, only the changes at and below them take effect, and the transaction stays
/// open with the rest. Some changes only take effect together, and the command says so:
/// both ends of a rename, all names of a file, new directories above.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir commit
  atomdir commit 12
  atomdir commit --wait 12
  atomdir commit 12 --merge
  atomdir commit 12 --take-mine 1,3 --take-theirs all
  atomdir commit 12 -- docs index.html
  atomdir commit --so-far -m 'a turn'
  atomdir commit --patch 12")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    #[command(flatten)]
    others: OthersArguments,
    /// Replace what others have changed in these conflicts; `all` means those that no other
    /// option names
    #[arg(long, value_name = "N,...", value_parser = numbers)]
    take_mine: Option<Chosen>,
    /// Give up the transaction's changes in these conflicts; `all` means those that no other
    /// option names
    #[arg(long, value_name = "N,...", value_parser = numbers)]
    take_theirs: Option<Chosen>,
    /// Merge the texts of these conflicts line by line; `all`, the default, means those that no
    /// other option names
    #[arg(long, value_name = "N,...", value_parser = numbers)]
    #[arg(num_args = 0..=1, default_missing_value = "all", require_equals = true)]
    merge: Option<Chosen>,
    /// With --merge: leave both sides between markers in the view, where both have changed the
    /// same lines
    #[arg(long, requires = "merge", conflicts_with = "tool")]
    markers: bool,
    /// With --merge: run a merge tool where both sides have changed the same lines: the command
    /// in ATOMDIR_MERGE, or git's `merge.tool`
    #[arg(long, requires = "merge")]
    tool: bool,
    /// Ask of each change, and of each hunk of a text, whether it takes effect
    #[arg(short, long, conflicts_with_all = ["take_mine", "take_theirs", "merge"])]
    patch: bool,
    /// Commit everything that has changed so far, and leave the transaction open
    #[arg(long, conflicts_with_all = ["take_mine", "take_theirs", "merge", "patch", "paths"])]
    so_far: bool,
    /// What the log says of it, instead of what was said at its begin
    #[arg(short, long, value_name = "TEXT")]
    message: Option<OsString>,
    #[command(flatten)]
    terms: TermsArguments,
    /// Only what is at or below these paths
    #[arg(conflicts_with_all = ["take_mine", "take_theirs", "merge"])]
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

impl Arguments {
    fn otherwise(&self) -> Otherwise {
        match (self.markers, self.tool) {
            (true, _) => Otherwise::Markers,
            (_, true) => Otherwise::Tool,
            _ => Otherwise::Refuse,
        }
    }
}

/// Numbers of conflicts.
#[derive(Debug, Clone)]
struct Chosen(Numbers);

fn numbers(text: &str) -> Result<Chosen, String> {
    if text == "all" {
        return Ok(Chosen(Numbers::Others));
    }
    let numbers = text.split(',').map(|word| word.trim().parse::<u64>());
    let numbers = numbers.collect::<Result<_, _>>();
    let numbers =
        numbers.map_err(|_| "name numbers as `atomdir conflicts` lists them, or `all`")?;
    Ok(Chosen(Numbers::These(numbers)))
}

pub(super) struct Done {
    pub(super) transaction: TransactionId,
    pub(super) committed: Committed,
}

impl Show for Done {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let changes = self.committed.changes;
        match self.committed.sequence {
            Some(sequence) => {
                writeln!(painter, "commit {sequence}: {}", counted(changes, "change"))
            }
            None if changes > 0 => writeln!(painter, "committed to the outer transaction"),
            None => writeln!(painter, "nothing had changed"),
        }
    }
}

impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Finished {
            transaction: Some(self.transaction),
            result: Ok(Outcome::Committed(self.committed.clone())),
            exit_code: SUCCESS,
        }
        .serialize(serializer)
    }
}

/// A commit that took sides.
struct SidesDone {
    done: Done,
    /// The changes for which their side was taken.
    dropped: Vec<ChangeLine>,
}

impl Show for SidesDone {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.done.show(painter)?;
        if self.dropped.is_empty() {
            return Ok(());
        }
        writeln!(painter, "given up:")?;
        ChangeList::new(&self.dropped).show(painter)
    }
}

impl Serialize for SidesDone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct SidesDoneJson<'a> {
            #[serde(flatten)]
            done: &'a Done,
            given_up: ChangeList<'a>,
        }
        SidesDoneJson {
            done: &self.done,
            given_up: ChangeList::new(&self.dropped),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let others = arguments.others.others();
    let (found, transaction) = Linked::connect(context, arguments.transaction)?;
    let mut connected = match found {
        Ok(linked) => return commit_linked(arguments, context, linked, others),
        Err(connected) => connected,
    };
    if others == Others::Wait {
        context.refuse_to_wait_inside(&mut connected, transaction)?;
    }
    let message = arguments.message.as_deref();
    let is_part = arguments.patch || arguments.so_far || !arguments.paths.is_empty();
    let (of_part, of_all) = match is_part {
        true => (message, None),
        false => (None, message),
    };
    arguments
        .terms
        .set(&mut connected.connection, transaction, of_all)?;
    let label = of_part.map(|label| label.as_bytes().to_vec());
    if arguments.patch {
        let wanted = (&*arguments.paths, label);
        return pick(context, &mut connected, transaction, wanted, others);
    }
    if is_part {
        let named = match arguments.so_far {
            true => Named::everything(),
            false => Named::new(&connected, &arguments.paths)?,
        };
        let connection = &mut connected.connection;
        let paths = named.paths.clone();
        let portion = Portion::Part { paths, label };
        let part = attempt::commit_portion(context, connection, transaction, &portion, others)?;
        attempt::survive_again(context, connection, transaction);
        let others = named.others(&part.changes);
        context.output.confirm(&PartDone {
            transaction,
            part,
            others,
        })?;
        return Ok(SUCCESS);
    }
    let chosen = [
        &arguments.take_mine,
        &arguments.take_theirs,
        &arguments.merge,
    ];
    if chosen.iter().any(|chosen| chosen.is_some()) {
        let side = |chosen: &Option<Chosen>| match chosen {
            Some(Chosen(numbers)) => numbers.clone(),
            None => Numbers::These(Vec::new()),
        };
        let mut sides = Sides {
            mine: side(&arguments.take_mine),
            theirs: side(&arguments.take_theirs),
        };
        if let Some(Chosen(numbers)) = &arguments.merge {
            let wanted = (numbers, arguments.otherwise());
            sides = merging::merge(context, &mut connected, transaction, wanted, sides)?;
        }
        let connection = &mut connected.connection;
        let portion = Portion::Sides(sides);
        let done = attempt::commit_portion(context, connection, transaction, &portion, others)?;
        let (committed, dropped) = (done.committed, done.changes);
        context.output.confirm(&SidesDone {
            done: Done {
                transaction,
                committed,
            },
            dropped,
        })?;
        return Ok(SUCCESS);
    }
    let committed = attempt::commit(context, &mut connected.connection, transaction, others)?;
    context.output.confirm(&Done {
        transaction,
        committed,
    })?;
    Ok(SUCCESS)
}

/// Commits the transactions of several stores, all or none.
fn commit_linked(
    arguments: &Arguments,
    context: &Context,
    mut linked: Linked,
    others: Others,
) -> Result<ExitCode, Error> {
    let is_part = arguments.patch || arguments.so_far || !arguments.paths.is_empty();
    let takes_sides = arguments.take_mine.is_some()
        || arguments.take_theirs.is_some()
        || arguments.merge.is_some();
    for (is_wanted, what) in [
        (is_part, "a commit of a part"),
        (takes_sides, "taking sides"),
        (arguments.terms.waits(), "--confirm"),
    ] {
        if is_wanted {
            return Err(attempt::not_in_several(what));
        }
    }
    for one in &mut linked.open {
        let (connected, id) = (&mut one.connected, one.partner.transaction);
        if others == Others::Wait {
            context.refuse_to_wait_inside(connected, id)?;
        }
        let message = arguments.message.as_deref();
        arguments
            .terms
            .set(&mut connected.connection, id, message)?;
    }
    let concluded = linked.commit(context, others)?;
    let done = concluded.into_iter().filter_map(|(partner, committed)| {
        Some(InStore {
            store: attempt::root_of(&partner).to_owned(),
            result: Done {
                transaction: partner.transaction,
                committed: committed.ok()?,
            },
        })
    });
    let stores = done.collect();
    context.output.confirm(&Stores { stores })?;
    Ok(SUCCESS)
}

const WITHOUT_TERMINAL: &str = "name what shall take effect instead: `atomdir commit TX -- PATH...`; `atomdir diff TX` lists it";

/// Lets the user choose. The transaction stays open with the rest.
fn pick(
    context: &Context,
    connected: &mut Connected,
    id: TransactionId,
    (paths, label): (&[PathBuf], Option<Vec<u8>>),
    others: Others,
) -> Result<ExitCode, Error> {
    let mut terminal = Terminal::open(false, WITHOUT_TERMINAL)?;
    let named = Named::new(connected, paths)?;
    attempt::freeze(context, &mut connected.connection, id, others)?;
    let picked = connected.connection.open_view(id).map_err(Error::from);
    let picked = picked.and_then(|view| {
        let mut lines = connected.connection.changes(id)?;
        lines.retain(|line| named.filter.wants(line));
        let chosen = picking::choose(context, connected, &view, &lines, &mut terminal)?;
        match chosen.filter(|chosen| !chosen.paths.is_empty()) {
            None => Ok(None),
            Some(chosen) => {
                let chosen = (chosen, label);
                picking::land(context, connected, &view, chosen, others).map(Some)
            }
        }
    });
    // Nobody else has held it, and it shall stay open.
    connected.connection.keep(id)?;
    let picked = picked?;
    attempt::survive_again(context, &mut connected.connection, id);
    match picked {
        Some(done) => context.output.confirm(&done)?,
        None => context.output.note("nothing was chosen"),
    }
    Ok(SUCCESS)
}
