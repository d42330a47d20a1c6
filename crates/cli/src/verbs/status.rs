use super::list::Transactions;
use super::log::note_commits;
use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::Linked;
use crate::changes::{ChangeList, Rights};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::{Error, conflict_line};
use crate::output::{
    InStore, Painter, Show, Stores, Style, durability_word, escaped, isolation_word, json,
    lock_mode_word, quoted, time, user_name,
};
use atomdir::client::{
    ChangeLine, FailureKind, InDoubt, LockStatus, Survival, TransactionStatus, View,
};
use atomdir::{Conflicts, LockScope, TransactionId};
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Show a transaction and what it has changed
///
/// Without TX, if several are open, they are listed. Those of other stores that are linked with it are
/// shown, too.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir status 12")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
}

struct Status {
    transaction: TransactionStatus,
    changes: Vec<ChangeLine>,
    rights: Rights,
}

impl Show for Status {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let status = &self.transaction;
        painter.line(
            Style::Heading,
            format!("transaction {}", status.transaction),
        )?;
        match status.view {
            View::Exact => writeln!(painter, "view        {}", quoted(&status.view_path))?,
            View::Native => writeln!(painter, "view        native")?,
            View::Exclusive => writeln!(painter, "view        exclusive")?,
        }
        writeln!(painter, "began       {}", time::readable(status.began))?;
        writeln!(painter, "user        {}", user_name(status.owner))?;
        if let Some(past) = past_line(status) {
            writeln!(painter, "past        {past}")?;
        }
        if let Some(kept) = kept_line(status) {
            writeln!(painter, "history     {kept}")?;
        }
        writeln!(painter, "isolation   {}", isolation_word(status.isolation))?;
        writeln!(
            painter,
            "durability  {}",
            durability_word(status.durability)
        )?;
        if status.survival == Survival::Survives {
            writeln!(
                painter,
                "survives    the end of the service and of the machine"
            )?;
        }
        if let Some(ends) = ends_line(status) {
            writeln!(painter, "survives    not: {ends}")?;
        }
        if let Some(in_doubt) = &status.in_doubt {
            writeln!(painter, "in doubt    {}", in_doubt_line(in_doubt))?;
        }
        if let Some(linked) = linked_line(status) {
            writeln!(painter, "linked      {linked}")?;
        }
        if let Some(reason) = &status.set_aside {
            writeln!(painter, "set aside   {}", escaped(reason.as_bytes()))?;
        }
        if status.conflicts == Conflicts::Early {
            writeln!(painter, "conflicts   early")?;
        }
        for conflict in &status.met {
            writeln!(painter, "conflict    {}", conflict_line(conflict))?;
        }
        for lock in &status.locks {
            writeln!(painter, "lock        {}", lock_line(lock))?;
        }
        if status.sealed {
            writeln!(
                painter,
                "sealed      only the process that began it commits it"
            )?;
        }
        show_others(painter, status)?;
        if !status.label.is_empty() {
            writeln!(painter, "label       {}", escaped(&status.label))?;
        }
        if self.changes.is_empty() {
            return writeln!(painter, "\nno changes");
        }
        writeln!(painter)?;
        ChangeList::with_rights(&self.changes, &self.rights).show(painter)
    }
}

/// What a view of the past shows and holds.
pub(super) fn past_line(status: &TransactionStatus) -> Option<String> {
    let commit = status.past?;
    let held = match status.held_bytes {
        0 => String::new(),
        bytes => format!("; holds {bytes} bytes of forgotten history"),
    };
    Some(format!("as after commit {commit}, read-only{held}"))
}

/// Why a detached transaction does not outlive its service.
pub(super) fn ends_line(status: &TransactionStatus) -> Option<String> {
    match &status.survival {
        Survival::Ends {
            reason: Some(reason),
        } => Some(format!(
            "it ends with the service: {}",
            escaped(reason.as_bytes())
        )),
        _ => None,
    }
}

/// The transactions that are only committed together.
pub(super) fn linked_line(status: &TransactionStatus) -> Option<String> {
    let all = status.linked.iter().map(|one| {
        let root = escaped(&one.root);
        format!("{} of '{root}'", one.transaction)
    });
    let all = all.collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then(|| format!("only committed together: {all}"))
}

/// What a transaction that has voted waits for.
pub(super) fn in_doubt_line(in_doubt: &InDoubt) -> String {
    let InDoubt {
        coordinator,
        reason,
    } = in_doubt;
    let decides = format!(
        "transaction {} of '{}' decides whether it commits",
        coordinator.transaction,
        escaped(&coordinator.root)
    );
    match reason {
        Some(reason) => format!("{decides}: {}", escaped(reason.as_bytes())),
        None => decides,
    }
}

