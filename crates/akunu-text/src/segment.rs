//! A stretch of prompt text and whether its special strings may become special tokens.

/// A stretch of prompt text with one origin.
///
/// Chat templates produce segments, tokenizers consume them: a string such as `<|im_end|>` becomes a special
/// token only where all of it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The text itself.
    pub text: &'a str,
    /// True for text the template (or the engine) wrote, false for anything a user or a model wrote.
    pub trusted: bool,
}

impl<'a> Segment<'a> {
    /// Text whose special strings are special tokens.
    pub fn trusted(text: &'a str) -> Self {
        Self { text, trusted: true }
    }

    /// Text in which nothing is special.
    pub fn untrusted(text: &'a str) -> Self {
        Self { text, trusted: false }
    }
}
