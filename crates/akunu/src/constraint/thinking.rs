//! Constraints that begin when the model has thought.

use std::num::NonZeroU32;
use std::sync::Arc;

use akunu_text::Tokenizer;
use akunu_text::chat::Marks;
use akunu_text::tokenizer::TokenKind;

use super::lark::{escaped, literal};
use super::{Constraint, Grammar};

/// Tokens of a prompt's end that are looked at.
const PROMPT_END: usize = 32;

impl Constraint {
    /// The same for an answer that thoughts may come before, between these marks: thoughts are free, and line feeds may follow
    /// them. A prompt that ends with the opening mark has begun them already. With a budget thoughts end after so many tokens,
    /// if the closing mark is a token of its own.
    #[must_use]
    pub fn after_thinking(
        &self,
        marks: &Marks,
        prompt: &[u32],
        tokenizer: &Tokenizer,
        budget: Option<NonZeroU32>,
    ) -> Constraint {
        let end = &prompt[prompt.len().saturating_sub(PROMPT_END)..];
        let end = String::from_utf8_lossy(&tokenizer.decode_with_special(end)).into_owned();
        let start = if end.trim_end().ends_with(marks.open) { "inside" } else { "thoughts?" };
        let open = mark(marks.open, tokenizer).unwrap_or_else(|| literal(marks.open));
        let inside = match mark(marks.close, tokenizer) {
            // No text is spelled with a mark.
            Some(close) => {
                let most = budget.map_or_else(String::new, |budget| format!("[max_tokens={budget}]"));
                format!("inside: text? {close} BREAKS?\ntext{most}: TEXT\nTEXT: /(?s:.+)/")
            }
            None => format!("inside: until BREAKS?\nuntil[lazy]: /(?s:.*){}/", escaped(marks.close)),
        };
        // An answer that may be calls of tools instead says so itself.
        let (answer, rules) = match self.0.around.as_deref().and_then(|around| around.strip_prefix("start:"))
        {
            Some(around) => ("reply", format!("reply:{around}")),
            None => ("@answer", String::new()),
        };
        let around =
            format!("start: {start} {answer}\nthoughts: {open} inside\n{inside}\nBREAKS: /\\n+/\n{rules}");
        Constraint(Arc::new(Grammar { around: Some(around), ..(*self.0).clone() }))
    }
}

/// A mark that is a token of its own, as Lark names it.
pub(super) fn mark(text: &str, tokenizer: &Tokenizer) -> Option<String> {
    let id = tokenizer.id_of(text)?;
    let own = matches!(tokenizer.kind(id), TokenKind::Control | TokenKind::UserDefined);
    own.then(|| format!("<[{id}]>"))
}
