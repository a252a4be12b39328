//! From token bytes to whole characters, one piece at a time.
//!
//! Tokens cut text at bytes, not at characters: an emoji is often spread over three tokens. [`Utf8Stream`] holds
//! an unfinished character back until the rest arrives, and [`Detokenizer`] adds what SentencePiece vocabularies
//! need at the very start of a text. Both are state of one request.

/// Turns a stream of bytes into whole characters.
///
/// The characters written are those of `String::from_utf8_lossy` over all bytes together, however they are cut:
/// each maximal ill-formed stretch becomes one U+FFFD. Nothing is allocated beyond what the caller's string needs.
///
/// ```
/// use akunu_text::Utf8Stream;
///
/// let mut stream = Utf8Stream::default();
/// let mut text = String::new();
/// stream.push(b"\xe4\xbd", &mut text);
/// assert_eq!(text, "");
/// stream.push(b"\xa0He", &mut text);
/// assert_eq!(text, "\u{4f60}He");
/// stream.flush(&mut text);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The start of a character whose end has not arrived: `pending[..len]`, well-formed so far.
    pending: [u8; 4],
    len: usize,
}

impl Utf8Stream {
    /// Takes the next bytes and appends the characters they complete to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.len > 0 && !bytes.is_empty() {
            bytes = self.extend_pending(bytes, out);
        }
        while !bytes.is_empty() {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => {
                    out.push_str(text);
                    return;
                }
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            out.push_str(&String::from_utf8_lossy(valid));
            match error.error_len() {
                Some(ill_formed) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    bytes = &rest[ill_formed..];
                }
                None => {
                    self.pending[..rest.len()].copy_from_slice(rest);
                    self.len = rest.len();
                    return;
                }
            }
        }
    }

    /// Ends the stream: a character that never became whole is written as U+FFFD. The stream can be used again.
    pub fn flush(&mut self, out: &mut String) {
        if self.len > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
            self.len = 0;
        }
    }

    /// True when an unfinished character is held back.
    pub fn is_pending(&self) -> bool {
        self.len > 0
    }

    /// Adds one byte to the unfinished character; returns the bytes still to be read.
    fn extend_pending<'b>(&mut self, bytes: &'b [u8], out: &mut String) -> &'b [u8] {
        self.pending[self.len] = bytes[0];
        match std::str::from_utf8(&self.pending[..=self.len]) {
            Ok(character) => {
                out.push_str(character);
                self.len = 0;
                &bytes[1..]
            }
            Err(error) if error.error_len().is_none() => {
                self.len += 1;
                &bytes[1..]
            }
            // The new byte cannot continue the character: what was held is one ill-formed stretch, and the byte
            // starts afresh.
            Err(_) => {
                out.push(char::REPLACEMENT_CHARACTER);
                self.len = 0;
                bytes
            }
        }
    }
}

/// Turns the byte strings of successive tokens into text.
///
/// ```
/// use akunu_text::Detokenizer;
///
/// // A SentencePiece vocabulary writes "Hello" as " Hello" at the start of a text.
/// let mut detokenizer = Detokenizer::new(true);
/// let mut text = String::new();
/// for token in [b" Hello".as_slice(), b" world"] {
///     detokenizer.push(token, &mut text);
/// }
/// detokenizer.flush(&mut text);
/// assert_eq!(text, "Hello world");
/// ```
#[derive(Clone, Debug)]
pub struct Detokenizer {
    utf8: Utf8Stream,
    /// True until the first byte has been seen, if its space is to be dropped.
    drop_space: bool,
}

impl Detokenizer {
    /// A detokenizer for one text. `drop_leading_space` says that the tokenizer put an artificial space before
    /// the text; it is false when the text continues a prompt, where a leading space is real.
    pub fn new(drop_leading_space: bool) -> Self {
        Self { utf8: Utf8Stream::default(), drop_space: drop_leading_space }
    }

