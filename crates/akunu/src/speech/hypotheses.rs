//! The blocks of several hypotheses about the same sound: those that continue the same text share what they have in common.

use akunu_program::program::GroupId;
use akunu_program::{BLOCK, BlockCopy};

/// Which blocks hold the text of each hypothesis. All have the same length.
pub(super) struct Hypotheses {
    group: GroupId,
    /// `[hypothesis][position / BLOCK]`.
    tables: Vec<Vec<u32>>,
    /// Tables of the step before.
    before: Vec<Vec<u32>>,
    /// Hypotheses there are.
    count: usize,
    /// Positions each has.
    len: usize,
    /// `[block]`: how many tables it is in.
    shares: Vec<u32>,
    free: Vec<u32>,
    /// What the last step has to copy.
    copies: Vec<BlockCopy>,
}

impl Hypotheses {
    /// Room for up to `most` hypotheses of up to `context` positions in a group.
    pub(super) fn new(group: GroupId, most: usize, context: usize) -> Hypotheses {
        let blocks = Hypotheses::blocks(most, context);
        let tables = || vec![Vec::with_capacity(context.div_ceil(BLOCK)); most];
        Hypotheses {
            group,
            tables: tables(),
            before: tables(),
            count: 0,
            len: 0,
            shares: vec![0; blocks],
            free: (0..blocks as u32).rev().collect(),
            copies: Vec::with_capacity(most),
        }
    }

    /// Blocks so many hypotheses need at most: all their own, and one each to copy to while the old ones are there.
    pub(super) fn blocks(most: usize, context: usize) -> usize {
        most * (context.div_ceil(BLOCK) + 1)
    }

    pub(super) fn most(&self) -> usize {
        self.tables.len()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Positions each hypothesis has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The blocks of a hypothesis.
    pub(super) fn table(&self, hypothesis: usize) -> &[u32] {
        &self.tables[hypothesis]
    }

    /// What must be copied before the positions added last are written.
    pub(super) fn copies(&self) -> &[BlockCopy] {
        &self.copies
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        for i in 0..self.count {
            self.release(i);
        }
        (self.count, self.len) = (0, 0);
        self.copies.clear();
    }

    /// Begins with one hypothesis of `len` positions.
    pub(super) fn begin(&mut self, len: usize) {
        self.clear();
        for _ in 0..len.div_ceil(BLOCK) {
            let block = self.take();
            self.tables[0].push(block);
        }
        (self.count, self.len) = (1, len);
    }

    /// Makes hypothesis `i` continue what was hypothesis `parents[i]` by one position; parents exist, and there are not more
    /// hypotheses than there may be.
    pub(super) fn step(&mut self, parents: impl ExactSizeIterator<Item = usize>) {
        self.copies.clear();
        let count = parents.len();
        std::mem::swap(&mut self.tables, &mut self.before);
        for (i, parent) in parents.enumerate() {
            self.tables[i].clear();
            self.tables[i].extend_from_slice(&self.before[parent]);
            self.tables[i].iter().for_each(|&block| self.shares[block as usize] += 1);
        }
        std::mem::swap(&mut self.tables, &mut self.before);
        for i in 0..self.count {
            self.release(i);
        }
        std::mem::swap(&mut self.tables, &mut self.before);
        let at = self.len / BLOCK;
        for i in 0..count {
            match self.tables[i].get(at).copied() {
                None => {
                    let block = self.take();
                    self.tables[i].push(block);
                }
                Some(shared) if self.shares[shared as usize] > 1 => {
                    let own = self.take();
                    self.copies.push(BlockCopy { group: self.group, from: shared, to: own });
                    self.shares[shared as usize] -= 1;
                    self.tables[i][at] = own;
                }
                Some(_) => {}
            }
        }
        (self.count, self.len) = (count, self.len + 1);
    }

    /// Gives back what a hypothesis holds.
    fn release(&mut self, hypothesis: usize) {
        for block in self.tables[hypothesis].drain(..) {
            let shares = &mut self.shares[block as usize];
            *shares -= 1;
            if *shares == 0 {
                self.free.push(block);
            }
        }
    }

    /// A block that nobody has; there are as many as hypotheses can ever hold.
    fn take(&mut self) -> u32 {
        let block = self.free.pop().unwrap_or(0);
        debug_assert_eq!(self.shares[block as usize], 0);
        self.shares[block as usize] += 1;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(hypotheses: &Hypotheses) -> usize {
        hypotheses.shares.iter().filter(|&&shares| shares > 0).count()
    }

    #[test]
    fn one_hypothesis_keeps_its_blocks() {
        let mut h = Hypotheses::new(GroupId(1), 5, 448);
        h.begin(3);
        let first = h.table(0).to_vec();
        for _ in 3..BLOCK {
            h.step([0].into_iter());
            assert!(h.copies().is_empty());
            assert_eq!(h.table(0), first);
        }
        h.step([0].into_iter());
        assert_eq!((h.table(0).len(), h.len(), held(&h)), (2, BLOCK + 1, 2));
    }

    #[test]
    fn forks_copy_the_block_they_write_and_share_the_others() {
        let mut h = Hypotheses::new(GroupId(1), 5, 448);
        h.begin(BLOCK + 7);
        let whole = h.table(0)[0];
        h.step([0, 0, 0].into_iter());
        assert_eq!(h.count(), 3);
        assert!((0..3).all(|i| h.table(i)[0] == whole));
        let own: Vec<u32> = (0..3).map(|i| h.table(i)[1]).collect();
        assert!(own[0] != own[1] && own[1] != own[2] && own[0] != own[2]);
        // One of the three goes on in the block there was.
        assert_eq!(h.copies().len(), 2);
        let from = h.copies()[0].from;
        assert!(own.contains(&from) && h.copies().iter().all(|copy| copy.from == from));
        assert_eq!(held(&h), 4);
        // The first dies out, and the last takes its place.
        h.step([2, 1].into_iter());
        assert!(h.copies().is_empty());
        assert_eq!([h.table(0)[1], h.table(1)[1]], [own[2], own[1]]);
        assert_eq!(held(&h), 3);
        h.clear();
        assert_eq!((held(&h), h.count()), (0, 0));
    }

    #[test]
    fn there_are_always_blocks_enough() {
        let mut h = Hypotheses::new(GroupId(1), 3, 200);
        for round in 0..4 {
            h.begin(1 + round);
            while h.len() < 200 {
                let turn = h.len();
                let parents = [turn % h.count(), (turn / 2) % h.count(), (turn / 3) % h.count()];
                h.step(parents.into_iter());
                assert!(h.copies().iter().all(|copy| copy.from != copy.to));
            }
            assert!((0..3).all(|i| h.table(i).len() == 4));
        }
    }
}
