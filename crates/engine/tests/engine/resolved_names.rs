//! A name that a view has resolved leads to the same object or to an error, whatever outside
//! writers put there, and what the view then changes is a conflict.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use atomdir_disk::{Errno, LinuxDisk, RenameMode};
use atomdir_engine::{
    BeginOptions, CommitError, Isolation, NewNode, NodeId, SetAttributes, Transaction,
};

use crate::support::model::caller;
use crate::support::trees::tree_of_base;
use crate::support::{Scratch, create, open, options};

type View = Transaction<LinuxDisk>;

/// What the name leads to at first: `f` a file, `h` one of two names of a file, `s` a symbolic link,
/// `d` a directory with the file `d/x`, `e` an empty one, `a` nothing.
const NAMES: [&str; 6] = ["f", "h", "s", "d", "e", "a"];

fn make_tree(root: &Path) {
    let made = [
        ("f", "ours"),
        ("h1", "ours"),
        ("d/x", "ours"),
        ("mine", "mine"),
    ];
    fs::create_dir(root.join("d")).expect("made");
    fs::create_dir(root.join("e")).expect("made");
    for (path, text) in made {
        fs::write(root.join(path), text).expect("made");
    }
    fs::hard_link(root.join("h1"), root.join("h")).expect("made");
    symlink("ours", root.join("s")).expect("made");
    fs::write(root.join("other"), "theirs").expect("made");
    fs::create_dir(root.join("others")).expect("made");
    fs::write(root.join("others/x"), "theirs").expect("made");
}

/// How the view resolves the name. All but the last two hold the node, as the kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    LookUp,
    Stat,
    Read,
    Attribute,
    LookUpAndForget,
    List,
}

const HOWS: [How; 6] = [
    How::LookUp,
    How::Stat,
    How::Read,
    How::Attribute,
    How::LookUpAndForget,
    How::List,
];

/// What the kernel knows of the name and, if it is a directory, of `x` in it.
#[derive(Default)]
struct Held {
    node: Option<NodeId>,
    inner: Option<NodeId>,
}

fn resolve(view: &View, name: &str, how: How) -> Held {
    if how == How::List {
        view.list(NodeId::ROOT).expect("listed");
        return Held::default();
    }
    let Ok(found) = view.lookup(NodeId::ROOT, name.as_bytes()) else {
        return Held::default();
    };
    let node = found.node;
    let inner = view.lookup(node, b"x").ok().map(|entry| entry.node);
    for node in [Some(node), inner].into_iter().flatten() {
        match how {
            How::Stat => drop(view.attributes(node)),
            How::Read => drop(view.read(node, 0, &mut [0; 8], caller())),
            How::Attribute => drop(view.xattr(node, b"user.k")),
            _ => {}
        }
    }
    if how == How::LookUpAndForget {
        inner.iter().for_each(|inner| view.forget(*inner, 1));
        view.forget(node, 1);
        return Held::default();
    }
    let node = Some(node);
    Held { node, inner }
}

type Outside = fn(&Path);
type Then = fn(&View, &str, &Held) -> Result<Vec<u8>, Errno>;

/// What an outside writer does then.
const OUTSIDE: [(&str, Outside); 9] = [
    ("remove", take_away),
    ("file", |path| {
        take_away(path);
        fs::write(path, "theirs").expect("made");
    }),
    ("symlink", |path| {
        take_away(path);
        symlink("../victim", path).expect("made");
    }),
    ("directory", |path| {
        take_away(path);
        fs::create_dir(path).expect("made");
        fs::write(path.join("x"), "theirs").expect("made");
    }),
    ("move away", |path| {
        drop(fs::rename(path, path.with_file_name("away")))
    }),
    ("move away and put a file", |path| {
        let _ = fs::rename(path, path.with_file_name("away"));
        fs::write(path, "theirs").expect("made");
    }),
    ("link another", |path| {
        take_away(path);
        fs::hard_link(path.with_file_name("other"), path).expect("made");
    }),
    ("exchange with a file", |path| exchange(path, "other")),
    ("exchange with a directory", |path| exchange(path, "others")),
];

