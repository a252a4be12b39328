//! JSON Schemas before they are compiled: what cannot be guaranteed is refused with its place, and a few things are written
//! in a way the engine understands.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Language, ecma, pattern, recursion};
use crate::{Error, Result};

/// Keywords of some draft that restrict instances in ways no grammar here can.
const REFUSED: [&str; 16] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    // Would change how everything else is compiled.
    "x-guidance",
];

/// Formats of strings that are enforced.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Days that exist: the engine's own formats have a 29th of February in every year, and a year 0.
const REAL_DATE: &str = concat!(
    "^(?:[0-9]{4}-(?:0[13-9]|1[0-2])|[0-9]{4}-02-(?:0[1-9]|1[0-9]|2[0-8])",
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
);
/// Which minutes have a 61st second, no grammar knows.
const NO_LEAP_SECOND: &str = "^[^:]*:[0-9]{2}:[0-5]";
const SOME_YEAR: &str = "^(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-";

/// Keywords that hold one schema.
pub(super) const ONE: [&str; 3] = ["additionalProperties", "additionalItems", "items"];
/// Keywords that hold a list of schemas.
pub(super) const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords that hold schemas by name.
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Schemas within schemas.
const DEEPEST: usize = 128;
/// Schemas in all, copies included.
const MOST_SCHEMAS: usize = 20_000;
/// The integer furthest from 0 that a 64-bit float tells from its neighbours.
const FURTHEST: f64 = 9_007_199_254_740_991.0;
/// What may stand behind a backslash in strings and keys. With `u` every character would have a second spelling, and a key
/// that is spelled differently would be another one to the grammar and the same one to whoever reads the JSON.
const ESCAPES: &str = "nrbtf\\\"";
/// Characters that have no other spelling are left out.
const WRITABLE: &str = "^[^\\x00-\\x07\\x0b\\x0e-\\x1f\\x7f]*$";
const UNWRITABLE: &str = "there is a control character that only \\u could write, which is not supported";
/// References to references.
const LONGEST_CHAIN: usize = 16;

/// A schema as the engine is given it.
pub(super) fn prepare(schema: &Value) -> Result<Value> {
    prepare_at(schema, "#")
}

/// The same for a schema that is part of something: `place` is where.
pub(super) fn prepare_at(schema: &Value, place: &str) -> Result<Value> {
    let mut walk = Walk { root: schema, place, schemas: 0, seen: Seen::default() };
    let mut prepared = walk.schema(schema, place, 0)?;
    let elsewhere = walk.follow(&mut prepared)?;
    if let Some(at) = recursion::endless(schema, &elsewhere) {
        let at = at.replacen('#', place, 1);
        return Err(refuse(&at, "the schema asks for itself without end: no instance would be finite"));
    }
    Ok(framed(prepared))
}

/// A schema with how its instances are written: as Python writes JSON, one space after commas and colons. That leaves models
/// no room for endless white space, and most of what stands between values is known beforehand.
pub(super) fn framed(schema: Value) -> Value {
    let style = json!({
        "whitespace_flexible": false,
        "item_separator": ", ",
        "key_separator": ": ",
        "json_allowed_escapes": ESCAPES,
    });
    let mut fields = match schema {
        Value::Object(fields) => fields,
        // Everything is allowed.
        _ => Map::new(),
    };
    fields.insert("x-guidance".to_owned(), style);
    Value::Object(fields)
}

fn refuse(place: &str, problem: &str) -> Error {
    Language::JsonSchema.error(place, problem)
}

struct Walk<'a> {
    root: &'a Value,
    /// Where the root stands.
    place: &'a str,
    schemas: usize,
    seen: Seen,
}