/// What the history keeps for a transaction that survives, and what that costs.
pub(super) fn kept_line(status: &TransactionStatus) -> Option<String> {
    let commits = match status.kept_commits {
        0 => return None,
        1 => "1 commit".to_owned(),
        more => format!("{more} commits"),
    };
    let bytes = status.kept_bytes;
    Some(format!(
        "{commits} kept for it, {bytes} bytes of it beyond the limits of the history"
    ))
}

fn lock_line(lock: &LockStatus) -> String {
    let part = match lock.scope {
        LockScope::Object => String::new(),
        LockScope::Subtree => " and all below".to_owned(),
        LockScope::Bytes {
            start,
            end: u64::MAX,
        } => format!(" from byte {start}"),
        LockScope::Bytes { start, end } => format!(" bytes {start}-{end}"),
    };
    let waits = if lock.granted { "" } else { ", waited for" };
    let mode = lock_mode_word(lock.mode);
    format!("{mode} {}{part}{waits}", quoted(&lock.path))
}

/// The programs and transactions that use it, if there are any, and its savepoints.
fn show_others(painter: &mut Painter<'_>, status: &TransactionStatus) -> io::Result<()> {
    if let Some(outer) = status.outer {
        writeln!(painter, "nested in   {outer}")?;
    }
    if !status.nested.is_empty() {
        let nested: Vec<String> = status.nested.iter().map(ToString::to_string).collect();
        writeln!(painter, "holds       {}, nested in it", nested.join(", "))?;
    }
    if !status.holders.is_empty() {
        let holders: Vec<String> = status.holders.iter().map(u32::to_string).collect();
        writeln!(painter, "held by     {}", holders.join(", "))?;
    }
    for name in &status.savepoints {
        writeln!(painter, "savepoint   {}", quoted(name))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    transaction: json::Transaction<'a>,
    changes: Vec<json::Change<'a>>,
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StatusJson {
            transaction: json::Transaction::from(&self.transaction),
            changes: json::changes(&self.changes, Some(&self.rights)),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = match (context.connect_if_open()?, arguments.transaction) {
        (Some(connected), _) => connected,
        (None, Some(transaction)) => context.connect_to(Some(transaction))?.0,
        (None, None) => return show_all(context, Vec::new()),
    };
    let mut failed = None;
    loop {
        let transaction = match context.transaction(arguments.transaction, &mut connected) {
            Ok(transaction) => transaction,
            Err(Error::NoTransaction | Error::SeveralTransactions { .. }) => {
                show_all(context, connected.connection.transactions()?)?;
                note_commits(context, &mut connected)?;
                return Ok(SUCCESS);
            }
            Err(error) => return Err(error),
        };
        let looked = look_at(&mut connected, transaction);
        match looked {
            Ok(status) => {
                if !status.transaction.linked.is_empty() {
                    return show_linked(context, connected, transaction);
                }
                context.output.print_paged(&status)?;
                note_commits(context, &mut connected)?;
                return Ok(SUCCESS);
            }
            // The only open one may have ended meanwhile. Then another is, or none.
            Err(_) if failed != Some(transaction) => failed = Some(transaction),
            Err(error) => return Err(error),
        }
    }
}

fn show_linked(
    context: &Context,
    connected: Connected,
    transaction: TransactionId,
) -> Result<ExitCode, Error> {
    let Ok(mut linked) = Linked::find(context, connected, transaction) else {
        return Err(Error::NotOpen { transaction });
    };
    linked.note_missing(context);
    let statuses = linked.open.iter_mut().map(|one| {
        let result = look_at(&mut one.connected, one.partner.transaction)?;
        let store = one.connected.root.clone();
        Ok(InStore { store, result })
    });
    let stores = statuses.collect::<Result<_, Error>>()?;
    context.output.print_paged(&Stores { stores })?;
    Ok(SUCCESS)
}

fn look_at(connected: &mut Connected, transaction: TransactionId) -> Result<Status, Error> {
    let status = connected.connection.status(transaction)?;
    let changes = connected.connection.changes(transaction)?;
    Ok(Status {
        rights: rights(connected, transaction, &changes)?,
        transaction: status,
        changes,
    })
}

/// Nobody else looks into the view of a transaction that is sealed. A native view cannot be looked
/// into while the process that mounted it is stopped.
fn rights(
    connected: &mut Connected,
    transaction: TransactionId,
    changes: &[ChangeLine],
) -> Result<Rights, Error> {
    match connected.connection.open_view(transaction) {
        Ok(view) => Rights::find(connected, &view, changes),
        Err(error)
            if matches!(
                error.kind(),
                Some(FailureKind::InUse | FailureKind::NotPermitted)
            ) =>
        {
            Ok(Rights::default())
        }
        Err(error) => Err(error.into()),
    }
}

fn show_all(context: &Context, transactions: Vec<TransactionStatus>) -> Result<ExitCode, Error> {
    if transactions.is_empty() {
        context.output.note("no transaction is open");
    }
    context.output.print_paged(&Transactions(transactions))?;
    Ok(SUCCESS)
}
