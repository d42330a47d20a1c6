//! The questions, one for each change or hunk.

use crate::attempt::Terminal;
use crate::changes::{
    Affected, ChangeList, Comparison, Filter, Group, Heap, Rights, TextChange, changed_text, fold,
};
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
const HELP_ON_HEAPS: &str = "e  ask about each of them
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

/// What a question is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Change,
    Hunk,
    Heap,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    Yes,
    No,
    /// Ask about each change of a heap.
    Each,
}

impl Reply {
    fn of(lands: bool) -> Reply {
        if lands { Reply::Yes } else { Reply::No }
    }
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
    let rights = Rights::find(connected, transaction, lines)?;
    let mut asking = Asking {
        affected: Affected::find(connected, transaction, lines)?,
        connected,
        transaction,
        lines,
        questions: Questions {
            terminal,
            colour: context.output.wants_colour(),
            rest: None,
        },
        chosen: Chosen::default(),
    };
    for group in fold(lines, &rights) {
        let places = match group {
            Group::One(place) => vec![place],
            Group::Heap(heap) => match asking.heap(&heap)? {
                None => return Ok(None),
                Some(Reply::No) => continue,
                Some(Reply::Yes) => {
                    let paths = heap.places.iter().map(|place| lines[*place].path.clone());
                    asking.chosen.paths.extend(paths);
                    continue;
                }
                Some(Reply::Each) => heap.places,
            },
        };
        for place in places {
            if asking.change(&lines[place])?.is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(asking.chosen))
}

struct Asking<'a> {
    connected: &'a mut Connected,
    transaction: &'a Transaction,
    lines: &'a [ChangeLine],
    affected: Affected,
    questions: Questions<'a>,
    chosen: Chosen,
}

impl Asking<'_> {
    /// Returns `None` if the terminal gives no answer, as all questions do.
    fn heap(&mut self, heap: &Heap) -> Result<Option<Reply>, Error> {
        let lines = self.lines;
        self.questions.show(|painter| heap.show(lines, painter))?;
        let what = format!("these {} changes", heap.places.len());
        self.questions.ask(&what, About::Heap)
    }

    fn change(&mut self, line: &ChangeLine) -> Result<Option<()>, Error> {
        match changed_text(self.connected, self.transaction, self.lines, line)? {
            Ok(texts) => self.text(line, texts),
            Err(why_whole) => self.whole(line, why_whole),
        }
    }

    /// `why_whole`: why it has no hunks, though it might have some.
    fn whole(&mut self, line: &ChangeLine, why_whole: Option<&str>) -> Result<Option<()>, Error> {
        let questions = &mut self.questions;
        questions.show(|painter| ChangeList::new(std::slice::from_ref(line)).show(painter))?;
        let filter = Filter::only(line);
        self.affected.each(
            self.connected,
            self.transaction,
            &filter,
            |file| match file.is_of(line) {
                true => questions.show(|painter| file.show(painter, false)),
                false => Ok(()),
            },
        )?;
        if let Some(why) = why_whole {
            questions.show(|painter| writeln!(painter, "It lands as a whole: {why}."))?;
        }
        let answer = questions.ask("this change", About::Change)?;
        if answer == Some(Reply::Yes) {
            self.chosen.paths.push(line.path.clone());
        }
        Ok(answer.map(|_| ()))
    }

    fn text(
        &mut self,
        line: &ChangeLine,
        TextChange { old, new }: TextChange,
    ) -> Result<Option<()>, Error> {
        let comparison = Comparison::new(&old, &new);
        let Some(extent) = self.questions.ask_about_hunks(line, &comparison)? else {
            return Ok(None);
        };
        if !matches!(extent, Extent::Nothing) {
            self.chosen.paths.push(line.path.clone());
        }
        if let Extent::These(wanted) = extent {
            let chosen = comparison.with_hunks(&wanted);
            self.chosen.texts.push(PartOfText {
                path: line.path.clone(),
                chosen,
                whole: new,
            });
        }
        Ok(Some(()))
    }
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
            match self.ask(&format!("hunk {number} of {count}"), About::Hunk)? {
                None => return Ok(None),
                Some(answer) => wanted.push(answer == Reply::Yes),
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
    fn ask(&mut self, what: &str, about: About) -> Result<Option<Reply>, Error> {
        loop {
            match self.rest {
                Some(Rest::All(answer)) => return Ok(Some(Reply::of(answer))),
                Some(Rest::OfText) => return Ok(Some(Reply::No)),
                None => {}
            }
            let (more, help) = match about {
                About::Change => ("", ""),
                About::Hunk => ("[d]one with this file, ", HELP_ON_HUNKS),
                About::Heap => ("[e]ach, ", HELP_ON_HEAPS),
            };
            let question =
                format!("Land {what}? [y]es, [n]o, {more}[a]ll from here on, [q]uit here, [?]: ");
            let question = self.terminal.wrapped(&question);
            self.show(|painter| painter.paint(Style::Heading, &question))?;
            // A terminal that was closed cannot be read any more.
            let Ok(Some(answer)) = self.terminal.read_line() else {
                return Ok(None);
            };
            match answer.trim_ascii().to_ascii_lowercase().as_slice() {
                b"y" | b"yes" => return Ok(Some(Reply::Yes)),
                b"n" | b"no" => return Ok(Some(Reply::No)),
                b"e" | b"each" if about == About::Heap => return Ok(Some(Reply::Each)),
                b"a" | b"all" => self.rest = Some(Rest::All(true)),
                b"q" | b"quit" => self.rest = Some(Rest::All(false)),
                b"d" | b"done" if about == About::Hunk => self.rest = Some(Rest::OfText),
                _ => self.show(|painter| write!(painter, "{HELP}{help}"))?,
            }
        }
    }
}
