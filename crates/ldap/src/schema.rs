//! The attribute types and object classes. They are read from slapd's own schema files, so that
//! this program and slapd agree on which names and values are equal, and on what an entry may hold.

use std::collections::{HashMap, HashSet};

/// The definitions that are built into slapd.
const BUILT_IN: &str = include_str!("built-in.schema");

#[derive(Default)]
pub struct Schema {
    attributes: HashMap<String, Attribute>,
    classes: HashMap<String, Class>,
}

#[derive(Clone, Default)]
struct Attribute {
    name: String,
    above: Option<String>,
    equality: Option<String>,
    is_single: bool,
    is_operational: bool,
}

#[derive(Clone, Default)]
struct Class {
    name: String,
    above: Vec<String>,
    kind: ClassKind,
    must: Vec<String>,
    may: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ClassKind {
    Abstract,
    Auxiliary,
    #[default]
    Structural,
}

/// Why the schema does not allow an entry.
pub enum Violation {
    /// An object class or attribute is not defined.
    Undefined(String),
    /// The object classes do not fit together, or an attribute is missing or not allowed.
    Class(String),
    /// A single-valued attribute has several values.
    Single(String),
}

impl Schema {
    pub fn new() -> Schema {
        let mut schema = Schema::default();
        schema.add(BUILT_IN);
        schema
    }

    /// Adds the definitions of a schema file, which is in the format of slapd.conf.
    pub fn add(&mut self, text: &str) {
        let mut statements: Vec<String> = Vec::new();
        for line in text.lines() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            match (line.starts_with([' ', '\t']), statements.last_mut()) {
                (true, Some(last)) => {
                    last.push(' ');
                    last.push_str(line.trim());
                }
                _ => statements.push(line.trim().to_owned()),
            }
        }
        for statement in statements {
            let (kind, definition) = statement
                .split_once([' ', '\t'])
                .unwrap_or((&statement, ""));
            let words = words(definition);
            if kind.eq_ignore_ascii_case("attributetype") {
                self.add_attribute(&words);
            } else if kind.eq_ignore_ascii_case("objectclass") {
                self.add_class(&words);
            }
        }
    }

    fn add_attribute(&mut self, words: &[String]) {
        let names = values_of(words, "NAME");
        let Some(name) = names.first() else {
            return;
        };
        let attribute = Attribute {
            name: name.clone(),
            above: values_of(words, "SUP").into_iter().next(),
            equality: values_of(words, "EQUALITY").into_iter().next(),
            is_single: words.iter().any(|word| word == "SINGLE-VALUE"),
            is_operational: words.iter().any(|word| word == "USAGE"),
        };
        for name in names.iter().chain(words.get(1)) {
            self.attributes
                .insert(name.to_ascii_lowercase(), attribute.clone());
        }
    }

    fn add_class(&mut self, words: &[String]) {
        let names = values_of(words, "NAME");
        let Some(name) = names.first() else {
            return;
        };
        let kind = match () {
            () if words.iter().any(|word| word == "ABSTRACT") => ClassKind::Abstract,
            () if words.iter().any(|word| word == "AUXILIARY") => ClassKind::Auxiliary,
            () => ClassKind::Structural,
        };
        let class = Class {
            name: name.clone(),
            above: values_of(words, "SUP"),
            kind,
            must: values_of(words, "MUST"),
            may: values_of(words, "MAY"),
        };
        for name in names.iter().chain(words.get(1)) {
            self.classes
                .insert(name.to_ascii_lowercase(), class.clone());
        }
    }

