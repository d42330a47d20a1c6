//! Asks on the terminal whether to commit.

use super::Wish;
use super::terminal::Terminal;
use crate::changes::{Affected, ChangeList, Filter, FoldedList, Named, Rights, fold};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, quoted};
use crate::picking::{self, Chosen};
use atomdir::client::{ChangeLine, Others, Transaction};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const HELP: &str = "\
y  commit all of it
n  drop all of it
d  show what has changed in each file
l  list each change, also those that are folded into a line with *
p  choose change by change, and in texts hunk by hunk
p PATH...  commit what is at and below these paths, and ask again about the rest
k  leave the transaction open: `atomdir commit` or `atomdir abort` decides later
";

enum Answer {
    End(Wish),
    /// Land a part, and ask again about the rest.
    Pick,
    /// Land what is at or below these paths.
    PickPaths(Vec<PathBuf>),
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
        let chosen = match ask_once(context, connected, transaction, &lines, terminal)? {
            Answer::End(wish) => return Ok(Some(wish)),
            Answer::Pick => {
                let chosen = picking::choose(context, connected, transaction, &lines, terminal)?;
                match chosen {
                    Some(chosen) => chosen,
                    None => return Ok(Some(Wish::Keep)),
                }
            }
            Answer::PickPaths(paths) => at_paths(connected, &lines, &paths, terminal)?,
        };
        if chosen.paths.is_empty() {
            continue;
        }
        match picking::land(context, connected, transaction, (chosen, None), others) {
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
    let rights = Rights::find(connected, transaction, lines)?;
    let groups = fold(lines, &rights);
    let (rights, groups) = (&rights, &groups[..]);
    let folded = FoldedList {
        lines,
        rights,
        groups,
    };
    show(terminal, colour, |painter| folded.show(painter))?;
    terminal.drop_input();
    // Repeat this below the list, since a long list may have scrolled away.
    let special = match rights.count() {
        0 => String::new(),
        count => format!(", of which {count} give programs rights"),
    };
    let question = format!(
        "Commit {}{special} of transaction {}? [y]es, [n]o, [d]iff, [l]ist, [p]ick some, [?], \
         [K]eep open: ",
        counted(lines.len() as u64, "change"),
        transaction.id
    );
    loop {
        let question = terminal.wrapped(&question);
        Painter::on_terminal(terminal, colour)
            .paint(Style::Heading, &question)
            .map_err(Error::Terminal)?;
        // A terminal that was closed cannot be read any more.
        let Ok(Some(answer)) = terminal.read_line() else {
            return Ok(Answer::End(Wish::Keep));
        };
        if let Some(paths) = paths_to_pick(&answer) {
            return Ok(Answer::PickPaths(paths));
        }
        match answer.trim_ascii().to_ascii_lowercase().as_slice() {
            b"y" | b"yes" => return Ok(Answer::End(Wish::Commit)),
            b"n" | b"no" => return Ok(Answer::End(Wish::Abort)),
            b"" | b"k" | b"keep" => return Ok(Answer::End(Wish::Keep)),
            b"p" | b"pick" => return Ok(Answer::Pick),
            b"d" | b"diff" => {
                let mut text = Vec::new();
                let mut painter = Painter::on_terminal(&mut text, colour);
                let affected = Affected::find(connected, transaction, lines)?;
                affected.each(connected, transaction, &Filter::default(), |file| {
                    file.show(&mut painter, false).map_err(Error::Terminal)
                })?;
                terminal.show_pages(&text).map_err(Error::Terminal)?;
            }
            b"l" | b"list" => {
                let all = ChangeList::with_rights(lines, rights);
                show(terminal, colour, |painter| all.show(painter))?;
            }
            _ => terminal
                .write_all(HELP.as_bytes())
                .map_err(Error::Terminal)?,
        }
    }
}

fn show(
    terminal: &mut Terminal,
    colour: bool,
    list: impl FnOnce(&mut Painter<'_>) -> io::Result<()>,
) -> Result<(), Error> {
    let mut text = Vec::new();
    list(&mut Painter::on_terminal(&mut text, colour))
        .and_then(|()| terminal.show_pages(&text))
        .map_err(Error::Terminal)
}

/// The paths after `p`. None of them has a blank in it.
fn paths_to_pick(answer: &[u8]) -> Option<Vec<PathBuf>> {
    let mut words = answer
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let verb = words.next()?.to_ascii_lowercase();
    let paths: Vec<PathBuf> = words.map(|word| OsStr::from_bytes(word).into()).collect();
    (matches!(&verb[..], b"p" | b"pick") && !paths.is_empty()).then_some(paths)
}

fn at_paths(
    connected: &Connected,
    lines: &[ChangeLine],
    paths: &[PathBuf],
    terminal: &mut Terminal,
) -> Result<Chosen, Error> {
    let mut chosen = Chosen::default();
    let named = match Named::new(connected, paths) {
        Ok(named) => named,
        Err(error) => {
            let mut painter = Painter::on_terminal(terminal, false);
            writeln!(painter, "{error}").map_err(Error::Terminal)?;
            return Ok(chosen);
        }
    };
    let wanted = lines.iter().filter(|line| named.filter.wants(line));
    chosen.paths = wanted.map(|line| line.path.clone()).collect();
    if chosen.paths.is_empty() {
        let names: Vec<String> = paths
            .iter()
            .map(|path| quoted(path.as_os_str().as_bytes()))
            .collect();
        let mut painter = Painter::on_terminal(terminal, false);
        writeln!(painter, "nothing has changed at {}", names.join(" ")).map_err(Error::Terminal)?;
    }
    Ok(chosen)
}
