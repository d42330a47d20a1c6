//! What is left to do after a commit of the system: services to start, and programs that still use
//! old files.

use super::Mark;
use super::commits;
use super::held::Asked;
use super::old_files::{self, Place, Stale};
use crate::context::Context;
use crate::error::Error;
use crate::output::escaped;
use std::path::Path;

/// So many programs are named.
const NAMED_MAX: usize = 20;
const UNITS: &[u8] = b"systemd/system/";

/// Call it after the commit.
pub fn report(context: &Context, mark: Mark, asked: &Asked) -> Result<(), Error> {
    let mut stores = commits::connect(context)?;
    let found = commits::find(&mut stores)?.into_iter();
    let Some(joined) = found.into_iter().find(|one| one.mark == mark) else {
        // It has changed nothing.
        return Ok(());
    };
    let output = &context.output;
    for (place, commit) in &joined.parts {
        if commit.marks.forgotten {
            let root = stores[*place].root.display();
            output.warn(format_args!(
                "{mark} cannot be undone: what it replaced in '{root}' takes more space than \
                 `atomdir -C {root} config history-space` allows"
            ));
        }
    }
    let mut has_units = false;
    let mut names = Vec::new();
    for (place, commit) in &joined.parts {
        let store = &mut stores[*place];
        names.push(format!("'{}' {}", store.root.display(), commit.sequence));
        let details = store.connection.show(commit.sequence)?;
        let is_unit = |path: &[u8]| path.windows(UNITS.len()).any(|part| part == UNITS);
        has_units |= details.changes.iter().any(|line| is_unit(&line.path));
    }
    output.note(format_args!(
        "committed {mark} ({}); `atomdir undo --system {mark}` takes it back",
        names.join(", ")
    ));
    let mut services: Vec<String> = asked.iter().map(|line| escaped(line)).collect();
    if has_units && Path::new("/run/systemd/system").exists() {
        services.insert(0, "daemon-reload".to_owned());
    }
    if !services.is_empty() {
        output.note(format_args!(
            "services were left as they are; the packages want: {}",
            services.join("; ")
        ));
    }
    let places = stores.iter().filter_map(|store| {
        let control = store.control.as_deref()?;
        Some(Place::new(&store.root, control))
    });
    let stale = old_files::find(&places.collect::<Vec<_>>());
    if !stale.is_empty() {
        let named: Vec<String> = stale.iter().take(NAMED_MAX).map(name).collect();
        let more = match stale.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        output.note(format_args!(
            "running programs use files that were replaced or removed, until they are started \
             again: {}{more}",
            named.join(", ")
        ));
    }
    Ok(())
}

fn name(one: &Stale) -> String {
    let name = escaped(&one.name);
    match &one.unit {
        Some(unit) => format!("{} ({name}, {})", one.process, escaped(unit)),
        None => format!("{} ({name})", one.process),
    }
}
