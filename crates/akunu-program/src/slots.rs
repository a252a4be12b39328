//! What an executable remembers of each sequence, and the checks a batch must pass before anything is computed: for
//! backends that keep their slots on the host.

use crate::backend::{BLOCK, Batch, BlockCopy, KeyShift, Limits, Phase, SlotEdit, SlotId, Work};
use crate::program::{FRAMES_PER_TOKEN, GroupId, Index, Mask, Need, Program, SECOND};
use crate::select::Sampling;
use crate::{Error, Result};

/// Stands for a block that was never set.
const NO_BLOCK: u32 = u32::MAX;

/// One row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its sequence.
    pub slot: SlotId,
    /// Its position in the sequence.
    pub position: u32,
    /// The position after the last one of its span.
    pub end: u32,
    /// The token fed, with its mark if it is of a second text.
    pub token: u32,
    /// Which kernels it may use.
    pub phase: Phase,
}

impl Row {
    /// The position after the last one the row sees.
    pub fn sees(&self, mask: Mask) -> u32 {
        match mask {
            Mask::Causal => self.position + 1,
            Mask::Full => self.end,
            Mask::Stored(count) => count,
        }
    }

    /// The row of a table that it looks up.
    pub fn index(&self, by: Index) -> usize {
        match by {
            Index::Token => (self.token & !SECOND) as usize,
            Index::Position(before) => before + self.position as usize,
            Index::First => 0,
            Index::Segment => usize::from(self.token & SECOND != 0),
        }
    }

    /// The row that follows in a chain.
    pub fn next(self, token: u32) -> Row {
        Row { position: self.position + 1, end: self.end + 1, token, ..self }
    }
}

/// One sequence.
#[derive(Debug)]
pub struct Slot {
    /// `[position]`, as far as they were fed or set.
    pub tokens: Vec<u32>,
    /// How its tokens are chosen.
    pub sampling: Sampling,
    /// `[group][position / BLOCK]`.
    tables: Vec<Vec<u32>>,
}

/// All sequences of an executable.
#[derive(Debug)]
pub struct Slots {
    slots: Vec<Slot>,
    limits: Limits,
    groups: Vec<Group>,
    /// None where nothing is looked up by token.
    vocabulary: Option<u32>,
    /// Whether tokens may be of a second text.
    segments: bool,
    /// Numbers that come with each row.
    input: usize,
}

/// What must be known of a KV group.
#[derive(Clone, Copy, Debug)]
struct Group {
    window: Option<usize>,
    need: Need,
    /// Blocks its store has.
    blocks: u32,
}

impl Slots {
    /// Empty slots of a program over a store with `blocks[g]` blocks in group `g`.
    pub fn new(limits: &Limits, program: &Program, blocks: &[u32]) -> Slots {
        let groups: Vec<Group> = (0..)
            .map(GroupId)
            .zip(program.groups.iter().zip(blocks))
            .map(|(id, (group, &blocks))| Group { window: group.window, need: program.needs(id), blocks })
            .collect();
        let context = limits.context as usize;
        let slot = || Slot {
            tokens: vec![0; context],
            sampling: Sampling::GREEDY,
            tables: groups.iter().map(|g| vec![NO_BLOCK; g.need.entries(context, BLOCK)]).collect(),
        };
        let input = program.input_width();
        Slots {
            slots: (0..limits.slots).map(|_| slot()).collect(),
            limits: *limits,
            groups,
            vocabulary: input.is_none().then(|| program.token_count() as u32),
            segments: program.has_segments(),
            input: input.map_or(0, |width| FRAMES_PER_TOKEN * width),
        }
    }

    /// One of them; batches that were [prepared](Self::prepare) name no others.
    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    /// Notes the token of a row that a chain goes on with.
    pub fn set_token(&mut self, row: Row) {
        if let Some(token) = self.slots[row.slot.0 as usize].tokens.get_mut(row.position as usize) {
            *token = row.token;
        }
    }

    /// The block that holds a position; it was checked to be there.
    pub fn block(&self, slot: SlotId, group: GroupId, position: usize) -> u32 {
        self.slots[slot.0 as usize].tables[group.0 as usize][position / BLOCK]
    }

