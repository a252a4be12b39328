//! JSON read in place: objects are walked member by member and nothing is built that the caller did not ask for.
//!
//! A tree of values would take some forty times the size of a hostile file; this takes none of it, and every member
//! knows its byte offset.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{Error, Result};

/// A piece of JSON text inside a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// Where `text` begins in the file.
    pub(super) offset: usize,
}

impl<'a> Json<'a> {
    /// Calls `each` for every member of this object, in order.
    pub(super) fn for_each_member(
        self,
        field: &str,
        each: &mut dyn FnMut(Cow<'a, str>, Json<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut failure = None;
        let mut deserializer = serde_json::Deserializer::from_str(self.text);
        let walked = deserializer
            .deserialize_map(Members { json: self, each, failure: &mut failure })
            .and_then(|()| deserializer.end());
        match (failure, walked) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(self.parse_error(field, &error)),
            (None, Ok(())) => Ok(()),
        }
    }

    /// The member called `key`, if this is an object that has it; the last one if there are several.
    pub(super) fn member(self, field: &str, key: &str) -> Result<Option<Json<'a>>> {
        let mut found = None;
        self.for_each_member(field, &mut |name, value| {
            if name == key {
                found = Some(value);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether the value is of the kind whose text begins with `first`: `{`, `[`, `"`, `n` (null), `t`, `f`.
    pub(super) fn begins_with(self, first: char) -> bool {
        self.text.starts_with(first)
    }

    /// Converts the value.
    pub(super) fn parse<T: Deserialize<'a>>(self, field: &str) -> Result<T> {
        serde_json::from_str(self.text).map_err(|error| self.parse_error(field, &error))
    }

    pub(super) fn malformed(self, field: &str, problem: impl Into<String>) -> Error {
        Error::malformed(self.path, field, self.offset, problem)
    }

    fn parse_error(self, field: &str, error: &serde_json::Error) -> Error {
        // Lines and columns count from 1; either may be 0 when the error has no place.
        let lines = error.line().saturating_sub(1);
        let line_start: usize = self.text.split_inclusive('\n').take(lines).map(str::len).sum();
        let at = (line_start + error.column().saturating_sub(1)).min(self.text.len());
        let message = error.to_string();
        let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(problem, _)| problem);
        Error::malformed(self.path, field, self.offset + at, problem)
    }
}

struct Members<'a, 'f> {
    json: Json<'a>,
    each: &'f mut dyn FnMut(Cow<'a, str>, Json<'a>) -> Result<()>,
    /// An error of `each`, which serde's own error type cannot carry.
    failure: &'f mut Option<Error>,
}

impl<'a> Visitor<'a> for Members<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let value: &'a RawValue = map.next_value()?;
            let text = value.get();
            // Both point into the same text.
            let offset = self.json.offset + (text.as_ptr().addr() - self.json.text.as_ptr().addr());
            if let Err(error) = (self.each)(key, Json { text, offset, ..self.json }) {
                *self.failure = Some(error);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// A member's name, copied only if it has escapes.
struct Key<'a>(Cow<'a, str>);

impl<'a> Deserialize<'a> for Key<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'a> Visitor<'a> for KeyVisitor {
            type Value = Key<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, key: &'a str) -> Result<Key<'a>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'a>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json { path: Path::new("f.json"), text, offset: 100 }
    }

    #[test]
    fn members_know_where_they_are() {
        let text = r#"{ "a": 1, "b\n": {"c": [2, 3]} }"#;
        let mut seen = Vec::new();
        json(text)
            .for_each_member("top", &mut |key, value| {
                assert_eq!(&text[value.offset - 100..][..value.text.len()], value.text);
                seen.push((key.into_owned(), value.text));
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [("a".to_owned(), "1"), ("b\n".to_owned(), r#"{"c": [2, 3]}"#)]);
    }

    #[test]
    fn errors_give_the_byte_in_the_file() {
        let offset = |text: &str| match json(text).member("top", "x").unwrap_err() {
            Error::Malformed { offset, .. } => offset,
            other => panic!("{other}"),
        };
        assert_eq!(offset("{\n\"a\": 1,\n \"b\" 2}"), 100 + 15);
        assert_eq!(offset("{} x"), 100 + 3);
        assert!((100..=102).contains(&offset("[]")));
        assert_eq!(offset(""), 100);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let found = json(r#"{"a": 1, "a": 2}"#).member("top", "a").unwrap().unwrap();
        assert_eq!(found.parse::<u32>("a").unwrap(), 2);
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        let value = json(&deep).member("top", "a").unwrap().unwrap();
        assert!(value.parse::<serde_json::Value>("a").is_err());
    }
}
