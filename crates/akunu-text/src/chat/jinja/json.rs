//! `tojson`: byte for byte what Python's `json.dumps` writes with the options Hugging Face passes on.

use std::cmp::Ordering;
use std::rc::Rc;

use super::budget::Budget;
use super::error::{Result, fail};
use super::repr::float_repr;
use super::sort::stable_sort;
use super::text::{Origin, Text, TextBuilder};
use super::value::{Dict, Value};

/// The keyword arguments of `tojson`.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    pub(super) ensure_ascii: bool,
    /// What one level of nesting is indented by; `None` keeps all on one line.
    pub(super) indent: Option<Text>,
    pub(super) item_separator: Text,
    pub(super) key_separator: Text,
    pub(super) sort_keys: bool,
}

pub(super) fn to_json(value: &Value, style: &JsonStyle, budget: &Rc<Budget>) -> Result<Text> {
    let mut writer = Writer { style, budget, out: TextBuilder::new(budget), level: 0 };
    writer.value(value)?;
    Ok(writer.out.finish())
}

struct Writer<'a> {
    style: &'a JsonStyle,
    budget: &'a Rc<Budget>,
    out: TextBuilder,
    level: usize,
}

impl Writer<'_> {
    fn plain(&mut self, text: &str) -> Result<()> {
        self.out.push_str(text, Origin::Template)
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        self.budget.step()?;
        match value {
            Value::None => self.plain("null"),
            Value::Bool(true) => self.plain("true"),
            Value::Bool(false) => self.plain("false"),
            Value::Int(int, origin) => self.out.push_str(&int.to_string(), *origin),
            Value::Float(float, origin) => self.out.push_str(&float_json(*float), *origin),
            Value::Str(text) => self.text(text),
            Value::List(list) | Value::Tuple(list) => self.list(&list.items),
            Value::Dict(dict) => self.dict(dict),
            other => fail(format!("object of type {} is not JSON serializable", other.type_name())),
        }
    }

    fn text(&mut self, text: &Text) -> Result<()> {
        self.plain("\"")?;
        for (c, origin) in text.chars() {
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                c if (c as u32) < 0x20 || self.style.ensure_ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"), origin)?;
                    }
                    continue;
                }
                c => {
                    self.out.push_char(c, origin)?;
                    continue;
                }
            };
            self.out.push_str(escape, origin)?;
        }
        self.plain("\"")
    }

    fn list(&mut self, items: &[Value]) -> Result<()> {
        if items.is_empty() {
            return self.plain("[]");
        }
        self.plain("[")?;
        self.level += 1;
        for (index, item) in items.iter().enumerate() {
            self.separate(index)?;
            self.value(item)?;
        }
        self.level -= 1;
        self.new_line()?;
        self.plain("]")
    }

    fn dict(&mut self, dict: &Dict) -> Result<()> {
        if dict.len() == 0 {
            return self.plain("{}");
        }
        let mut entries: Vec<&(Value, Value)> = dict.entries().iter().collect();
        if self.style.sort_keys {
            entries =
                stable_sort(entries, &mut |a, b| Ok(a.0.order(&b.0, self.budget)? == Some(Ordering::Less)))?;
        }
        self.plain("{")?;
        self.level += 1;
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.separate(index)?;
            self.key(key)?;
            self.out.push(&self.style.key_separator)?;
            self.value(value)?;
        }
        self.level -= 1;
        self.new_line()?;
        self.plain("}")
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        match key {
            Value::Str(text) => self.text(text),
            Value::None | Value::Bool(_) | Value::Int(..) | Value::Float(..) => {
                self.plain("\"")?;
                self.value(key)?;
                self.plain("\"")
            }
            other => fail(format!("keys must be str, int, float, bool or None, not {}", other.type_name())),
        }
    }

    fn separate(&mut self, index: usize) -> Result<()> {
        if index > 0 {
            self.out.push(&self.style.item_separator)?;
        }
        self.new_line()
    }

    fn new_line(&mut self) -> Result<()> {
        if let Some(indent) = &self.style.indent {
            self.out.push_str("\n", Origin::Template)?;
            for _ in 0..self.level {
                self.out.push(indent)?;
            }
        }
        Ok(())
    }
}

fn float_json(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value == f64::INFINITY {
        "Infinity".into()
    } else if value == f64::NEG_INFINITY {
        "-Infinity".into()
    } else {
        float_repr(value)
    }
}
