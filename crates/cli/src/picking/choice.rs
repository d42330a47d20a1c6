//! The questions, one for each change or hunk.

use crate::attempt::Terminal;
use crate::changes::{Affected, ChangeList, Comparison, Filter, TextChange, changed_text};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, quoted};
use atomdir::client::{ChangeLine, Transaction};
use std::io::{self, Write};

const HELP: &str = "y  land it
n  leave it in the transaction
a  land it, and everything from here on
q  leave it in the transaction, and everything from here on
";
const HELP_ON_HUNKS: &str = "d  leave it in the transaction, and the further hunks of this file
";

/// The changes that the user has chosen to land.
#[derive(Debug, Default)]
pub struct Chosen {
    /// The changes that land, as a whole or in part.
    pub paths: Vec<Vec<u8>>,
    /// Texts of which only some hunks land.
    pub texts: Vec<PartOfText>,
}

#[derive(Debug)]
pub struct PartOfText {
    pub path: Vec<u8>,
    /// The text in the view.
    pub whole: Vec<u8>,
    /// The snapshot's text with the hunks that land.
    pub chosen: Vec<u8>,
}

/// Questions that get the same answer without being asked.
#[derive(Clone, Copy)]
enum Rest {
    /// All further ones.
    All(bool),
    /// Those about the other hunks of this text: no.
    OfText,
}

/// How many hunks of a text land.
enum Extent {
    Nothing,
    Everything,
    These(Vec<bool>),
}

/// Asks on the terminal about each change. Returns `None` if the terminal gives no answer.
pub fn choose(
    context: &Context,
    connected: &mut Connected,
    transaction: &Transaction,
    lines: &[ChangeLine],
    terminal: &mut Terminal,
) -> Result<Option<Chosen>, Error> {
    let affected = Affected::find(connected, transaction, lines)?;
    let mut questions = Questions {
        terminal,
        colour: context.output.wants_colour(),
        rest: None,
    };
    let mut chosen = Chosen::default();
    for line in lines {
        let Some(TextChange { old, new }) = changed_text(connected, transaction, lines, line)?
        else {
            questions.show(|painter| ChangeList::new(std::slice::from_ref(line)).show(painter))?;
            let filter = Filter::only(line);
            affected.each(connected, transaction, &filter, |file| {
                match file.is_of(line) {
                    true => questions.show(|painter| file.show(painter, false)),
                    false => Ok(()),
                }
            })?;
            match questions.ask("this change", false)? {
                None => return Ok(None),
                Some(true) => chosen.paths.push(line.path.clone()),
                Some(false) => {}
            }
            continue;
        };
        let comparison = Comparison::new(&old, &new);
        let Some(extent) = questions.ask_about_hunks(line, &comparison)? else {
            return Ok(None);
        };
        if !matches!(extent, Extent::Nothing) {
            chosen.paths.push(line.path.clone());
        }
        if let Extent::These(wanted) = extent {
            chosen.texts.push(PartOfText {
                path: line.path.clone(),
                chosen: comparison.with_hunks(&wanted),
                whole: new,
            });
        }
    }
    Ok(Some(chosen))
}

struct Questions<'a> {
    terminal: &'a mut Terminal,
    colour: bool,
    rest: Option<Rest>,
}

impl Questions<'_> {
    fn show(&mut self, show: impl FnOnce(&mut Painter<'_>) -> io::Result<()>) -> Result<(), Error> {
        if self.rest.is_some() {
            return Ok(());
        }
        let mut painter = Painter::on_terminal(self.terminal, self.colour);
        show(&mut painter).map_err(Error::Terminal)
    }

    fn ask_about_hunks(
        &mut self,
        line: &ChangeLine,
        comparison: &Comparison<'_>,
    ) -> Result<Option<Extent>, Error> {
        let hunks = comparison.hunks();
        let count = hunks.len();
        let mut wanted = Vec::new();
        for (number, hunk) in (1..).zip(&hunks) {
            self.show(|painter| {
                painter.line(Style::Heading, quoted(&line.path))?;
                comparison.show_hunk(painter, hunk)
            })?;
            match self.ask(&format!("hunk {number} of {count}"), true)? {
                None => return Ok(None),
                Some(answer) => wanted.push(answer),
            }
        }
        self.rest = self.rest.filter(|rest| !matches!(rest, Rest::OfText));
        Ok(Some(if wanted.iter().all(|answer| *answer) {
            Extent::Everything
        } else if wanted.contains(&true) {
            Extent::These(wanted)
        } else {
            Extent::Nothing
        }))
    }

    /// Returns `None` if the terminal gives no answer.
    fn ask(&mut self, what: &str, is_hunk: bool) -> Result<Option<bool>, Error> {
        loop {
            match self.rest {
                Some(Rest::All(answer)) => return Ok(Some(answer)),
                Some(Rest::OfText) => return Ok(Some(false)),
                None => {}
            }
            let skip = if is_hunk {
                "[d]one with this file, "
            } else {
                ""
            };
            let question =
                format!("Land {what}? [y]es, [n]o, {skip}[a]ll from here on, [q]uit here, [?]: ");
            self.show(|painter| painter.paint(Style::Heading, &question))?;
            // A terminal that was closed cannot be read any more.
            let Ok(Some(answer)) = self.terminal.read_line() else {
                return Ok(None);
            };
            match answer.trim_ascii().to_ascii_lowercase().as_slice() {
                b"y" | b"yes" => return Ok(Some(true)),
                b"n" | b"no" => return Ok(Some(false)),
                b"a" | b"all" => self.rest = Some(Rest::All(true)),
                b"q" | b"quit" => self.rest = Some(Rest::All(false)),
                b"d" | b"done" if is_hunk => self.rest = Some(Rest::OfText),
                _ => {
                    let help = if is_hunk { HELP_ON_HUNKS } else { "" };
                    self.show(|painter| write!(painter, "{HELP}{help}"))?;
                }
            }
        }
    }
}
