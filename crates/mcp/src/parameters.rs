//! What a tool takes, as a JSON schema, and checking what a client sent.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Text,
    Flag,
    Numbers,
    Texts,
}

pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub is_required: bool,
    /// Another parameter, with which this one has no meaning.
    pub not_with: Option<&'static str>,
    pub description: &'static str,
}

pub const fn required(name: &'static str, kind: Kind, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: true,
        not_with: None,
        description,
    }
}

pub const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: false,
        not_with: None,
        description,
    }
}

impl Parameter {
    pub const fn not_with(self, other: &'static str) -> Parameter {
        Parameter {
            not_with: Some(other),
            ..self
        }
    }
}

pub fn schema(parameters: &[Parameter]) -> JsonObject {
    let mut properties = JsonObject::new();
    for parameter in parameters {
        let mut property = match parameter.kind {
            Kind::Number => json!({"type": "integer", "minimum": 0}),
            Kind::Text => json!({"type": "string"}),
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Numbers => {
                json!({"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1})
            }
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        };
        property["description"] = json!(parameter.description);
        properties.insert(parameter.name.to_owned(), property);
    }
    let required: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.is_required)
        .map(|parameter| parameter.name)
        .collect();
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

/// What a client sent, as the tool's parameters allow it.
pub struct Given(JsonObject);

impl Given {
    /// The error says what the tool takes.
    pub fn check(parameters: &[Parameter], given: Option<JsonObject>) -> Result<Given, String> {
        let mut given = given.unwrap_or_default();
        // Some clients send null for what they leave out.
        given.retain(|_, value| !value.is_null());
        for (name, value) in &given {
            let known = parameters.iter().find(|parameter| parameter.name == name);
            let Some(known) = known else {
                let names: Vec<&str> = parameters.iter().map(|known| known.name).collect();
                return Err(format!(
                    "there is no parameter '{name}'; the parameters are: {}",
                    names.join(", ")
                ));
            };
            if !fits(known.kind, value) {
                return Err(format!("'{name}' must be {}", wanted(known.kind)));
            }
        }
        for parameter in parameters {
            if let Some(other) = parameter.not_with
                && given.contains_key(parameter.name)
                && given.contains_key(other)
            {
                return Err(format!(
                    "'{}' has no meaning together with '{other}'; leave one of them out",
                    parameter.name
                ));
            }
        }
        let mut required = parameters.iter().filter(|parameter| parameter.is_required);
        match required.find(|parameter| !given.contains_key(parameter.name)) {
            Some(missing) => Err(format!(
                "'{}' is missing: {}",
                missing.name, missing.description
            )),
            None => Ok(Given(given)),
        }
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool) == Some(true)
    }

    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.list(name).filter_map(Value::as_u64).collect()
    }

    pub fn texts(&self, name: &str) -> Vec<&str> {
        self.list(name).filter_map(Value::as_str).collect()
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.0
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    }
}

fn fits(kind: Kind, value: &Value) -> bool {
    // No argument of a program has a zero byte.
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.contains('\0'));
    let is_list = |fits: &dyn Fn(&Value) -> bool| {
        let list = value.as_array();
        list.is_some_and(|list| !list.is_empty() && list.iter().all(fits))
    };
    match kind {
        Kind::Number => value.is_u64(),
        Kind::Text => is_text(value),
        Kind::Flag => value.is_boolean(),
        Kind::Numbers => is_list(&Value::is_u64),
        Kind::Texts => is_list(&is_text),
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "a whole number, at least 0",
        Kind::Text => "text without zero bytes",
        Kind::Flag => "true or false",
        Kind::Numbers => "a list of whole numbers",
        Kind::Texts => "a list of texts without zero bytes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: &[Parameter] = &[
        required("transaction", Kind::Number, "which one"),
        optional("paths", Kind::Texts, "only these"),
        optional("all", Kind::Flag, "everything").not_with("paths"),
    ];

    fn check(value: Value) -> Result<Given, String> {
        Given::check(PARAMETERS, value.as_object().cloned())
    }

    #[test]
    fn schema_names_what_is_required_and_refuses_the_rest() {
        let schema = Value::Object(schema(PARAMETERS));
        assert_eq!(schema["required"], json!(["transaction"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["paths"]["type"], json!("array"));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_wanted() {
        let wrong = [
            (json!({}), "'transaction' is missing"),
            (json!({"transaction": "7"}), "must be a whole number"),
            (
                json!({"transaction": 7, "path": ["a"]}),
                "the parameters are: transaction, paths, all",
            ),
            (
                json!({"transaction": 7, "paths": ["a"], "all": true}),
                "leave one of them out",
            ),
            (json!({"transaction": 7, "paths": []}), "must be a list"),
            (json!({"transaction": 7, "paths": ["a\0b"]}), "zero bytes"),
        ];
        for (value, message) in wrong {
            let error = check(value).err().expect("it must be refused");
            assert!(error.contains(message), "{error}");
        }
        let given = check(json!({"transaction": 7, "paths": null})).expect("null is nothing");
        assert_eq!(given.number("transaction"), Some(7));
        assert!(given.texts("paths").is_empty());
    }
}