    /// Checks the batch, makes its edits and lists its rows. Allocates nothing beyond what the edits and rows need.
    pub fn prepare(&mut self, batch: &Batch<'_>, work: Work, rows: &mut Vec<Row>) -> Result<()> {
        for edit in batch.edits {
            self.edit(edit)?;
        }
        for &BlockCopy { group, from, to } in batch.copies {
            self.check_block(group, from)?;
            self.check_block(group, to)?;
        }
        for &KeyShift { group, block, .. } in batch.shifts {
            self.check_block(group, block)?;
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
            self.check_blocks(span.slot, span.start as usize, end as usize)?;
            for position in span.start..span.start + span.rows {
                let token = batch.tokens.get(rows.len()).copied().unwrap_or(0);
                let number = if self.segments { token & !SECOND } else { token };
                if let Some(vocabulary) = self.vocabulary.filter(|&count| number >= count) {
                    return bad(format!("token {number} is not in the vocabulary of {vocabulary}"));
                }
                let end = span.start + span.rows;
                rows.push(Row { slot: span.slot, position, end, token, phase: span.phase });
            }
        }
        debug_assert_eq!(rows.len(), total);
        rows.iter().for_each(|row| self.set_token(*row));
        Ok(())
    }

    fn check_sizes(&self, batch: &Batch<'_>, work: Work) -> Result<usize> {
        let limits = &self.limits;
        let total: usize = batch.spans.iter().map(|s| s.rows as usize).sum();
        let tokens = if self.vocabulary.is_some() { total } else { 0 };
        if batch.tokens.len() != tokens || total > limits.rows as usize {
            return bad(format!("{total} rows, {} tokens, limit {}", batch.tokens.len(), limits.rows));
        }
        if batch.inputs.len() != total * self.input {
            return bad(format!(
                "{total} rows, {} numbers instead of {}",
                batch.inputs.len(),
                total * self.input
            ));
        }
        if self.input > 0 && work != Work::Forward {
            return bad(format!("{work:?} of rows that are no tokens"));
        }
        let ascending = batch.outputs.is_sorted_by(|a, b| a < b);
        if !ascending || batch.outputs.last().is_some_and(|&o| o as usize >= total) {
            return bad("outputs must be ascending row numbers".into());
        }
        if batch.outputs.len() > limits.outputs as usize {
            return bad(format!("{} outputs, limit {}", batch.outputs.len(), limits.outputs));
        }
        if !batch.masks.is_empty() && (batch.masks.len() != batch.outputs.len() || work != Work::Step) {
            return bad(format!(
                "{} masks for {} outputs of {work:?}",
                batch.masks.len(),
                batch.outputs.len()
            ));
        }
        if let Work::Chain(n) = work
            && (batch.spans.iter().any(|s| s.rows != 1) || batch.outputs.len() != total)
        {
            return bad(format!("a chain of {n} needs spans of one row, all of them outputs"));
        }
        Ok(total)
    }

    /// Whether every position that rows `start..end` write or see has a block.
    fn check_blocks(&self, slot: SlotId, start: usize, end: usize) -> Result<()> {
        if start == end {
            return Ok(());
        }
        for (i, (table, group)) in self.slot(slot).tables.iter().zip(&self.groups).enumerate() {
            let needed = group.need.positions(start, end, group.window);
            let seen = needed.start / BLOCK..needed.end.div_ceil(BLOCK);
            for (index, &block) in seen.clone().zip(&table[seen]) {
                if block == NO_BLOCK {
                    let position = index * BLOCK;
                    return bad(format!("slot {} has no block for position {position} in group {i}", slot.0));
                }
                self.check_block(GroupId(i as u32), block)?;
            }
        }
        Ok(())
    }

