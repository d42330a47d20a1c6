//! The format and the path of a mailbox, and the path of its index.

use crate::account::Recipient;
use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Debian's directory for mailboxes.
const DEFAULT: &str = "/var/mail/%u";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One file for all messages.
    Mbox,
    /// A directory with a file for each message.
    Maildir,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Mailbox {
    pub format: Format,
    /// An absolute path.
    pub path: PathBuf,
}

impl Mailbox {
    pub fn new(template: Option<&str>, recipient: &Recipient) -> Result<Mailbox, Failure> {
        let template = template.unwrap_or(DEFAULT);
        let format = match template.ends_with('/') {
            true => Format::Maildir,
            false => Format::Mbox,
        };
        let mut path = String::new();
        let mut rest = template.chars();
        while let Some(c) = rest.next() {
            match c {
                '%' => match rest.next() {
                    Some('%') => path.push('%'),
                    Some('u') => path.push_str(&recipient.name),
                    Some('h') => path.push_str(&home(recipient)?),
                    _ => {
                        return Err(Failure::Usage(
                            "in -m only u, h or % may follow a %".to_owned(),
                        ));
                    }
                },
                c => path.push(c),
            }
        }
        let path = PathBuf::from(path.trim_end_matches('/'));
        match path.is_absolute() && path.file_name().is_some() {
            true => Ok(Mailbox { format, path }),
            false => Err(Failure::Usage(format!(
                "the mailbox '{}' must be an absolute path",
                path.display()
            ))),
        }
    }

    /// The path of the mailbox's index, if the mailbox is at `path`.
    pub fn index(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self.format {
            Format::Mbox => path.with_file_name(format!(".{name}.deliveries")),
            Format::Maildir => path.join("deliveries"),
        }
    }
}

fn home(recipient: &Recipient) -> Result<String, Failure> {
    let home = recipient
        .home()
        .and_then(|home| home.to_str().map(str::to_owned));
    home.ok_or_else(|| Failure::NoUser(format!("'{}' has no home directory", recipient.name)))
}
