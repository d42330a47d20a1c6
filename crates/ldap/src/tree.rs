//! Entries as files, in the layout of OpenLDAP's back-ldif: an entry is a file `NAME.ldif`, and
//! the entries below it are in the directory `NAME` beside it.

use crate::ldif::{self, Line};
use crate::name::{Name, Part, file_name};
use crate::request::Answer;
use crate::schema::Schema;
use atomdir::{Error, Kind, Permissions, Transaction};
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".ldif";

/// The outcome of a part of an operation. The outer error is the library's: after a conflict the
/// transaction is tried again. The inner error is an answer that ends the operation.
pub type Outcome<T> = Result<Result<T, Answer>, Error>;

/// The database, as one transaction sees it.
pub struct Tree<'a> {
    pub transaction: &'a Transaction,
    pub schema: &'a Schema,
    /// The path of the database's directory in the store.
    pub directory: &'a Path,
    pub suffix: &'a Name,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Name,
    pub attributes: Vec<Line>,
}

impl Entry {
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.attributes.iter().filter(move |line| line.is(name));
        lines.map(|line| line.value.as_slice())
    }

    pub fn set(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.attributes.retain(|line| !line.is(name));
        self.attributes.push(Line::new(name, value));
    }
}

impl Tree<'_> {
    /// The path of an entry's file without `.ldif`, which is the directory of the entries below it.
    pub fn path(&self, name: &Name) -> Result<PathBuf, Answer> {
        let above = name.parts.len().checked_sub(self.suffix.parts.len());
        let is_below = above.is_some_and(|above| {
            let suffix = Name {
                parts: name.parts[above..].to_vec(),
            };
            suffix.normalized(self.schema) == self.suffix.normalized(self.schema)
        });
        let Some(above) = above.filter(|_| is_below) else {
            return Err(Answer::new(
                Answer::NO_SUCH_OBJECT,
                "the name is not below the suffix",
            ));
        };
        let mut path = self
            .directory
            .join(file_name(&self.suffix.normalized(self.schema)));
        for part in name.parts[..above].iter().rev() {
            path.push(file_name(&part.normalized(self.schema)));
        }
        Ok(path)
    }

    pub fn find(&self, name: &Name) -> Outcome<Option<Entry>> {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(answer) => return Ok(Err(answer)),
        };
        let contents = match self.transaction.read(with_suffix(&path)) {
            Ok(contents) => contents,
            Err(error) if error.is_not_found() => return Ok(Ok(None)),
            Err(error) => return Err(error.into()),
        };
        Ok(match parse_entry(&contents) {
            // Return the name as the file has it: the client's may differ in case and spaces.
            Some((part, attributes)) => Ok(Some(Entry {
                name: name.above().below(part),
                attributes,
            })),
            None => Err(damaged(&with_suffix(&path))),
        })
    }

    /// The entry. If there is none, an answer that names the nearest existing ancestor.
    pub fn get(&self, name: &Name) -> Outcome<Entry> {
        match self.find(name)? {
            Ok(Some(entry)) => Ok(Ok(entry)),
            Ok(None) => Ok(Err(self.missing(name)?)),
            Err(answer) => Ok(Err(answer)),
        }
    }

    pub fn missing(&self, name: &Name) -> Result<Answer, Error> {
        let mut answer = Answer::new(Answer::NO_SUCH_OBJECT, "");
        let mut above = name.above();
        while above.parts.len() >= self.suffix.parts.len() {
            if let Ok(Some(entry)) = self.find(&above)? {
                answer.matched = entry.name.text();
                break;
            }
            above = above.above();
        }
        Ok(answer)
    }

    /// The children of an entry.
    pub fn below(&self, name: &Name) -> Outcome<Vec<Entry>> {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(answer) => return Ok(Err(answer)),
        };
        let listed = match self.transaction.read_dir(&path) {
            Ok(listed) => listed,
            Err(error) if error.is_not_found() => return Ok(Ok(Vec::new())),
            Err(error) => return Err(error.into()),
        };
        let mut entries = Vec::new();
        for one in listed {
            let is_entry = one.kind == Kind::File
                && one
                    .file_name
                    .as_encoded_bytes()
                    .ends_with(SUFFIX.as_bytes());
            if !is_entry {
                continue;
            }
            let path = path.join(&one.file_name);
            let contents = self.transaction.read(&path)?;
            let Some((part, attributes)) = parse_entry(&contents) else {
                return Ok(Err(damaged(&path)));
            };
            entries.push(Entry {
                name: name.below(part),
                attributes,
            });
        }
        Ok(Ok(entries))
    }

    pub fn has_below(&self, path: &Path) -> Result<bool, Error> {
        match self.transaction.read_dir(path) {
            Ok(listed) => Ok(listed.iter().any(|one| one.kind == Kind::File)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the entry's file. Creates its directory if it is missing.
    pub fn put(&self, path: &Path, entry: &Entry) -> Result<(), Error> {
        if let Some(directory) = path.parent().filter(|one| *one != self.directory)
            && !self.transaction.exists(directory)?
        {
            self.transaction.create_dir_with(directory, 0o750)?;
        }
        // The file has only the entry's own part of the name, so that one rename moves a subtree.
        let rdn = entry
            .name
            .parts
            .first()
            .map_or("", |part| part.text.as_str());
        let file = with_suffix(path);
        let is_new = !self.transaction.exists(&file)?;
        self.transaction
            .write(&file, ldif::file(rdn, &entry.attributes))?;
        if is_new {
            // Entries hold passwords. back-ldif uses the same mode.
            self.transaction
                .set_permissions(&file, Permissions::from_mode(0o600))?;
        }
        Ok(())
    }
}

fn parse_entry(contents: &[u8]) -> Option<(Part, Vec<Line>)> {
    let (rdn, attributes) = ldif::parse_file(contents)?;
    Some((Part::parse(&rdn)?, attributes))
}

pub fn with_suffix(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

fn damaged(path: &Path) -> Answer {
    Answer::new(
        Answer::OTHER,
        format!("not an LDIF entry, restore it: '{}'", path.display()),
    )
}
