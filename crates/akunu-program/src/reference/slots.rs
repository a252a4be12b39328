//! What the executable remembers of each sequence, and the checks a batch must pass.

use crate::backend::{BLOCK, Batch, Limits, SlotEdit, SlotId, Work};
use crate::program::GroupId;
use crate::select::Sampling;
use crate::{Error, Result};

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub slot: SlotId,
    pub position: u32,
    pub token: u32,
}

/// One sequence.
pub(super) struct Slot {
    /// `[position]`, as far as they were fed or set.
    pub tokens: Vec<u32>,
    pub sampling: Sampling,
    /// `[group][position / BLOCK]`.
    tables: Vec<Vec<Option<u32>>>,
}

pub(super) struct Slots(Vec<Slot>);

impl Slots {
    pub(super) fn new(limits: &Limits, groups: usize) -> Slots {
        let blocks = (limits.context as usize).div_ceil(BLOCK);
        let slot = || Slot {
            tokens: vec![0; limits.context as usize],
            sampling: Sampling::GREEDY,
            tables: vec![vec![None; blocks]; groups],
        };
        Slots((0..limits.slots).map(|_| slot()).collect())
    }

    pub(super) fn slot(&self, id: SlotId) -> &Slot {
        &self.0[id.0 as usize]
    }

    pub(super) fn set_token(&mut self, row: Row) {
        if let Some(token) = self.0[row.slot.0 as usize].tokens.get_mut(row.position as usize) {
            *token = row.token;
        }
    }

    /// The block and the place in it where a position's keys and values lie.
    pub(super) fn locate(&self, slot: SlotId, group: GroupId, position: usize) -> Result<(u32, usize)> {
        let table = &self.slot(slot).tables[group.0 as usize];
        let block = table.get(position / BLOCK).copied().flatten().ok_or_else(|| {
            Error::Batch(format!("slot {} has no block for position {position} in group {}", slot.0, group.0))
        })?;
        Ok((block, position % BLOCK))
    }

    /// Checks the batch, makes its edits and lists its rows.
    pub(super) fn prepare(&mut self, batch: &Batch<'_>, work: Work, limits: &Limits) -> Result<Vec<Row>> {
        let bad = |problem: String| Err(Error::Batch(problem));
        for edit in batch.edits {
            self.edit(edit)?;
        }
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
        let ahead = match work {
            Work::Chain(n) if batch.spans.iter().any(|s| s.rows != 1) || batch.outputs.len() != total => {
                return bad(format!("a chain of {n} needs spans of one row, all of them outputs"));
            }
            Work::Chain(n) => n.saturating_sub(1),
            Work::Forward | Work::Step => 0,
        };
        let mut rows = Vec::with_capacity(total);
        for span in batch.spans {
            if span.slot.0 as usize >= self.0.len() {
                return bad(format!("slot {} of {}", span.slot.0, self.0.len()));
            }
            let end = u64::from(span.start) + u64::from(span.rows) + u64::from(ahead);
            if end > u64::from(limits.context) {
                return bad(format!("position {end} is beyond the context of {}", limits.context));
            }
            for position in span.start..span.start + span.rows {
                let row = Row { slot: span.slot, position, token: batch.tokens[rows.len()] };
                self.set_token(row);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn edit(&mut self, edit: &SlotEdit<'_>) -> Result<()> {
        let (SlotEdit::Blocks { slot, .. } | SlotEdit::Tokens { slot, .. } | SlotEdit::Sampling { slot, .. }) =
            edit;
        let count = self.0.len();
        let Some(state) = self.0.get_mut(slot.0 as usize) else {
            return Err(Error::Batch(format!("slot {} of {count}", slot.0)));
        };
        let beyond = || Error::Batch(format!("an edit of slot {} reaches beyond its context", slot.0));
        match edit {
            SlotEdit::Blocks { group, first, blocks, .. } => {
                let table = state.tables.get_mut(group.0 as usize).ok_or_else(beyond)?;
                let entries =
                    table.get_mut(*first as usize..*first as usize + blocks.len()).ok_or_else(beyond)?;
                for (entry, block) in entries.iter_mut().zip(*blocks) {
                    *entry = Some(*block);
                }
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
