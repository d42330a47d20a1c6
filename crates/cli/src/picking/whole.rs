//! A copy of a whole text, beside it in the view, for the time in which the view has only the
//! chosen hunks of it.

use crate::error::Error;
use crate::files::{self, open_parent};
use crate::picking::choice::PartOfText;
use atomdir::client::Transaction;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

const ENDING: &[u8] = b".whole";
const NAME_LENGTH_MAX: usize = 255;

pub struct Saved {
    pub path: Vec<u8>,
}

impl Saved {
    pub fn save(view: &Transaction, text: &PartOfText) -> Result<Saved, Error> {
        for number in 1.. {
            let saved = Saved {
                path: beside(&text.path, number),
            };
            match saved.write(view, &text.whole) {
                Ok(()) => return Ok(saved),
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(Error::Overwrite {
                        path: saved.path,
                        errno,
                    });
                }
            }
        }
        unreachable!("there are more numbers than names in a directory")
    }

    /// Leaves nothing behind if it fails.
    fn write(&self, view: &Transaction, bytes: &[u8]) -> Result<(), Errno> {
        let (directory, name) = open_parent(view.root()?, &self.path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&directory, name, flags, Mode::from_raw_mode(0o600))?;
        files::write_all_at(&file, bytes, 0).inspect_err(|_| {
            let _ = unlinkat(&directory, name, AtFlags::empty());
        })
    }

    pub fn remove(self, view: &Transaction) -> Result<(), Error> {
        let root = view.root();
        let removed = root.and_then(|root| {
            let (directory, name) = open_parent(root, &self.path)?;
            unlinkat(&directory, name, AtFlags::empty())
        });
        removed.map_err(|errno| Error::Overwrite {
            path: self.path,
            errno,
        })
    }
}

/// The path of the copy: `text.whole`, `text.whole.2` and so on.
fn beside(path: &[u8], number: u64) -> Vec<u8> {
    let start = path.iter().rposition(|byte| *byte == b'/');
    let (above, name) = path.split_at(start.map_or(0, |slash| slash + 1));
    let mut ending = ENDING.to_vec();
    if number > 1 {
        ending.extend(format!(".{number}").into_bytes());
    }
    let name = &name[..name.len().min(NAME_LENGTH_MAX - ending.len())];
    [above, name, &ending].concat()
}