/// What was met on the way.
#[derive(Default)]
struct Seen {
    /// Pointers to schemas.
    schemas: BTreeSet<String>,
    /// Names that references may use instead of pointers.
    anchors: BTreeSet<String>,
    /// References and where they stand.
    references: Vec<(String, String)>,
    /// Where a part of the schema has a base of its own for the references in it.
    base: Option<String>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, place: &str, depth: usize) -> Result<Value> {
        self.schemas += 1;
        self.seen.schemas.insert(place[self.place.len()..].to_owned());
        if depth > DEEPEST || self.schemas > MOST_SCHEMAS {
            return Err(refuse(place, "the schema is too large"));
        }
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(false) if depth == 0 => {
                return Err(refuse(place, "nothing is an instance of `false`"));
            }
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Err(refuse(place, "a schema must be an object or a boolean")),
        };
        let mut prepared = Map::new();
        for (keyword, value) in fields {
            let at = format!("{place}/{}", escaped(keyword));
            if REFUSED.contains(&keyword.as_str()) {
                return Err(refuse(&at, "the keyword is not supported"));
            }
            let value = match keyword.as_str() {
                "uniqueItems" if value == &json!(false) => continue,
                "uniqueItems" => return Err(refuse(&at, "the keyword is not supported")),
                "format" if !self.format(fields, value, &at)? => continue,
                "pattern" => match value.as_str() {
                    Some(pattern) => Value::String(understood(pattern, &at)?),
                    None => value.clone(),
                },
                "enum" | "const" => {
                    check_writable(value, &at)?;
                    value.clone()
                }
                "minProperties" => {
                    check_fewest(fields, value, &at)?;
                    value.clone()
                }
                "$anchor" | "$dynamicAnchor" | "$id" | "id" => {
                    self.name(keyword, value, &at, depth);
                    value.clone()
                }
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                    within_reach(keyword, value, &at)?
                }
                "$ref" => self.reference(value, &at)?,
                name if ONE.contains(&name) && !value.is_array() => self.schema(value, &at, depth + 1)?,
                name if LISTS.contains(&name) || name == "items" => self.list(name, value, &at, depth)?,
                name if NAMED.contains(&name) => self.named(name, value, &at, depth)?,
                _ => value.clone(),
            };
            prepared.insert(keyword.clone(), value);
        }
        real_times(&mut prepared);
        writable(&mut prepared);
        Ok(Value::Object(prepared))
    }

    fn list(&mut self, keyword: &str, value: &Value, place: &str, depth: usize) -> Result<Value> {
        let Value::Array(list) = value else { return Err(refuse(place, "must be a list of schemas")) };
        let schema = |(i, schema): (usize, &Value)| {
            let at = format!("{place}/{i}");
            // Whether alternatives exclude each other is only seen where they stand.
            let target = if keyword == "oneOf" { self.target(schema) } else { None };
            self.schema(&target.unwrap_or_else(|| schema.clone()), &at, depth + 1)
        };
        list.iter().enumerate().map(schema).collect::<Result<Vec<_>>>().map(Value::Array)
    }

    fn named(&mut self, keyword: &str, value: &Value, place: &str, depth: usize) -> Result<Value> {
        let Value::Object(named) = value else { return Err(refuse(place, "must hold schemas by name")) };
        let mut prepared = Map::new();
        for (name, schema) in named {
            let at = format!("{place}/{}", escaped(name));
            let mut name = name.clone();
            if keyword == "patternProperties" {
                name = understood(&name, &at)?;
                if pattern::needs(&name, is_unwritable) {
                    return Err(refuse(&at, UNWRITABLE));
                }
                // Two that were written differently may come to the same.
                while prepared.contains_key(&name) {
                    name = format!("(?:{name})");
                }
            }
            prepared.insert(name, self.schema(schema, &at, depth + 1)?);
        }
        Ok(Value::Object(prepared))
    }

    /// What a schema that is a reference and nothing else refers to.
    fn target(&self, schema: &Value) -> Option<Value> {
        let mut schema = schema;
        for _ in 0..LONGEST_CHAIN {
            match schema.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("$ref"))
            {
                Some(reference) => schema = find(self.root, reference.as_str()?)?,
                None => return Some(schema.clone()),
            }
        }
        None
    }

    fn reference(&mut self, value: &Value, place: &str) -> Result<Value> {
        let Value::String(reference) = value else { return Err(refuse(place, "must be a string")) };
        if !reference.starts_with('#') {
            return Err(refuse(place, "only references within the schema are followed"));
        }
        let is_pointer = reference == "#" || reference.starts_with("#/");
        if is_pointer && find(self.root, reference).is_none() {
            return Err(refuse(place, &format!("there is nothing at {reference}")));
        }
        self.seen.references.push((reference.clone(), place.to_owned()));
        Ok(value.clone())
    }

    /// A name that references may use, or a new base for them.
    fn name(&mut self, keyword: &str, value: &Value, place: &str, depth: usize) {
        let Value::String(name) = value else { return };
        if keyword.ends_with("nchor") || name.starts_with('#') {
            self.seen.anchors.insert(name.trim_start_matches('#').to_owned());
        } else if depth > 0 {
            self.seen.base.get_or_insert_with(|| place.to_owned());
        }
    }

    /// Looks at what only references lead to, such as `#/components/schemas/a`, too: pointers to those.
    fn follow(&mut self, prepared: &mut Value) -> Result<Vec<String>> {
        let (mut elsewhere, mut names) = (Vec::new(), Vec::new());
        while let Some((reference, at)) = self.seen.references.pop() {
            if let Some(base) = &self.seen.base {
                return Err(refuse(base, "a base for references within the schema is not supported"));
            }
            let nothing = || refuse(&at, &format!("there is nothing at {reference}"));
            let pointer = percent_decoded(&reference[1..]).ok_or_else(nothing)?;
            if !pointer.is_empty() && !pointer.starts_with('/') {
                names.push((pointer, nothing()));
                continue;
            }
            if self.seen.schemas.contains(&pointer) {
                continue;
            }
            let inside = format!("{pointer}/");
            let holds_schemas = self.seen.schemas.range(inside.clone()..).next();
            let in_a_value = pointer.split('/').any(|step| step == "enum" || step == "const");
            if in_a_value || holds_schemas.is_some_and(|known| known.starts_with(&inside)) {
                return Err(refuse(&at, &format!("there is no schema at {reference}")));
            }
            let target = self.root.pointer(&pointer).ok_or_else(nothing)?;
            let checked = self.schema(target, &format!("{}{pointer}", self.place), 1)?;
            *prepared.pointer_mut(&pointer).ok_or_else(nothing)? = checked;
            elsewhere.push(pointer);
        }
        // By now everything was looked at.
        match names.into_iter().find(|(name, _)| !self.seen.anchors.contains(name)) {
            Some((_, unknown)) => Err(unknown),
            None => Ok(elsewhere),
        }
    }

    /// Whether a format says anything, given that it is known.
    fn format(&self, fields: &Map<String, Value>, value: &Value, place: &str) -> Result<bool> {
        let strings = match fields.get("type") {
            None => true,
            Some(Value::Array(types)) => types.contains(&json!("string")),
            Some(kind) => kind == "string",
        };
        let known = value.as_str().is_some_and(|name| FORMATS.contains(&name));
        match (strings, known) {
            (true, false) => Err(refuse(place, &format!("the format {value} is not supported"))),
            // Formats of numbers are remarks.
            (strings, _) => Ok(strings),
        }
    }
}

