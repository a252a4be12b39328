//! What the executable remembers of each sequence, and the checks a batch must pass before anything is computed.

use akunu_program::program::{GroupId, KvGroup};
use akunu_program::select::Sampling;
use akunu_program::{BLOCK, Batch, Error, Limits, Phase, Result, SlotEdit, SlotId, Work};

use crate::kv::CpuKv;

/// Stands for a block that was never set.
const NO_BLOCK: u32 = u32::MAX;

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) slot: SlotId,
    pub(crate) position: u32,
    pub(crate) token: u32,
    pub(crate) phase: Phase,
}

/// One sequence.
pub(crate) struct Slot {
    /// `[position]`, as far as they were fed or set.
    pub(crate) tokens: Vec<u32>,
    pub(crate) sampling: Sampling,
    /// `[group][position / BLOCK]`.
    tables: Vec<Vec<u32>>,
}

pub(crate) struct Slots {
    slots: Vec<Slot>,
    limits: Limits,
    /// The window of each group.
    windows: Vec<Option<usize>>,
    vocabulary: u32,
}

impl Slots {
    pub(crate) fn new(limits: &Limits, groups: &[KvGroup], vocabulary: usize) -> Slots {
        let blocks = (limits.context as usize).div_ceil(BLOCK);
        let slot = || Slot {
            tokens: vec![0; limits.context as usize],
            sampling: Sampling::GREEDY,
            tables: vec![vec![NO_BLOCK; blocks]; groups.len()],
        };
        Slots {
            slots: (0..limits.slots).map(|_| slot()).collect(),
            limits: *limits,
            windows: groups.iter().map(|g| g.window).collect(),
            vocabulary: vocabulary as u32,
        }
    }

    pub(crate) fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    pub(crate) fn set_token(&mut self, row: Row) {
        if let Some(token) = self.slots[row.slot.0 as usize].tokens.get_mut(row.position as usize) {
            *token = row.token;
        }
    }

    /// The block that holds a position; it was checked to be there.
    pub(crate) fn block(&self, slot: SlotId, group: GroupId, position: usize) -> u32 {
        self.slots[slot.0 as usize].tables[group.0 as usize][position / BLOCK]
    }

    /// Checks the batch, makes its edits and lists its rows. Allocates nothing beyond what the edits need.
    pub(crate) fn prepare(
        &mut self,
        batch: &Batch<'_>,
        work: Work,
        kv: &CpuKv,
        rows: &mut Vec<Row>,
    ) -> Result<()> {
        for edit in batch.edits {
            self.edit(edit)?;
        }
        let total = self.check_sizes(batch, work)?;
        let ahead = if let Work::Chain(n) = work { n.saturating_sub(1) } else { 0 };
        rows.clear();
        for span in batch.spans {
            if span.slot.0 as usize >= self.slots.len() {
                return bad(format!("slot {} of {}", span.slot.0, self.slots.len()));
            }
            let end = u64::from(span.start) + u64::from(span.rows) + u64::from(ahead);
            if end > u64::from(self.limits.context) {
                return bad(format!("position {end} is beyond the context of {}", self.limits.context));
            }
            self.check_blocks(span.slot, span.start as usize, end as usize, kv)?;
            for position in span.start..span.start + span.rows {
                let token = batch.tokens[rows.len()];
                if token >= self.vocabulary {
                    return bad(format!("token {token} is not in the vocabulary of {}", self.vocabulary));
                }
                rows.push(Row { slot: span.slot, position, token, phase: span.phase });
            }
        }
        debug_assert_eq!(rows.len(), total);
        rows.iter().for_each(|row| self.set_token(*row));
        Ok(())
    }

    fn check_sizes(&self, batch: &Batch<'_>, work: Work) -> Result<usize> {
        let limits = &self.limits;
        let total: usize = batch.spans.iter().map(|s| s.rows as usize).sum();
        if total != batch.tokens.len() || total > limits.rows as usize {
            return bad(format!("{total} rows, {} tokens, limit {}", batch.tokens.len(), limits.rows));
        }
        let ascending = batch.outputs.is_sorted_by(|a, b| a < b);
        if !ascending || batch.outputs.last().is_some_and(|&o| o as usize >= total) {
            return bad("outputs must be ascending row numbers".into());
        }
        if batch.outputs.len() > limits.outputs as usize {
            return bad(format!("{} outputs, limit {}", batch.outputs.len(), limits.outputs));
        }
        if let Work::Chain(n) = work
            && (batch.spans.iter().any(|s| s.rows != 1) || batch.outputs.len() != total)
        {
            return bad(format!("a chain of {n} needs spans of one row, all of them outputs"));
        }
        Ok(total)
    }

    /// Whether every position that rows `start..end` see has a block.
    fn check_blocks(&self, slot: SlotId, start: usize, end: usize, kv: &CpuKv) -> Result<()> {
        if start == end {
            return Ok(());
        }
        for (group, (table, window)) in self.slot(slot).tables.iter().zip(&self.windows).enumerate() {
            let group = GroupId(group as u32);
            let begin = window.map_or(0, |w| (start + 1).saturating_sub(w));
            let seen = begin / BLOCK..(end - 1) / BLOCK + 1;
            for (index, &block) in seen.clone().zip(&table[seen]) {
                if block == NO_BLOCK {
                    let position = index * BLOCK;
                    return bad(format!(
                        "slot {} has no block for position {position} in group {}",
                        slot.0, group.0
                    ));
                }
                if block >= kv.blocks(group) {
                    return bad(format!("block {block} of {} in group {}", kv.blocks(group), group.0));
                }
            }
        }
        Ok(())
    }

    fn edit(&mut self, edit: &SlotEdit<'_>) -> Result<()> {
        let (SlotEdit::Blocks { slot, .. } | SlotEdit::Tokens { slot, .. } | SlotEdit::Sampling { slot, .. }) =
            edit;
        let count = self.slots.len();
        let Some(state) = self.slots.get_mut(slot.0 as usize) else {
            return bad(format!("slot {} of {count}", slot.0));
        };
        let beyond = || Error::Batch(format!("an edit of slot {} reaches beyond its context", slot.0));
        match edit {
            SlotEdit::Blocks { group, first, blocks, .. } => {
                let table = state.tables.get_mut(group.0 as usize).ok_or_else(beyond)?;
                let first = *first as usize;
                table.get_mut(first..first + blocks.len()).ok_or_else(beyond)?.copy_from_slice(blocks);
            }
            SlotEdit::Tokens { at, tokens, .. } => {
                let at = *at as usize;
                state.tokens.get_mut(at..at + tokens.len()).ok_or_else(beyond)?.copy_from_slice(tokens);
            }
            SlotEdit::Sampling { sampling, .. } => state.sampling = sampling.clone(),
        }
        Ok(())
    }
}

fn bad<T>(problem: String) -> Result<T> {
    Err(Error::Batch(problem))
}
