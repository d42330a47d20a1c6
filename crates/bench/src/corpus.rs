//! Real files and projects for the workloads: an archive of this machine's files, and programs that
//! are downloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Describe, Result};
use crate::programs::{make_directory, output, shell};

/// Directories that most development machines have, in the order in which they are packed.
const SOURCES: &[&str] = &[
    "/usr/include",
    "/usr/share/perl",
    "/usr/lib/python3",
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/zoneinfo",
    "/usr/lib/python3.11",
    "/usr/lib/gcc",
];

#[derive(Debug)]
pub struct Corpus {
    pub archive: PathBuf,
    pub entries: usize,
    pub bytes: u64,
}

impl Corpus {
    pub fn note(&self) -> String {
        format!("{} entries, {} MiB", self.entries, self.bytes >> 20)
    }
}

/// Packs files, links and directories of this machine, at most `entries_max`.
pub fn pack(directory: &Path, entries_max: usize) -> Result<Corpus> {
    let archive = directory.join("corpus.tar");
    let list = directory.join("corpus.list");
    make_directory(directory)?;
    let mut taken = Vec::new();
    for source in SOURCES.iter().filter(|source| Path::new(source).is_dir()) {
        let find =
            format!("find {source} -xdev \\( -type f -o -type l -o -type d \\) -readable | sort");
        let found = shell(directory, &find)?;
        let room = entries_max - taken.len();
        taken.extend(found.lines().take(room).map(str::to_owned));
    }
    fs::write(&list, taken.join("\n") + "\n").describe("write", &list)?;
    shell(
        directory,
        "tar --no-recursion --verbatim-files-from -cf corpus.tar -C / -T corpus.list 2> /dev/null",
    )?;
    let bytes = fs::metadata(&archive).describe("read", &archive)?.len();
    Ok(Corpus {
        archive,
        entries: taken.len(),
        bytes,
    })
}

/// Downloads the source of a small C project by apt, which checks its signature. Leaves the machine's
/// own list of package sources alone. `None` if the download fails.
pub fn c_project(directory: &Path, package: &str) -> Result<Option<PathBuf>> {
    let fetch = format!("{APT} apt update && apt source --download-only {package}");
    fetched(&directory.join(package), &fetch, ".orig.tar.")
}

/// Debian's PostMark, downloaded and unpacked but not installed. `None` if the download fails.
pub fn postmark(directory: &Path) -> Result<Option<PathBuf>> {
    let place = directory.join("postmark");
    let fetch = format!("{APT} apt update && apt download postmark");
    let Some(package) = fetched(&place, &fetch, ".deb")? else {
        return Ok(None);
    };
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&place))?;
    Ok(Some(place.join("usr/bin/postmark")))
}

const APT: &str = r#"
mkdir -p lists/partial archives/partial
printf '%s\n' 'deb http://deb.debian.org/debian bookworm main' \
    'deb-src http://deb.debian.org/debian bookworm main' > sources.list
apt() {
    apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/archives" \
        -o APT::Sandbox::User=root "$@"
}
"#;

/// The file in `place` whose name contains `pattern`. Runs `fetch` if there is none.
fn fetched(place: &Path, fetch: &str, pattern: &str) -> Result<Option<PathBuf>> {
    make_directory(place)?;
    if find(place, pattern)?.is_none() && shell(place, fetch).is_err() {
        return Ok(None);
    }
    find(place, pattern)
}

fn find(place: &Path, pattern: &str) -> Result<Option<PathBuf>> {
    let listing = output(Command::new("find").arg(place).args(["-maxdepth", "1"]))?;
    Ok(listing
        .lines()
        .find(|line| line.contains(pattern) && !line.ends_with(".asc"))
        .map(PathBuf::from))
}
