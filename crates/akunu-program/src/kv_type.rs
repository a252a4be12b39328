//! How keys and values are kept in the cache.

use std::fmt;
use std::str::FromStr;

use half::f16;

use crate::Error;

/// Consecutive elements of a head that share a scale in [`KvType::Q8_0`]; the last of a head may be fewer.
pub const KV_GROUP: usize = 32;

/// How keys and values are kept in the cache.
///
/// ```
/// use akunu_program::KvType;
///
/// assert_eq!("q8_0".parse::<KvType>()?, KvType::Q8_0);
/// # Ok::<(), akunu_program::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision, or better.
    #[default]
    F16,
    /// 8-bit integers: every [`KV_GROUP`] elements of a head at one position under one F16 scale, as [`round_to_q8`]
    /// defines. A little over half the memory.
    Q8_0,
}

impl KvType {
    /// All of them.
    pub const ALL: [KvType; 2] = [KvType::F16, KvType::Q8_0];

    /// The name users give with `--kv`.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }

    /// Bytes that `elements` consecutive elements of one head take.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            KvType::F16 => elements * size_of::<f16>(),
            KvType::Q8_0 => elements + elements.div_ceil(KV_GROUP) * size_of::<f16>(),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvType {
    type Err = Error;

    fn from_str(name: &str) -> Result<KvType, Error> {
        KvType::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| Error::Unsupported {
            what: format!("a KV cache of \"{name}\""),
            supported: KvType::ALL.map(KvType::name).join(", "),
        })
    }
}

/// What [`KvType::Q8_0`] keeps of one head: in each group the scale is the largest magnitude / 127, rounded to F16, and each
/// element the nearest of -127..=127 times it.
pub fn round_to_q8(head: &mut [f32]) {
    for group in head.chunks_mut(KV_GROUP) {
        let largest = group.iter().fold(0f32, |most, x| most.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0).to_f32();
        for x in group {
            *x = if scale > 0.0 { (*x / scale).round_ties_even().clamp(-127.0, 127.0) * scale } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_largest_to_eleven_bits_and_the_rest_to_half_a_step() {
        let mut head: Vec<f32> = (0..80).map(|i| ((i * 37 % 80) as f32 - 40.0) / 7.0).collect();
        let before = head.clone();
        round_to_q8(&mut head);
        for (kept, group) in head.chunks(KV_GROUP).zip(before.chunks(KV_GROUP)) {
            let largest = group.iter().fold(0f32, |most, x| most.max(x.abs()));
            let step = largest / 127.0 * (1.0 + 1.0 / 2048.0);
            // The scale may be rounded down: the largest is then clamped.
            for (kept, x) in kept.iter().zip(group) {
                assert!((kept - x).abs() <= step / 2.0 + largest / 2048.0, "{x} became {kept}");
            }
        }
        let again = head.clone();
        round_to_q8(&mut head);
        assert!(head.iter().zip(&again).all(|(a, b)| (a - b).abs() <= 1e-2), "nearly a fixed point");
    }

    #[test]
    fn zeros_and_the_unspeakably_small_become_zero() {
        let mut head = [0.0, 1e-9, -1e-9];
        round_to_q8(&mut head);
        assert_eq!(head, [0.0; 3]);
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for kind in KvType::ALL {
            assert_eq!(kind.name().parse::<KvType>().unwrap(), kind);
        }
        let error = "q4_0".parse::<KvType>().unwrap_err().to_string();
        assert!(error.contains("q4_0") && error.contains("f16, q8_0"), "{error}");
    }
}
