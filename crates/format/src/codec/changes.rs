//! Lists of changes. Each name of a path is written once, however many paths it is part of.

use atomdir_types::path::PathTable;
use atomdir_types::{Change, ChangeLine, TreePath};

use super::flag;
use crate::Problem;
use crate::primitives::{Reader, Result, Writer};

const HAS_FROM: u8 = 0x80;

pub(super) fn put(writer: &mut Writer, lines: &[ChangeLine<TreePath>]) {
    let mut table = PathTable::default();
    for line in lines {
        add(&mut table, line);
    }
    writer.list(table.paths(), |writer, (above, path)| {
        put_number(writer, *above);
        writer.string(path.split().map_or(&[], |(_, name)| name));
    });
    writer.list(lines, |writer, line| {
        writer.byte(line.change.letter() as u8 | flag(&line.from, HAS_FROM));
        put_number(writer, table.add(&line.path));
        if let Some(from) = &line.from {
            put_number(writer, table.add(from));
        }
    });
}

fn add(table: &mut PathTable, line: &ChangeLine<TreePath>) {
    table.add(&line.path);
    if let Some(from) = &line.from {
        table.add(from);
    }
}

/// The root has no number in the table and is written as 0.
fn put_number(writer: &mut Writer, path: Option<u32>) {
    writer.number(path.map_or(0, |number| u64::from(number) + 1));
}

pub(super) fn take(reader: &mut Reader<'_>) -> Result<Vec<ChangeLine<TreePath>>> {
    let mut paths = vec![TreePath::default()];
    for _ in 0..reader.number()? {
        let above = reader.index(paths.len())?;
        let name = reader.string()?;
        if name.is_empty() || name.contains(&b'/') {
            return reader.fail(Problem::Name);
        }
        paths.push(paths[above as usize].join(name));
    }
    let lines = reader.list(|reader| take_line(reader, &paths))?;
    let mut table = PathTable::default();
    for line in &lines {
        add(&mut table, line);
    }
    // Every path is there once, is used, and has its number by its first use.
    let is_same = |((_, one), other): (&(Option<u32>, TreePath), &TreePath)| one.is_same(other);
    let (used, written) = (table.paths(), &paths[1..]);
    match used.len() == written.len() && used.iter().zip(written).all(is_same) {
        true => Ok(lines),
        false => reader.fail(Problem::Paths),
    }
}

fn take_line(reader: &mut Reader<'_>, paths: &[TreePath]) -> Result<ChangeLine<TreePath>> {
    let tag = reader.byte()?;
    let change = match tag & !HAS_FROM {
        b'A' => Change::Added,
        b'M' => Change::Modified,
        b'D' => Change::Deleted,
        b'R' => Change::Renamed,
        b'T' => Change::TypeChanged,
        _ => return reader.fail(Problem::Tag(tag)),
    };
    let mut path = || Ok(paths[reader.index(paths.len())? as usize].clone());
    let line_path = path()?;
    let from = (tag & HAS_FROM != 0).then(path).transpose()?;
    Ok(ChangeLine {
        change,
        path: line_path,
        from,
    })
}
