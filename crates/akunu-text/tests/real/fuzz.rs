//! Generated strings and hashes of what they encode to, as scripts/oracle/tokenizer_ids.py makes them.

use std::collections::HashMap;

use serde::Deserialize;

/// Strings in all.
pub const STRINGS: u64 = 10_000;
/// Strings to a hash.
pub const BLOCK: usize = 100;

#[derive(Deserialize)]
struct Pool {
    fragments: Vec<String>,
    ranges: Vec<(u32, u32)>,
}

/// Strings out of fragments and random characters, by a linear congruential generator.
pub struct Generator {
    pool: Pool,
    state: u64,
}

impl Generator {
    pub fn new() -> Self {
        Self {
            pool: serde_json::from_str(include_str!("../fixtures/fuzz-fragments.json")).unwrap(),
            state: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as usize % limit
    }

    pub fn string(&mut self, number: u64) -> String {
        self.state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let mut text = String::new();
        for _ in 0..1 + self.below(24) {
            match self.below(8) {
                0 => {
                    let range = self.below(self.pool.ranges.len());
                    let (first, last) = self.pool.ranges[range];
                    for _ in 0..1 + self.below(4) {
                        let c = first + self.below((last - first + 1) as usize) as u32;
                        text.push(char::from_u32(c).unwrap());
                    }
                }
                1 => {
                    let fragment = self.below(self.pool.fragments.len());
                    let times = 1 + self.below(5);
                    text.push_str(&self.pool.fragments[fragment].repeat(times));
                }
                _ => {
                    let fragment = self.below(self.pool.fragments.len());
                    text.push_str(&self.pool.fragments[fragment]);
                }
            }
        }
        text
    }
}

/// The contents of fixtures/fuzz-ids.json.
#[derive(Deserialize)]
pub struct Expected {
    /// Hashes of the strings themselves.
    pub strings: Vec<String>,
    pub tokenizers: HashMap<String, Hashes>,
}

#[derive(Deserialize)]
pub struct Hashes {
    pub parse: Vec<String>,
    pub plain: Vec<String>,
    pub decoded: Vec<String>,
    pub samples: Vec<Vec<u32>>,
}

impl Expected {
    pub fn read() -> Self {
        serde_json::from_str(include_str!("../fixtures/fuzz-ids.json")).unwrap()
    }
}

/// One FNV-1a hash for each block of items.
pub fn block_hashes(items: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    let items: Vec<_> = items.collect();
    let hash = |block: &[Vec<u8>]| {
        let bytes = block.iter().flat_map(|item| item.iter().chain(&[255; 4]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |state: u64, &byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    items.chunks(BLOCK).map(|block| format!("{:016x}", hash(block))).collect()
}

/// Fails with the numbers of the blocks that differ.
pub fn assert_same_blocks(what: &str, found: &[String], expected: &[String]) {
    assert_eq!(found.len(), expected.len(), "{what}: so many blocks");
    let differ: Vec<usize> = (0..expected.len()).filter(|&i| found.get(i) != expected.get(i)).collect();
    assert!(differ.is_empty(), "{what}: {} of {} blocks differ: {differ:?}", differ.len(), expected.len());
}
