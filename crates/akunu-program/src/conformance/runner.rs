//! Runs programs over plainly allocated sequences: slot `s` owns consecutive blocks of every group.

use std::sync::Arc;

use crate::program::{GroupId, Program};
use crate::{
    BLOCK, Backend, Batch, Executable, KvType, Limits, Outputs, Phase, Result, SlotEdit, SlotId, Span,
    StopFlag, TensorSource, Work,
};

/// An executable with its sequences' blocks laid out.
pub struct Runner {
    executable: Box<dyn Executable>,
    /// Ends runs.
    pub stop: Arc<StopFlag>,
    /// The phase of all spans that are fed; by default single rows are decoded and longer pieces are prompts.
    pub phase: Option<Phase>,
    /// What the last run produced.
    pub out: Outputs,
}

impl Runner {
    /// Compiles `program` for `slots` sequences of up to `context` positions and gives each its blocks.
    pub fn new(
        backend: &dyn Backend,
        program: &Program,
        tensors: &dyn TensorSource,
        slots: u32,
        context: u32,
    ) -> Result<Runner> {
        Runner::with_kv(backend, program, tensors, slots, context, KvType::F16)
    }

    /// The same with a cache of any type.
    pub fn with_kv(
        backend: &dyn Backend,
        program: &Program,
        tensors: &dyn TensorSource,
        slots: u32,
        context: u32,
        kind: KvType,
    ) -> Result<Runner> {
        let per_slot = context.div_ceil(BLOCK as u32);
        let weights = backend.load(tensors, &program.weights)?;
        let kv = backend.kv(&program.groups, &vec![slots * per_slot; program.groups.len()], kind)?;
        let limits = Limits { slots, rows: 512, outputs: 512, context };
        let executable = backend.compile(program, weights, Arc::clone(&kv), &limits)?;
        let mut runner = Runner { executable, stop: Arc::default(), phase: None, out: Outputs::default() };
        for slot in 0..slots {
            // Blocks in descending order, so that nothing works by accident.
            let blocks: Vec<u32> = (slot * per_slot..(slot + 1) * per_slot).rev().collect();
            for group in 0..program.groups.len() as u32 {
                let (slot, group) = (SlotId(slot), GroupId(group));
                let edits = [SlotEdit::Blocks { slot, group, first: 0, blocks: &blocks }];
                runner.run(&Batch { edits: &edits, ..Batch::default() }, Work::Forward)?;
            }
        }
        Ok(runner)
    }

    /// Runs a batch.
    pub fn run(&mut self, batch: &Batch<'_>, work: Work) -> Result<()> {
        self.executable.run(batch, work, &self.stop, &mut self.out)
    }

    /// Feeds pieces of several sequences `(slot, start, tokens)` in one batch; the logits of all rows are in `out`.
    pub fn feed(&mut self, pieces: &[(u32, u32, &[u32])], work: Work) -> Result<()> {
        let span = |&(slot, start, tokens): &(u32, u32, &[u32])| Span {
            slot: SlotId(slot),
            start,
            rows: tokens.len() as u32,
            phase: self.phase.unwrap_or(if tokens.len() == 1 { Phase::Decode } else { Phase::Prompt }),
        };
        let spans: Vec<Span> = pieces.iter().map(span).collect();
        let tokens: Vec<u32> = pieces.iter().flat_map(|piece| piece.2).copied().collect();
        let outputs: Vec<u32> = (0..tokens.len() as u32).collect();
        self.run(&Batch { spans: &spans, tokens: &tokens, outputs: &outputs, ..Batch::default() }, work)
    }
}
