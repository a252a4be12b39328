//! Stop strings: end a generation when one of several strings appears, wherever the tokens cut it.

use std::collections::VecDeque;

/// The state before any byte, and after one that no stop string can use.
const ROOT: u32 = 0;

/// Watches streamed text for the first of several stop strings.
///
/// The match is the one that is complete first; of several that end at the same character, the longest. So the
/// outcome does not depend on how the text is cut into pieces. Text before the match is passed on as soon as it
/// cannot be part of a match any more; the match itself and all that follows it is dropped. The work is linear
/// in the text: an Aho-Corasick automaton over bytes, whose state depth is exactly what must be held back.
///
/// ```
/// use akunu_text::StopStrings;
///
/// let mut stops = StopStrings::new(["\nUser:", "</answer>"])?;
/// let mut text = String::new();
/// assert_eq!(stops.push("Certainly.</ans", &mut text), None);
/// assert_eq!(text, "Certainly.");
/// assert_eq!(stops.push("wer> more", &mut text), Some(1));
/// assert_eq!(text, "Certainly.");
/// # Ok::<(), akunu_text::EmptyStopString>(())
/// ```
#[derive(Clone, Debug)]
pub struct StopStrings {
    nodes: Vec<Node>,
    state: u32,
    /// Text seen and not passed on; `held[passed..]` is always the longest end of the text that a stop string
    /// begins with.
    held: String,
    passed: usize,
    matched: Option<usize>,
}

/// One state: the longest end of the text that is the beginning of a stop string.
#[derive(Clone, Debug)]
struct Node {
    /// Next states by byte, sorted.
    next: Vec<(u8, u32)>,
    /// The state of the next shorter beginning that also ends the text.
    fail: u32,
    /// Bytes in this state's beginning.
    depth: u32,
    /// The longest stop string that ends here: its index and length in bytes.
    stop: Option<(usize, u32)>,
}

/// A stop string was empty: it would match before the first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stop string {index} is empty: remove it or give it a character")]
pub struct EmptyStopString {
    /// Which one, counted from 0.
    pub index: usize,
}

impl StopStrings {
    /// A detector for one text. An empty list never matches.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Result<Self, EmptyStopString> {
        let mut nodes = vec![Node { next: Vec::new(), fail: ROOT, depth: 0, stop: None }];
        for (index, stop) in stops.into_iter().enumerate() {
            let bytes = stop.as_ref().as_bytes();
            if bytes.is_empty() {
                return Err(EmptyStopString { index });
            }
            let mut at = ROOT;
            for (byte, depth) in bytes.iter().zip(1..) {
                at = match child(&nodes, at, *byte) {
                    Some(next) => next,
                    None => add_child(&mut nodes, at, *byte, depth),
                };
            }
            // Of equal stop strings the first one counts.
            nodes[at as usize].stop.get_or_insert((index, bytes.len() as u32));
        }
        link_failures(&mut nodes);
        Ok(Self { nodes, state: ROOT, held: String::new(), passed: 0, matched: None })
    }

    /// Takes the next piece of text and appends to `out` what is certain not to be part of a stop string.
    /// Returns the index of the stop string that was found, then and on every later call, which writes nothing.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.matched.is_some() {
            return self.matched;
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            self.state = self.step(byte);
            if let Some((index, length)) = self.nodes[self.state as usize].stop {
                let end = before + offset + 1;
                out.push_str(&self.held[self.passed..end - length as usize]);
                self.matched = Some(index);
                self.held.clear();
                self.passed = 0;
                return self.matched;
            }
        }
        let keep = self.nodes[self.state as usize].depth as usize;
        let certain = self.held.len() - keep;
        out.push_str(&self.held[self.passed..certain]);
        self.passed = certain;
        // Dropping what was passed on costs a move of what is kept: do it only once that is the smaller half.
        if self.passed >= keep {
            self.held.drain(..self.passed);
            self.passed = 0;
        }
        None
    }

    /// Ends the text: what was held back was no stop string after all and is appended to `out`.
    pub fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held[self.passed..]);
        self.held.clear();
        self.passed = 0;
        self.state = ROOT;
    }

    /// The index of the stop string that was found, if any.
    pub fn matched(&self) -> Option<usize> {
        self.matched
    }

    fn step(&self, byte: u8) -> u32 {
        let mut at = self.state;
        loop {
            match child(&self.nodes, at, byte) {
                Some(next) => return next,
                None if at == ROOT => return ROOT,
                None => at = self.nodes[at as usize].fail,
            }
        }
    }
}

fn child(nodes: &[Node], at: u32, byte: u8) -> Option<u32> {
    let next = &nodes[at as usize].next;
    next.binary_search_by_key(&byte, |(b, _)| *b).ok().map(|found| next[found].1)
}

fn add_child(nodes: &mut Vec<Node>, at: u32, byte: u8, depth: u32) -> u32 {
    let new = nodes.len() as u32;
    nodes.push(Node { next: Vec::new(), fail: ROOT, depth, stop: None });
    let next = &mut nodes[at as usize].next;
    let place = next.partition_point(|(b, _)| *b < byte);
    next.insert(place, (byte, new));
    new
}

