//! Search filters (RFC 4515), as slapd sends them: values are normalized, and a `?` marks an item
//! that slapd could not interpret.

use crate::ldif::Line;
use crate::name::hexadecimal_pair;
use crate::schema::Schema;
use std::cmp::Ordering;

/// A filter nested deeper than this is refused, so that the parser cannot overflow the stack.
const DEPTH_MAX: usize = 100;

#[derive(Debug, PartialEq, Eq)]
pub enum Filter {
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Box<Filter>),
    Present(String),
    Equal(String, Vec<u8>),
    AtLeast(String, Vec<u8>),
    AtMost(String, Vec<u8>),
    /// The parts between the stars. An empty first or last part means that the value may begin or
    /// end with anything.
    Substrings(String, Vec<Vec<u8>>),
    /// LDAP's "undefined", which is neither true nor false.
    Undefined,
}

impl Filter {
    pub fn parse(text: &str) -> Option<Filter> {
        let (filter, rest) = parse(text.trim(), 0)?;
        rest.is_empty().then_some(filter)
    }

    /// Whether the entry matches; `None` for LDAP's "undefined".
    pub fn matches(&self, schema: &Schema, entry: &[Line]) -> Option<bool> {
        match self {
            Filter::And(all) => {
                let mut is_true = Some(true);
                for one in all {
                    match one.matches(schema, entry) {
                        Some(false) => return Some(false),
                        None => is_true = None,
                        Some(true) => {}
                    }
                }
                is_true
            }
            Filter::Or(all) => {
                let mut is_true = Some(false);
                for one in all {
                    match one.matches(schema, entry) {
                        Some(true) => return Some(true),
                        None => is_true = None,
                        Some(false) => {}
                    }
                }
                is_true
            }
            Filter::Not(one) => one.matches(schema, entry).map(|is_true| !is_true),
            Filter::Present(name) => Some(of(schema, entry, name).next().is_some()),
            Filter::Equal(name, wanted) => {
                if !schema.has_equality(name) {
                    return None;
                }
                let class = String::from_utf8_lossy(wanted);
                let is_equal = |line: &Line| match line.is("objectClass") {
                    true => schema.is_class_of(&String::from_utf8_lossy(&line.value), &class),
                    false => {
                        schema.normalized(&line.name, &line.value)
                            == schema.normalized(&line.name, wanted)
                    }
                };
                Some(of(schema, entry, name).any(is_equal))
            }
            Filter::AtLeast(name, bound) => {
                Some(ordered(schema, entry, name, bound, Ordering::is_ge))
            }
            Filter::AtMost(name, bound) => {
                Some(ordered(schema, entry, name, bound, Ordering::is_le))
            }
            Filter::Substrings(name, parts) => Some(of(schema, entry, name).any(|line| {
                let parts: Vec<Vec<u8>> =
                    parts.iter().map(|part| part.to_ascii_lowercase()).collect();
                let value = schema.normalized(&line.name, &line.value);
                has_substrings(&value.to_ascii_lowercase(), &parts)
            })),
            Filter::Undefined => None,
        }
    }
}

fn of<'a>(schema: &'a Schema, entry: &'a [Line], name: &'a str) -> impl Iterator<Item = &'a Line> {
    entry
        .iter()
        .filter(move |line| schema.is_kind_of(&line.name, name))
}

fn ordered(
    schema: &Schema,
    entry: &[Line],
    name: &str,
    bound: &[u8],
    is_met: fn(Ordering) -> bool,
) -> bool {
    of(schema, entry, name).any(|line| is_met(schema.compare(&line.name, &line.value, bound)))
}

