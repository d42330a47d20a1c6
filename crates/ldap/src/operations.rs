//! LDAP's operations. Each runs in one transaction, and checks everything before it changes
//! anything, so an operation that fails has changed nothing.

use crate::filter::Filter;
use crate::ldif::{self, Line};
use crate::name::{Name, Part};
use crate::password;
use crate::request::{Answer, Request};
use crate::schema::Violation;
use crate::stamp::Stamp;
use crate::tree::{Entry, Outcome, Tree, with_suffix};
use std::path::Path;

/// Unwraps `Ok(value)`. Ends the operation with the answer of `Err(answer)`.
macro_rules! or_answer {
    ($outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(answer) => return Ok(Err(answer)),
        }
    };
}

pub fn parse_name(text: &str) -> Result<Name, Answer> {
    Name::parse(text)
        .ok_or_else(|| Answer::new(Answer::INVALID_DN_SYNTAX, format!("invalid name: {text}")))
}

pub fn add(tree: &Tree, request: &Request, stamp: &Stamp) -> Outcome<()> {
    let name = or_answer!(request.value("dn").and_then(|text| parse_name(&text)));
    let own = request.body.iter().flatten().filter(|line| !line.is("dn"));
    let mut entry = Entry {
        name: name.clone(),
        attributes: own.cloned().collect(),
    };
    let path = or_answer!(tree.path(&name));
    or_answer!(check_naming(tree, &entry));
    or_answer!(check(tree, &mut entry));
    stamp.on_new(&mut entry);
    if or_answer!(tree.find(&name)?).is_some() {
        return Ok(Err(Answer::new(Answer::ALREADY_EXISTS, "")));
    }
    if name.parts.len() > tree.suffix.parts.len() && or_answer!(tree.find(&name.above())?).is_none()
    {
        return Ok(Err(tree.missing(&name)?));
    }
    tree.put(&path, &entry)?;
    Ok(Ok(()))
}

pub fn delete(tree: &Tree, request: &Request) -> Outcome<()> {
    let name = or_answer!(request.value("dn").and_then(|text| parse_name(&text)));
    or_answer!(tree.get(&name)?);
    let path = or_answer!(tree.path(&name));
    if tree.has_below(&path)? {
        return Ok(Err(Answer::new(
            Answer::NOT_ALLOWED_ON_NON_LEAF,
            "subordinate objects must be deleted first",
        )));
    }
    if tree.transaction.exists(&path)? {
        tree.transaction.remove_dir(&path)?;
    }
    tree.transaction.remove_file(with_suffix(&path))?;
    Ok(Ok(()))
}

pub fn modify(tree: &Tree, request: &Request, stamp: &Stamp) -> Outcome<()> {
    let name = or_answer!(request.value("dn").and_then(|text| parse_name(&text)));
    let mut entry = or_answer!(tree.get(&name)?);
    let mut lines = request
        .body
        .iter()
        .filter(|line| !matches!(line, Some(line) if line.is("dn")));
    while let Some(Some(change)) = lines.next() {
        let values: Vec<Vec<u8>> = lines
            .by_ref()
            .map_while(Option::as_ref)
            .map(|line| line.value.clone())
            .collect();
        let attribute = String::from_utf8_lossy(&change.value).into_owned();
        or_answer!(apply(tree, &mut entry, &change.name, &attribute, values));
    }
    or_answer!(check_naming(tree, &entry));
    or_answer!(check(tree, &mut entry));
    stamp.on_changed(&mut entry);
    let path = or_answer!(tree.path(&name));
    tree.put(&path, &entry)?;
    Ok(Ok(()))
}

fn apply(
    tree: &Tree,
    entry: &mut Entry,
    verb: &str,
    attribute: &str,
    values: Vec<Vec<u8>>,
) -> Result<(), Answer> {
    let schema = tree.schema;
    let same = |line: &Line| {
        let (left, right) = (line.name.split(';'), attribute.split(';'));
        let is_same_type = schema.canonical(&line.name) == schema.canonical(attribute);
        is_same_type && left.skip(1).eq(right.skip(1))
    };
    let equal = |left: &[u8], right: &[u8]| {
        schema.normalized(attribute, left) == schema.normalized(attribute, right)
    };
    match verb {
        "add" => {
            for value in values {
                if entry
                    .attributes
                    .iter()
                    .any(|line| same(line) && equal(&line.value, &value))
                {
                    return Err(Answer::new(
                        Answer::TYPE_OR_VALUE_EXISTS,
                        format!("modify/add: {attribute}: value already exists"),
                    ));
                }
                entry.attributes.push(Line::new(attribute, value));
            }
        }
        "delete" if values.is_empty() => {
            let before = entry.attributes.len();
            entry.attributes.retain(|line| !same(line));
            if entry.attributes.len() == before {
                return Err(no_such(attribute, "attribute"));
            }
        }
        "delete" => {
            for value in values {
                let at = entry
                    .attributes
                    .iter()
                    .position(|line| same(line) && equal(&line.value, &value));
                entry
                    .attributes
                    .remove(at.ok_or_else(|| no_such(attribute, "value"))?);
            }
        }
        "replace" => {
            entry.attributes.retain(|line| !same(line));
            entry
                .attributes
                .extend(values.into_iter().map(|value| Line::new(attribute, value)));
        }
        _ => {
            return Err(Answer::new(
                Answer::PROTOCOL_ERROR,
                format!("unknown change: {verb}"),
            ));
        }
    }
    Ok(())
}