/// Sets `fail` breadth first, so that every shorter beginning is finished before a longer one needs it.
fn link_failures(nodes: &mut [Node]) {
    let mut queue: VecDeque<u32> = nodes[ROOT as usize].next.iter().map(|(_, node)| *node).collect();
    while let Some(at) = queue.pop_front() {
        for (byte, next) in nodes[at as usize].next.clone() {
            let mut fail = nodes[at as usize].fail;
            let target = loop {
                match child(nodes, fail, byte) {
                    Some(found) => break found,
                    None if fail == ROOT => break ROOT,
                    None => fail = nodes[fail as usize].fail,
                }
            };
            nodes[next as usize].fail = target;
            // The node's own stop string, if it has one, is longer than any that its failure state ends.
            if nodes[next as usize].stop.is_none() {
                nodes[next as usize].stop = nodes[target as usize].stop;
            }
            queue.push_back(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// The definition: the shortest beginning of the text that ends in a stop string, cut before the longest one.
    fn naive(stops: &[String], text: &str) -> (String, Option<usize>) {
        for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let ending = stops.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(stop.as_str()));
            if let Some((index, stop)) = ending.max_by_key(|(index, stop)| (stop.len(), usize::MAX - index)) {
                return (text[..end - stop.len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    fn streamed(stops: &[String], pieces: &[&str]) -> (String, Option<usize>) {
        let mut detector = StopStrings::new(stops).unwrap();
        let mut out = String::new();
        for piece in pieces {
            detector.push(piece, &mut out);
        }
        detector.flush(&mut out);
        (out, detector.matched())
    }

    #[test]
    fn cuts_before_a_stop_string_spread_over_pieces() {
        let stops = ["<end>".to_owned()];
        assert_eq!(streamed(&stops, &["one <", "e", "nd", "> two"]), ("one ".to_owned(), Some(0)));
        assert_eq!(streamed(&stops, &["one <", "en", "ough"]), ("one <enough".to_owned(), None));
    }

    #[test]
    fn takes_the_match_that_is_complete_first_and_then_the_longest() {
        let stops = ["abcd".to_owned(), "c".to_owned(), "bc".to_owned()];
        assert_eq!(streamed(&stops, &["xabcd"]), ("xa".to_owned(), Some(2)));
        assert_eq!(streamed(&stops, &["x", "a", "b", "c", "d"]), ("xa".to_owned(), Some(2)));
    }

    #[test]
    fn holds_back_only_what_may_begin_a_stop_string() {
        let mut detector = StopStrings::new(["\n\nUser:"]).unwrap();
        let mut out = String::new();
        detector.push("line one\nline two\n", &mut out);
        assert_eq!(out, "line one\nline two");
        detector.push("\nUs", &mut out);
        assert_eq!(out, "line one\nline two");
        detector.push("ual", &mut out);
        assert_eq!(out, "line one\nline two\n\nUsual");
    }

    #[test]
    fn writes_nothing_after_a_match() {
        let mut detector = StopStrings::new(["x"]).unwrap();
        let mut out = String::new();
        assert_eq!(detector.push("axb", &mut out), Some(0));
        assert_eq!(detector.push("more", &mut out), Some(0));
        detector.flush(&mut out);
        assert_eq!(out, "a");
    }

    #[test]
    fn refuses_an_empty_stop_string_by_index() {
        assert_eq!(StopStrings::new(["a", ""]).unwrap_err(), EmptyStopString { index: 1 });
        assert!(StopStrings::new([] as [&str; 0]).is_ok());
    }

    #[test]
    fn takes_linear_time_on_repetitive_text() {
        // The worst case of a naive search: every position begins a near match of 20,000 characters.
        let mut detector = StopStrings::new([format!("{}b", "a".repeat(20_000))]).unwrap();
        let mut out = String::new();
        let start = Instant::now();
        for _ in 0..1_000_000 {
            detector.push("a", &mut out);
        }
        detector.flush(&mut out);
        assert_eq!(out.len(), 1_000_000);
        assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_naive_result(
            stops in prop::collection::vec("[ab€]{1,4}", 0..4),
            pieces in prop::collection::vec("[abc€]{0,4}", 0..12),
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(streamed(&stops, &pieces), naive(&stops, &pieces.concat()));
        }

        #[test]
        fn never_holds_more_than_a_beginning_of_a_stop_string(
            stops in prop::collection::vec("[ab]{1,5}", 1..4),
            pieces in prop::collection::vec("[abc]{1,3}", 1..12),
        ) {
            let mut detector = StopStrings::new(&stops).unwrap();
            let mut out = String::new();
            let mut seen = String::new();
            for piece in &pieces {
                seen.push_str(piece);
                if detector.push(piece, &mut out).is_some() {
                    break;
                }
                let held = &seen[out.len()..];
                prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)), "held {:?}", held);
            }
        }
    }
}
