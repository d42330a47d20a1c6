//! Tests as a few lines of text: transactions and an outside writer change one tree, and
//! the result is returned as text.
//!
//! Each line names the actor, the action and the path. `; ` separates like the end of a
//! line. `out` is an outside writer, a number is a transaction, and `given` fills the tree
//! before the store is opened. Paths contain no spaces, and texts no newlines.
//!
//! | line | meaning |
//! | --- | --- |
//! | `1 begin [serializable] [lazy] [as UID]` | |
//! | `1 commit`, `1 abort`, `store sync` | |
//! | `1 conflicts`, `1 take mine 1 theirs 2` | lists conflicts; commits with sides taken by number |
//! | `1 land f g`, `1 drop f g` | a part is committed, or dropped; the rest stays open |
//! | `put f text`, `append f text`, `cut f length` | contents; `put` truncates first |
//! | `page f number letter` | one page of 4096 bytes |
//! | `chmod f mode`, `setx f value`, `touch f seconds`, `access f seconds` | attributes |
//! | `mkdir d`, `rm f`, `rmdir d`, `ln f g`, `mv f g`, `rm-r d` | names |
//! | `renew f text` | replaced by a new file, by rename, as editors do |
//! | `read f [number]`, `end f`, `stat f`, `look d name`, `ls d` | reads, of one page or of the length |
//! | `given many d`, `1 visit d` | directories in `d`, and a look into each: the store forgets others |
//! | `store clock-back` | from now on change times are an hour earlier |

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use atomdir_disk::{Errno, RenameMode, Timestamp};
use atomdir_engine::{
    BeginOptions, ChangedBy, CommitError, Committed, Conflict, Durability, Isolation, NewNode,
    NodeId, Portion, SetAttributes, SetTime, Sides, Store, Transaction,
};

use super::failing::FailingDisk;
use super::model::caller;
use super::{Scratch, begin_with, create_with, open_with, options};

pub const PAGE: usize = 4096;
/// A modification time before this was set by a script.
const SET_BEFORE: i64 = 1_000_000;
const MANY: usize = 100;
type View = Transaction<FailingDisk>;

/// Runs the script. Returns a line with the result of each commit, and then a line for each
/// path of the tree.
pub fn run(script: &str) -> Vec<String> {
    let scratch = Scratch::new();
    let disk = FailingDisk::without_flushes();
    create_with(&disk, &scratch.0);
    let (given, rest): (Vec<&str>, Vec<&str>) =
        lines(script).partition(|line| line.starts_with("given "));
    for line in given {
        outside(&scratch.0, &words(line)[1..]);
    }
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let mut views: BTreeMap<&str, Arc<View>> = BTreeMap::new();
    let mut said = Vec::new();
    for line in rest {
        let words = words(line);
        match words[..] {
            ["out", ..] => outside(&scratch.0, &words[1..]),
            ["store", "sync"] => store.sync().expect("the store is well"),
            ["store", "clock-back"] => disk.set_clock_back(),
            [who, "begin", ..] => {
                let begun = store.begin(begin_options(&words[2..]));
                views.insert(who, begun.expect("a transaction begins"));
            }
            [who, "land", ref paths @ ..] => {
                let committed =
                    store.commit_portion(&views[who], Portion::part(&owned(paths)), &mut |_| {});
                said.push(format!("{who}: {}", outcome(committed, "landed")));
            }
            [who, "conflicts"] => {
                let listed = store.list_conflicts(&views[who]).expect("listed");
                let lines: Vec<String> = listed.iter().map(conflict).collect();
                said.push(format!("{who} has: {}", lines.join("; ")));
            }
            [who, "take", ref words @ ..] => {
                let committed =
                    store.commit_portion(&views[who], Portion::Sides(&sides(words)), &mut |_| {});
                said.push(format!("{who}: {}", outcome(committed, "committed")));
            }
            [who, "drop", ref paths @ ..] => {
                let dropped = views[who].drop_part(&owned(paths));
                dropped.unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            [who, "commit"] => said.push(format!("{who}: {}", commit(&store, &views[who]))),
            [who, "abort"] => {
                store.abort(&views[who]);
            }
            [who, ..] => inside(&views[who], &words[1..]),
            [] => {}
        }
    }
    for view in views.values() {
        store.abort(view);
    }
    said.extend(tree(&scratch.0));
    drop((views, store));
    // Recovery applies the log once more.
    let before = tree(&scratch.0);
    open_with(disk, &scratch.0).expect("the store is recovered");
    let after = tree(&scratch.0);
    assert_eq!(before, after, "recovery changes nothing");
    said
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().flat_map(|line| line.split("; "));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn begin_options(words: &[&str]) -> BeginOptions {
    let mut options = options();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "serializable" => options.isolation = Isolation::Serializable,
            "lazy" => options.durability = Durability::Lazy,
            "as" => options.owner = number(words.next().expect("as whom")) as u32,
            other => panic!("unknown option {other}"),
        }
    }
    options
}

