//! What can go wrong with a template.

use std::fmt;

/// Why a template could not be read or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chat template{}: {kind}: {message}", At(*line))]
pub struct TemplateError {
    /// What kind of failure it was.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// The line of the template it happened on, counted from 1, where there is one.
    pub line: Option<u32>,
}

/// The kinds of [`TemplateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The template is not Jinja, or uses a part of Jinja that chat templates have no use for.
    Syntax,
    /// The template itself refused the conversation, through `raise_exception`.
    Refused,
    /// An operation failed: a missing value, a wrong type, a bad argument.
    Render,
    /// Rendering took more steps, memory or depth than its limits allow.
    Limit,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "syntax error",
            Self::Refused => "the template refused the conversation",
            Self::Render => "cannot render",
            Self::Limit => "over the limit",
        })
    }
}

/// Writes ` line N` or nothing.
struct At(Option<u32>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, " line {line}"))
    }
}

pub(super) type Result<T> = std::result::Result<T, Box<TemplateError>>;

impl TemplateError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, message: message.into(), line: None })
    }

    /// Names the line unless an inner one is known already.
    pub(super) fn at(mut self: Box<Self>, line: u32) -> Box<Self> {
        self.line.get_or_insert(line);
        self
    }
}

/// Fails with a rendering error.
pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(TemplateError::new(ErrorKind::Render, message))
}
