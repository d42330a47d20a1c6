//! What is unpacked: real files of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Describe, Result};
use crate::programs::{make_directory, output, shell};

/// Trees most development machines have, in the order they are taken.
const SOURCES: &[&str] = &[
    "/usr/include",
    "/usr/share/perl",
    "/usr/lib/python3",
    "/usr/share/doc",
    "/usr/share/man",
];
const FILES_MIN: usize = 8000;

pub struct Corpus {
    pub archive: PathBuf,
    pub files: usize,
    pub bytes: u64,
}

/// Packs whole trees until there are enough files.
pub fn pack(directory: &Path) -> Result<Corpus> {
    let archive = directory.join("corpus.tar");
    let list = directory.join("corpus.list");
    make_directory(directory)?;
    let mut files = 0;
    let mut taken = String::new();
    for source in SOURCES {
        let found = Command::new("find")
            .args([source, "-xdev", "-type", "f"])
            .output()
            .describe("list", Path::new(source))?;
        let count = found.stdout.iter().filter(|byte| **byte == b'\n').count();
        if count > 0 {
            files += count;
            taken.push_str(source);
            taken.push('\n');
        }
        if files >= FILES_MIN {
            break;
        }
    }
    fs::write(&list, &taken).describe("write", &list)?;
    shell(
        directory,
        "tar --one-file-system -cf corpus.tar -C / -T corpus.list 2> /dev/null",
    )?;
    let bytes = fs::metadata(&archive).describe("read", &archive)?.len();
    Ok(Corpus {
        archive,
        files,
        bytes,
    })
}

/// The source of a small C project, with apt, whose signatures vouch for it;
/// the machine's own list of sources stays as it is. `None` without a network.
pub fn c_project(directory: &Path, package: &str) -> Result<Option<PathBuf>> {
    let place = directory.join(package);
    make_directory(&place)?;
    if archive_in(&place)?.is_none() {
        let fetched = shell(&place, &FETCH.replace("PACKAGE", package));
        if fetched.is_err() {
            return Ok(None);
        }
    }
    archive_in(&place)
}

const FETCH: &str = r#"
mkdir -p lists/partial archives/partial
echo 'deb-src http://deb.debian.org/debian bookworm main' > sources.list
apt() {
    apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/archives" \
        -o APT::Sandbox::User=root "$@"
}
apt update && apt source --download-only PACKAGE
"#;

fn archive_in(place: &Path) -> Result<Option<PathBuf>> {
    let listing = output(Command::new("find").arg(place).args(["-maxdepth", "1"]))?;
    Ok(listing
        .lines()
        .find(|line| line.contains(".orig.tar.") && !line.ends_with(".asc"))
        .map(PathBuf::from))
}
