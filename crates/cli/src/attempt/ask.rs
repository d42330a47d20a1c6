//! Asks on the terminal whether to commit.

use super::Wish;
use super::terminal::Terminal;
use crate::changes::{Affected, ChangeList, Filter, Rights};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted};
use crate::picking;
use atomdir::client::{ChangeLine, Others, Transaction};

enum Answer {
    End(Wish),
    /// Land a part, and ask again about the rest.
    Pick,
}

/// Shows the transaction's changes and asks what to do with them. Without an answer the
/// transaction stays open, even if we are killed while we ask, since its view was
/// [closed](super::Closing::stays_open) in this way. Returns `None` if nothing
/// has changed, or nothing any more, without asking.
pub fn ask(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    others: Others,
    terminal: &mut Terminal,
) -> Result<Option<Wish>, Error> {
    loop {
        // The commit then lands exactly what we show, even if programs still run in the view.
        super::freeze(context, &mut connected.connection, transaction.id, others)?;
        let lines = connected.connection.changes(transaction.id)?;
        if lines.is_empty() {
            return Ok(None);
        }
        match ask_once(context, connected, transaction, &lines, terminal)? {
            Answer::End(wish) => return Ok(Some(wish)),
            Answer::Pick => {}
        }
        let chosen = picking::choose(context, connected, transaction, &lines, terminal)?;
        let Some(chosen) = chosen else {
            return Ok(Some(Wish::Keep));
        };
        if chosen.paths.is_empty() {
            continue;
        }
        match picking::land(context, connected, transaction, chosen, others) {
            Ok(done) => done
                .show(&mut Painter::on_terminal(
                    terminal,
                    context.output.wants_colour(),
                ))
                .map_err(Error::Terminal)?,
            // The transaction is open with everything, so the question is the same.
            Err(error @ Error::Commit { open: true, .. }) => {
                context.output.failure(&error.explain());
            }
            Err(error) => return Err(error),
        }
    }
}

fn ask_once(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    lines: &[ChangeLine],
    terminal: &mut Terminal,
) -> Result<Answer, Error> {
    let colour = context.output.wants_colour();
    terminal.regain();
    let mut painter = Painter::on_terminal(terminal, colour);
    let rights = Rights::find(connected, transaction, lines)?;
    ChangeList::with_rights(lines, &rights)
        .show(&mut painter)
        .map_err(Error::Terminal)?;
    terminal.drop_input();
    // Repeat this below the list, since a long list may have scrolled away.
    let special = match rights.count() {
        0 => String::new(),
        count => format!(", of which {count} give programs rights"),
    };
    let question = format!(
        "Commit {}{special} of transaction {}? [y]es, [n]o, [d]iff, [p]ick some, [K]eep open: ",
        counted(lines.len() as u64, "change"),
        transaction.id
    );
    loop {
        Painter::on_terminal(terminal, colour)
            .paint(Style::Heading, &question)
            .map_err(Error::Terminal)?;
        // A terminal that was closed cannot be read any more.
        let Ok(Some(answer)) = terminal.read_line() else {
            return Ok(Answer::End(Wish::Keep));
        };
        match answer.trim_ascii().to_ascii_lowercase().as_slice() {
            b"y" | b"yes" => return Ok(Answer::End(Wish::Commit)),
            b"n" | b"no" => return Ok(Answer::End(Wish::Abort)),
            b"" | b"k" | b"keep" => return Ok(Answer::End(Wish::Keep)),
            b"p" | b"pick" => return Ok(Answer::Pick),
            b"d" | b"diff" => {
                let mut painter = Painter::on_terminal(terminal, colour);
                let affected = Affected::find(connected, transaction, lines)?;
                affected.each(connected, transaction, &Filter::default(), |file| {
                    file.show(&mut painter, false).map_err(Error::Terminal)
                })?;
            }
            _ => {}
        }
    }
}
