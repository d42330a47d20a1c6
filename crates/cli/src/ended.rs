//! Reports transactions that ended otherwise than their user wanted.

use crate::output::{Output, Painter, Show, Style, counted, escaped, json, time, user_name};
use atomdir::TransactionId;
use atomdir::client::{Connection, EndedHow, EndedTransaction, describe_end};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::io;

/// At most this many are reported one by one.
const NEWS_MAX: usize = 8;

/// Reports the transactions that have ended since the last report. The user must not miss that, so `-q` does not silence it.
pub fn tell_news(connection: &mut Connection, output: Output) {
    // If this fails, the user's command must still run.
    let news = connection.news_of_ended().unwrap_or_default();
    for one in news.iter().take(NEWS_MAX) {
        tell_one(one, output);
    }
    if let more @ 1.. = news.len().saturating_sub(NEWS_MAX) {
        let more = counted(more as u64, "more transaction");
        output.warn(format_args!(
            "{more} ended like this: `atomdir list --ended` shows them"
        ));
    }
}

/// Tells the user at once that others have ended the transaction in which a command of theirs
/// still runs.
pub fn tell_at_once(ended: &[EndedTransaction], transaction: TransactionId, output: Output) {
    for one in ended.iter().filter(|one| one.transaction == transaction) {
        tell_one(one, output);
    }
}

fn tell_one(one: &EndedTransaction, output: Output) {
    match output.is_json() {
        true => output.tell_json(&News {
            ended: json::Ended::from(one),
        }),
        false => output.warn(sentence(one)),
    }
}

#[derive(Serialize)]
struct News<'a> {
    ended: json::Ended<'a>,
}

fn sentence(one: &EndedTransaction) -> String {
    let id = one.transaction;
    let label = match one.label.is_empty() {
        true => String::new(),
        false => format!(" ({})", escaped(&one.label)),
    };
    let own = one.owner == rustix::process::geteuid().as_raw();
    let user = match own {
        true => String::new(),
        false => format!(" of {}", user_name(one.owner)),
    };
    let began = time::readable(one.began);
    let what = match one.how {
        EndedHow::Died => "was discarded",
        _ => "was aborted",
    };
    let why = describe_end(one.how);
    let lost = changes(one).map_or_else(String::new, |changes| format!("; {changes} are lost"));
    format!("transaction {id}{label}{user}, begun {began}, {what}: {why}{lost}")
}

fn changes(one: &EndedTransaction) -> Option<String> {
    let count = one.changes.filter(|count| *count > 0)?;
    Some(format!("about {}", counted(count, "change")))
}

/// The result of `list --ended`.
pub struct EndedTransactions(pub Vec<EndedTransaction>);

impl Show for EndedTransactions {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let heading = format!(
            "{:>6}  {:25}  {:25}  {:8}  LABEL",
            "TX", "BEGAN", "ENDED", "USER"
        );
        painter.line(Style::Heading, heading)?;
        for one in &self.0 {
            let (id, user) = (one.transaction.0, user_name(one.owner));
            let (began, ended) = (time::readable(one.began), time::readable(one.ended));
            let label = escaped(&one.label);
            painter.line(
                Style::Plain,
                format!("{id:>6}  {began:25}  {ended:25}  {user:8}  {label}"),
            )?;
            let why = describe_end(one.how);
            let lost = changes(one).map_or_else(String::new, |changes| format!("; {changes}"));
            painter.line(Style::Plain, format!("{:>8}{why}{lost}", ""))?;
        }
        Ok(())
    }
}

impl Serialize for EndedTransactions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ended: Vec<_> = self.0.iter().map(json::Ended::from).collect();
        let mut object = serializer.serialize_struct("EndedTransactions", 1)?;
        object.serialize_field("ended", &ended)?;
        object.end()
    }
}
