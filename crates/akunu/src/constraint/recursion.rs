//! Schemas that ask for themselves without end: every instance would hold another, and no text could ever be complete.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::schema::{LISTS, NAMED, ONE, escaped, find};

/// Schemas that are looked at before giving up: then the question stays open, and texts are cut off by their length.
const MOST_STEPS: usize = 2_000_000;

/// The first reference to a schema that has no finite instance: where it stands. `elsewhere` are pointers to schemas that are
/// found in no keyword.
pub(super) fn endless(root: &Value, elsewhere: &[String]) -> Option<String> {
    let mut references = Vec::new();
    collect(root, "#", &mut references);
    for pointer in elsewhere {
        if let Some(schema) = root.pointer(pointer) {
            collect(schema, &format!("#{pointer}"), &mut references);
        }
    }
    let mut search = Search { open: references.iter().map(|(_, reference)| *reference).collect(), steps: 0 };
    let mut before = usize::MAX;
    while search.open.len() < before {
        before = search.open.len();
        for reference in search.open.clone() {
            if find(root, reference).is_none_or(|schema| search.ends(schema)) {
                search.open.remove(reference);
            }
        }
    }
    if search.steps > MOST_STEPS {
        return None;
    }
    references.into_iter().find(|(_, reference)| search.open.contains(reference)).map(|(place, _)| place)
}

/// All references in a schema, with their places.
fn collect<'a>(schema: &'a Value, place: &str, found: &mut Vec<(String, &'a str)>) {
    let Value::Object(fields) = schema else { return };
    for (keyword, value) in fields {
        let at = format!("{place}/{}", escaped(keyword));
        match value {
            Value::String(reference) if keyword == "$ref" => found.push((at, reference)),
            Value::Array(list) if LISTS.contains(&keyword.as_str()) || keyword == "items" => {
                list.iter().enumerate().for_each(|(i, schema)| collect(schema, &format!("{at}/{i}"), found));
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                let parts = named.iter();
                parts.for_each(|(name, schema)| collect(schema, &format!("{at}/{}", escaped(name)), found));
            }
            _ if ONE.contains(&keyword.as_str()) => collect(value, &at, found),
            _ => {}
        }
    }
}

struct Search<'a> {
    /// References to schemas of which no finite instance is known yet.
    open: BTreeSet<&'a str>,
    steps: usize,
}

impl Search<'_> {
    /// Whether a schema has a finite instance, as far as is known. References are not followed: each is asked about on its own.
    fn ends(&mut self, schema: &Value) -> bool {
        self.steps += 1;
        let Value::Object(fields) = schema else { return true };
        if self.steps > MOST_STEPS || fields.contains_key("enum") || fields.contains_key("const") {
            return true;
        }
        let reference = fields.get("$ref").and_then(Value::as_str);
        if reference.is_some_and(|reference| self.open.contains(reference)) {
            return false;
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = fields.get(keyword)
                && !list.iter().any(|schema| self.ends(schema))
            {
                return false;
            }
        }
        let all = fields.get("allOf").and_then(Value::as_array);
        all.into_iter().flatten().all(|schema| self.ends(schema)) && self.some_type_ends(fields)
    }

    fn some_type_ends(&mut self, fields: &Map<String, Value>) -> bool {
        let types = match fields.get("type") {
            Some(Value::Array(types)) => types.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => return true,
        };
        types.iter().any(|kind| match kind.as_str() {
            Some("object") => self.object_ends(fields),
            Some("array") => self.array_ends(fields),
            _ => true,
        })
    }

    fn object_ends(&mut self, fields: &Map<String, Value>) -> bool {
        let required = fields.get("required").and_then(Value::as_array);
        let mut names = required.into_iter().flatten().filter_map(Value::as_str);
        names.all(|name| {
            let schema = fields.get("properties").and_then(|properties| properties.get(name));
            schema.is_none_or(|schema| self.ends(schema))
        })
    }

    fn array_ends(&mut self, fields: &Map<String, Value>) -> bool {
        let least = fields.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let items = fields.get("items");
        let first = fields.get("prefixItems").or(items).and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        let rest = items.filter(|items| !items.is_array()).or(fields.get("additionalItems"));
        first.iter().take(least).all(|schema| self.ends(schema))
            && (least <= first.len() || rest.is_none_or(|schema| self.ends(schema)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_must_hold_itself_is_found() {
        let itself = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        assert_eq!(endless(&itself, &[]).unwrap(), "#/properties/a/$ref");
        let in_turn = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        }});
        assert_eq!(endless(&in_turn, &[]).unwrap(), "#/$ref");
        let by_choice = json!({"anyOf": [{"$ref": "#/anyOf/0"}, {"type": "null"}]});
        assert_eq!(endless(&by_choice, &[]).unwrap(), "#/anyOf/0/$ref");
        let wrapped = json!({"type": "array", "prefixItems": [{"allOf": [{"$ref": "#"}]}], "minItems": 1});
        assert!(endless(&wrapped, &[]).is_some());
    }

    #[test]
    fn recursion_that_can_end_is_left_alone() {
        for fine in [
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
            json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}),
            json!({"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#"}}}, "required": ["all"]}),
            json!({"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}}),
            json!({"type": "integer"}),
        ] {
            assert_eq!(endless(&fine, &[]), None, "{fine}");
        }
    }

    #[test]
    fn many_references_take_little_time() {
        let begin = std::time::Instant::now();
        let mut definitions = Map::new();
        for i in 0..3000 {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            definitions.insert(
                format!("d{i}"),
                json!({"type": "object", "properties": {"n": next}, "required": ["n"]}),
            );
        }
        definitions.insert("d3000".to_owned(), json!({"type": "integer"}));
        assert_eq!(endless(&json!({"$ref": "#/$defs/d0", "$defs": definitions}), &[]), None);
        assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
    }
}
