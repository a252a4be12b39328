//! The KV cache as sequences see it: one [`Pool`] of blocks for each group of layers, shared by all sequences, and one
//! [`Table`] per group in each sequence.

use akunu_program::program::{GroupId, KvGroup};
use akunu_program::{BLOCK, BlockCopy, KeyShift, SlotEdit, SlotId};

use crate::blocks::{Pool, Table};
use crate::{Error, Result};

/// The blocks of all groups.
#[derive(Debug)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    /// Enough blocks for `sequences` sequences of `context` positions that are fed at most `rows` at a time.
    pub(crate) fn sizes(groups: &[KvGroup], sequences: usize, context: usize, rows: usize) -> Vec<u32> {
        let blocks = |group: &KvGroup| sequences * Table::most_blocks(group.window, context, rows);
        // More than can be counted is more than there is memory for, and will be refused as that.
        groups.iter().map(|group| u32::try_from(blocks(group)).unwrap_or(u32::MAX)).collect()
    }

    pub(crate) fn new(sizes: &[u32]) -> Pools {
        Pools(sizes.iter().map(|&blocks| Pool::new(blocks)).collect())
    }

    /// The blocks of one group.
    pub(crate) fn group(&mut self, group: usize) -> &mut Pool {
        &mut self.0[group]
    }
}

/// The blocks a sequence can begin with in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Index of the first; those before it lie behind the window.
    pub first: usize,
    /// The blocks from there on.
    pub blocks: Vec<u32>,
}

/// Where the positions of one sequence lie.
#[derive(Debug)]
pub(crate) struct Tables {
    tables: Vec<Table>,
    /// Copies that are still to be made; their sources are held until then.
    copies: Vec<BlockCopy>,
    /// Keys that are still to be rotated, after the copies.
    shifts: Vec<KeyShift>,
}

impl Tables {
    pub(crate) fn new(groups: &[KvGroup]) -> Tables {
        let table = |(i, group): (usize, &KvGroup)| Table::new(GroupId(i as u32), group.window);
        Tables {
            tables: groups.iter().enumerate().map(table).collect(),
            copies: Vec::new(),
            shifts: Vec::new(),
        }
    }

    /// Makes positions `len..end` writable without touching what others share.
    pub(crate) fn reserve(&mut self, pools: &mut Pools, len: usize, end: usize) -> Result<()> {
        for (table, pool) in self.tables.iter_mut().zip(&mut pools.0) {
            table
                .reserve(pool, len, end, &mut self.copies)
                .map_err(|out| Error::CacheFull { needed: out.needed * BLOCK, free: out.free * BLOCK })?;
        }
        Ok(())
    }

    /// Begins empty tables with blocks of others: one prefix for each group.
    pub(crate) fn adopt(&mut self, pools: &mut Pools, prefixes: Vec<Prefix>) {
        for ((table, pool), prefix) in self.tables.iter_mut().zip(&mut pools.0).zip(prefixes) {
            table.adopt(pool, prefix.first, prefix.blocks);
        }
    }

    /// The blocks at that index, one for each group that still holds it.
    pub(crate) fn blocks(&self, index: usize) -> Vec<Option<u32>> {
        self.tables.iter().map(|table| table.block(index)).collect()
    }

    /// Copies the next run must make.
    pub(crate) fn copies(&self) -> &[BlockCopy] {
        &self.copies
    }

    /// Rotations the next run must make.
    pub(crate) fn shifts(&self) -> &[KeyShift] {
        &self.shifts
    }

