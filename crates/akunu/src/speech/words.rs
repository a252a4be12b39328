//! Words of segments and when they are said.

use akunu_text::Tokenizer;

use super::tokens::Tokens;
use super::transcription::{Segment, Word};

/// Belongs to the word after it.
const BEFORE_WORDS: &str = "\"'“¿([{-";
/// Belongs to the word before it.
const AFTER_WORDS: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Languages that are written without spaces: every character is a word of its own.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];
/// A word is rarely longer, in seconds, whatever the others are.
const LONG_WORD: f64 = 0.7;
/// A word may stick out of its segment by so much, in seconds, before the segment's times are trusted more.
const SLACK: f64 = 0.5;

/// A word while its times are being found; times are in seconds of the window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timed {
    pub text: String,
    pub tokens: usize,
    pub start: f64,
    pub end: f64,
    pub probability: f32,
}

/// Text tokens as words, and how many tokens each has.
pub(super) fn split(
    tokenizer: &Tokenizer,
    tokens: &Tokens,
    language: &str,
    text: &[u32],
) -> Vec<(String, usize)> {
    let characters = split_characters(tokenizer, text);
    if WITHOUT_SPACES.contains(&language) {
        return characters;
    }
    debug_assert!(text.iter().all(|&token| token < tokens.end));
    let mut words: Vec<(String, usize)> = Vec::new();
    for (piece, count) in characters {
        match words.last_mut() {
            Some((word, total)) if !piece.starts_with(' ') && !PUNCTUATION.contains(piece.trim()) => {
                word.push_str(&piece);
                *total += count;
            }
            _ => words.push((piece, count)),
        }
    }
    words
}

/// The shortest runs of tokens that are whole characters, or that no others would make whole.
fn split_characters(tokenizer: &Tokenizer, text: &[u32]) -> Vec<(String, usize)> {
    const BROKEN: char = char::REPLACEMENT_CHARACTER;
    let bytes = |tokens: &[u32]| -> Vec<u8> {
        tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).iter().copied()).collect()
    };
    let whole: Vec<char> = String::from_utf8_lossy(&bytes(text)).chars().collect();
    let mut pieces = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for end in 1..=text.len() {
        let piece = String::from_utf8_lossy(&bytes(&text[start..end])).into_owned();
        let broken = piece.chars().position(|c| c == BROKEN);
        if broken.is_none_or(|at| whole.get(offset + at) == Some(&BROKEN)) {
            offset += piece.chars().count();
            pieces.push((piece, end - start));
            start = end;
        }
    }
    pieces
}

/// The median length of words, at most [`LONG_WORD`]; words at the ends of sentences that are longer than twice as much are cut.
pub(super) fn cut_at_sentences(words: &mut [Timed]) -> f64 {
    let mut lengths: Vec<f64> =
        words.iter().map(|word| word.end - word.start).filter(|&length| length != 0.0).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let median = match lengths.len() {
        0 => return 0.0,
        count if count % 2 == 1 => lengths[count / 2],
        count => (lengths[count / 2 - 1] + lengths[count / 2]) / 2.0,
    };
    let median = median.min(LONG_WORD);
    let longest = 2.0 * median;
    for i in 1..words.len() {
        let ends_before = SENTENCE_ENDS.contains(words[i - 1].text.as_str());
        let word = &mut words[i];
        if word.end - word.start > longest {
            if SENTENCE_ENDS.contains(word.text.as_str()) {
                word.end = word.start + longest;
            } else if ends_before {
                word.start = word.end - longest;
            }
        }
    }
    median
}

/// Puts punctuation to the words it belongs to; its own words stay behind, empty.
pub(super) fn merge_punctuation(words: &mut [Timed]) {
    let mut following = words.len().saturating_sub(1);
    for i in (0..following).rev() {
        let text = &words[i].text;
        if text.starts_with(' ') && BEFORE_WORDS.contains(text.trim()) {
            let (text, tokens) = take(&mut words[i]);
            words[following].text.insert_str(0, &text);
            words[following].tokens += tokens;
        } else {
            following = i;
        }
    }
    let mut previous = 0;
    for i in 1..words.len() {
        if !words[previous].text.ends_with(' ') && AFTER_WORDS.contains(words[i].text.as_str()) {
            let (text, tokens) = take(&mut words[i]);
            words[previous].text.push_str(&text);
            words[previous].tokens += tokens;
        } else {
            previous = i;
        }
    }
}

fn take(word: &mut Timed) -> (String, usize) {
    (std::mem::take(&mut word.text), std::mem::take(&mut word.tokens))
}