fn sides(words: &[&str]) -> Sides {
    let mut sides = Sides::default();
    for pair in words.chunks(2) {
        let number = number(pair[1]);
        match pair[0] {
            "mine" => sides.mine.push(number),
            "theirs" => sides.theirs.push(number),
            other => panic!("no side is called {other}"),
        }
    }
    sides
}

fn owned(paths: &[&str]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.as_bytes().to_vec()).collect()
}

fn commit(store: &Store<FailingDisk>, view: &View) -> String {
    outcome(store.commit(view), "committed")
}

fn outcome(committed: Result<Committed, CommitError>, done: &str) -> String {
    match committed {
        Ok(_) => done.to_owned(),
        Err(CommitError::Conflict(conflicts)) => {
            let lines: Vec<String> = conflicts.iter().map(conflict).collect();
            lines.join("; ")
        }
        Err(error) => format!("failed: {error}"),
    }
}

fn conflict(Conflict { path, what, by }: &Conflict) -> String {
    let by = match by {
        ChangedBy::Commit { sequence, .. } => format!("commit {sequence}"),
        ChangedBy::Outside => "outside".to_owned(),
        other => format!("{other:?}"),
    };
    format!("{} {what:?} by {by}", path.escape_ascii())
}

fn number(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is a number"))
}

fn mode(word: &str) -> u32 {
    u32::from_str_radix(word, 8).unwrap_or_else(|_| panic!("{word} is a mode"))
}

pub fn page(letter: &str) -> Vec<u8> {
    letter.as_bytes()[..1].repeat(PAGE)
}

