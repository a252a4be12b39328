//! Classes of characters.

use std::fmt::Write;

/// Characters, as ascending ranges that neither touch nor overlap. Surrogates are no characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class(Vec<(u32, u32)>);

const LAST: u32 = 0x10_ffff;
const SURROGATES: (u32, u32) = (0xd800, 0xdfff);

impl Class {
    pub(super) fn new(mut ranges: Vec<(u32, u32)>) -> Class {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Class(cut(&merged))
    }

    pub(super) fn one(c: char) -> Class {
        Class(vec![(c as u32, c as u32)])
    }

    pub(super) fn any() -> Class {
        Class::new(vec![(0, LAST)])
    }

    pub(super) fn union(classes: &[Class]) -> Class {
        Class::new(classes.iter().flat_map(|class| &class.0).copied().collect())
    }

    pub(super) fn negated(&self) -> Class {
        let mut next = 0;
        let mut ranges = Vec::new();
        for &(from, to) in &self.0 {
            if from > next {
                ranges.push((next, from - 1));
            }
            next = to + 1;
        }
        if next <= LAST {
            ranges.push((next, LAST));
        }
        Class(cut(&ranges))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn meets(&self, other: &Class) -> bool {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            if a.1 < b.0 {
                own.next();
            } else if b.1 < a.0 {
                others.next();
            } else {
                return true;
            }
        }
        false
    }

    /// As a regular expression.
    pub(super) fn regex(&self) -> String {
        let mut regex = String::from("[");
        for (from, to) in &self.0 {
            // Writing to a string does not fail.
            let _ = if from == to {
                write!(regex, "\\x{{{from:x}}}")
            } else {
                write!(regex, "\\x{{{from:x}}}-\\x{{{to:x}}}")
            };
        }
        regex.push(']');
        regex
    }
}

/// The ranges without surrogates.
fn cut(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (low, high) = SURROGATES;
    let parts = |&(from, to): &(u32, u32)| [(from, to.min(low - 1)), (from.max(high + 1), to)];
    let apart = |&(from, to): &(u32, u32)| to < low || from > high;
    ranges
        .iter()
        .flat_map(|range| if apart(range) { [*range, (1, 0)] } else { parts(range) })
        .filter(|(from, to)| from <= to)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(ranges: &[(char, char)]) -> Class {
        Class::new(ranges.iter().map(|&(from, to)| (from as u32, to as u32)).collect())
    }

    #[test]
    fn ranges_join_and_are_negated() {
        let letters = class(&[('b', 'd'), ('a', 'c'), ('e', 'e')]);
        assert_eq!(letters, class(&[('a', 'e')]));
        assert_eq!(letters.regex(), "[\\x{61}-\\x{65}]");
        assert_eq!(letters.negated().negated(), letters);
        assert!(Class::any().negated().is_empty());
        assert_eq!(class(&[]).negated(), Class::any());
        assert_eq!(Class::any().regex(), "[\\x{0}-\\x{d7ff}\\x{e000}-\\x{10ffff}]");
    }

    #[test]
    fn classes_meet_where_they_share_a_character() {
        let digits = class(&[('0', '9')]);
        assert!(digits.meets(&Class::one('5')) && digits.meets(&Class::any()));
        assert!(!digits.meets(&digits.negated()) && !digits.meets(&class(&[])));
        assert!(class(&[('a', 'a'), ('z', 'z')]).meets(&class(&[('b', 'c'), ('x', 'z')])));
    }
}
