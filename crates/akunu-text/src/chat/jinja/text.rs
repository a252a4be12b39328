//! Strings that remember where each of their bytes came from.
//!
//! Every string a template handles is a [`Text`]: characters plus the [`Origin`] of each stretch of them. Every
//! operation builds its result out of stretches of its inputs, so an origin survives whatever a template does:
//! trimming, splitting, replacing, joining, escaping, changing case, reversing. That is the whole of injection
//! safety: what came from a message is still known to come from a message when the prompt is finished.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::budget::Budget;
use super::error::Result;

/// Who wrote a stretch of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The template, or the engine for it (special tokens, the date, role names).
    Template,
    /// Messages, tools, documents and template options.
    Content,
}

impl Origin {
    /// The origin of something made from both.
    pub(super) fn and(self, other: Self) -> Self {
        if self == Self::Content { self } else { other }
    }
}

/// A stretch of one origin: it ends before byte `end` and begins where the stretch before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    end: usize,
    origin: Origin,
}

/// An immutable string with origins, cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    chars: Arc<str>,
    origins: Origins,
    /// Jinja's `Markup`: HTML-escapes what is added to it. Some templates use `|safe` and depend on it.
    pub(super) markup: bool,
}

#[derive(Clone, Debug)]
enum Origins {
    One(Origin),
    /// At least two runs; neighbours differ, and the last one ends with the text.
    Many(Arc<[Run]>),
}

impl Text {
    pub(crate) fn new(chars: impl Into<Arc<str>>, origin: Origin) -> Self {
        Self { chars: chars.into(), origins: Origins::One(origin), markup: false }
    }

    pub(crate) fn template(chars: impl Into<Arc<str>>) -> Self {
        Self::new(chars, Origin::Template)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.chars
    }

    pub(super) fn len(&self) -> usize {
        self.chars.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chars.is_empty()
    }

    pub(super) fn as_markup(&self, markup: bool) -> Self {
        Self { markup, ..self.clone() }
    }

    /// Content if any byte is content's.
    pub(super) fn origin(&self) -> Origin {
        match &self.origins {
            Origins::One(origin) => *origin,
            Origins::Many(_) => Origin::Content,
        }
    }

    /// The stretches of one origin each, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&str, Origin)> {
        self.runs_in(0..self.len())
    }

    /// The stretches within a range of bytes.
    pub(crate) fn runs_in(&self, range: Range<usize>) -> impl Iterator<Item = (&str, Origin)> {
        let single;
        let runs: &[Run] = match &self.origins {
            Origins::One(origin) => {
                single = Some(Run { end: self.len(), origin: *origin });
                &[]
            }
            Origins::Many(runs) => {
                single = None;
                let first = runs.partition_point(|run| run.end <= range.start);
                &runs[first..]
            }
        };
        let mut start = range.start;
        single.into_iter().chain(runs.iter().copied()).map_while(move |run| {
            let end = run.end.min(range.end);
            let stretch = (start < end).then(|| (&self.chars[start..end], run.origin));
            start = end;
            stretch
        })
    }

    /// A part of the text, by bytes.
    pub(super) fn slice(&self, range: Range<usize>, budget: &Rc<Budget>) -> Result<Self> {
        if range == (0..self.len()) {
            return Ok(self.clone());
        }
        let mut part = TextBuilder::new(budget);
        part.push_slice(self, range)?;
        Ok(part.finish().as_markup(self.markup))
    }

    /// The characters one by one with their places and origins.
    pub(super) fn chars(&self) -> impl Iterator<Item = (char, Origin)> {
        self.runs().flat_map(|(stretch, origin)| stretch.chars().map(move |c| (c, origin)))
    }

    /// Every character replaced by what `change` gives for it, keeping its origin.
    pub(super) fn map_chars<I: IntoIterator<Item = char>>(
        &self,
        budget: &Rc<Budget>,
        mut change: impl FnMut(char) -> I,
    ) -> Result<Self> {
        let mut out = TextBuilder::new(budget);
        for (c, origin) in self.chars() {
            for changed in change(c) {
                out.push_char(changed, origin)?;
            }
        }
        Ok(out.finish().as_markup(self.markup))
    }
}

