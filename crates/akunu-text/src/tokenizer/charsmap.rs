//! SentencePiece's own normalisation: a table of texts and what they become, as a file holds it.

use unicode_segmentation::UnicodeSegmentation;

/// Texts and what they become.
#[derive(Debug)]
pub(crate) struct CharsMap {
    /// A trie in a double array: each unit tells where its children are, and by which byte it is reached.
    units: Vec<u32>,
    /// All replacements, each with a zero after it.
    replacements: String,
}

/// Bytes of the longest grapheme that is looked up as one. The library whose results count has this limit.
const LONGEST_GRAPHEME: usize = 5;

impl CharsMap {
    /// The table in a file; `None` where its parts do not fit together.
    pub fn read(bytes: &[u8]) -> Option<CharsMap> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (units, replacements) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
        let (units, []) = units.as_chunks() else { return None };
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Some(CharsMap { units, replacements: str::from_utf8(replacements).ok()?.to_owned() })
    }

    pub fn apply(&self, text: &str) -> String {
        let mut result = String::with_capacity(text.len() + text.len() / 8);
        let mut character = [0; 4];
        for grapheme in text.graphemes(true) {
            let whole = Some(grapheme).filter(|grapheme| grapheme.len() <= LONGEST_GRAPHEME);
            if let Some(replacement) = whole.and_then(|grapheme| self.find(grapheme)) {
                result.push_str(replacement);
                continue;
            }
            for c in grapheme.chars() {
                let c = &*c.encode_utf8(&mut character);
                result.push_str(self.find(c).unwrap_or(c));
            }
        }
        result
    }

    /// At most how many times as many bytes a text has afterwards.
    pub fn growth(&self) -> usize {
        self.replacements.split('\0').map(str::len).max().unwrap_or(0).max(1)
    }

    /// What the shortest text in the table becomes that `text` begins with. All of `text` is taken to be replaced by it, as in the library
    /// whose results count.
    fn find(&self, text: &str) -> Option<&str> {
        let unit = |place: u32| self.units.get(place as usize).map(|&bits| Unit(bits));
        let mut place = unit(0)?.children();
        for byte in text.bytes().take_while(|&byte| byte != 0) {
            place ^= u32::from(byte);
            let reached = unit(place).filter(|unit| unit.label() == u32::from(byte))?;
            place ^= reached.children();
            if reached.has_value() {
                let replacement = self.replacements.get(unit(place)?.value() as usize..)?;
                return replacement.split('\0').next();
            }
        }
        None
    }
}

/// One unit of the trie.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// The byte it is reached by; more than any byte for a unit that holds a value.
    fn label(self) -> u32 {
        self.0 & 0x8000_00ff
    }

    /// What its place is combined with to get to its children's.
    fn children(self) -> u32 {
        (self.0 >> 10) << ((self.0 & 0x200) >> 6)
    }

    fn has_value(self) -> bool {
        self.0 & 0x100 != 0
    }

    fn value(self) -> u32 {
        self.0 & 0x7fff_ffff
    }
}
