//! Which blocks of the KV cache belong to whom, for one group of layers. Pure accounting: nothing here touches keys or
//! values.

use akunu_program::program::GroupId;
use akunu_program::{BLOCK, BlockCopy, KeyShift};

/// Positions a window group keeps behind its window, so that a sequence can take back its last few tokens.
pub(crate) const SLACK: usize = BLOCK;

/// The blocks of one group, each held by any number of tables.
#[derive(Debug)]
pub(crate) struct Pool {
    /// `[block]`: how many tables hold it.
    holders: Vec<u32>,
    free: Vec<u32>,
}

/// There are not enough free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfBlocks {
    /// Blocks that were needed.
    pub needed: usize,
    /// Blocks that were free.
    pub free: usize,
}

impl Pool {
    pub(crate) fn new(blocks: u32) -> Pool {
        // The lowest numbers are given out first.
        Pool { holders: vec![0; blocks as usize], free: (0..blocks).rev().collect() }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.holders[block as usize] = 1;
        Some(block)
    }

    pub(crate) fn share(&mut self, block: u32) {
        self.holders[block as usize] += 1;
    }

    pub(crate) fn release(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(block);
        }
    }

    pub(crate) fn is_shared(&self, block: u32) -> bool {
        self.holders[block as usize] > 1
    }

    /// Blocks nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}

/// Where the positions of one sequence lie in one group.
#[derive(Debug)]
pub(crate) struct Table {
    group: GroupId,
    /// Positions a row sees, its own included.
    window: Option<usize>,
    /// Index of the first block held; those before it lie behind the window.
    first: usize,
    /// The blocks of positions `first · BLOCK` and on.
    blocks: Vec<u32>,
    /// The first index whose block the backend has not been told.
    untold: usize,
}

impl Table {
    pub(crate) fn new(group: GroupId, window: Option<usize>) -> Table {
        Table { group, window, first: 0, blocks: Vec::new(), untold: 0 }
    }

    /// Blocks one sequence needs when no run writes more than `rows` positions.
    pub(crate) fn most_blocks(window: Option<usize>, context: usize, rows: usize) -> usize {
        let all = context.div_ceil(BLOCK);
        // Positions that are kept may begin and end anywhere in a block.
        window.map_or(all, |w| all.min((w + SLACK + rows).div_ceil(BLOCK) + 1))
    }

    /// A table that shares `blocks`, which hold the positions from `first · BLOCK` on.
    pub(crate) fn adopt(&mut self, pool: &mut Pool, first: usize, blocks: Vec<u32>) {
        blocks.iter().for_each(|&block| pool.share(block));
        (self.first, self.untold, self.blocks) = (first, first, blocks);
    }

    /// The block at that index, if the table still holds it.
    pub(crate) fn block(&self, index: usize) -> Option<u32> {
        self.blocks.get(index.checked_sub(self.first)?).copied()
    }

    /// The index after the last block.
    fn end(&self) -> usize {
        self.first + self.blocks.len()
    }