/// Does the action in the base, as an outside writer would.
pub fn outside(root: &Path, words: &[&str]) {
    let at = |path: &str| root.join(path);
    let done = match *words {
        ["put", path, text] => fs::write(at(path), text),
        ["append", path, text] => {
            let mut old = fs::read(at(path)).expect("it is there");
            old.extend(text.as_bytes());
            // This keeps the inode.
            fs::write(at(path), old)
        }
        ["cut", path, length] => open_to_write(&at(path)).set_len(number(length)),
        ["page", path, place, letter] => {
            let offset = number(place) * PAGE as u64;
            open_to_write(&at(path)).write_all_at(&page(letter), offset)
        }
        ["chmod", path, new] => fs::set_permissions(at(path), PermissionsExt::from_mode(mode(new))),
        ["touch", path, seconds] => {
            let time = UNIX_EPOCH + Duration::from_secs(number(seconds));
            fs::File::open(at(path)).and_then(|file| file.set_modified(time))
        }
        ["mkdir", path] => fs::create_dir(at(path)),
        ["many", path] => {
            (0..MANY).try_for_each(|number| fs::create_dir_all(at(path).join(number.to_string())))
        }
        ["rm", path] => fs::remove_file(at(path)),
        ["rmdir", path] => fs::remove_dir(at(path)),
        ["rm-r", path] => fs::remove_dir_all(at(path)),
        ["ln", from, to] => fs::hard_link(at(from), at(to)),
        ["mv", from, to] => fs::rename(at(from), at(to)),
        ["renew", path, text] => {
            fs::write(at("renewed"), text).and_then(|()| fs::rename(at("renewed"), at(path)))
        }
        _ => panic!("no outside writer does {words:?}"),
    };
    done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

fn open_to_write(path: &Path) -> fs::File {
    let opened = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    opened.expect("it can be written")
}

/// Does the action in a transaction. It must succeed in the tree that the view shows.
pub fn inside(view: &View, words: &[&str]) {
    try_inside(view, words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

/// A store for these actions.
pub fn open_scripted(scratch: &Scratch) -> Store<FailingDisk> {
    open_with(FailingDisk::without_flushes(), &scratch.0).expect("the store opens")
}

/// Does the actions in a transaction that is committed lazily.
pub fn commit_lazily(store: &Store<FailingDisk>, actions: &[&[&str]]) {
    let transaction = begin_with(store, Durability::Lazy);
    actions.iter().for_each(|words| inside(&transaction, words));
    store.commit(&transaction).expect("nobody is in the way");
}

pub fn try_inside(view: &View, words: &[&str]) -> Result<(), Errno> {
    match *words {
        ["put", path, text] => put(view, path, text.as_bytes()),
        ["append", path, text] => {
            let file = find(view, path)?;
            let end = length(view, path)?;
            view.write(file, end, text.as_bytes(), false).map(drop)
        }
        ["cut", path, length] => {
            let change = SetAttributes {
                length: Some(number(length)),
                ..Default::default()
            };
            view.set_attributes(find(view, path)?, change, caller())
                .map(drop)
        }
        ["page", path, place, letter] => {
            let offset = number(place) * PAGE as u64;
            view.write(find(view, path)?, offset, &page(letter), false)
                .map(drop)
        }
        ["chmod" | "touch" | "access", path, value] => {
            let time = |value: &str| {
                SetTime::At(Timestamp {
                    seconds: number(value) as i64,
                    nanoseconds: 0,
                })
            };
            let change = SetAttributes {
                mode: (words[0] == "chmod").then(|| mode(value)),
                modified: (words[0] == "touch").then(|| time(value)),
                accessed: (words[0] == "access").then(|| time(value)),
                ..Default::default()
            };
            view.set_attributes(find(view, path)?, change, caller())
                .map(drop)
        }
        ["setx", path, value] => {
            let file = find(view, path)?;
            view.set_xattr(file, b"user.k", value.as_bytes(), 0, false)
        }
        _ => names_or_reads(view, words),
    }
}

fn names_or_reads(view: &View, words: &[&str]) -> Result<(), Errno> {
    match *words {
        ["mkdir", path] => {
            let (parent, name) = split(view, path)?;
            let made = view.create(parent, name, NewNode::Directory, 0o755, 0, caller());
            made.map(drop)
        }
        ["rm", path] => {
            let (parent, name) = split(view, path)?;
            view.unlink(parent, name)
        }
        ["rmdir", path] => {
            let (parent, name) = split(view, path)?;
            view.remove_directory(parent, name)
        }
        ["rm-r", path] => {
            for entry in view.list(find(view, path)?)? {
                let inner = format!("{path}/{}", entry.name.as_bytes().escape_ascii());
                match entry.kind {
                    atomdir_disk::Kind::Directory => try_inside(view, &["rm-r", &inner])?,
                    _ => try_inside(view, &["rm", &inner])?,
                }
            }
            try_inside(view, &["rmdir", path])
        }
        ["ln", from, to] => {
            let (parent, name) = split(view, to)?;
            view.link(find(view, from)?, parent, name).map(drop)
        }
        ["mv", from, to] => {
            let ((parent, name), (new_parent, new)) = (split(view, from)?, split(view, to)?);
            view.rename(parent, name, new_parent, new, RenameMode::Replace)
        }
        ["renew", path, text] => {
            put(view, "renewed", text.as_bytes())?;
            try_inside(view, &["mv", "renewed", path])
        }
        ["read", path, place] => {
            let offset = number(place) * PAGE as u64;
            view.read(find(view, path)?, offset, &mut [0; PAGE], caller())
                .map(drop)
        }
        ["end", path] => {
            let mut buffer = [0; 1];
            let end = length(view, path)?;
            view.read(find(view, path)?, end, &mut buffer, caller())
                .map(drop)
        }
        ["stat", path] => view.attributes(find(view, path)?).map(drop),
        ["look", path, name] => match view.lookup(find(view, path)?, name.as_bytes()) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        },
        ["visit", path] => (0..MANY).try_for_each(|number| {
            let inner = format!("{path}/{number}");
            try_inside(view, &["look", &inner, "none"])
        }),
        ["ls", path] => view.list(find(view, path)?).map(drop),
        _ => panic!("no transaction does {words:?}"),
    }
}

fn put(view: &View, path: &str, text: &[u8]) -> Result<(), Errno> {
    let file = match view.resolve(path.as_bytes())? {
        Some(file) => file,
        None => {
            let (parent, name) = split(view, path)?;
            view.create(parent, name, NewNode::File, 0o644, 0, caller())?
                .node
        }
    };
    let change = SetAttributes {
        length: Some(0),
        ..Default::default()
    };
    view.set_attributes(file, change, caller())?;
    view.write(file, 0, text, false).map(drop)
}

/// Takes the length from a lookup, since `Transaction::attributes` would count as read.
fn length(view: &View, path: &str) -> Result<u64, Errno> {
    let (parent, name) = split(view, path)?;
    Ok(view.lookup(parent, name)?.attributes.length)
}

fn find(view: &View, path: &str) -> Result<NodeId, Errno> {
    let path = if path == "." { "" } else { path };
    view.resolve(path.as_bytes())?.ok_or(Errno::NOENT)
}

fn split<'a>(view: &View, path: &'a str) -> Result<(NodeId, &'a [u8]), Errno> {
    match path.rsplit_once('/') {
        Some((above, name)) => Ok((find(view, above)?, name.as_bytes())),
        None => Ok((NodeId::ROOT, path.as_bytes())),
    }
}

/// A line for each path: its object, and the first path of a file's names.
pub fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    walk(root, "", &mut lines, &mut BTreeMap::new());
    lines
}

