//! What generated text must be like.

use pyo3::prelude::*;

use crate::errors::OrRaise;

/// What a generated text must be like. Made once, used by any model.
///
/// >>> akunu.Constraint.regex("[0-9]+")
/// Constraint(regex)
/// >>> akunu.Constraint.json_schema({"properties": {"tags": {"uniqueItems": True}}})
/// Traceback (most recent call last):
/// ...
/// akunu.UsageError: JSON Schema, #/properties/tags/uniqueItems: the keyword is not supported
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Constraint(pub(crate) akunu::Constraint, &'static str);

#[pymethods]
impl Constraint {
    /// Any JSON object.
    #[staticmethod]
    fn json_object() -> Constraint {
        Constraint(akunu::Constraint::json_object(), "json_object")
    }

    /// Instances of a JSON Schema, given as a dictionary or as JSON.
    #[staticmethod]
    fn json_schema(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<Constraint> {
        let text: String = match schema.extract() {
            Ok(text) => text,
            Err(_) => py.import("json")?.call_method1("dumps", (schema,))?.extract()?,
        };
        Ok(Constraint(akunu::Constraint::json_schema_text(&text).or_raise()?, "json_schema"))
    }

    /// Texts that a regular expression matches from beginning to end.
    #[staticmethod]
    fn regex(pattern: &str) -> PyResult<Constraint> {
        Ok(Constraint(akunu::Constraint::regex(pattern).or_raise()?, "regex"))
    }

    /// Sentences of a grammar, in llama.cpp's notation (GBNF) or llguidance's (Lark).
    #[staticmethod]
    fn grammar(source: &str) -> PyResult<Constraint> {
        Ok(Constraint(akunu::Constraint::grammar(source).or_raise()?, "grammar"))
    }

    /// One of these texts.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "lists come from Python by value")]
    fn choice(texts: Vec<String>) -> PyResult<Constraint> {
        Ok(Constraint(akunu::Constraint::choice(&texts).or_raise()?, "choice"))
    }

    fn __repr__(&self) -> String {
        format!("Constraint({})", self.1)
    }
}