    /// The attribute type. Ignores options such as `;lang-en`.
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        let name = name.split(';').next().unwrap_or(name);
        self.attributes.get(&name.to_ascii_lowercase())
    }

    /// The first of an attribute's names.
    pub fn canonical<'a>(&'a self, name: &'a str) -> &'a str {
        self.attribute(name)
            .map_or(name, |attribute| attribute.name.as_str())
    }

    /// Whether an attribute is `other` or derived from it, as `cn` is from `name`.
    pub fn is_kind_of(&self, name: &str, other: &str) -> bool {
        let mut at = self.canonical(name);
        let other = self.canonical(other);
        loop {
            if at.eq_ignore_ascii_case(other) {
                return true;
            }
            match self
                .attribute(at)
                .and_then(|attribute| attribute.above.as_deref())
            {
                Some(above) => at = self.canonical(above),
                None => return false,
            }
        }
    }

    fn equality(&self, name: &str) -> Option<&str> {
        let mut attribute = self.attribute(name)?;
        while attribute.equality.is_none() {
            attribute = self.attribute(attribute.above.as_deref()?)?;
        }
        attribute.equality.as_deref()
    }

    /// The value in a normal form: equal values have equal bytes.
    pub fn normalized(&self, name: &str, value: &[u8]) -> Vec<u8> {
        let text = || String::from_utf8_lossy(value);
        match self.equality(name) {
            Some("caseIgnoreMatch" | "caseIgnoreIA5Match" | "caseIgnoreListMatch") => {
                single_spaces(&text().to_lowercase()).into_bytes()
            }
            Some("caseExactMatch" | "caseExactIA5Match") => single_spaces(&text()).into_bytes(),
            Some("telephoneNumberMatch" | "numericStringMatch") => {
                let digits = text()
                    .chars()
                    .filter(|one| !matches!(one, ' ' | '-'))
                    .collect::<String>();
                digits.to_lowercase().into_bytes()
            }
            Some("objectIdentifierMatch") => {
                let text = text().into_owned();
                let class = self.classes.get(&text.to_ascii_lowercase());
                let name = class.map_or(text.as_str(), |class| class.name.as_str());
                name.to_ascii_lowercase().into_bytes()
            }
            Some("distinguishedNameMatch" | "uniqueMemberMatch") => {
                let name = crate::name::Name::parse(&text());
                name.map_or_else(|| value.to_vec(), |name| name.normalized(self).into_bytes())
            }
            Some("UUIDMatch" | "booleanMatch") => text().to_lowercase().into_bytes(),
            _ => value.to_vec(),
        }
    }

    pub fn compare(&self, name: &str, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        let number = |value: &[u8]| std::str::from_utf8(value).ok()?.trim().parse::<i128>().ok();
        if self.equality(name) == Some("integerMatch")
            && let (Some(left), Some(right)) = (number(left), number(right))
        {
            return left.cmp(&right);
        }
        self.normalized(name, left)
            .cmp(&self.normalized(name, right))
    }

    pub fn has_equality(&self, name: &str) -> bool {
        self.equality(name).is_some()
    }

    /// Whether an object class is `other` or derived from it.
    pub fn is_class_of(&self, class: &str, other: &str) -> bool {
        let other = self.classes.get(&other.to_ascii_lowercase());
        other.is_some_and(|other| self.chain(class).contains(other.name.as_str()))
    }

    /// An object class and all classes from which it is derived.
    fn chain(&self, class: &str) -> HashSet<&str> {
        let mut found = HashSet::new();
        let mut open = vec![class];
        while let Some(name) = open.pop() {
            if let Some(class) = self.classes.get(&name.to_ascii_lowercase())
                && found.insert(class.name.as_str())
            {
                open.extend(class.above.iter().map(String::as_str));
            }
        }
        found
    }

    /// Checks an entry's classes and attributes. Returns its structural object class.
    pub fn check(&self, entry: &[crate::ldif::Line]) -> Result<String, Violation> {
        let of_entry = entry.iter().filter(|line| line.is("objectClass"));
        let of_entry: Vec<String> = of_entry
            .map(|line| String::from_utf8_lossy(&line.value).into_owned())
            .collect();
        if of_entry.is_empty() {
            return Err(Violation::Class("no objectClass attribute".to_owned()));
        }
        let mut all = HashSet::new();
        for name in &of_entry {
            if !self.classes.contains_key(&name.to_ascii_lowercase()) {
                return Err(Violation::Undefined(format!(
                    "objectClass: '{name}' is not defined"
                )));
            }
            all.extend(self.chain(name));
        }
        let classes: Vec<&Class> = all
            .iter()
            .filter_map(|name| self.classes.get(&name.to_ascii_lowercase()))
            .collect();
        let structural = self.structural(&classes)?;
        let has = |name: &str| entry.iter().any(|line| self.is_kind_of(&line.name, name));
        for class in &classes {
            if let Some(missing) = class.must.iter().find(|name| !has(name)) {
                return Err(Violation::Class(format!(
                    "object class '{}' requires attribute '{missing}'",
                    class.name
                )));
            }
        }
        let allows_all = all.contains("extensibleObject");
        let allowed: HashSet<&str> = classes
            .iter()
            .flat_map(|class| class.must.iter().chain(&class.may))
            .map(|name| self.canonical(name))
            .collect();
        let mut seen = HashSet::new();
        for line in entry {
            let Some(attribute) = self.attribute(&line.name) else {
                return Err(Violation::Undefined(format!(
                    "{}: attribute type undefined",
                    line.name
                )));
            };
            if !attribute.is_operational
                && !allows_all
                && !allowed.contains(attribute.name.as_str())
            {
                return Err(Violation::Class(format!(
                    "attribute '{}' not allowed",
                    attribute.name
                )));
            }
            if !seen.insert(line.name.to_ascii_lowercase()) && attribute.is_single {
                return Err(Violation::Single(format!(
                    "attribute '{}' cannot have multiple values",
                    attribute.name
                )));
            }
        }
        Ok(structural)
    }

    fn structural(&self, classes: &[&Class]) -> Result<String, Violation> {
        let all: Vec<&&Class> = classes
            .iter()
            .filter(|class| class.kind == ClassKind::Structural)
            .collect();
        let lowest = all.iter().find(|class| {
            let chain = self.chain(&class.name);
            all.iter().all(|other| chain.contains(other.name.as_str()))
        });
        match lowest {
            Some(class) => Ok(class.name.clone()),
            None if all.is_empty() => Err(Violation::Class(
                "no structural object class provided".to_owned(),
            )),
            None => Err(Violation::Class(
                "invalid structural object class chain".to_owned(),
            )),
        }
    }
}

/// Removes spaces at both ends, and makes several spaces one. A text of spaces alone becomes one space.
fn single_spaces(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    match (words.is_empty(), text.is_empty()) {
        (true, false) => " ".to_owned(),
        _ => words.join(" "),
    }
}

/// The words of a definition. A quoted text is one word, without its quotes.
fn words(definition: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = definition.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' => {
                let end = rest[1..].find('\'').map_or(rest.len(), |at| at + 1);
                words.push(rest[1..end].to_owned());
                (end + 1).min(rest.len())
            }
            '(' | ')' | '$' => {
                words.push(first.to_string());
                1
            }
            _ => {
                let end = rest
                    .find([' ', '\t', '(', ')', '$', '\''])
                    .unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                end
            }
        };
        rest = rest[end..].trim_start();
    }
    words
}

/// The value after a keyword, or the values in brackets after it.
fn values_of(words: &[String], keyword: &str) -> Vec<String> {
    let Some(at) = words.iter().position(|word| word == keyword) else {
        return Vec::new();
    };
    match words.get(at + 1) {
        Some(word) if word == "(" => {
            let inside = words[at + 2..].iter().take_while(|word| *word != ")");
            inside.filter(|word| *word != "$").cloned().collect()
        }
        Some(word) => vec![word.clone()],
        None => Vec::new(),
    }
}
