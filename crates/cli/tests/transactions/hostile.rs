//! Names, labels, link targets, contents and messages that would control the
//! terminal they are printed on.

use crate::store::{ATOMDIR, Store};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Sets a terminal's title, clears it, forges a line and sets a colour, and is not UTF-8.
const EVIL: &[u8] = b"\x1b]0;title\x07\x1b[2J\nerror: forged\r\x9b\xc2\x9b31m\x7f\xff";

fn evil() -> OsString {
    OsString::from_vec([b"evil", EVIL].concat())
}

fn atomdir<A: AsRef<OsStr>>(store: &Store, arguments: &[A]) -> Output {
    let mut command = Command::new(ATOMDIR);
    command.args(arguments).current_dir(&store.path);
    command.stdin(Stdio::null()).env_remove("ATOMDIR_TX");
    command.output().expect("atomdir starts")
}

fn words(words: &[&str]) -> Vec<OsString> {
    let word = |word: &&str| match *word {
        "EVIL" => evil(),
        "EVIL-TEXT" => "evil\u{1b}[31m\nerror: forged\r".into(),
        word => word.into(),
    };
    words.iter().map(word).collect()
}

/// The output is UTF-8 and has neither control characters nor the forged line.
#[track_caller]
fn assert_harmless(what: &[OsString], bytes: &[u8]) {
    let text = std::str::from_utf8(bytes);
    let text = text.unwrap_or_else(|_| panic!("{what:?}: {}", bytes.escape_ascii()));
    let odd = |character: char| character.is_control() && character != '\n';
    assert!(!text.contains(odd), "{what:?}: {text:?}");
    assert!(!text.contains("\nerror: forged"), "{what:?}: {text:?}");
}

/// A store with a hostile name, and the id of an open transaction that has changed files
/// with hostile names.
fn hostile_store(test: &str) -> (Store, String) {
    let store = Store::new(&format!("hostile\x1b[31m\n\"{test}"));
    fs::write(store.path.join(evil()), "old\n").expect("written");
    let first = atomdir(
        &store,
        &words(&["run", "-m", "EVIL", "--", "touch", "EVIL"]),
    );
    assert!(first.status.success(), "{first:?}");
    let begun = store.json(&["begin", "-m", "a \u{1b}[31mlabel"]);
    let id = begun["transaction"].to_string();
    let view = PathBuf::from(begun["view"].as_str().expect("UTF-8"));
    let contents = [b"new ", EVIL, b"\n"].concat();
    fs::write(view.join(evil()), contents).expect("written");
    symlink(evil(), view.join("link")).expect("linked");
    fs::write(view.join("binary\x1b"), "\0").expect("written");
    let locked = atomdir(&store, &words(&["lock", &id, "EVIL"]));
    assert!(locked.status.success(), "{locked:?}");
    let saved = atomdir(&store, &words(&["savepoint", "EVIL-TEXT", &id]));
    assert!(saved.status.success(), "{saved:?}");
    (store, id)
}

#[test]
fn nothing_printed_as_text_controls_a_terminal() {
    let (store, id) = hostile_store("text");
    let id = &*id;
    let run = ["run", "--view", "exact"];
    let others = "echo >> \"$0\"";
    for arguments in [
        &["list"][..],
        &["status"],
        &["status", id],
        &["-v", "diff", id, "--name-only"],
        &["diff", id, "--name-status"],
        &["diff", id, "--stat"],
        &["diff", id, "--", "../EVIL"],
        &["diff", "EVIL"],
        &["init"],
        &["init", "EVIL"],
        &["config"],
        &["config", "EVIL-TEXT"],
        &["config", "allow", "EVIL-TEXT"],
        &["run", "--confine", "--write", "EVIL2", "--", "true"],
        &["run", "-v", "--sealed", "--", "touch", "EVIL"],
        &["init", "--control", "EVIL", "nothing"],
        &["log"],
        &["show", "1"],
        &["show", "99"],
        &["begin"],
        &["begin", "--in", "EVIL"],
        &[run[0], "--dry-run", "--", "touch", "EVIL2", "EVIL"],
        &[run[0], "--", "EVIL"],
        &[run[0], "-v", "--", "false", "EVIL"],
        // The open transaction has locked the file; the conflict names file and label.
        &[
            run[0], run[1], run[2], "-v", "--", "sh", "-c", others, "EVIL",
        ],
        &["exec", id, "--", "EVIL"],
        &["exec", "EVIL"],
        &["lock", "--no-wait", id, "../EVIL"],
        &["unlock", id, "EVIL"],
        &["savepoint", "EVIL-TEXT", id],
        &["rollback", "EVIL-TEXT", id],
        &["rollback", "EVIL", id],
        &["rollback", "no such \u{1b}", id],
        &["-C", "EVIL", "status"],
        &["-C", "/", "status"],
        &["check"],
        &["recover", "--dry-run"],
        &["service", "status"],
        &["sync"],
        &["man", "EVIL"],
        &["EVIL"],
        &["commit", "EVIL"],
        &["commit", id],
        &["abort", "EVIL"],
        &["abort", "--all"],
        &["service", "stop", "--abort"],
        &["check"],
        &["recover", "--dry-run"],
        &["recover"],
        &["service", "start"],
    ] {
        let arguments = words(arguments);
        let output = atomdir(&store, &arguments);
        assert_harmless(&arguments, &output.stdout);
        assert_harmless(&arguments, &output.stderr);
        assert!(
            !output.stdout.is_empty() || !output.stderr.is_empty() || output.status.success(),
            "{arguments:?} fails without a message"
        );
    }
}

#[test]
fn contents_are_escaped_on_a_terminal_and_exact_in_a_pipe() {
    let (store, id) = hostile_store("terminal");
    let patch = atomdir(&store, &["diff", &id]).stdout;
    let line = [
        b"+new ".as_slice(),
        &EVIL[..EVIL.iter().position(|b| *b == b'\n').unwrap()],
    ];
    let line = line.concat();
    assert!(
        patch.windows(line.len()).any(|window| window == line),
        "{}",
        patch.escape_ascii()
    );
    // The patch quotes names even in a pipe.
    let heading = patch.split(|byte| *byte == b'\n').next().unwrap();
    assert_harmless(&words(&["diff"]), heading);
    for arguments in [
        format!("diff {id}"),
        format!("diff {id} --stat"),
        "list".into(),
    ] {
        let outcome = store.shell(&format!(
            "NO_COLOR=1 ATOMDIR_PAGER=cat script -qec \"$ATOMDIR {arguments}\" /dev/null < /dev/null"
        ));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let odd = |character: char| character.is_control() && !"\r\n\t".contains(character);
        assert!(!outcome.out.contains(odd), "{arguments}: {:?}", outcome.out);
        assert!(outcome.out.contains("\\033]0;title\\a") || outcome.out.contains("\\033[31m"));
    }
}

#[test]
fn output_for_programs_is_exact() {
    let (store, id) = hostile_store("programs");
    let names = atomdir(&store, &["diff", &id, "--name-only", "-z"]).stdout;
    let names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    assert!(names.contains(&evil().as_bytes()), "{names:?}");
    let list = store.json(&["list"]);
    assert_eq!(list["transactions"][0]["label"], "a \u{1b}[31mlabel");
    let changes = store.json(&["diff", &id, "--name-only"]);
    let hexadecimal: String = evil()
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let paths = changes["changes"].as_array().unwrap();
    assert!(
        paths
            .iter()
            .any(|change| change["path"]["bytes"] == hexadecimal.as_str()),
        "{changes}"
    );
}