    fn check_block(&self, group: GroupId, block: u32) -> Result<()> {
        match self.groups.get(group.0 as usize) {
            None => bad(format!("group {} of {}", group.0, self.groups.len())),
            Some(&Group { blocks, .. }) if block >= blocks => {
                bad(format!("block {block} of {blocks} in group {}", group.0))
            }
            Some(_) => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Span;
    use crate::program::{CacheLayer, Domain, Element, KvGroup, Op, Value, ValueId};

    const LIMITS: Limits = Limits { slots: 2, rows: 8, outputs: 2, context: 200 };

    /// A program of one layer in each group, with 50 tokens.
    fn program(groups: Vec<KvGroup>) -> Program {
        let value = |domain, width| Value { domain, width, element: Element::Number };
        let layer = |group: usize| {
            let cache = CacheLayer { group: GroupId(group as u32), layer: 0 };
            Op::RopeKv { q: ValueId(0), k: ValueId(0), v: ValueId(0), rope: None, cache, out: ValueId(0) }
        };
        Program {
            values: vec![value(Domain::Tokens, 4), value(Domain::Outputs, 50)],
            body: (0..groups.len()).map(layer).collect(),
            logits: ValueId(1),
            groups,
            ropes: Vec::new(),
            weights: Vec::new(),
        }
    }

    fn slots() -> Slots {
        let whole = KvGroup { layers: 1, kv_heads: 1, head_dim: 4, window: None };
        let window = KvGroup { window: Some(70), ..whole.clone() };
        let mut slots = Slots::new(&LIMITS, &program(vec![whole, window]), &[4, 2]);
        for (group, first, blocks) in [(0, 0, [3, 1]), (1, 1, [0, 1])] {
            let edit = SlotEdit::Blocks { slot: SlotId(1), group: GroupId(group), first, blocks: &blocks };
            slots.prepare(&Batch { edits: &[edit], ..Batch::default() }, Work::Forward, &mut vec![]).unwrap();
        }
        slots
    }

    fn span(slot: u32, start: u32, rows: u32) -> Span {
        Span { slot: SlotId(slot), start, rows, phase: Phase::Decode }
    }

    fn refused(batch: &Batch<'_>, work: Work, named: &str) {
        let problem = slots().prepare(batch, work, &mut Vec::new()).unwrap_err().to_string();
        assert!(problem.contains(named), "{problem:?} does not say {named:?}");
    }

    fn rows_refused(span: Span, outputs: &[u32], work: Work, named: &str) {
        let tokens = vec![0; span.rows as usize];
        refused(&Batch { spans: &[span], tokens: &tokens, outputs, ..Batch::default() }, work, named);
    }

    fn copy_refused(group: u32, to: u32, named: &str) {
        let copies = [BlockCopy { group: GroupId(group), from: 0, to }];
        refused(&Batch { copies: &copies, ..Batch::default() }, Work::Forward, named);
    }

    #[test]
    fn tokens_are_of_a_second_text_only_where_texts_are_told_apart() {
        let marked = Batch { spans: &[span(1, 0, 1)], tokens: &[7 | SECOND], ..Batch::default() };
        let mut rows = Vec::new();
        let mut slots = Slots::new(&LIMITS, &program(Vec::new()), &[]);
        let problem = slots.prepare(&marked, Work::Forward, &mut rows).unwrap_err().to_string();
        assert!(problem.contains("token 2147483655 is not in the vocabulary of 50"), "{problem}");
        slots.segments = true;
        slots.prepare(&marked, Work::Forward, &mut rows).unwrap();
        assert_eq!((rows[0].index(Index::Token), rows[0].index(Index::Segment)), (7, 1));
        assert_eq!(Row { token: 7, ..rows[0] }.index(Index::Segment), 0);
        let beyond = Batch { tokens: &[50 | SECOND], ..marked };
        assert!(slots.prepare(&beyond, Work::Forward, &mut rows).is_err());
    }

    #[test]
    fn a_batch_becomes_rows_in_the_order_of_its_spans() {
        let mut slots = slots();
        let mut rows = Vec::new();
        let batch = Batch { spans: &[span(1, 126, 2)], tokens: &[7, 9], outputs: &[1], ..Batch::default() };
        // The second group has nothing before position 64, and rows from 126 on see back to 57.
        assert!(slots.prepare(&batch, Work::Step, &mut rows).is_err());
        let edit = SlotEdit::Blocks { slot: SlotId(1), group: GroupId(1), first: 0, blocks: &[1] };
        slots.prepare(&Batch { edits: &[edit], ..batch }, Work::Step, &mut rows).unwrap();
        let row = |position, token| Row { slot: SlotId(1), position, end: 128, token, phase: Phase::Decode };
        assert_eq!(rows, [row(126, 7), row(127, 9)]);
        assert_eq!(slots.slot(SlotId(1)).tokens[126..128], [7, 9]);
        assert_eq!(slots.block(SlotId(1), GroupId(0), 127), 1);
    }

    #[test]
    fn what_a_batch_gets_wrong_is_named() {
        let one = Batch { spans: &[span(1, 0, 1)], ..Batch::default() };
        refused(&one, Work::Forward, "1 rows, 0 tokens");
        rows_refused(span(1, 0, 9), &[], Work::Forward, "9 rows, 9 tokens, limit 8");
        rows_refused(span(1, 0, 1), &[1], Work::Step, "ascending row numbers");
        rows_refused(span(1, 0, 3), &[0, 1, 2], Work::Step, "3 outputs, limit 2");
        rows_refused(span(1, 0, 1), &[], Work::Chain(3), "a chain of 3");
        rows_refused(span(2, 0, 1), &[], Work::Forward, "slot 2 of 2");
        rows_refused(span(1, 200, 1), &[], Work::Forward, "context of 200");
        rows_refused(span(0, 0, 1), &[], Work::Forward, "no block for position 0 in group 0");
        rows_refused(span(1, 130, 1), &[], Work::Forward, "no block for position 128 in group 0");
        let masked = Batch { spans: &[span(1, 0, 1)], tokens: &[0], outputs: &[0], ..Batch::default() };
        refused(&Batch { masks: &[None, None], ..masked }, Work::Step, "2 masks for 1 outputs");
        refused(
            &Batch { masks: &[Some(&[1])], ..masked },
            Work::Chain(2),
            "1 masks for 1 outputs of Chain(2)",
        );
        copy_refused(1, 2, "block 2 of 2 in group 1");
        copy_refused(2, 0, "group 2 of 2");
        let shifts = [KeyShift { group: GroupId(0), block: 4, by: -64 }];
        refused(&Batch { shifts: &shifts, ..Batch::default() }, Work::Forward, "block 4 of 4 in group 0");
    }

    #[test]
    fn a_token_beyond_the_vocabulary_is_refused() {
        let mut slots = slots();
        let edit = SlotEdit::Blocks { slot: SlotId(1), group: GroupId(1), first: 0, blocks: &[1] };
        let batch = Batch { edits: &[edit], spans: &[span(1, 0, 1)], tokens: &[50], ..Batch::default() };
        let error = slots.prepare(&batch, Work::Forward, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("token 50 is not in the vocabulary of 50"), "{error}");
    }

    #[test]
    fn what_another_program_stored_must_be_there_whatever_the_position() {
        let group = KvGroup { layers: 1, kv_heads: 1, head_dim: 4, window: None };
        let mut program = program(vec![group.clone(), group.clone(), group]);
        program.body.truncate(1);
        let cache = CacheLayer { group: GroupId(1), layer: 0 };
        let (q, out) = (ValueId(0), ValueId(0));
        program.body.push(Op::Attend { q, mask: Mask::Stored(300), cache, scale: 1.0, cap: None, out });
        let mut slots = Slots::new(&LIMITS, &program, &[1, 5, 0]);
        let slot = SlotId(0);
        let blocks = |group, blocks| SlotEdit::Blocks { slot, group: GroupId(group), first: 0, blocks };
        let row = Batch { spans: &[span(0, 0, 1)], tokens: &[1], ..Batch::default() };
        let mut run = |edits: &[SlotEdit<'_>]| {
            slots.prepare(&Batch { edits, ..row }, Work::Forward, &mut vec![]).map_err(|e| e.to_string())
        };
        let error = run(&[blocks(0, &[0]), blocks(1, &[0, 1, 2, 3])]).unwrap_err();
        assert!(error.contains("no block for position 256 in group 1"), "{error}");
        // Nothing is needed of the third group, which this program does not touch.
        assert_eq!(run(&[blocks(1, &[0, 1, 2, 3, 4])]), Ok(()));
    }

    #[test]
    fn numbers_come_with_the_rows_of_programs_that_begin_with_them() {
        let mut program = program(Vec::new());
        program.values[0].domain = Domain::Frames;
        program.body.push(Op::Input { out: ValueId(0) });
        let mut slots = Slots::new(&LIMITS, &program, &[]);
        let batch = Batch { spans: &[span(0, 0, 3)], ..Batch::default() };
        let mut run = |batch: &Batch<'_>, work| {
            slots.prepare(batch, work, &mut vec![]).map_err(|error| error.to_string())
        };
        assert_eq!(run(&Batch { inputs: &[0.0; 24], ..batch }, Work::Forward), Ok(()));
        let error = |result: Result<(), String>| result.unwrap_err();
        let short = error(run(&Batch { inputs: &[0.0; 20], ..batch }, Work::Forward));
        assert!(short.contains("20 numbers instead of 24"), "{short}");
        let tokens = error(run(&Batch { inputs: &[0.0; 24], tokens: &[1, 2, 3], ..batch }, Work::Forward));
        assert!(tokens.contains("3 rows, 3 tokens"), "{tokens}");
        let step = error(run(&Batch { inputs: &[0.0; 24], ..batch }, Work::Step));
        assert!(step.contains("rows that are no tokens"), "{step}");
    }

    #[test]
    fn edits_cannot_reach_beyond_the_context() {
        let mut slots = slots();
        let mut edit =
            |edit| slots.prepare(&Batch { edits: &[edit], ..Batch::default() }, Work::Forward, &mut vec![]);
        let slot = SlotId(0);
        assert!(edit(SlotEdit::Tokens { slot, at: 199, tokens: &[1] }).is_ok());
        assert!(edit(SlotEdit::Tokens { slot, at: 199, tokens: &[1, 2] }).is_err());
        assert!(edit(SlotEdit::Blocks { slot, group: GroupId(0), first: 3, blocks: &[1] }).is_ok());
        assert!(edit(SlotEdit::Blocks { slot, group: GroupId(0), first: 4, blocks: &[1] }).is_err());
        assert!(edit(SlotEdit::Blocks { slot, group: GroupId(9), first: 0, blocks: &[1] }).is_err());
        assert!(edit(SlotEdit::Sampling { slot: SlotId(2), sampling: Sampling::GREEDY }).is_err());
    }
}
