//! A constraint walking along with one text.

use akunu_text::Tokenizer;
use toktrie::SimpleVob;

use super::Language;
use crate::{Error, Result};

/// Says which tokens may come next, and follows those that do.
///
/// ```no_run
/// use akunu::{Constraint, Model, Options};
///
/// let model = Model::load("model.gguf", &Options::default())?;
/// let mut matcher = model.matcher(&Constraint::regex("[0-9]+")?)?;
/// let four = model.tokenizer()?.id_of("4").unwrap();
/// assert!(matcher.allows(four)? && !matcher.may_end()?);
/// matcher.commit(four)?;
/// assert!(matcher.allows(four)? && matcher.may_end()?);
/// # Ok::<(), akunu::Error>(())
/// ```
#[derive(Clone)]
pub struct Matcher {
    inner: llguidance::Matcher,
    language: Language,
    tokenizer: Tokenizer,
    /// What may come next, once it was asked for.
    mask: Option<SimpleVob>,
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, language: Language, tokenizer: &Tokenizer) -> Matcher {
        Matcher { inner, language, tokenizer: tokenizer.clone(), mask: None }
    }

    fn refused(&self, error: &dyn std::fmt::Display) -> Error {
        let problem = error.to_string();
        // An expression that becomes too much on the way is so as a whole.
        let place = if self.language == Language::Regex { "line 1, column 1" } else { "" };
        self.language.error(place, problem.lines().next().unwrap_or("it cannot be followed any further"))
    }

    /// Which tokens may come next, in the form of [`akunu_program::select::Mask`]; the model's end tokens are among them where
    /// the text may end. Never empty.
    pub fn mask(&mut self) -> Result<&[u32]> {
        if self.mask.is_none() {
            let mask = self.inner.compute_mask_or_eos();
            self.mask = Some(mask.map_err(|error| self.refused(&error))?);
        }
        Ok(self.mask.as_ref().map_or(&[], SimpleVob::as_slice))
    }

    /// Whether a token may come next.
    pub fn allows(&mut self, token: u32) -> Result<bool> {
        let word = self.mask()?.get(token as usize / 32).copied().unwrap_or(0);
        Ok(word >> (token % 32) & 1 == 1)
    }

    /// Follows a token; an error if it may not come next. A token that ends the text needs no following.
    pub fn commit(&mut self, token: u32) -> Result<()> {
        if self.tokenizer.is_eog(token) && self.may_end()? {
            return Ok(());
        }
        self.mask = None;
        self.inner.consume_token(token).map_err(|error| self.refused(&error))
    }

    /// Takes back the last `n` tokens.
    pub fn rollback(&mut self, n: usize) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        self.mask = None;
        self.inner.rollback(n).map_err(|error| self.refused(&error))
    }

    /// Tokens that come next whatever the model thinks, as it would have read them itself.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.is_finished() { Vec::new() } else { self.inner.compute_ff_tokens() }
    }

    /// Whether the text may end here.
    pub fn may_end(&mut self) -> Result<bool> {
        if self.is_finished() {
            return Ok(true);
        }
        self.inner.is_accepting().map_err(|error| self.refused(&error))
    }

    /// Whether nothing may follow.
    pub fn is_finished(&self) -> bool {
        self.inner.is_stopped()
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