fn has_substrings(value: &[u8], parts: &[Vec<u8>]) -> bool {
    let [first, between @ .., last] = parts else {
        return false;
    };
    let Some(mut rest) = value.strip_prefix(first.as_slice()) else {
        return false;
    };
    for part in between {
        let mut windows = rest.windows(part.len().max(1));
        match windows.position(|window| window == part.as_slice()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Parses one filter in brackets. Returns what follows it.
fn parse(text: &str, depth: usize) -> Option<(Filter, &str)> {
    if depth > DEPTH_MAX {
        return None;
    }
    let inside = text.strip_prefix('(')?;
    match inside.chars().next()? {
        kind @ ('&' | '|') => {
            let mut filters = Vec::new();
            let mut rest = &inside[1..];
            while rest.starts_with('(') {
                let (filter, after) = parse(rest, depth + 1)?;
                filters.push(filter);
                rest = after;
            }
            let rest = rest.strip_prefix(')')?;
            Some((
                if kind == '&' {
                    Filter::And(filters)
                } else {
                    Filter::Or(filters)
                },
                rest,
            ))
        }
        '!' => {
            let (filter, rest) = parse(&inside[1..], depth + 1)?;
            Some((Filter::Not(Box::new(filter)), rest.strip_prefix(')')?))
        }
        _ => {
            // Brackets in values are escaped, so the first one ends the item.
            let end = inside.find(')')?;
            Some((parse_item(&inside[..end])?, &inside[end + 1..]))
        }
    }
}

fn parse_item(item: &str) -> Option<Filter> {
    if item.starts_with('?') {
        // `?=undefined`, `?=true`, `?=false`, and comparisons that the schema does not define.
        return Some(match item {
            "?=true" => Filter::And(Vec::new()),
            "?=false" => Filter::Or(Vec::new()),
            _ => Filter::Undefined,
        });
    }
    let (left, value) = item.split_once('=')?;
    match left.strip_suffix(['>', '<', '~', ':']) {
        Some(name) if left.ends_with('>') => {
            Some(Filter::AtLeast(name.to_owned(), unescaped(value)?))
        }
        Some(name) if left.ends_with('<') => {
            Some(Filter::AtMost(name.to_owned(), unescaped(value)?))
        }
        Some(name) if left.ends_with('~') => {
            Some(Filter::Equal(name.to_owned(), unescaped(value)?))
        }
        Some(_) => Some(Filter::Undefined),
        None if value == "*" => Some(Filter::Present(left.to_owned())),
        None if value.contains('*') => {
            let parts: Option<Vec<Vec<u8>>> = value.split('*').map(unescaped).collect();
            Some(Filter::Substrings(left.to_owned(), parts?))
        }
        None => Some(Filter::Equal(left.to_owned(), unescaped(value)?)),
    }
}

fn unescaped(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [byte, more @ ..] = rest {
        rest = more;
        if *byte == b'\\' {
            bytes.push(hexadecimal_pair(rest)?);
            rest = &rest[2..];
        } else {
            bytes.push(*byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_rfc_4511_says() {
        let mut schema = Schema::new();
        schema.add("attributetype ( 2.5.4.4 NAME ( 'sn' 'surname' ) SUP name )");
        let entry = [
            Line::new("objectClass", "referral"),
            Line::new("cn", "Ann  Bee*"),
            Line::new("sn", "Bee"),
            Line::new("uidNumber", "10"),
        ];
        let cases = [
            ("(cn=ann bee\\2a)", Some(true)),
            ("(name=bee)", Some(true)),
            ("(commonName=bee)", Some(false)),
            ("(objectClass=top)", Some(true)),
            ("(objectClass=alias)", Some(false)),
            ("(cn=a*n*e\\2A)", Some(true)),
            ("(cn=*n*n*n*)", Some(false)),
            ("(uidNumber>=9)", Some(true)),
            ("(uidNumber<=9)", Some(false)),
            ("(mail=*)", Some(false)),
            ("(&(sn=*)(!(cn=x)))", Some(true)),
            ("(|(cn=x)(?mail>=a))", None),
            ("(!(?=undefined))", None),
            ("(&(cn=x)(?=undefined))", Some(false)),
            ("(&)", Some(true)),
        ];
        for (text, expected) in cases {
            let filter = Filter::parse(text).expect(text);
            assert_eq!(filter.matches(&schema, &entry), expected, "{text}");
        }
        for text in ["", "(", "(cn=a", "(cn=a)b", "(cn=\\2)", &"(!".repeat(200)] {
            assert_eq!(Filter::parse(text), None, "{text}");
        }
    }
}