fn no_such(attribute: &str, what: &str) -> Answer {
    Answer::new(
        Answer::NO_SUCH_ATTRIBUTE,
        format!("modify/delete: {attribute}: no such {what}"),
    )
}

pub fn rename(tree: &Tree, request: &Request, stamp: &Stamp) -> Outcome<()> {
    let name = or_answer!(request.value("dn").and_then(|text| parse_name(&text)));
    let mut entry = or_answer!(tree.get(&name)?);
    let new = or_answer!(request.value("newrdn"));
    let part = or_answer!(
        Part::parse(&new)
            .ok_or_else(|| Answer::new(Answer::INVALID_DN_SYNTAX, format!("invalid name: {new}")))
    );
    if name.parts.len() == tree.suffix.parts.len() {
        return Ok(Err(Answer::new(
            Answer::UNWILLING_TO_PERFORM,
            "the suffix cannot be renamed",
        )));
    }
    let above = match request.value("newSuperior") {
        Ok(text) => or_answer!(parse_name(&text)),
        Err(_) => name.above(),
    };
    let (from, new_name) = (or_answer!(tree.path(&name)), above.below(part.clone()));
    let to = or_answer!(tree.path(&new_name));
    if or_answer!(request.number("deleteoldrdn")) != 0 {
        for (attribute, value) in &name.parts[0].values {
            or_answer!(apply(
                tree,
                &mut entry,
                "delete",
                attribute,
                vec![value.clone()]
            ));
        }
    }
    for (attribute, value) in &part.values {
        if !holds(tree, &entry, attribute, value) {
            or_answer!(apply(
                tree,
                &mut entry,
                "add",
                attribute,
                vec![value.clone()]
            ));
        }
    }
    or_answer!(check(tree, &mut entry));
    or_answer!(tree.get(&above)?);
    if to.starts_with(&from) && to != from {
        return Ok(Err(Answer::new(
            Answer::UNWILLING_TO_PERFORM,
            "an entry cannot move below itself",
        )));
    }
    if to != from && or_answer!(tree.find(&new_name)?).is_some() {
        return Ok(Err(Answer::new(Answer::ALREADY_EXISTS, "")));
    }
    entry.name = new_name;
    stamp.on_changed(&mut entry);
    if to != from {
        tree.transaction.remove_file(with_suffix(&from))?;
        move_below(tree, &from, &to)?;
    }
    tree.put(&to, &entry)?;
    Ok(Ok(()))
}

/// Moves the directory that holds the entries below an entry, if there is one.
fn move_below(tree: &Tree, from: &Path, to: &Path) -> Result<(), atomdir::Error> {
    if !tree.transaction.exists(from)? {
        return Ok(());
    }
    if let Some(directory) = to.parent()
        && !tree.transaction.exists(directory)?
    {
        tree.transaction.create_dir_with(directory, 0o750)?;
    }
    Ok(tree.transaction.rename(from, to)?)
}

pub fn compare(tree: &Tree, request: &Request) -> Outcome<Answer> {
    let name = or_answer!(request.value("dn").and_then(|text| parse_name(&text)));
    let entry = or_answer!(tree.get(&name)?);
    let asked = request.body.iter().flatten().find(|line| !line.is("dn"));
    let asked = or_answer!(
        asked.ok_or_else(|| Answer::new(Answer::PROTOCOL_ERROR, "no attribute to compare"))
    );
    let has_attribute = entry
        .attributes
        .iter()
        .any(|line| tree.schema.is_kind_of(&line.name, &asked.name));
    let code = match (
        has_attribute,
        holds(tree, &entry, &asked.name, &asked.value),
    ) {
        (false, _) => Answer::NO_SUCH_ATTRIBUTE,
        (true, true) => Answer::COMPARE_TRUE,
        (true, false) => Answer::COMPARE_FALSE,
    };
    Ok(Ok(Answer::new(code, "")))
}

