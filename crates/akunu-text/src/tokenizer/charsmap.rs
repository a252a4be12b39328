//! SentencePiece's own normalisation: a table of texts and what they become, as a file holds it.

use unicode_segmentation::UnicodeSegmentation;

/// Texts and what they become.
#[derive(Debug)]
pub(crate) struct CharsMap {
    /// A trie in a double array: each unit tells where its children are, and by which byte it is reached.
    units: Vec<u32>,
    /// All replacements, each with a zero after it.
    replacements: String,
    lookup: Lookup,
}

/// What is looked up in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// Short graphemes, and the characters of all others: what one begins with decides on all of it. So does Hugging Face's library.
    Graphemes,
    /// At each place the longest text of the table that is there: SentencePiece itself, and llama.cpp.
    Longest,
}

/// Bytes of the longest grapheme that is looked up as one. The library whose results count has this limit.
const LONGEST_GRAPHEME: usize = 5;

/// Bytes of the longest text that is found: looking for one may take time in proportion to it, at every place. Models have up to 10.
const LONGEST_ENTRY: usize = 64;

impl CharsMap {
    /// The table in a file; `None` where its parts do not fit together.
    pub fn read(bytes: &[u8], lookup: Lookup) -> Option<CharsMap> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (units, replacements) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
        let (units, []) = units.as_chunks() else { return None };
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Some(CharsMap { units, replacements: str::from_utf8(replacements).ok()?.to_owned(), lookup })
    }

    pub fn apply(&self, text: &str) -> String {
        let mut result = String::with_capacity(text.len() + text.len() / 8);
        match self.lookup {
            Lookup::Graphemes => {
                text.graphemes(true).for_each(|grapheme| self.replace(grapheme, &mut result));
            }
            Lookup::Longest => {
                let mut rest = text;
                while let Some(c) = rest.chars().next() {
                    let whole = self.entries(rest).filter(|&(len, _)| rest.is_char_boundary(len));
                    let (len, becomes) = whole.last().unwrap_or((c.len_utf8(), &rest[..c.len_utf8()]));
                    result.push_str(becomes);
                    rest = &rest[len..];
                }
            }
        }
        result
    }

    /// Appends what a grapheme becomes.
    fn replace(&self, grapheme: &str, result: &mut String) {
        let shortest = |text| self.entries(text).next().map(|(_, becomes)| becomes);
        let whole = Some(grapheme).filter(|grapheme| grapheme.len() <= LONGEST_GRAPHEME);
        if let Some(becomes) = whole.and_then(shortest) {
            return result.push_str(becomes);
        }
        let mut character = [0; 4];
        for c in grapheme.chars() {
            let c = &*c.encode_utf8(&mut character);
            result.push_str(self.entries(c).next().map_or(c, |(_, becomes)| becomes));
        }
    }

    /// At most how many times as many bytes a text has afterwards: as many as the entry that grows most.
    ///
    /// A damaged trie may have loops, and one without them more texts than could be listed. Level by level, each of its units
    /// is reached first by its shortest text, which is the one that counts.
    pub fn growth(&self) -> usize {
        let unit = |place: &u32| Unit(self.units[*place as usize]);
        // What a unit's parent points to follows from its own place: all units, those with the same parent together.
        let parent = |place: &u32| place ^ unit(place).label();
        let mut children: Vec<u32> = Vec::with_capacity(self.units.len());
        let places = (0..=u32::MAX).take(self.units.len());
        children.extend(places.filter(|place| (1..256).contains(&unit(place).label())));
        children.sort_unstable_by_key(parent);
        let mut seen = vec![false; children.len()];
        let ends = self.ends();
        let mut level: Vec<u32> = self.unit(0).map(Unit::children).into_iter().collect();
        let mut growth = 1;
        for len in 1..=LONGEST_ENTRY {
            for below in std::mem::take(&mut level) {
                let first = children.partition_point(|place| parent(place) < below);
                if seen.get(first).is_none_or(|seen| *seen) {
                    continue;
                }
                for place in children[first..].iter().take_while(|place| parent(place) == below) {
                    seen[first] = true;
                    let below = place ^ unit(place).children();
                    level.push(below);
                    if unit(place).has_value()
                        && let Some(value) = self.unit(below).map(Unit::value)
                    {
                        let end = ends.get(ends.partition_point(|&end| end < value));
                        let end = end.map_or(self.replacements.len(), |&end| end as usize);
                        growth = growth.max(end.saturating_sub(value as usize).div_ceil(len));
                    }
                }
            }
        }
        growth
    }

    /// Where the replacements end.
    fn ends(&self) -> Vec<u32> {
        let ends = || self.replacements.bytes().zip(0..=u32::MAX).filter(|&(byte, _)| byte == 0);
        let mut list = Vec::with_capacity(ends().count());
        list.extend(ends().map(|(_, end)| end));
        list
    }

    /// The texts of the table that `text` begins with, the shortest first: their bytes, and what they become.
    fn entries<'a>(&'a self, text: &str) -> impl Iterator<Item = (usize, &'a str)> {
        let bytes = text.bytes().take(LONGEST_ENTRY).take_while(|&byte| byte != 0);
        let mut place = self.unit(0).map(Unit::children);
        let reached = bytes.zip(1..).map_while(move |(byte, len)| {
            let here = place? ^ u32::from(byte);
            let unit = self.unit(here).filter(|unit| unit.label() == u32::from(byte))?;
            let below = here ^ unit.children();
            place = Some(below);
            Some((len, unit.has_value().then_some(below)))
        });
        reached.filter_map(|(len, value)| {
            let becomes = self.replacements.get(self.unit(value?)?.value() as usize..)?;
            becomes.split('\0').next().map(|becomes| (len, becomes))
        })
    }

    fn unit(&self, place: u32) -> Option<Unit> {
        self.units.get(place as usize).map(|&bits| Unit(bits))
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