    /// Adds the changes the next run must make to the slot's tables.
    pub(crate) fn edits<'a>(&'a self, slot: SlotId, edits: &mut Vec<SlotEdit<'a>>) {
        for table in &self.tables {
            let group = table.group();
            let (first, blocks) = table.untold();
            if !blocks.is_empty() {
                edits.push(SlotEdit::Blocks { slot, group, first: first as u32, blocks });
            }
        }
    }

    /// The run has made the copies, the rotations and the edits.
    pub(crate) fn settle(&mut self, pools: &mut Pools) {
        self.tables.iter_mut().for_each(Table::told);
        self.shifts.clear();
        for copy in self.copies.drain(..) {
            pools.0[copy.group.0 as usize].release(copy.from);
        }
    }

    /// Gives up what lies behind the windows of a sequence of `len` positions.
    pub(crate) fn forget_before_window(&mut self, pools: &mut Pools, len: usize) {
        self.tables
            .iter_mut()
            .zip(&mut pools.0)
            .for_each(|(table, pool)| table.forget_before_window(pool, len));
    }

    /// Whether a row at position `len` still finds all it sees.
    pub(crate) fn remembers(&self, len: usize) -> bool {
        self.tables.iter().all(|table| table.remembers(len))
    }

    /// Gives up the positions from `len` on. Only for a length it [`remembers`](Self::remembers).
    pub(crate) fn truncate(&mut self, pools: &mut Pools, len: usize) {
        self.tables.iter_mut().zip(&mut pools.0).for_each(|(table, pool)| table.truncate(pool, len));
        // After a run that failed a copy may be pending whose target is now someone else's to take.
        self.copies.retain(|copy| {
            let needed = self.tables[copy.group.0 as usize].holds(copy.to);
            if !needed {
                pools.0[copy.group.0 as usize].release(copy.from);
            }
            needed
        });
    }

    /// Whether a sequence of `len` positions can go without `dropped` blocks after the first `kept`.
    pub(crate) fn can_shift(&self, len: usize, kept: usize, dropped: usize) -> bool {
        self.tables.iter().all(|table| table.can_shift(len, kept, dropped))
    }

    /// Gives up `dropped` blocks after the first `kept` and moves those behind to their place; the next run must make the
    /// copies and the rotations. After an error the sequence is of no use.
    pub(crate) fn shift(&mut self, pools: &mut Pools, kept: usize, dropped: usize) -> Result<()> {
        for (table, pool) in self.tables.iter_mut().zip(&mut pools.0) {
            table
                .shift(pool, kept, dropped, &mut self.copies, &mut self.shifts)
                .map_err(|out| Error::CacheFull { needed: out.needed * BLOCK, free: out.free * BLOCK })?;
        }
        Ok(())
    }

    /// Gives up everything.
    pub(crate) fn clear(&mut self, pools: &mut Pools) {
        self.settle(pools);
        self.tables.iter_mut().zip(&mut pools.0).for_each(|(table, pool)| table.clear(pool));
    }

    /// Tables that share the first `len` positions.
    pub(crate) fn fork(&self, pools: &mut Pools, len: usize) -> Tables {
        let fork = |(table, pool): (&Table, &mut Pool)| table.fork(pool, len);
        let tables = self.tables.iter().zip(&mut pools.0).map(fork).collect();
        Tables { tables, copies: Vec::new(), shifts: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_a_window_have_blocks_for_their_window_alone() {
        let whole = KvGroup { layers: 1, kv_heads: 1, head_dim: 8, window: None };
        let window = KvGroup { window: Some(512), ..whole.clone() };
        let sizes = Pools::sizes(&[whole, window], 3, 4096, 512);
        // Beside the window: what may be taken back, one batch, and the ends of blocks.
        assert_eq!(sizes, [3 * 64, 3 * (8 + 1 + 8 + 1)]);
    }

    #[test]
    fn a_pending_copy_goes_with_its_target() {
        let group = KvGroup { layers: 1, kv_heads: 1, head_dim: 8, window: None };
        let mut pools = Pools::new(&[4]);
        let mut first = Tables::new(std::slice::from_ref(&group));
        first.reserve(&mut pools, 0, 100).unwrap();
        first.settle(&mut pools);
        let mut second = first.fork(&mut pools, 100);
        // The run that would make the copy fails; then the tokens are taken back.
        second.reserve(&mut pools, 100, 101).unwrap();
        assert_eq!(second.copies().len(), 1);
        second.truncate(&mut pools, 64);
        assert!(second.copies().is_empty(), "nobody else's block is written over");
        first.clear(&mut pools);
        second.clear(&mut pools);
        let mut third = Tables::new(&[group]);
        assert!(third.reserve(&mut pools, 0, 4 * BLOCK).is_ok(), "every block is free again");
    }
}