fn holds(tree: &Tree, entry: &Entry, attribute: &str, value: &[u8]) -> bool {
    entry.attributes.iter().any(|line| {
        tree.schema.is_kind_of(&line.name, attribute)
            && tree.schema.normalized(&line.name, &line.value)
                == tree.schema.normalized(&line.name, value)
    })
}

/// Checks the password of an entry. The answer does not reveal whether the entry exists.
pub fn bind(tree: &Tree, name: &Name, password: &[u8]) -> Outcome<()> {
    let refused = Err(Answer::new(Answer::INVALID_CREDENTIALS, ""));
    let Ok(Some(entry)) = tree.find(name)? else {
        return Ok(refused);
    };
    Ok(
        match password::is_one_of(password, entry.values("userPassword")) {
            true => Ok(()),
            false => refused,
        },
    )
}

/// Returns the entries that match, as LDIF, and the search's result.
pub fn search(tree: &Tree, request: &Request) -> Outcome<(Vec<u8>, Answer)> {
    let base = or_answer!(request.value("base").and_then(|text| parse_name(&text)));
    let filter = or_answer!(request.value("filter"));
    let filter =
        or_answer!(Filter::parse(&filter).ok_or_else(|| Answer::new(
            Answer::PROTOCOL_ERROR,
            format!("invalid filter: {filter}")
        )));
    let limit = or_answer!(request.number("sizelimit"));
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
    let seconds = or_answer!(request.number("timelimit"));
    let (includes_base, levels) = match or_answer!(request.number("scope")) {
        0 => (true, 0),
        1 => (false, 1),
        2 => (true, usize::MAX),
        _ => (false, usize::MAX),
    };
    let begun = std::time::Instant::now();
    let first = or_answer!(tree.get(&base)?);
    let (mut text, mut count) = (Vec::new(), 0);
    let mut open = vec![(first, 0)];
    while let Some((entry, depth)) = open.pop() {
        if (depth > 0 || includes_base)
            && filter.matches(tree.schema, &entry.attributes) == Some(true)
        {
            if limit.is_some_and(|limit| count >= limit) {
                return Ok(Ok((text, Answer::new(Answer::SIZE_LIMIT_EXCEEDED, ""))));
            }
            count += 1;
            push_entry(&mut text, &entry);
        }
        if seconds > 0 && begun.elapsed().as_secs() >= seconds.unsigned_abs() {
            return Ok(Ok((text, Answer::new(Answer::TIME_LIMIT_EXCEEDED, ""))));
        }
        if depth < levels {
            let below = or_answer!(tree.below(&entry.name)?);
            open.extend(below.into_iter().rev().map(|entry| (entry, depth + 1)));
        }
    }
    Ok(Ok((text, Answer::success())))
}

fn push_entry(text: &mut Vec<u8>, entry: &Entry) {
    ldif::push(text, "dn", entry.name.text().as_bytes());
    for line in &entry.attributes {
        ldif::push(text, &line.name, &line.value);
    }
    text.push(b'\n');
}

/// Checks that an entry holds the attribute values in its name.
fn check_naming(tree: &Tree, entry: &Entry) -> Result<(), Answer> {
    let part = entry.name.parts.first();
    let part =
        part.ok_or_else(|| Answer::new(Answer::UNWILLING_TO_PERFORM, "the name is empty"))?;
    let missing = part
        .values
        .iter()
        .find(|(attribute, value)| !holds(tree, entry, attribute, value));
    match missing {
        Some((attribute, _)) => Err(Answer::new(
            Answer::NAMING_VIOLATION,
            format!("value of naming attribute '{attribute}' is not present in entry"),
        )),
        None => Ok(()),
    }
}

/// Checks the entry against the schema, and sets its structural object class.
fn check(tree: &Tree, entry: &mut Entry) -> Result<(), Answer> {
    match tree.schema.check(&entry.attributes) {
        Ok(class) => {
            if entry.values("structuralObjectClass").next() != Some(class.as_bytes()) {
                entry.set("structuralObjectClass", class);
            }
            Ok(())
        }
        Err(Violation::Undefined(info)) => Err(Answer::new(Answer::UNDEFINED_ATTRIBUTE_TYPE, info)),
        Err(Violation::Class(info)) => Err(Answer::new(Answer::OBJECT_CLASS_VIOLATION, info)),
        Err(Violation::Single(info)) => Err(Answer::new(Answer::CONSTRAINT_VIOLATION, info)),
    }
}