/// Collects a [`Text`] out of stretches of others, paying for each byte.
#[derive(Debug)]
pub(super) struct TextBuilder {
    chars: String,
    runs: Vec<Run>,
    budget: Rc<Budget>,
}

impl TextBuilder {
    pub(super) fn new(budget: &Rc<Budget>) -> Self {
        Self { chars: String::new(), runs: Vec::new(), budget: Rc::clone(budget) }
    }

    pub(super) fn push_str(&mut self, text: &str, origin: Origin) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.budget.make(text.len())?;
        self.chars.push_str(text);
        let end = self.chars.len();
        match self.runs.last_mut() {
            Some(last) if last.origin == origin => last.end = end,
            _ => {
                self.budget.make(size_of::<Run>())?;
                self.runs.push(Run { end, origin });
            }
        }
        Ok(())
    }

    pub(super) fn push_char(&mut self, c: char, origin: Origin) -> Result<()> {
        self.push_str(c.encode_utf8(&mut [0; 4]), origin)
    }

    pub(super) fn push(&mut self, text: &Text) -> Result<()> {
        self.push_slice(text, 0..text.len())
    }

    pub(super) fn push_slice(&mut self, text: &Text, range: Range<usize>) -> Result<()> {
        for (stretch, origin) in text.runs_in(range) {
            self.push_str(stretch, origin)?;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.chars.len()
    }

    pub(super) fn finish(self) -> Text {
        let origins = match self.runs[..] {
            [] => Origins::One(Origin::Template),
            [run] => Origins::One(run.origin),
            _ => Origins::Many(self.runs.into()),
        };
        Text { chars: self.chars.into(), origins, markup: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::jinja::budget::Limits;

    fn mixed(budget: &Rc<Budget>) -> Text {
        let mut builder = TextBuilder::new(budget);
        builder.push_str("<a>", Origin::Template).unwrap();
        builder.push_str("wörld", Origin::Content).unwrap();
        builder.push_str("</a>", Origin::Template).unwrap();
        builder.finish()
    }

    #[test]
    fn slices_keep_their_origins() {
        let budget = Rc::new(Budget::new(Limits::default()));
        let text = mixed(&budget);
        let runs = |range| -> Vec<(String, Origin)> {
            let part = text.slice(range, &budget).unwrap();
            part.runs().map(|(stretch, origin)| (stretch.to_owned(), origin)).collect()
        };
        assert_eq!(runs(1..4), [("a>".into(), Origin::Template), ("w".into(), Origin::Content)]);
        assert_eq!(runs(3..9), [("wörld".into(), Origin::Content)]);
        assert_eq!(runs(8..10), [("d".into(), Origin::Content), ("<".into(), Origin::Template)]);
        assert_eq!(runs(4..4), []);
    }

    #[test]
    fn neighbours_of_one_origin_become_one_run() {
        let budget = Rc::new(Budget::new(Limits::default()));
        let mut builder = TextBuilder::new(&budget);
        builder.push(&Text::new("a", Origin::Content)).unwrap();
        builder.push(&Text::template("")).unwrap();
        builder.push(&Text::new("b", Origin::Content)).unwrap();
        let text = builder.finish();
        assert_eq!(text.runs().collect::<Vec<_>>(), [("ab", Origin::Content)]);
        assert_eq!(text.origin(), Origin::Content);
    }

    #[test]
    fn making_text_beyond_the_limit_fails() {
        let budget = Rc::new(Budget::new(Limits { memory: 100, ..Limits::default() }));
        let mut builder = TextBuilder::new(&budget);
        let long = Text::template("x".repeat(60));
        assert!(builder.push(&long).is_ok());
        assert!(builder.push(&long).is_err());
    }
}