fn walk(root: &Path, above: &str, lines: &mut Vec<String>, firsts: &mut BTreeMap<u64, String>) {
    let entries = fs::read_dir(root.join(above)).expect("a directory is listed");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("an ASCII name"))
        .filter(|name| name != ".atomdir")
        .collect();
    names.sort();
    for name in names {
        let path = if above.is_empty() {
            name
        } else {
            format!("{above}/{name}")
        };
        let metadata = fs::symlink_metadata(root.join(&path)).expect("what is listed is there");
        let usual = if metadata.is_dir() { 0o755 } else { 0o644 };
        let mode = metadata.mode() & 0o7777;
        let mut mode = if mode == usual {
            String::new()
        } else {
            format!(" {mode:o}")
        };
        if metadata.mtime() < SET_BEFORE {
            mode.push_str(&format!(" at {}", metadata.mtime()));
        }
        if metadata.is_dir() {
            lines.push(format!("{path}/{mode}"));
            walk(root, &path, lines, firsts);
            continue;
        }
        let first = firsts.entry(metadata.ino()).or_insert_with(|| path.clone());
        if *first != path {
            lines.push(format!("{path} is {first}"));
            continue;
        }
        let text = describe(&fs::read(root.join(&path)).expect("a file is read"));
        lines.push(format!("{path} {text}{mode}{}", xattr(&root.join(&path))));
    }
}

fn xattr(path: &Path) -> String {
    let mut value = [0; 64];
    match rustix::fs::getxattr(path, "user.k", &mut value) {
        Ok(length) => format!(" k={}", value[..length].escape_ascii()),
        Err(_) => String::new(),
    }
}

/// Short text as it is. For other contents, each page's letter, or a dot for zeros.
pub fn describe(contents: &[u8]) -> String {
    if contents.len() < PAGE {
        return format!("'{}'", contents.escape_ascii());
    }
    let pages = contents.chunks(PAGE).map(|page| {
        let is_one_letter = page.len() == PAGE && page.iter().all(|byte| *byte == page[0]);
        match page[0] {
            0 if is_one_letter => ".".to_owned(),
            letter if is_one_letter => char::from(letter).to_string(),
            _ => format!("'{}'", page.escape_ascii()),
        }
    });
    format!("[{}]", pages.collect::<Vec<_>>().join(""))
}