    /// The first position a row at `position` sees.
    fn sees_from(&self, position: usize) -> usize {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))
    }

    /// Makes positions `len..end` writable, where `len` positions hold something to keep. A block that others hold too is
    /// replaced; where it holds something to keep, `copies` says what must be copied, and its source stays held until
    /// [`Pool::release`]. Either everything is reserved or nothing.
    pub(crate) fn reserve(
        &mut self,
        pool: &mut Pool,
        len: usize,
        end: usize,
        copies: &mut Vec<BlockCopy>,
    ) -> Result<(), OutOfBlocks> {
        let indices = (len / BLOCK).max(self.first)..end.div_ceil(BLOCK);
        let shared = indices
            .clone()
            .take_while(|&i| i < self.end())
            .filter(|&i| pool.is_shared(self.blocks[i - self.first]))
            .count();
        let needed = shared + indices.end.saturating_sub(self.end());
        if needed > pool.free.len() {
            return Err(OutOfBlocks { needed, free: pool.free.len() });
        }
        for index in indices {
            let held = self.blocks.get(index - self.first).copied();
            if held.is_some_and(|block| !pool.is_shared(block)) {
                continue;
            }
            let Some(new) = pool.take() else { return Err(OutOfBlocks { needed, free: 0 }) };
            match held {
                None => self.blocks.push(new),
                Some(old) => {
                    self.blocks[index - self.first] = new;
                    if index * BLOCK < len {
                        copies.push(BlockCopy { group: self.group, from: old, to: new });
                    } else {
                        pool.release(old);
                    }
                }
            }
            self.untold = self.untold.min(index);
        }
        Ok(())
    }

    /// Gives up what lies behind the window of a sequence of `len` positions.
    pub(crate) fn forget_before_window(&mut self, pool: &mut Pool, len: usize) {
        let kept = self.sees_from(len).saturating_sub(SLACK) / BLOCK;
        let behind = kept.saturating_sub(self.first).min(self.blocks.len());
        self.blocks.drain(..behind).for_each(|block| pool.release(block));
        self.first += behind;
    }

    /// Whether a row at position `len` still finds everything it sees.
    pub(crate) fn remembers(&self, len: usize) -> bool {
        self.sees_from(len) >= self.first * BLOCK
    }

    /// Gives up all blocks that hold only positions from `len` on. Only for a length it [`remembers`](Self::remembers).
    pub(crate) fn truncate(&mut self, pool: &mut Pool, len: usize) {
        let keep = len.div_ceil(BLOCK).saturating_sub(self.first);
        self.blocks.drain(keep.min(self.blocks.len())..).for_each(|block| pool.release(block));
        self.untold = self.untold.min(self.end());
    }

    /// Whether it holds a block.
    pub(crate) fn holds(&self, block: u32) -> bool {
        self.blocks.contains(&block)
    }

    /// Where the first block held ends up when `dropped` blocks after the first `kept` go.
    fn first_after_shift(&self, kept: usize, dropped: usize) -> usize {
        if self.first < kept { self.first } else { self.first.saturating_sub(dropped).max(kept) }
    }

    /// Whether a row after a [`shift`](Self::shift) of `len` positions still finds all it sees: what a window has forgotten
    /// must not come into sight again.
    pub(crate) fn can_shift(&self, len: usize, kept: usize, dropped: usize) -> bool {
        self.sees_from(len - dropped * BLOCK) >= self.first_after_shift(kept, dropped) * BLOCK
    }

    /// Gives up `dropped` blocks after the first `kept` and moves those behind to their place. `shifts` says whose keys must
    /// be rotated; those that others hold too are replaced, and `copies` says by what, as in [`reserve`](Self::reserve).
    /// Either everything is done or nothing.
    pub(crate) fn shift(
        &mut self,
        pool: &mut Pool,
        kept: usize,
        dropped: usize,
        copies: &mut Vec<BlockCopy>,
        shifts: &mut Vec<KeyShift>,
    ) -> Result<(), OutOfBlocks> {
        let place = |index: usize| index.saturating_sub(self.first).min(self.blocks.len());
        let (from, to) = (place(kept), place(kept + dropped));
        let needed = self.blocks[to..].iter().filter(|&&block| pool.is_shared(block)).count();
        let freed = self.blocks[from..to].iter().filter(|&&block| !pool.is_shared(block)).count();
        if needed > pool.free.len() + freed {
            return Err(OutOfBlocks { needed, free: pool.free.len() + freed });
        }
        self.first = self.first_after_shift(kept, dropped);
        self.blocks.drain(from..to).for_each(|block| pool.release(block));
        let by = -((dropped * BLOCK) as i32);
        for block in &mut self.blocks[from..] {
            if pool.is_shared(*block) {
                let Some(new) = pool.take() else { return Err(OutOfBlocks { needed, free: 0 }) };
                copies.push(BlockCopy { group: self.group, from: *block, to: new });
                *block = new;
            }
            shifts.push(KeyShift { group: self.group, block: *block, by });
        }
        self.untold = self.untold.min(kept).max(self.first);
        Ok(())
    }

    /// Gives up everything.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.blocks.drain(..).for_each(|block| pool.release(block));
        (self.first, self.untold) = (0, 0);
    }

    /// A table that shares the blocks of the first `len` positions. The backend knows nothing of it yet.
    pub(crate) fn fork(&self, pool: &mut Pool, len: usize) -> Table {
        let shared = len.div_ceil(BLOCK).saturating_sub(self.first);
        let blocks = self.blocks[..shared.min(self.blocks.len())].to_vec();
        blocks.iter().for_each(|&block| pool.share(block));
        Table { group: self.group, window: self.window, first: self.first, untold: self.first, blocks }
    }

    /// The blocks the backend has not been told, and the index of the first.
    pub(crate) fn untold(&self) -> (usize, &[u32]) {
        let from = self.untold.max(self.first);
        (from, &self.blocks[from - self.first..])
    }

    /// The backend knows all blocks now.
    pub(crate) fn told(&mut self) {
        self.untold = self.end();
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const POOL: u32 = 12;

    /// Every position's content is a number that was never written before; a block is what its cells hold.
    struct Cache {
        pool: Pool,
        cells: HashMap<(u32, usize), u64>,
        sequences: Vec<Followed>,
        writes: u64,
    }

    /// A table beside what its positions should hold.
    struct Followed {
        table: Table,
        expected: Vec<u64>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { sequence: usize, rows: usize, kept: usize },
        Truncate { sequence: usize, back: usize },
        Fork { sequence: usize },
        Drop { sequence: usize },
        Shift { sequence: usize, dropped: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..4usize, 1..150usize, 0..150usize)
                .prop_map(|(sequence, rows, kept)| Step::Write { sequence, rows, kept: kept.min(rows) }),
            2 => (0..4usize, 0..200usize).prop_map(|(sequence, back)| Step::Truncate { sequence, back }),
            2 => (0..4usize).prop_map(|sequence| Step::Fork { sequence }),
            1 => (0..4usize).prop_map(|sequence| Step::Drop { sequence }),
            2 => (0..4usize, 1..4usize).prop_map(|(sequence, dropped)| Step::Shift { sequence, dropped }),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// Added to what a shift moved.
    const MOVED: u64 = 1 << 32;

    fn copy_cells(cells: &mut HashMap<(u32, usize), u64>, copy: BlockCopy) {
        for cell in 0..BLOCK {
            if let Some(&value) = cells.get(&(copy.from, cell)) {
                cells.insert((copy.to, cell), value);
            }
        }
    }

    impl Cache {
        fn new(window: Option<usize>) -> Cache {
            let sequences = vec![Followed { table: Table::new(GroupId(0), window), expected: Vec::new() }];
            Cache { pool: Pool::new(POOL), cells: HashMap::new(), sequences, writes: 0 }
        }

        fn apply(&mut self, step: &Step) {
            let (Step::Write { sequence, .. }
            | Step::Truncate { sequence, .. }
            | Step::Fork { sequence }
            | Step::Drop { sequence }
            | Step::Shift { sequence, .. }) = step;
            let Some(followed) = self.sequences.get_mut(*sequence) else { return };
            let len = followed.expected.len();
            match *step {
                Step::Write { rows, kept, .. } => {
                    let free = self.pool.free.len();
                    let mut copies = Vec::new();
                    let table = &mut followed.table;
                    if let Err(out) = table.reserve(&mut self.pool, len, len + rows, &mut copies) {
                        assert!(out.needed > out.free && out.free == free && self.pool.free.len() == free);
                        return;
                    }
                    for copy in copies {
                        copy_cells(&mut self.cells, copy);
                        self.pool.release(copy.from);
                    }
                    for position in len..len + rows {
                        self.writes += 1;
                        let block = table.blocks[position / BLOCK - table.first];
                        self.cells.insert((block, position % BLOCK), self.writes);
                        if position < len + kept {
                            followed.expected.push(self.writes);
                        }
                    }
                    table.forget_before_window(&mut self.pool, len + kept);
                }
                Step::Truncate { back, .. } => {
                    let to = len.saturating_sub(back);
                    let remembered = followed.table.remembers(to);
                    assert!(remembered || (back > 0 && followed.table.window.is_some()));
                    if remembered {
                        followed.table.truncate(&mut self.pool, to);
                        followed.expected.truncate(to);
                    }
                }
                Step::Fork { .. } => {
                    if self.sequences.len() < 4 {
                        let followed = &self.sequences[*sequence];
                        let table = followed.table.fork(&mut self.pool, len);
                        let expected = followed.expected.clone();
                        self.sequences.push(Followed { table, expected });
                    }
                }
                Step::Shift { dropped, .. } => {
                    let table = &mut followed.table;
                    let moves = BLOCK * (1 + dropped)..;
                    if len < moves.start || !table.can_shift(len, 1, dropped) {
                        assert!(len < moves.start || dropped > 1 || table.window.is_some());
                        return;
                    }
                    let (mut copies, mut shifts) = (Vec::new(), Vec::new());
                    if table.shift(&mut self.pool, 1, dropped, &mut copies, &mut shifts).is_err() {
                        return;
                    }
                    for copy in copies {
                        copy_cells(&mut self.cells, copy);
                        self.pool.release(copy.from);
                    }
                    // What moves is written to mark that it did, and others must not see that.
                    for KeyShift { block, by, .. } in shifts {
                        assert_eq!(by, -((dropped * BLOCK) as i32));
                        for cell in 0..BLOCK {
                            self.cells.entry((block, cell)).and_modify(|value| *value += MOVED);
                        }
                    }
                    followed.expected.drain(BLOCK..moves.start);
                    followed.expected[BLOCK..].iter_mut().for_each(|value| *value += MOVED);
                }
                Step::Drop { .. } => {
                    if self.sequences.len() > 1 {
                        let mut followed = self.sequences.swap_remove(*sequence);
                        followed.table.clear(&mut self.pool);
                    }
                }
            }
        }

        /// Every sequence finds what it wrote, and the pool counts what the tables hold.
        fn check(&self) {
            let mut holders = vec![0; POOL as usize];
            for Followed { table, expected } in &self.sequences {
                let len = expected.len();
                for (position, value) in expected.iter().enumerate().skip(table.sees_from(len)) {
                    let block = table.blocks[position / BLOCK - table.first];
                    assert_eq!(
                        self.cells[&(block, position % BLOCK)],
                        *value,
                        "position {position} of {len}"
                    );
                }
                table.blocks.iter().for_each(|&block| holders[block as usize] += 1);
            }
            assert_eq!(self.pool.holders, holders);
            let free = holders.iter().filter(|&&h| h == 0).count();
            assert_eq!(self.pool.free.len(), free);
        }
    }

    proptest! {
        #[test]
        fn sequences_find_what_they_wrote_whatever_others_do(
            window in prop_oneof![Just(None), (1..150usize).prop_map(Some)],
            steps in steps(),
        ) {
            let mut cache = Cache::new(window);
            for step in &steps {
                cache.apply(step);
                cache.check();
            }
            for followed in &mut cache.sequences {
                followed.table.clear(&mut cache.pool);
            }
            prop_assert_eq!(cache.pool.free.len(), POOL as usize);
        }

        #[test]
        fn a_sequence_never_needs_more_than_its_share(
            window in prop_oneof![Just(None), (1..300usize).prop_map(Some)],
            runs in prop::collection::vec((1..=70usize, 0..=70usize), 1..60),
        ) {
            const CONTEXT: usize = 1000;
            let mut pool = Pool::new(Table::most_blocks(window, CONTEXT, 70) as u32);
            let mut table = Table::new(GroupId(0), window);
            let mut len = 0;
            for (rows, kept) in runs {
                if len + rows > CONTEXT {
                    break;
                }
                prop_assert_eq!(table.reserve(&mut pool, len, len + rows, &mut Vec::new()), Ok(()));
                len += kept.min(rows);
                table.forget_before_window(&mut pool, len);
            }
        }
    }

    #[test]
    fn the_backend_is_told_of_every_new_block_once() {
        let mut pool = Pool::new(8);
        let mut table = Table::new(GroupId(0), None);
        table.reserve(&mut pool, 0, 100, &mut Vec::new()).unwrap();
        assert_eq!(table.untold(), (0, [0, 1].as_slice()));
        table.told();
        assert!(table.untold().1.is_empty());
        table.reserve(&mut pool, 100, 130, &mut Vec::new()).unwrap();
        assert_eq!(table.untold(), (2, [2].as_slice()));
        table.told();
        table.truncate(&mut pool, 64);
        table.reserve(&mut pool, 64, 65, &mut Vec::new()).unwrap();
        assert_eq!(table.untold().0, 1);
        let mut fork = table.fork(&mut pool, 65);
        assert_eq!(fork.untold().0, 0);
        fork.told();
        let mut copies = Vec::new();
        fork.reserve(&mut pool, 65, 66, &mut copies).unwrap();
        assert_eq!(copies.len(), 1);
        assert_eq!(fork.untold(), (1, [copies[0].to].as_slice()));
    }

    #[test]
    fn a_window_keeps_enough_to_take_back_a_few_tokens() {
        for window in [1, 63, 64, 65, 200] {
            for len in 1..600 {
                let mut pool = Pool::new(16);
                let mut table = Table::new(GroupId(0), Some(window));
                table.reserve(&mut pool, 0, len, &mut Vec::new()).unwrap();
                table.forget_before_window(&mut pool, len);
                let back = len.min(SLACK);
                assert!(table.remembers(len - back), "window {window}, {back} back from {len}");
                assert!(len < 2 * BLOCK + window || !table.remembers(0), "window {window}, length {len}");
            }
        }
    }

    #[test]
    fn running_out_takes_nothing() {
        let mut pool = Pool::new(2);
        let mut table = Table::new(GroupId(0), None);
        let out = table.reserve(&mut pool, 0, 129, &mut Vec::new());
        assert_eq!(out, Err(OutOfBlocks { needed: 3, free: 2 }));
        assert_eq!(table.reserve(&mut pool, 0, 128, &mut Vec::new()), Ok(()));
    }
}
