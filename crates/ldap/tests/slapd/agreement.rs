//! Results, searches and files are the same as with back-ldif.

use crate::support::{Backend, SUFFIX, Slapd, is_possible};
use atomdir_testing::{Random, pick};
use std::path::Path;

const FIRST: &str = "dn: dc=example,dc=org
changetype: add
objectClass: dcObject
objectClass: organization
o: Example
dc: example

";

/// The result codes in what ldapmodify prints: a line for each operation that failed.
fn codes(text: &str) -> Vec<String> {
    let failed = text.lines().filter(|line| line.starts_with("ldap_"));
    failed.map(str::to_owned).collect()
}

/// The names of all entries' files.
fn names(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".atomdir") {
                continue;
            }
            found.push(
                path.strip_prefix(directory)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    // Leave out directories: back-ldif does not remove all that have become empty.
    found.retain(|name| name.ends_with(".ldif"));
    found.sort_unstable();
    found
}

fn compare(changes: &str, searches: &[&[&str]]) {
    let [left, right] =
        [Backend::Ldif, Backend::Atomdir].map(|backend| Slapd::start("agreement", backend));
    let [left_outcome, right_outcome] = [&left, &right].map(|slapd| slapd.change(changes));
    let [left_codes, right_codes] =
        [&left_outcome, &right_outcome].map(|outcome| codes(&outcome.error_text()));
    assert_alike("results", &left_codes, &right_codes);
    for arguments in searches {
        let [left, right] = [&left, &right].map(|slapd| slapd.search(arguments));
        assert_eq!(left.0, right.0, "{arguments:?}");
        assert_alike(&format!("{arguments:?}"), &left.1, &right.1);
    }
    assert_alike("files", &names(&left.database()), &names(&right.database()));
    assert_alike("slapcat", &left.slapcat(), &right.slapcat());
}

fn assert_alike(what: &str, left: &[String], right: &[String]) {
    let length = left.len().max(right.len());
    let differing = (0..length).find(|at| left.get(*at) != right.get(*at));
    if let Some(at) = differing {
        panic!(
            "{what}, number {at} of back-ldif: {:#?}\nof ours: {:#?}",
            left.get(at),
            right.get(at)
        );
    }
}

const SEARCHES: [&[&str]; 14] = [
    &["*", "+"],
    &["-s", "base"],
    &["-s", "one", "ou=*"],
    &["-s", "children", "(objectClass=person)", "cn"],
    &["(cn=ann*)"],
    &["(|(name=BO  B)(sn=x))", "cn", "sn"],
    &["(!(sn=x))"],
    &["(&(objectClass=top)(!(telephoneNumber=1 2-3)))"],
    &["(seeAlso=CN=ann, OU=a,dc=example,dc=org)"],
    &["(description=*)", "description"],
    &["-z", "2", "(objectClass=*)", "1.1"],
    &["(undefined=1)"],
    &["(sn>=a)"],
    &["-s", "base", "-b", "cn=nobody,ou=a,dc=example,dc=org"],
];

#[test]
fn random_operations_agree_with_back_ldif() {
    if !is_possible("random_operations_agree_with_back_ldif") {
        return;
    }
    let mut random = Random::for_test("random_operations_agree_with_back_ldif");
    let mut changes = FIRST.to_owned();
    for _ in 0..pick(400, 4000) {
        changes.push_str(&change(&mut random));
    }
    compare(&changes, &SEARCHES);
}

fn name(random: &mut Random) -> String {
    let parts = ["ou=a", "ou=B", "ou=c", "cn=ann", "cn=Bo  b", "cn=cy+sn=x"];
    let mut name = (*random.choose(&parts)).to_owned();
    for _ in 0..random.below(3) {
        name.push(',');
        name.push_str(random.choose::<&str>(&parts[..4]));
    }
    format!("{name},{SUFFIX}")
}

fn value(random: &mut Random) -> (&'static str, &'static str) {
    *random.choose(&[
        ("description", "one"),
        ("description", "ONE "),
        ("description", "two"),
        ("sn", "x"),
        ("sn", "y"),
        ("cn", "ann"),
        ("cn", "bo B"),
        ("seeAlso", "cn=Ann,ou=a,dc=example,dc=org"),
        ("telephoneNumber", "123"),
        ("userPassword", "p"),
        ("mail", "a@b"),
        ("undefined", "1"),
    ])
}

fn change(random: &mut Random) -> String {
    let name = name(random);
    match random.below(8) {
        0..3 => {
            let kind = if name.starts_with("ou") {
                "organizationalUnit"
            } else {
                "person"
            };
            let kind = if random.chance(20) { "referral" } else { kind };
            let mut text = format!("dn: {name}\nchangetype: add\nobjectClass: {kind}\n");
            for part in name.split(',').next().unwrap_or_default().split('+') {
                let (attribute, value) = part.split_once('=').unwrap();
                text.push_str(&format!("{attribute}: {value}\n"));
            }
            if kind == "person" && !name.contains("sn=") && !random.chance(10) {
                text.push_str("sn: x\n");
            }
            if random.chance(4) {
                text.push_str("description: one\n");
            }
            text + "\n"
        }
        3..6 => {
            let mut text = format!("dn: {name}\nchangetype: modify\n");
            for _ in 0..=random.below(2) {
                let (attribute, first) = value(random);
                let verb = random.choose(&["add", "delete", "replace"]);
                text.push_str(&format!("{verb}: {attribute}\n"));
                if *verb == "add" || !random.chance(3) {
                    text.push_str(&format!("{attribute}: {first}\n"));
                }
                text.push_str("-\n");
            }
            text + "\n"
        }
        6 => format!("dn: {name}\nchangetype: delete\n\n"),
        _ => {
            let new = random.choose(&["ou=a", "ou=C", "cn=ann", "cn=bo B", "cn=Dee"]);
            let old = random.below(2);
            let mut text =
                format!("dn: {name}\nchangetype: modrdn\nnewrdn: {new}\ndeleteoldrdn: {old}\n");
            if random.chance(2) {
                text.push_str(&format!("newsuperior: {}\n", self::name(random)));
            }
            text + "\n"
        }
    }
}

#[test]
fn names_with_special_characters_get_the_same_files() {
    if !is_possible("names_with_special_characters_get_the_same_files") {
        return;
    }
    let mut changes = FIRST.to_owned();
    for byte in b' '..=b'~' {
        for escaped in [
            format!("a\\{byte:02X}b"),
            format!("\\{byte:02X}"),
            format!("x\\{byte:02X}"),
        ] {
            let value = escaped.replace(&format!("\\{byte:02X}"), &char::from(byte).to_string());
            changes.push_str(&format!(
                "dn: cn={escaped},{SUFFIX}\nchangetype: add\nobjectClass: person\nsn: s\ncn:: {}\n\n",
                encoded(value.as_bytes())
            ));
        }
    }
    compare(&changes, &[&["*", "+"], &["(cn=*\\2a*)"], &["(cn=a\\28b)"]]);
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
