use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::changes::three_way;
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::{Error, conflict_line};
use crate::output::{Painter, Show, Style, json, time, user_name};
use atomdir::client::Conflict;
use atomdir::client::three_way::ThreeWay;
use atomdir::{ChangedBy, CommitSummary, Isolation, Sequence, Timestamp, TransactionId};
use clap::Args;
use rustix::fs::lstat;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// For each request the service reads the history from its beginning.
const COMMITS_AT_ONCE: u64 = 1000;

/// List what keeps a transaction from being committed
///
/// The conflicts are numbered, and `commit` takes sides in them by number: --take-mine
/// replaces what others have changed, --take-theirs gives up the transaction's change, --merge
/// keeps both changes of a text where they are in different lines. If others change
/// one of these things again after the list was made, the commit is refused, so nothing unseen
/// is overwritten. Making the list drops all savepoints.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir conflicts 12
  atomdir conflicts 12 --patch
  atomdir commit 12 --take-mine 1,3 --take-theirs all")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// Also show what each side has changed in texts
    #[arg(short, long)]
    patch: bool,
}

/// A conflict, and when the others made their change.
struct Dated {
    conflict: Conflict,
    commit: Option<CommitSummary>,
    time: Option<Timestamp>,
    /// What each side has changed, if that was asked for and it is a text.
    texts: Option<ThreeWay>,
}

struct Listed {
    transaction: TransactionId,
    conflicts: Vec<Dated>,
}

impl Show for Listed {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for (number, one) in (1..).zip(&self.conflicts) {
            painter.paint(Style::Heading, format!("{number:>3}"))?;
            write!(painter, "  {}", conflict_line(&one.conflict))?;
            if let Some(time) = one.time {
                write!(painter, ", {}", time::readable(time))?;
            }
            if let Some(commit) = &one.commit {
                write!(painter, ", by {}", user_name(commit.user))?;
            }
            writeln!(painter)?;
            if let Some(texts) = &one.texts {
                three_way::show_sides(texts, painter)?;
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct DatedJson<'a> {
    number: usize,
    #[serde(flatten)]
    conflict: json::ConflictLine<'a>,
    /// When the others made their change, as far as that is known.
    time: Option<String>,
    user: Option<u32>,
    #[serde(flatten)]
    patches: Option<PatchesJson>,
}

/// Unified diffs against the snapshot.
#[derive(Serialize)]
struct PatchesJson {
    #[serde(serialize_with = "json::text")]
    theirs: Vec<u8>,
    #[serde(serialize_with = "json::text")]
    mine: Vec<u8>,
}

impl PatchesJson {
    fn new(texts: &ThreeWay) -> PatchesJson {
        let [theirs, mine] = three_way::patches(texts);
        PatchesJson { theirs, mine }
    }
}

#[derive(Serialize)]
struct ListedJson<'a> {
    transaction: u64,
    conflicts: Vec<DatedJson<'a>>,
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let conflicts = (1..).zip(&self.conflicts).map(|(number, one)| DatedJson {
            number,
            conflict: json::conflict(&one.conflict),
            time: one.time.map(time::precise),
            user: one.commit.as_ref().map(|commit| commit.user),
            patches: one.texts.as_ref().map(PatchesJson::new),
        });
        ListedJson {
            transaction: self.transaction.0,
            conflicts: conflicts.collect(),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let conflicts = connected.connection.list_conflicts(transaction)?;
    let mut conflicts = date(&mut connected, conflicts)?;
    if arguments.patch {
        let view = connected.connection.open_view(transaction)?;
        for one in &mut conflicts {
            one.texts = three_way::look_up(&mut connected, &view, &one.conflict)?.ok();
        }
    }
    let count = conflicts.len();
    let explains = !context.output.is_json();
    let is_serializable = explains
        && count > 0
        && connected.connection.status(transaction)?.isolation == Isolation::Serializable;
    let has_sides = conflicts.iter().any(|one| {
        let by = &one.conflict.by;
        matches!(by, ChangedBy::Commit { .. } | ChangedBy::Outside)
    });
    context.output.print_paged(&Listed {
        transaction,
        conflicts,
    })?;
    if explains {
        context.output.note(match count {
            0 => format!("no conflicts: `atomdir commit {transaction}` can commit it"),
            _ if is_serializable => format!(
                "no side can be taken, since the transaction is serializable: `atomdir abort \
                 {transaction}` drops its changes; then run its programs again"
            ),
            _ if !has_sides => format!(
                "no side can be taken while others are open: `atomdir commit {transaction}` once they \
                 have ended, or `atomdir abort {transaction}`"
            ),
            _ => format!(
                "`atomdir commit {transaction} --merge` merges texts by lines; --take-mine N,... \
                 and --take-theirs N,... take sides, `all` are those not named otherwise"
            ),
        });
    }
    Ok(SUCCESS)
}

/// Looks up when and by whom each change was made.
fn date(connected: &mut Connected, conflicts: Vec<Conflict>) -> Result<Vec<Dated>, Error> {
    let commits = find_commits(connected, &conflicts)?;
    let mut dated = Vec::new();
    for conflict in conflicts {
        let commit = sequence_of(&conflict);
        let commit = commit
            .and_then(|sequence| commits.get(&sequence.0))
            .cloned();
        let time = match (&commit, &conflict.by) {
            (Some(commit), _) => Some(commit.time),
            // The user may not be able to look there.
            (None, ChangedBy::Outside) => changed_at(connected, &conflict.path),
            _ => None,
        };
        dated.push(Dated {
            conflict,
            commit,
            time,
            texts: None,
        });
    }
    Ok(dated)
}

fn sequence_of(conflict: &Conflict) -> Option<Sequence> {
    match conflict.by {
        ChangedBy::Commit { sequence, .. } => Some(sequence),
        _ => None,
    }
}

/// The commits that made the changes, as far as the log has them.
fn find_commits(
    connected: &mut Connected,
    conflicts: &[Conflict],
) -> Result<BTreeMap<u64, CommitSummary>, Error> {
    let wanted = conflicts.iter().filter_map(sequence_of);
    let mut wanted: BTreeSet<Sequence> = wanted.collect();
    let mut found = BTreeMap::new();
    while let Some(newest) = wanted.pop_last() {
        let oldest = Sequence(newest.0.saturating_sub(COMMITS_AT_ONCE - 1));
        let oldest = wanted.range(oldest..).next().copied().unwrap_or(newest);
        drop(wanted.split_off(&oldest));
        let before = Some(Sequence(newest.0 + 1));
        let commits = connected.connection.log(before, newest.0 - oldest.0 + 1)?;
        found.extend(commits.into_iter().map(|one| (one.sequence.0, one)));
    }
    Ok(found)
}

/// The change time of what is at the path in the store now.
fn changed_at(connected: &Connected, path: &[u8]) -> Option<Timestamp> {
    let stat = lstat(connected.root.join(OsStr::from_bytes(path))).ok()?;
    Some(Timestamp::of_fields(stat.st_ctime, stat.st_ctime_nsec))
}