fn take_away(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

fn exchange(path: &Path, other: &str) {
    let other = path.with_file_name(other);
    let aside = path.with_file_name("aside");
    let _ = fs::rename(path, &aside);
    fs::rename(&other, path).expect("moved");
    let _ = fs::rename(&aside, &other);
}

/// What a program then does in the view. Returns what it has read.
const THEN: [(&str, Then); 15] = [
    ("read", |view, name, held| {
        read(view, find(view, name, held)?)
    }),
    ("read inside", |view, name, held| {
        read(view, inside(view, name, held)?)
    }),
    ("write", |view, name, held| {
        write(view, find(view, name, held)?)
    }),
    ("write inside", |view, name, held| {
        write(view, inside(view, name, held)?)
    }),
    ("truncate", |view, name, held| {
        let length = Some(0);
        let change = SetAttributes {
            length,
            ..Default::default()
        };
        set(view, find(view, name, held)?, change)
    }),
    ("chmod", |view, name, held| {
        let mode = Some(0o600);
        let change = SetAttributes {
            mode,
            ..Default::default()
        };
        set(view, find(view, name, held)?, change)
    }),
    ("set attribute", |view, name, held| {
        let node = find(view, name, held)?;
        nothing(view.set_xattr(node, b"user.k", b"v", 0, false))
    }),
    ("create", |view, name, _| {
        let made = view.create(
            NodeId::ROOT,
            name.as_bytes(),
            NewNode::File,
            0o644,
            0,
            caller(),
        )?;
        write(view, made.node)
    }),
    ("create inside", |view, name, held| {
        let directory = find(view, name, held)?;
        let made = view.create(directory, b"new", NewNode::File, 0o644, 0, caller())?;
        write(view, made.node)
    }),
    ("move", |view, name, _| rename(view, name, "moved")),
    ("replace", |view, name, _| rename(view, "mine", name)),
    ("link", |view, name, held| {
        let node = find(view, name, held)?;
        view.link(node, NodeId::ROOT, b"linked").map(|_| Vec::new())
    }),
    ("remove", |view, name, _| {
        let name = name.as_bytes();
        match view.unlink(NodeId::ROOT, name) {
            Err(Errno::ISDIR) => nothing(view.remove_directory(NodeId::ROOT, name)),
            done => nothing(done),
        }
    }),
    ("read link", |view, name, held| {
        view.read_link(find(view, name, held)?)
    }),
    ("list", |view, name, held| {
        let directory = find(view, name, held)?;
        let mut shown = Vec::new();
        for entry in view.list(directory)? {
            let found = view.lookup(directory, entry.name.as_bytes())?;
            shown.extend(read(view, found.node)?);
        }
        Ok(shown)
    }),
];

fn find(view: &View, name: &str, held: &Held) -> Result<NodeId, Errno> {
    match held.node {
        Some(node) => Ok(node),
        None => Ok(view.lookup(NodeId::ROOT, name.as_bytes())?.node),
    }
}

fn inside(view: &View, name: &str, held: &Held) -> Result<NodeId, Errno> {
    match held.inner {
        Some(inner) => Ok(inner),
        None => Ok(view.lookup(find(view, name, held)?, b"x")?.node),
    }
}

fn read(view: &View, node: NodeId) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 64];
    let length = view.read(node, 0, &mut buffer, caller())?;
    buffer.truncate(length);
    Ok(buffer)
}

fn write(view: &View, node: NodeId) -> Result<Vec<u8>, Errno> {
    view.write(node, 0, b"written", false).map(|_| Vec::new())
}

fn set(view: &View, node: NodeId, change: SetAttributes) -> Result<Vec<u8>, Errno> {
    view.set_attributes(node, change, caller())
        .map(|_| Vec::new())
}

fn rename(view: &View, from: &str, to: &str) -> Result<Vec<u8>, Errno> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    nothing(view.rename(NodeId::ROOT, from, NodeId::ROOT, to, RenameMode::Replace))
}

fn nothing(done: Result<(), Errno>) -> Result<Vec<u8>, Errno> {
    done.map(|()| Vec::new())
}

/// What programs get for names and objects that are not what they were.
const CLEAN: [Errno; 8] = [
    Errno::STALE,
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::INVAL,
    Errno::NOTEMPTY,
    Errno::PERM,
];

#[test]
fn a_resolved_name_never_leads_to_another_object() {
    let mut wrong = Vec::new();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for name in NAMES {
            for how in HOWS {
                for (outside, act) in OUTSIDE {
                    let is_nothing = name == "a" && matches!(outside, "remove" | "move away");
                    // A listing does not resolve what it does not list.
                    if is_nothing || (name == "a" && how == How::List) {
                        continue;
                    }
                    wrong.extend(check(isolation, name, how, (outside, act)));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn check(
    isolation: Isolation,
    name: &str,
    how: How,
    (outside, act): (&str, fn(&Path)),
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (then, program) in THEN {
        let scratch = Scratch::new();
        create(&scratch.0);
        make_tree(&scratch.0);
        let store = open(&scratch.0);
        let options = BeginOptions {
            isolation,
            ..options()
        };
        let view = store.begin(options).expect("it begins");
        let held = resolve(&view, name, how);
        act(&scratch.0.join(name));
        let before = tree_of_base(&scratch.0);
        let done = program(&view, name, &held);
        let committed = store.commit(&view);
        let mut fail = |what: &str| {
            wrong.push(format!(
                "{isolation:?} {name} {how:?}, {outside}, {then}: {what}: {done:?} {committed:?}"
            ));
        };
        match &done {
            Ok(read)
                if read
                    .windows(6)
                    .any(|part| part == b"theirs" || part == b"victim") =>
            {
                fail("shows another object");
            }
            Err(errno) if !CLEAN.contains(errno) => fail("a strange error"),
            _ => {}
        }
        match &committed {
            Ok(_) | Err(CommitError::Conflict(_)) => {}
            Err(_) => fail("neither committed nor a conflict"),
        }
        // What was only listed, and is gone, is simply gone.
        let is_gone = how == How::List && matches!(outside, "remove" | "move away");
        if !is_gone && tree_of_base(&scratch.0) != before {
            fail("the commit has changed the base");
        }
        let is_change = !matches!(then, "read" | "read inside" | "read link" | "list");
        if is_change && !is_gone && done.is_ok() && committed.is_ok() {
            fail("no conflict");
        }
    }
    wrong
}
