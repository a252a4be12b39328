//! Sets of characters, such as "punctuation", by Unicode's general categories.

use regex_syntax::hir::{Class, Hir, HirKind};

/// A set of characters: a bitmap for ASCII, sorted ranges for the rest.
#[derive(Debug)]
pub(crate) struct CharSet {
    ascii: u128,
    ranges: Vec<(char, char)>,
}

impl CharSet {
    /// What Hugging Face's tokenizers hold for punctuation: Unicode's, and the ASCII symbols.
    pub const PUNCTUATION: &str = r"[\p{P}$+<=>^`|~]";
    /// Digits and other numbers.
    pub const NUMERIC: &str = r"\p{N}";

    /// The set a character class such as `[\p{P}$]` describes. An expression that is no class gives the empty set.
    pub fn new(class: &str) -> Self {
        let hir = regex_syntax::parse(class);
        let ranges = match hir.as_ref().map(Hir::kind) {
            Ok(HirKind::Class(Class::Unicode(class))) => class.iter().map(|r| (r.start(), r.end())).collect(),
            _ => Vec::new(),
        };
        let mut set = Self { ascii: 0, ranges };
        set.ascii = (0..128u8).filter(|&c| set.in_ranges(c.into())).fold(0, |bits, c| bits | 1 << c);
        set
    }

    pub fn contains(&self, c: char) -> bool {
        if c.is_ascii() { self.ascii >> (c as u32) & 1 == 1 } else { self.in_ranges(c) }
    }

    fn in_ranges(&self, c: char) -> bool {
        let at = self.ranges.partition_point(|&(_, last)| last < c);
        self.ranges.get(at).is_some_and(|&(first, _)| first <= c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_their_class_says() {
        let punctuation = CharSet::new(CharSet::PUNCTUATION);
        assert!("!$`~、»".chars().all(|c| punctuation.contains(c)));
        assert!("a1 é€\n".chars().all(|c| !punctuation.contains(c)));
        let numeric = CharSet::new(CharSet::NUMERIC);
        assert!("07½٣Ⅷ".chars().all(|c| numeric.contains(c)) && !numeric.contains('x'));
    }
}
