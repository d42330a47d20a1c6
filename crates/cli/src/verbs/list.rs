use super::status::{ends_line, in_doubt_line, kept_line, linked_line, past_line};
use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::ended::EndedTransactions;
use crate::error::Error;
use crate::output::{Painter, Show, Style, escaped, json, time, user_name};
use atomdir::client::{Survival, TransactionStatus};
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::io::{self, Write};

/// List the open transactions: yours, or all for root
///
/// IN is the outer transaction, HELD the number of processes in it. Further lines give the
/// commit that a view of the past shows, why a lazy commit was set aside, or why a
/// transaction that has survived its service cannot be opened again; that one can only be
/// aborted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir list -C /srv/site
  atomdir list --ended
  atomdir list --all-stores")]
pub struct Arguments {
    /// List the transactions that ended otherwise than their users wanted: others aborted them,
    /// they reached their maximum age, or their service was stopped or killed
    #[arg(long)]
    ended: bool,
    /// List the machine's stores that have a service, with their transactions: yours, those that you
    /// may use, and for root everybody's
    #[arg(long, conflicts_with = "ended")]
    all_stores: bool,
}

pub struct Transactions(pub Vec<TransactionStatus>);

impl Show for Transactions {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let heading = format!(
            "{:>6}  {:>6}  {:>11}  {:8}  {:>4}  {:>5}  LABEL",
            "TX", "IN", "AGE", "USER", "HELD", "LOCKS"
        );
        painter.line(Style::Heading, heading)?;
        for status in &self.0 {
            let age = time::age(time::seconds_since(status.began));
            let (id, locks) = (status.transaction.0, status.locks.len());
            let user = user_name(status.owner);
            let outer = status
                .outer
                .map_or_else(|| "-".into(), |outer| outer.to_string());
            let held = status.holders.len();
            writeln!(
                painter,
                "{id:>6}  {outer:>6}  {age:>11}  {user:8}  {held:>4}  {locks:>5}  {}",
                escaped(&status.label)
            )?;
            if let Some(past) = past_line(status) {
                writeln!(painter, "{:>8}{past}", "")?;
            }
            if let Some(kept) = kept_line(status) {
                writeln!(painter, "{:>8}{kept}", "")?;
            }
            if let Survival::Stranded { reason } = &status.survival {
                let reason = escaped(reason.as_bytes());
                writeln!(painter, "{:>8}cannot be opened again: {reason}", "")?;
            }
            if let Some(ends) = ends_line(status) {
                writeln!(painter, "{:>8}{ends}", "")?;
            }
            if let Some(in_doubt) = &status.in_doubt {
                writeln!(painter, "{:>8}{}", "", in_doubt_line(in_doubt))?;
            }
            if let Some(linked) = linked_line(status) {
                writeln!(painter, "{:>8}{linked}", "")?;
            }
            if let Some(reason) = &status.set_aside {
                let reason = escaped(reason.as_bytes());
                writeln!(painter, "{:>8}{reason}", "")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Transactions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let transactions: Vec<_> = self.0.iter().map(json::Transaction::from).collect();
        let mut object = serializer.serialize_struct("Transactions", 1)?;
        object.serialize_field("transactions", &transactions)?;
        object.end()
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if arguments.all_stores {
        super::list_stores::run(context)?;
        return Ok(SUCCESS);
    }
    if arguments.ended {
        let ended = context.connect()?.connection.ended()?;
        context.output.print_paged(&EndedTransactions(ended))?;
        return Ok(SUCCESS);
    }
    let transactions = match context.connect_if_open()? {
        Some(mut connected) => connected.connection.transactions()?,
        None => Vec::new(),
    };
    context.output.print_paged(&Transactions(transactions))?;
    Ok(SUCCESS)
}