/// Gives segments their words. `counts` are the text tokens of each, `offset` is where the window begins and `spoken` where speech
/// before it ended, in seconds. Gives where speech ends now.
pub(super) fn distribute(
    segments: &mut [Segment],
    counts: &[usize],
    words: &[Timed],
    median: f64,
    offset: f64,
    mut spoken: f64,
) -> f64 {
    let mut rest = words.iter();
    for (segment, &count) in segments.iter_mut().zip(counts) {
        let mut taken = 0;
        let mut words = Vec::new();
        while taken < count
            && let Some(word) = rest.next()
        {
            taken += word.tokens;
            if !word.text.is_empty() {
                words.push(Word {
                    word: word.text.clone(),
                    start: hundredths(offset + word.start),
                    end: hundredths(offset + word.end),
                    probability: word.probability,
                });
            }
        }
        if !words.is_empty() {
            settle(segment, &mut words, median, spoken);
            spoken = segment.end;
        }
        segment.words = Some(words);
    }
    spoken
}

/// Brings the times of a segment and of its words together.
fn settle(segment: &mut Segment, words: &mut [Word], median: f64, spoken: f64) {
    let longest = 2.0 * median;
    let length = |word: &Word| word.end - word.start;
    // After a pause, the first two words tend to begin too early.
    let together = words.get(1).is_some_and(|second| second.end - words[0].start > 2.0 * longest);
    if words[0].end - spoken > 4.0 * median && (length(&words[0]) > longest || together) {
        if let Some(second) = words.get(1).filter(|second| length(second) > longest) {
            let boundary = (second.end / 2.0).max(second.end - longest);
            words[0].end = boundary;
            words[1].start = boundary;
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    let first = &mut words[0];
    if segment.start < first.end && segment.start - SLACK > first.start {
        first.start = (first.end - median).min(segment.start).max(0.0);
    } else {
        segment.start = first.start;
    }
    if let Some(last) = words.last_mut() {
        if segment.end > last.start && segment.end + SLACK < last.end {
            last.end = (last.start + median).max(segment.end);
        } else {
            segment.end = last.end;
        }
    }
}

fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(words: &[(&str, f64, f64)]) -> Vec<Timed> {
        let word = |&(text, start, end): &(&str, f64, f64)| Timed {
            text: text.to_owned(),
            tokens: 1,
            start,
            end,
            probability: 0.5,
        };
        words.iter().map(word).collect()
    }

    fn segment(start: f64, end: f64) -> Segment {
        Segment { start, end, ..Segment::default() }
    }

    #[test]
    fn punctuation_goes_to_its_word() {
        let mut words = timed(&[
            (" “", 0.0, 0.1),
            ("Yes", 0.1, 0.4),
            (",", 0.4, 0.5),
            (" no", 0.5, 0.8),
            ("?", 0.8, 0.9),
        ]);
        merge_punctuation(&mut words);
        let texts: Vec<(&str, usize)> = words.iter().map(|word| (word.text.as_str(), word.tokens)).collect();
        assert_eq!(texts, [("", 0), (" “Yes,", 3), ("", 0), (" no?", 2), ("", 0)]);
        merge_punctuation(&mut []);
    }

    #[test]
    fn long_words_are_cut_at_the_ends_of_sentences() {
        let mut words = timed(&[(" a", 0.0, 0.25), (" b", 0.25, 0.5), (".", 0.5, 3.0), (" c", 3.0, 3.25)]);
        assert_eq!(cut_at_sentences(&mut words), 0.25);
        assert_eq!(words[2].end, 1.0);
        let mut words = timed(&[(" a", 0.0, 0.25), (".", 0.25, 0.5), (" b", 0.5, 3.0)]);
        cut_at_sentences(&mut words);
        assert_eq!(words[2].start, 2.5);
        assert_eq!(cut_at_sentences(&mut []), 0.0);
    }

    #[test]
    fn segments_get_their_words_and_their_times() {
        let words = timed(&[(" a", 0.1, 0.3), (" b", 0.3, 0.5), (" c", 0.5, 0.9)]);
        let mut segments = [segment(10.0, 10.5), segment(10.5, 12.0)];
        let spoken = distribute(&mut segments, &[2, 1], &words, 0.2, 10.0, 10.0);
        let first = segments[0].words.as_ref().unwrap();
        assert_eq!((first.len(), first[1].word.as_str(), first[1].start), (2, " b", 10.3));
        assert_eq!((segments[0].start, segments[0].end), (10.1, 10.5));
        assert_eq!((segments[1].start, segments[1].end, spoken), (10.5, 10.9, 10.9));
    }

    #[test]
    fn a_first_word_after_a_pause_is_not_longer_than_two_others() {
        let words = timed(&[(" a", 0.0, 3.0), (" b", 3.0, 3.2)]);
        let mut segments = [segment(2.5, 3.2)];
        distribute(&mut segments, &[2], &words, 0.2, 0.0, 0.0);
        assert_eq!(segments[0].words.as_ref().unwrap()[0].start, 2.6);
        assert_eq!(segments[0].start, 2.6);
    }
}
