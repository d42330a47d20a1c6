use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::Linked;
use crate::changes::three_way::{self, Patches};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::{Error, conflict_line};
use crate::output::{InStore, Painter, Show, Stores, Style, json, time, user_name};
use atomdir::client::Conflict;
use atomdir::client::three_way::{ThreeWay, WhyNotMerged};
use atomdir::{
    ChangedBy, CommitSummary, ConflictKind, Isolation, Sequence, Timestamp, TransactionId,
};
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
    /// What each side has changed, if that was asked for; or why it cannot be shown.
    texts: Option<Result<ThreeWay, WhyNotMerged>>,
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
            match &one.texts {
                Some(Ok(texts)) => three_way::show_sides(texts, painter)?,
                Some(Err(why)) => painter.line(Style::Hint, format!("     not shown: {why}"))?,
                None => {}
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

/// Unified diffs against the snapshot; or of the transaction's text against that of the others, if
/// nobody knows what the snapshot had.
#[derive(Serialize)]
struct PatchesJson {
    #[serde(serialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    theirs: Option<Vec<u8>>,
    #[serde(serialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    mine: Option<Vec<u8>>,
    #[serde(serialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    mine_against_theirs: Option<Vec<u8>>,
}

fn some_text<S: Serializer>(text: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    json::text(text.as_deref().unwrap_or_default(), serializer)
}

impl PatchesJson {
    fn new(texts: &ThreeWay) -> PatchesJson {
        let (mine, theirs, mine_against_theirs) = match three_way::patches(texts) {
            Patches::OfBoth { theirs, mine } => (Some(mine), Some(theirs), None),
            Patches::Apart(patch) => (None, None, Some(patch)),
        };
        PatchesJson {
            theirs,
            mine,
            mine_against_theirs,
        }
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
            patches: match &one.texts {
                Some(Ok(texts)) => Some(PatchesJson::new(texts)),
                _ => None,
            },
        });
        ListedJson {
            transaction: self.transaction.0,
            conflicts: conflicts.collect(),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (found, transaction) = Linked::connect(context, arguments.transaction)?;
    match found {
        Err(mut connected) => {
            let (listed, hint) = list(arguments, context, &mut connected, transaction)?;
            context.output.print_paged(&listed)?;
            if !context.output.is_json() {
                context.output.note(hint);
            }
        }
        Ok(mut linked) => {
            linked.note_missing(context);
            let mut stores = Vec::new();
            for one in &mut linked.open {
                let id = one.partner.transaction;
                let (result, _) = list(arguments, context, &mut one.connected, id)?;
                let store = one.connected.root.clone();
                stores.push(InStore { store, result });
            }
            let are_free = stores.iter().all(|one| one.result.conflicts.is_empty());
            context.output.print_paged(&Stores { stores })?;
            if !context.output.is_json() {
                context.output.note(match are_free {
                    true => format!("no conflicts: `atomdir commit {transaction}` can commit all of them"),
                    false => format!(
                        "no side can be taken in several stores: `atomdir abort TX -- PATH...` drops \
                         changes in one of them, `atomdir abort {transaction}` all"
                    ),
                });
            }
        }
    }
    Ok(SUCCESS)
}

/// The conflicts in one store, and what to do about them.
fn list(
    arguments: &Arguments,
    context: &Context,
    connected: &mut Connected,
    transaction: TransactionId,
) -> Result<(Listed, String), Error> {
    let conflicts = connected.connection.list_conflicts(transaction)?;
    let mut conflicts = date(connected, conflicts)?;
    if arguments.patch {
        let view = connected.connection.open_view(transaction)?;
        for one in &mut conflicts {
            one.texts = Some(three_way::look_up(connected, &view, &one.conflict)?);
        }
    }
    let count = conflicts.len();
    let is_serializable = !context.output.is_json()
        && count > 0
        && connected.connection.status(transaction)?.isolation == Isolation::Serializable;
    let hint = match count {
        0 => format!("no conflicts: `atomdir commit {transaction}` can commit it"),
        _ if is_serializable => format!(
            "no side can be taken, since the transaction is serializable: `atomdir abort \
             {transaction}` drops its changes; then run its programs again"
        ),
        _ => Sides::of(&conflicts).hint(transaction),
    };
    let listed = Listed {
        transaction,
        conflicts,
    };
    Ok((listed, hint))
}

/// The ways out that help with all of the conflicts together.
struct Sides {
    has_any: bool,
    /// The numbers of those in which only the side of the others can be taken.
    only_theirs: Vec<String>,
    /// Whether some can be merged, or the transaction's side can be taken.
    has_texts: bool,
    has_mine: bool,
}

impl Sides {
    fn of(conflicts: &[Dated]) -> Sides {
        let with_side = |one: &Dated| {
            matches!(
                one.conflict.by,
                ChangedBy::Commit { .. } | ChangedBy::Outside
            )
        };
        let numbered = (1..).zip(conflicts).filter(|(_, one)| with_side(one));
        let numbered: Vec<(u64, ConflictKind)> = numbered
            .map(|(number, one)| (number, one.conflict.what))
            .collect();
        let only_theirs = numbered
            .iter()
            .filter(|(_, what)| !what.has_side_of_transaction());
        let may_merge =
            |one: &Dated| one.conflict.what.may_have_texts() && !matches!(one.texts, Some(Err(_)));
        Sides {
            has_any: !numbered.is_empty(),
            only_theirs: only_theirs.map(|(number, _)| number.to_string()).collect(),
            has_texts: conflicts.iter().any(may_merge),
            has_mine: numbered
                .iter()
                .any(|(_, what)| what.has_side_of_transaction()),
        }
    }

    fn hint(&self, transaction: TransactionId) -> String {
        if !self.has_any {
            return format!(
                "no side can be taken while others are open: `atomdir commit {transaction}` once they \
                 have ended, or `atomdir abort {transaction}`"
            );
        }
        let only = match &self.only_theirs[..] {
            [] => String::new(),
            _ if !self.has_mine => String::new(),
            numbers => format!("; --take-mine is not possible for {}", numbers.join(",")),
        };
        match (self.has_mine, self.has_texts) {
            (true, true) => format!(
                "`atomdir commit {transaction} --merge` merges texts by lines; --take-mine N,... \
                 and --take-theirs N,... take sides, `all` are those not named otherwise{only}"
            ),
            (true, false) => format!(
                "`atomdir commit {transaction}` with --take-mine N,... or --take-theirs N,... takes \
                 sides, `all` are those not named otherwise{only}"
            ),
            (false, _) => format!(
                "`atomdir commit {transaction} --take-theirs all` takes the side of the others, which \
                 is the only one here"
            ),
        }
    }
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
