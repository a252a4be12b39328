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

/// Replaces `bytes` with those `text` stands for; false when it holds a character that stands for none.
pub(crate) fn decode(text: &str, bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    text.chars().all(|c| {
        let byte = BYTES.get(c as usize).and_then(|&byte| u8::try_from(byte).ok());
        bytes.extend(byte);
        byte.is_some()
    })
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
        assert!(decode("ĠHi!ĊłŃġ", &mut bytes));
        assert_eq!(bytes, b" Hi!\n\xa0\xad\x7f");
        assert!(!decode("a b", &mut bytes));
        assert!(!decode("▁", &mut bytes));
    }
}
