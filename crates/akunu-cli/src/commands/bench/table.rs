//! Tables in Markdown, and as comma-separated values.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::output::Out;

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub width: usize,
    pub right: bool,
}

/// A column of text.
pub const fn left(name: &'static str, width: usize) -> Column {
    Column { name, width, right: false }
}

/// A column of numbers.
pub const fn right(name: &'static str, width: usize) -> Column {
    Column { name, width, right: true }
}

/// The first two lines.
pub fn header(out: &mut Out, columns: &[Column]) -> Result<()> {
    row(out, columns, columns.iter().map(|column| column.name.to_owned()))?;
    let line = |&Column { width, right, .. }: &Column| {
        if right { "-".repeat(width - 1) + ":" } else { "-".repeat(width) }
    };
    row(out, columns, columns.iter().map(line))
}

/// One more line, shown at once.
pub fn row(out: &mut Out, columns: &[Column], cells: impl IntoIterator<Item = String>) -> Result<()> {
    for (&Column { width, right, .. }, cell) in columns.iter().zip(cells) {
        if right {
            write!(out, "| {cell:>width$} ")?;
        } else {
            write!(out, "| {cell:<width$} ")?;
        }
    }
    writeln!(out, "|")?;
    Ok(out.flush()?)
}

/// The fields of records that are not lists: a table has no room for those.
pub fn csv(out: &mut Out, records: &[impl Serialize]) -> Result<()> {
    for (i, record) in records.iter().enumerate() {
        let Value::Object(mut fields) = serde_json::to_value(record)? else { continue };
        fields.retain(|_, value| !value.is_array());
        if i == 0 {
            writeln!(out, "{}", fields.keys().cloned().collect::<Vec<_>>().join(","))?;
        }
        let cell = |value: &Value| match value {
            Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            other => other.to_string(),
        };
        writeln!(out, "{}", fields.values().map(cell).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}
