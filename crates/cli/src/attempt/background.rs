//! Reports processes that a command has left running, since they have lost their view.

use super::Outcome;
use crate::context::Context;
use crate::enter::Background;
use crate::output::escaped;

/// So many are named.
const NAMED_MAX: usize = 5;

/// Call it when the transaction has ended. One that stays open keeps its view.
pub fn report(context: &Context, background: &Background, outcome: &Outcome) {
    if matches!(outcome, Outcome::Kept) {
        return;
    }
    let running = background.running();
    if running.is_empty() {
        return;
    }
    let named = running.iter().take(NAMED_MAX);
    let named = named.map(|(process, name)| format!("{process} ({})", escaped(name)));
    let mut named: Vec<String> = named.collect();
    if running.len() > NAMED_MAX {
        named.push(format!("{} more", running.len() - NAMED_MAX));
    }
    context.output.note(format_args!(
        "the command left processes running: {}; their view of the store has ended with the \
         transaction, and they find no files there; --sealed ends such processes with the command, \
         and `atomdir begin` and `atomdir exec` give a server a view that lasts",
        named.join(", ")
    ));
}