    /// Takes the bytes of the next token and appends the characters they complete to `out`.
    pub fn push(&mut self, token: &[u8], out: &mut String) {
        let mut bytes = token;
        if self.drop_space && !bytes.is_empty() {
            self.drop_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.utf8.push(bytes, out);
    }

    /// Ends the text: an unfinished character is written as U+FFFD.
    pub fn flush(&mut self, out: &mut String) {
        self.utf8.flush(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream_in_pieces(bytes: &[u8], cuts: &[usize]) -> String {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        let mut rest = bytes;
        for cut in cuts {
            let (piece, tail) = rest.split_at((*cut).min(rest.len()));
            stream.push(piece, &mut text);
            rest = tail;
        }
        stream.push(rest, &mut text);
        stream.flush(&mut text);
        text
    }

    #[test]
    fn holds_back_an_unfinished_character() {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        stream.push(&[0xE4, 0xBD], &mut text);
        assert_eq!(text, "");
        assert!(stream.is_pending());
        stream.push(&[0xA0, 0x48, 0x65], &mut text);
        assert_eq!(text, "你He");
        assert!(!stream.is_pending());
    }

    #[test]
    fn writes_one_replacement_per_maximal_subpart() {
        for bytes in [
            b"\xF0\x9F\x98".as_slice(),
            b"\xF0\x9F\x98A",
            b"\xE0\x80\x80",
            b"\xED\xA0\x80",
            b"\xF4\x90\x80\x80",
            b"\xC0\xAF\xFF\xFE",
            b"\xE4\xBD\xE4\xBD\xA0",
            b"a\x80b\xC2",
        ] {
            let whole = String::from_utf8_lossy(bytes);
            for cut in 0..=bytes.len() {
                assert_eq!(stream_in_pieces(bytes, &[cut]), whole, "{bytes:x?} cut at {cut}");
            }
            assert_eq!(stream_in_pieces(bytes, &vec![1; bytes.len()]), whole, "{bytes:x?} byte by byte");
        }
    }

    #[test]
    fn flushing_twice_writes_nothing_more() {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        stream.push(b"\xF0\x9F", &mut text);
        stream.flush(&mut text);
        stream.flush(&mut text);
        assert_eq!(text, "\u{FFFD}");
    }

    #[test]
    fn does_not_grow_a_string_with_room() {
        let mut stream = Utf8Stream::default();
        let mut text = String::with_capacity(64);
        let before = (text.as_ptr(), text.capacity());
        for _ in 0..1000 {
            text.clear();
            stream.push("né😀".as_bytes(), &mut text);
            assert_eq!(text, "né😀");
        }
        assert_eq!((text.as_ptr(), text.capacity()), before);
    }

    #[test]
    fn drops_only_the_artificial_space() {
        let text = |drop, tokens: &[&[u8]]| {
            let mut detokenizer = Detokenizer::new(drop);
            let mut out = String::new();
            for token in tokens {
                detokenizer.push(token, &mut out);
            }
            detokenizer.flush(&mut out);
            out
        };
        assert_eq!(text(true, &[b"", b"  a", b" b"]), " a b");
        assert_eq!(text(true, &[b"a", b" b"]), "a b");
        assert_eq!(text(false, &[b" a", b" b"]), " a b");
        assert_eq!(text(true, &[b" \xF0", b"\x9F\x98\x80"]), "😀");
    }

    proptest! {
        #[test]
        fn any_split_of_any_bytes_equals_lossy_decoding_of_the_whole(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..6),
                    any::<char>().prop_map(|c| c.to_string().into_bytes()),
                    prop::collection::vec(prop::sample::select(vec![0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x80, 0xED, 0x41]), 0..6),
                ],
                0..12,
            ),
            cuts in prop::collection::vec(0usize..5, 0..40),
        ) {
            let bytes = pieces.concat();
            prop_assert_eq!(stream_in_pieces(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }
    }
}
