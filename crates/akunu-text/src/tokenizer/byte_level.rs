//! The printable alphabet in which byte-level vocabularies are written down.
//!
//! Bytes that are printable characters of Latin-1 stand for themselves; the other 68, in order, are written as
//! U+0100 and up. A space is `Ġ`, a newline `Ċ`.

/// Characters of the alphabet are below this.
const LIMIT: usize = 0x100 + 68;

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// For each character below [`LIMIT`] the byte it stands for, or -1.
static BYTES: [i16; LIMIT] = {
    let mut table = [-1; LIMIT];
    let (mut byte, mut shifted) = (0, 0x100);
    while byte < 0x100 {
        if stands_for_itself(byte as u8) {
            table[byte] = byte as i16;
        } else {
            table[shifted] = byte as i16;
            shifted += 1;
        }
        byte += 1;
    }
    table
};

/// Appends the bytes `text` stands for; false when it holds a character that stands for none.
pub(crate) fn decode(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        // The alphabet's characters are one or two bytes of UTF-8.
        let character = match first {
            0..0x80 => usize::from(first),
            0xc0..0xe0 => {
                let Some((&second @ 0x80..0xc0, after)) = rest.split_first() else { return false };
                rest = after;
                usize::from(first & 0x1f) << 6 | usize::from(second & 0x3f)
            }
            _ => return false,
        };
        let Some(byte) = BYTES.get(character).and_then(|&byte| u8::try_from(byte).ok()) else { return false };
        bytes.push(byte);
    }
    true
}

/// Bytes as byte-level vocabularies spell them, such as `Ġthe` for a space and "the".
pub fn spell_bytes(bytes: &[u8]) -> String {
    let character = |&byte: &u8| {
        let at = BYTES.iter().position(|&known| known == i16::from(byte)).unwrap_or_default();
        char::from_u32(at as u32).unwrap_or_default()
    };
    bytes.iter().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut seen = [false; 256];
        BYTES.iter().filter_map(|&b| u8::try_from(b).ok()).for_each(|b| seen[b as usize] = true);
        assert!(seen.iter().all(|&s| s));
        assert_eq!(BYTES.iter().filter(|&&b| b >= 0).count(), 256);
    }

    #[test]
    fn characters_stand_for_the_bytes_of_the_published_table() {
        let mut bytes = Vec::new();
        assert!(decode("ĠHi!ĊłŃġ".as_bytes(), &mut bytes));
        assert_eq!(bytes, b" Hi!\n\xa0\xad\x7f");
        assert_eq!(spell_bytes(&bytes), "ĠHi!ĊłŃġ");
        assert!(!decode(b"a\xc4", &mut bytes));
        assert!(!decode(b"a b", &mut bytes));
        assert!(!decode("▁".as_bytes(), &mut bytes));
    }
}