/// What a reference within a schema refers to.
pub(super) fn find<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = percent_decoded(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

/// A pattern in the engine's words.
fn understood(pattern: &str, place: &str) -> Result<String> {
    ecma::rewritten(pattern).map_err(|(at, problem)| {
        let problem = if at.is_empty() { problem } else { format!("{at}: {problem}") };
        refuse(place, &problem)
    })
}

/// Refuses values with characters that cannot be written.
fn check_writable(value: &Value, place: &str) -> Result<()> {
    match value {
        Value::String(text) if text.contains(is_unwritable) => Err(refuse(place, UNWRITABLE)),
        Value::Array(values) => values.iter().try_for_each(|value| check_writable(value, place)),
        Value::Object(fields) => fields.values().try_for_each(|value| check_writable(value, place)),
        _ => Ok(()),
    }
}

fn is_unwritable(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t' | '\x08' | '\x0c')
}

/// Keeps patterns from asking for characters that cannot be written.
fn writable(fields: &mut Map<String, Value>) {
    let asks = fields.get("pattern").and_then(Value::as_str);
    if asks.is_some_and(|pattern| pattern::needs(pattern, is_unwritable))
        && let Value::Array(all) = fields.entry("allOf").or_insert_with(|| json!([]))
    {
        all.push(json!({"pattern": WRITABLE}));
    }
}

/// Refuses to count keys that have no names: the same one could come twice.
fn check_fewest(fields: &Map<String, Value>, value: &Value, place: &str) -> Result<()> {
    let is_object = match fields.get("type") {
        None => true,
        Some(Value::Array(types)) => types.contains(&json!("object")),
        Some(kind) => kind == "object",
    };
    let required = fields.get("required").and_then(Value::as_array);
    let required: BTreeSet<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    if is_object && value.as_f64().is_some_and(|fewest| fewest > required.len() as f64 + 1.0) {
        let problem =
            "only one more than are required can be guaranteed: other keys could be the same one again";
        return Err(refuse(place, problem));
    }
    Ok(())
}

/// A bound that the engine, which has it as a 64-bit float, keeps exactly: one that lies further out is drawn in, so that fewer
/// instances are left and all of them are valid.
fn within_reach(keyword: &str, value: &Value, place: &str) -> Result<Value> {
    let Some(bound) = value.as_f64().filter(|bound| bound.abs() > FURTHEST) else { return Ok(value.clone()) };
    if (bound > 0.0) == keyword.ends_with("aximum") {
        return Ok(json!(FURTHEST.copysign(bound) as i64));
    }
    Err(refuse(place, "numbers so far from 0 are not supported"))
}

/// Holds dates and times to those that exist.
fn real_times(fields: &mut Map<String, Value>) {
    let patterns: &[&str] = match fields.get("format").and_then(Value::as_str) {
        Some("date") => &[REAL_DATE, SOME_YEAR],
        Some("date-time") => &[REAL_DATE, SOME_YEAR, NO_LEAP_SECOND],
        Some("time") => &[NO_LEAP_SECOND],
        _ => return,
    };
    if let Value::Array(all) = fields.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(patterns.iter().map(|pattern| json!({"pattern": pattern})));
    }
}

