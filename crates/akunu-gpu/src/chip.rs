//! Choices that depend on the device, made from what it reports and nothing else.

use crate::host::Facts;

/// What the dispatch table needs to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipConfig {
    /// Threadgroups that share the search for the best token of one output.
    pub blocks: u32,
    /// Whether prompts are multiplied by the `tensor_*` kernels.
    pub tensor: bool,
    /// Whether the last threadgroup of a row's attention adds its parts.
    pub ordered: bool,
    /// Threadgroups that share the rows of a wide product: as many as run at once.
    pub wide: u32,
    /// Bytes of threadgroup memory that the rows of such a product share.
    pub room: u32,
    /// Turns of a chain that are asked for at once, at most; between them the stop flag is read.
    pub chain: u32,
}

impl ChipConfig {
    /// The choices for a device.
    pub fn new(facts: &Facts) -> ChipConfig {
        // A threadgroup for each unit, and no more than one SIMD group can merge at once.
        let blocks = facts.units.clamp(1, 128);
        let (wide, chain) = (facts.units.max(1), if facts.units > 1 { 16 } else { 1 });
        ChipConfig { blocks, tensor: facts.tensor, ordered: facts.ordered, wide, room: facts.room, chain }
    }

    /// Turns of a chain whose tokens the device remembers: those of two stretches, of which one may run while the other is read.
    pub(crate) fn turns(self) -> u32 {
        2 * self.chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_devices_share_the_search_more_widely() {
        let facts = |units| Facts {
            name: String::new(),
            units,
            memory: 0,
            tensor: false,
            ordered: true,
            room: 1 << 14,
        };
        let one = ChipConfig { blocks: 1, tensor: false, ordered: true, wide: 1, room: 1 << 14, chain: 1 };
        assert_eq!(ChipConfig::new(&facts(1)), one);
        assert_eq!(ChipConfig::new(&facts(10)).blocks, 10);
        assert_eq!(ChipConfig::new(&facts(132)), ChipConfig { blocks: 128, wide: 132, chain: 16, ..one });
    }
}