/// A name as part of a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether what a keyword holds says nothing of the instances itself, but may hold schemas that references lead to.
pub(super) fn holds_others(keyword: &str) -> bool {
    matches!(keyword, "$defs" | "definitions" | "components" | "$schema")
}

/// The schemas within a prepared schema and their places, the deepest first.
pub(super) fn places(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    collect(schema, "#", &mut found);
    found.sort_by_key(|(place, _)| std::cmp::Reverse(place.matches('/').count()));
    found
}

fn collect<'a>(schema: &'a Value, place: &str, found: &mut Vec<(String, &'a Value)>) {
    let Value::Object(fields) = schema else { return };
    for (keyword, value) in fields {
        let at = format!("{place}/{}", escaped(keyword));
        match value {
            Value::Array(list) if LISTS.contains(&keyword.as_str()) || keyword == "items" => {
                list.iter().enumerate().for_each(|(i, schema)| collect(schema, &format!("{at}/{i}"), found));
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                named
                    .iter()
                    .for_each(|(name, schema)| collect(schema, &format!("{at}/{}", escaped(name)), found));
            }
            _ if ONE.contains(&keyword.as_str()) => collect(value, &at, found),
            _ => {}
        }
    }
    found.push((place.to_owned(), schema));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &Value) -> String {
        prepare(schema).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_place() {
        let nested = json!({"properties": {"a/b": {"items": [{"anyOf": [{}, {"not": {}}]}]}}});
        assert_eq!(
            refused(&nested),
            "JSON Schema, #/properties/a~1b/items/0/anyOf/1/not: the keyword is not supported"
        );
        assert_eq!(
            refused(&json!({"$defs": {"x": {"format": "regex"}}})),
            "JSON Schema, #/$defs/x/format: the format \"regex\" is not supported"
        );
        assert_eq!(
            refused(&json!({"$ref": "#/$defs/none"})),
            "JSON Schema, #/$ref: there is nothing at #/$defs/none"
        );
        assert_eq!(
            refused(&json!({"$ref": "https://example.com/x"})),
            "JSON Schema, #/$ref: only references within the schema are followed"
        );
        assert_eq!(
            refused(&json!({"items": 3})),
            "JSON Schema, #/items: a schema must be an object or a boolean"
        );
        assert!(refused(&json!(false)).contains("nothing is an instance"));
    }

    #[test]
    fn what_references_lead_to_is_checked_wherever_it_stands() {
        let api = |schema: Value| json!({"$ref": "#/components/schemas/a~1b", "components": {"schemas": {"a/b": schema}}});
        let prepared = prepare(&api(json!({"format": "date"}))).unwrap();
        assert!(prepared.pointer("/components/schemas/a~1b/allOf").is_some());
        assert_eq!(
            refused(&api(json!({"items": {"not": {}}}))),
            "JSON Schema, #/components/schemas/a~1b/items/not: the keyword is not supported"
        );
        let further = json!({"$ref": "#/x", "x": {"items": {"$ref": "#/y/0"}}, "y": [{"uniqueItems": true}]});
        assert_eq!(refused(&further), "JSON Schema, #/y/0/uniqueItems: the keyword is not supported");
        let itself = json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/a~1b"}}, "required": ["a"]});
        assert_eq!(
            refused(&api(itself)),
            "JSON Schema, #/$ref: the schema asks for itself without end: no instance would be finite"
        );
        let holder = json!({"$ref": "#/$defs", "$defs": {"a": {"format": "date"}}});
        assert_eq!(refused(&holder), "JSON Schema, #/$ref: there is no schema at #/$defs");
        let value = json!({"anyOf": [{"$ref": "#/enum/0"}], "enum": [{"type": "string"}]});
        assert_eq!(refused(&value), "JSON Schema, #/anyOf/0/$ref: there is no schema at #/enum/0");
    }

    #[test]
    fn names_for_references_are_those_of_schemas_that_were_checked() {
        let named = json!({"$ref": "#day", "$defs": {"x": {"$anchor": "day", "format": "date"}}});
        assert!(prepare(&named).is_ok());
        let later =
            json!({"items": {"$ref": "#day"}, "properties": {"a": {"$ref": "#/x"}}, "x": {"$anchor": "day"}});
        assert!(prepare(&later).is_ok());
        let hidden = json!({"$ref": "#day", "contentSchema": {"$anchor": "day", "not": {}}});
        assert_eq!(refused(&hidden), "JSON Schema, #/$ref: there is nothing at #day");
        let based = json!({"items": {"$id": "https://example.com/x", "items": {"$ref": "#"}}});
        assert_eq!(
            refused(&based),
            "JSON Schema, #/items/$id: a base for references within the schema is not supported"
        );
        assert!(prepare(&json!({"$id": "https://example.com/x", "items": {"$ref": "#"}})).is_ok());
    }

    #[test]
    fn what_cannot_be_written_is_refused_or_left_out() {
        let problem = "there is a control character that only \\u could write, which is not supported";
        assert_eq!(
            refused(&json!({"items": {"enum": ["a", {"k": ["\u{1}"]}]}})),
            format!("JSON Schema, #/items/enum: {problem}")
        );
        assert!(refused(&json!({"const": "\u{7f}"})).ends_with(problem));
        assert!(refused(&json!({"patternProperties": {"^\\x01$": {}}})).ends_with(problem));
        let schema = json!({"enum": ["\n\t"], "pattern": "^[^a]\\n.\\s$", "patternProperties": {".": {}}});
        let prepared = prepare(&schema).unwrap();
        assert_eq!((&prepared["enum"], prepared.get("allOf")), (&schema["enum"], None));
        assert!(prepare(&json!({"pattern": "ab|\\x01"})).unwrap().get("allOf").is_some());
    }

    #[test]
    fn keys_without_names_are_not_counted() {
        let fewest = |n: u32| json!({"type": "object", "required": ["a", "a"], "minProperties": n});
        assert!(prepare(&fewest(2)).is_ok());
        assert_eq!(
            refused(&fewest(3)),
            "JSON Schema, #/minProperties: only one more than are required can be guaranteed: other keys could be \
             the same one again"
        );
        assert!(prepare(&json!({"type": "string", "minProperties": 9})).is_ok());
    }

    #[test]
    fn remarks_and_names_are_left_alone() {
        let schema = json!({
            "title": "t", "deprecated": true, "x-order": 3, "uniqueItems": false,
            "properties": {"not": {"type": "integer", "format": "int32"}, "if": true},
            "enum": [{"not": 1}],
        });
        let prepared = prepare(&schema).unwrap();
        assert_eq!(prepared["properties"], json!({"not": {"type": "integer"}, "if": true}));
        assert!(prepared.get("uniqueItems").is_none() && prepared["enum"] == schema["enum"]);
    }

    #[test]
    fn alternatives_stand_where_they_are_compared() {
        let schema = json!({
            "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/%24defs/b"}],
            "$defs": {"a": {"const": 1}, "b": {"$ref": "#/$defs/c"}, "c": {"const": "c"}},
        });
        assert_eq!(prepare(&schema).unwrap()["oneOf"], json!([{"const": 1}, {"const": "c"}]));
        // One that holds itself ends.
        let own = json!({"oneOf": [{"$ref": "#"}]});
        assert!(prepare(&own).is_err());
        let own = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        assert_eq!(
            refused(&own),
            "JSON Schema, #/properties/a/$ref: the schema asks for itself without end: no instance would be finite"
        );
    }

    #[test]
    fn bounds_are_kept_exactly_or_drawn_in() {
        let bound = |keyword: &str, value: Value| {
            prepare(&json!({keyword: value})).map(|schema| schema[keyword].clone())
        };
        assert_eq!(bound("maximum", json!(u64::MAX)).unwrap(), json!(9_007_199_254_740_991_i64));
        assert_eq!(bound("exclusiveMinimum", json!(-1e300)).unwrap(), json!(-9_007_199_254_740_991_i64));
        assert_eq!(bound("minimum", json!(-2.5)).unwrap(), json!(-2.5));
        // The nearest float, not a neighbour of it: an excluded bound would be let in.
        let precise: Value = serde_json::from_str("-255.54000000000002").unwrap();
        assert_eq!(bound("exclusiveMaximum", precise).unwrap(), json!(-255.540_000_000_000_02));
        assert_eq!(
            bound("minimum", json!(9_007_199_254_740_993_i64)).unwrap_err().to_string(),
            "JSON Schema, #/minimum: numbers so far from 0 are not supported"
        );
        assert!(bound("exclusiveMaximum", json!(-1e17)).is_err());
    }

    #[test]
    fn mistakes_in_patterns_have_their_place() {
        let schema = json!({"properties": {"a": {"pattern": "^[a-z"}}});
        assert_eq!(
            refused(&schema),
            "JSON Schema, #/properties/a/pattern: line 1, column 2: unclosed character class"
        );
        let schema = json!({"patternProperties": {"x(": {}}});
        assert_eq!(refused(&schema), "JSON Schema, #/patternProperties/x(: line 1, column 2: unclosed group");
    }

    #[test]
    fn schemas_without_end_are_refused() {
        let deep = (0..1000).fold(json!(true), |inner, _| json!({"items": inner}));
        assert!(refused(&deep).ends_with("the schema is too large"));
    }
}
