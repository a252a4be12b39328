//! One sequence of tokens and its place in the cache: the layer below [`Generation`](crate::Generation), for those who
//! write their own loops.
//!
//! A run writes keys and values *beyond* the sequence's length; only a commit makes them part of it. What is never
//! committed (drafts that were rejected, tokens after a stop, the rest of a run that failed) is simply written over.

use std::sync::Arc;

use akunu_program::select::{Mask, Sampling};
use akunu_program::{BLOCK, Batch, Outputs, Phase, SlotEdit, SlotId, Span, StopFlag, Work};

use crate::kv::{Pools, Prefix, Tables};
use crate::model::Model;
use crate::settings::check_sampling;
use crate::{Error, Result};

/// A sequence of tokens whose keys and values are in the cache.
///
/// ```no_run
/// use akunu::{Model, Options};
///
/// let model = Model::load("model.gguf", &Options::default())?;
/// let mut sequence = model.sequence()?;
/// let mut token = sequence.prefill(&[1, 450, 7483])?;
/// while sequence.position() < 64 {
///     token = sequence.step(token)?;
/// }
/// sequence.rollback(3)?;
/// # Ok::<(), akunu::Error>(())
/// ```
#[derive(Debug)]
pub struct Sequence {
    model: Model,
    slot: SlotId,
    /// `[position]`: what was committed.
    tokens: Vec<u32>,
    /// What the last run fed beyond that.
    written: Vec<u32>,
    /// Leading tokens the backend's slot knows.
    known: usize,
    /// Tokens a [`shift`](Sequence::shift) dropped, so far.
    dropped: usize,
    /// Leading tokens whose keys and values never saw a token that was dropped.
    pure: usize,
    tables: Tables,
    sampling: Sampling,
    /// Whether the backend's slot has another sampling.
    sampling_changed: bool,
    stop: Arc<StopFlag>,
    out: Outputs,
}

/// Stops runs from another thread.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<StopFlag>);

impl StopHandle {
    pub(crate) fn flag(&self) -> &StopFlag {
        &self.0
    }

    /// Ends the run that is under way, or the next one, with [`Error::Stopped`].
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// Blocks at the beginning of a sequence that a shift leaves in place.
const KEPT_BLOCKS: usize = 1;

/// The rows whose outcome is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    None,
    Last,
    All,
    /// All from this one on.
    From(usize),
}

/// What one sequence is fed in a run.
pub(crate) struct Feed<'a> {
    pub sequence: &'a mut Sequence,
    pub tokens: &'a [u32],
    pub phase: Phase,
    pub wanted: Wanted,
    /// One for each row that is wanted, or none at all. For [`Work::Step`] alone.
    pub masks: Vec<Option<Mask<'a>>>,
}

/// Feeds several sequences of one model, each after its committed tokens. Outputs come in the order of the feeds.
pub(crate) fn run(
    Model(model): &Model,
    feeds: &mut [Feed<'_>],
    work: Work,
    stop: &StopFlag,
    out: &mut Outputs,
) -> Result<()> {
    let (mut spans, mut tokens, mut outputs, mut masks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let masked = feeds.iter().any(|feed| !feed.masks.is_empty());
    for feed in feeds.iter_mut() {
        feed.sequence.written.clear();
        if let Some(token) = feed.tokens.iter().find(|&&token| token as usize >= model.vocabulary) {
            return Err(Error::Usage {
                problem: format!("there is no token {token}"),
                hint: format!("the model's vocabulary has {} tokens, numbered from 0", model.vocabulary),
            });
        }
        let begin = tokens.len();
        tokens.extend_from_slice(feed.tokens);
        let rows = &model.rows[begin..tokens.len()];
        outputs.extend_from_slice(match feed.wanted {
            Wanted::None => &[],
            Wanted::Last => &rows[rows.len().saturating_sub(1)..],
            Wanted::All => rows,
            Wanted::From(first) => &rows[first.min(rows.len())..],
        });
        if masked {
            masks.extend_from_slice(&feed.masks);
            masks.resize(outputs.len(), None);
        }
        if !feed.tokens.is_empty() {
            let Sequence { slot, tokens: committed, .. } = &*feed.sequence;
            let (start, rows) = (committed.len() as u32, feed.tokens.len() as u32);
            spans.push(Span { slot: *slot, start, rows, phase: feed.phase });
        }
    }

    let engine = &mut *model.lock();
    for feed in feeds.iter_mut() {
        let rows = if let Work::Chain(n) = work { n as usize } else { feed.tokens.len() };
        feed.sequence.check_room(rows)?;
        feed.sequence.reserve(&mut engine.pools, rows)?;
    }
    let (mut edits, mut copies, mut shifts) = (Vec::new(), Vec::new(), Vec::new());
    for feed in feeds.iter() {
        let Sequence { slot, tables, tokens, known, sampling, sampling_changed, dropped, .. } =
            &*feed.sequence;
        tables.edits(*slot, &mut edits);
        if *known < tokens.len() {
            edits.push(SlotEdit::Tokens { slot: *slot, at: *known as u32, tokens: &tokens[*known..] });
        }
        if *sampling_changed {
            let seed = sampling.seed.wrapping_add(*dropped as u64);
            edits.push(SlotEdit::Sampling { slot: *slot, sampling: Sampling { seed, ..sampling.clone() } });
        }
        copies.extend_from_slice(tables.copies());
        shifts.extend_from_slice(tables.shifts());
    }
    let batch = Batch {
        edits: &edits,
        copies: &copies,
        shifts: &shifts,
        spans: &spans,
        tokens: &tokens,
        outputs: &outputs,
        masks: &masks,
        ..Batch::default()
    };
    let result = engine.executable.run(&batch, work, stop, out);
    drop(edits);
    if matches!(result, Ok(()) | Err(akunu_program::Error::Stopped)) {
        // Edits and copies come before anything a stop can end.
        for Feed { sequence, .. } in feeds.iter_mut() {
            sequence.tables.settle(&mut engine.pools);
            sequence.known = sequence.tokens.len();
            sequence.sampling_changed = false;
        }
    }
    match result {
        Err(akunu_program::Error::Stopped) => return Err(Error::Stopped),
        result => result?,
    }
    for feed in feeds {
        feed.sequence.written.extend_from_slice(feed.tokens);
    }
    Ok(())
}

impl Sequence {
    pub(crate) fn new(model: &Model) -> Result<Sequence> {
        let slot = model.engine().free_slots.pop().ok_or_else(|| Error::Usage {
            problem: "all sequences of the model are in use".to_owned(),
            hint: "drop one, or load the model with more sequences".to_owned(),
        })?;
        Ok(Sequence {
            model: model.clone(),
            slot,
            tokens: Vec::with_capacity(model.context()),
            written: Vec::new(),
            known: 0,
            dropped: 0,
            pure: usize::MAX,
            tables: Tables::new(&model.0.groups),
            sampling: Sampling::GREEDY,
            // The slot may have belonged to another sequence.
            sampling_changed: true,
            stop: Arc::default(),
            out: Outputs::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens in the sequence: the position of the next one.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens that can still be fed.
    pub fn room(&self) -> usize {
        self.model.context() - self.tokens.len()
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Sets how tokens are chosen from now on; greedily at first.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<()> {
        check_sampling(sampling)?;
        if self.sampling != *sampling {
            self.sampling.clone_from(sampling);
            self.sampling_changed = true;
        }
        Ok(())
    }

    /// Stops runs of this sequence from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.stop))
    }

    /// Makes handles from before have no effect any more.
    pub(crate) fn renew_stop(&mut self) {
        self.stop = Arc::default();
    }

    /// Feeds tokens of a prompt and asks for nothing.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.check_room(tokens.len())?;
        let batch = self.model.0.rows.len();
        for chunk in tokens.chunks(batch) {
            self.run(chunk, Phase::Prompt, Wanted::None, Work::Forward)?;
            self.commit(chunk.len())?;
        }
        Ok(())
    }

    /// Feeds a prompt and gives the token chosen after it. When stopped, what was fed by then stays.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<u32> {
        self.prefill_masked(tokens, None)
    }

    /// The same where not all tokens may be chosen.
    pub(crate) fn prefill_masked(&mut self, tokens: &[u32], mask: Option<Mask<'_>>) -> Result<u32> {
        if tokens.is_empty() {
            return Err(Error::Usage {
                problem: "the prompt is empty".to_owned(),
                hint: "give it at least one token".to_owned(),
            });
        }
        self.check_room(tokens.len())?;
        let batch = self.model.0.rows.len();
        let last = (tokens.len() - 1) / batch * batch;
        let (tokens, last) = tokens.split_at(last);
        self.feed(tokens)?;
        self.run_masked(last, Phase::Prompt, Wanted::Last, Work::Step, &[mask])?;
        self.commit(last.len())?;
        Ok(self.out.tokens[0])
    }

    /// Feeds one token and gives the token chosen after it.
    pub fn step(&mut self, token: u32) -> Result<u32> {
        self.run(&[token], Phase::Decode, Wanted::Last, Work::Step)?;
        self.commit(1)?;
        Ok(self.out.tokens[0])
    }

    /// Feeds one token to each of several sequences of one model, all in one run, and gives the token chosen after each.
    /// The model's weights are read once for all of them.
    pub fn step_together(sequences: &mut [Sequence], tokens: &[u32]) -> Result<Vec<u32>> {
        let Some(Sequence { model, stop, .. }) = sequences.first() else { return Ok(Vec::new()) };
        let (model, stop) = (model.clone(), Arc::clone(stop));
        let one_model = sequences.iter().all(|sequence| Arc::ptr_eq(&sequence.model.0, &model.0));
        if !one_model || tokens.len() != sequences.len() {
            return Err(Error::Usage {
                problem: format!("{} tokens for {} sequences", tokens.len(), sequences.len()),
                hint: "give one token for each sequence, and sequences of one model".to_owned(),
            });
        }
        sequences[0].check_outputs(tokens.len())?;
        let feed = |(sequence, token)| Feed {
            sequence,
            tokens: std::slice::from_ref(token),
            phase: Phase::Decode,
            wanted: Wanted::Last,
            masks: Vec::new(),
        };
        let mut out = Outputs::default();
        let mut feeds: Vec<Feed<'_>> = sequences.iter_mut().zip(tokens).map(feed).collect();
        run(&model, &mut feeds, Work::Step, &stop, &mut out)?;
        for sequence in sequences {
            sequence.commit(1)?;
        }
        Ok(out.tokens)
    }

    /// Feeds `token`, the token chosen after it, and so on, until `n` tokens are chosen, which are given. What was fed
    /// (`token` and all of those but the last) is not part of the sequence until [`commit`](Self::commit) says how much
    /// of it is.
    pub fn chain(&mut self, token: u32, n: usize) -> Result<&[u32]> {
        if n == 0 {
            return Ok(&[]);
        }
        self.check_room(n)?;
        self.run(&[token], Phase::Decode, Wanted::Last, Work::Chain(n as u32))?;
        self.written.extend_from_slice(&self.out.tokens[..n - 1]);
        Ok(&self.out.tokens)
    }

    /// Feeds `tokens`, of which all but the first may be guesses, and gives the token chosen after each. Nothing is part
    /// of the sequence until [`commit`](Self::commit) says how much is.
    pub fn verify(&mut self, tokens: &[u32]) -> Result<&[u32]> {
        self.check_outputs(tokens.len())?;
        self.run(tokens, Phase::Decode, Wanted::All, Work::Step)?;
        Ok(&self.out.tokens)
    }

    /// Feeds `tokens` and gives the token chosen after each from number `first` on, of those its mask has. Nothing is part of
    /// the sequence until [`commit`](Self::commit) says how much is.
    pub(crate) fn verify_masked(
        &mut self,
        tokens: &[u32],
        first: usize,
        masks: &[Option<Mask<'_>>],
    ) -> Result<&[u32]> {
        self.check_outputs(tokens.len() - first)?;
        self.run_masked(tokens, Phase::Decode, Wanted::From(first), Work::Step, masks)?;
        Ok(&self.out.tokens)
    }

    /// Feeds tokens and gives the logits after each: `[token][vocabulary]`. A prompt's logits may differ from those of
    /// generated tokens in their last bits, hence the phase.
    pub fn logits(&mut self, tokens: &[u32], phase: Phase) -> Result<&[f32]> {
        self.check_outputs(tokens.len())?;
        self.run(tokens, phase, Wanted::All, Work::Forward)?;
        self.commit(tokens.len())?;
        Ok(&self.out.logits)
    }

    /// Makes the first `n` tokens that the last [`chain`](Self::chain) or [`verify`](Self::verify) fed part of the
    /// sequence.
    pub fn commit(&mut self, n: usize) -> Result<()> {
        let Some(kept) = self.written.get(..n) else {
            return Err(Error::Usage {
                problem: format!("{n} tokens cannot be committed: {} were fed", self.written.len()),
                hint: "commit at most what the last run fed".to_owned(),
            });
        };
        self.tokens.extend_from_slice(kept);
        // A run told the slot of everything before what it fed.
        self.known += n;
        self.written.clear();
        Ok(())
    }

    /// Whether [`rollback`](Self::rollback) to `len` is possible: layers with a sliding window forget what lies behind it.
    pub fn can_roll_back(&self, len: usize) -> bool {
        len <= self.tokens.len() && self.tables.remembers(len)
    }

    /// Takes back all tokens from position `len` on.
    pub fn rollback(&mut self, len: usize) -> Result<()> {
        if !self.can_roll_back(len) {
            let (problem, hint) = if len > self.tokens.len() {
                let problem =
                    format!("{len} positions cannot be kept: the sequence has {}", self.tokens.len());
                (problem, "roll back to a smaller length")
            } else {
                let problem = format!("the window no longer reaches what lies before position {len}");
                (problem, "reset the sequence and feed it again")
            };
            return Err(Error::Usage { problem, hint: hint.to_owned() });
        }
        self.tables.truncate(&mut self.model.engine().pools, len);
        self.tokens.truncate(len);
        self.forget_shifts_after(len);
        self.known = self.known.min(len);
        self.written.clear();
        Ok(())
    }

    /// Empties the sequence.
    pub fn reset(&mut self) {
        self.tables.clear(&mut self.model.engine().pools);
        self.tokens.clear();
        self.written.clear();
        self.known = 0;
        self.forget_shifts_after(0);
    }

    fn forget_shifts_after(&mut self, len: usize) {
        if len <= self.pure && self.dropped > 0 {
            (self.dropped, self.pure) = (0, usize::MAX);
            self.sampling_changed = true;
        }
    }

    /// Whether [`shift`](Self::shift) can make room.
    pub fn can_shift(&self) -> bool {
        self.tokens.len() / BLOCK > KEPT_BLOCKS
    }

    /// Makes room at the end by dropping the oldest tokens: the first block of 64 stays (it holds the beginning token, which
    /// models lean on, and how the prompt begins), and of the whole blocks after it the older half goes. What is left moves
    /// up and its keys are rotated to their new positions; nothing is computed again, so what is left still bears the mark of
    /// what was dropped. Says how many tokens were.
    pub fn shift(&mut self) -> Result<usize> {
        if !self.can_shift() {
            return Err(Error::Usage {
                problem: format!("a sequence of {} tokens is too short to drop any", self.tokens.len()),
                hint: format!("it takes {} at least", (KEPT_BLOCKS + 1) * BLOCK),
            });
        }
        let len = self.tokens.len();
        let half = ((len / BLOCK - KEPT_BLOCKS) / 2).max(1);
        // Windows may not let so much go at once; one block they always do.
        let dropped = (2..=half).rev().find(|&n| self.tables.can_shift(len, KEPT_BLOCKS, n)).unwrap_or(1);
        let shifted = self.tables.shift(&mut self.model.engine().pools, KEPT_BLOCKS, dropped);
        if let Err(error) = shifted {
            self.reset();
            return Err(error);
        }
        let kept = KEPT_BLOCKS * BLOCK;
        let dropped = dropped * BLOCK;
        self.tokens.drain(kept..kept + dropped);
        self.known = self.known.min(kept);
        self.pure = self.pure.min(kept);
        // Positions come again; their noise must not.
        self.dropped += dropped;
        self.sampling_changed = true;
        match self.run(&[], Phase::Decode, Wanted::None, Work::Forward) {
            Ok(()) | Err(Error::Stopped) => Ok(dropped),
            Err(error) => {
                self.reset();
                Err(error)
            }
        }
    }

    /// Keeps as much of the sequence as `tokens` begins with and can be kept, and says how much that is.
    pub fn keep_common_prefix(&mut self, tokens: &[u32]) -> Result<usize> {
        let common = self.tokens.iter().zip(tokens).take_while(|(ours, theirs)| ours == theirs).count();
        let common = common.min(self.pure);
        if self.can_roll_back(common) {
            self.rollback(common)?;
        } else {
            self.reset();
        }
        Ok(self.tokens.len())
    }

    /// A second sequence with the same tokens, sampling and cache contents. Nothing is copied before one of them writes.
    pub fn fork(&mut self) -> Result<Sequence> {
        if !self.tables.copies().is_empty() {
            self.run(&[], Phase::Decode, Wanted::None, Work::Forward)?;
        }
        let mut fork = Sequence::new(&self.model)?;
        fork.tables = self.tables.fork(&mut self.model.engine().pools, self.tokens.len());
        fork.tokens.extend_from_slice(&self.tokens);
        fork.sampling.clone_from(&self.sampling);
        (fork.dropped, fork.pure) = (self.dropped, self.pure);
        Ok(fork)
    }

    /// Feeds `tokens` after the committed ones.
    fn run(&mut self, tokens: &[u32], phase: Phase, wanted: Wanted, work: Work) -> Result<()> {
        self.run_masked(tokens, phase, wanted, work, &[])
    }

    fn run_masked(
        &mut self,
        tokens: &[u32],
        phase: Phase,
        wanted: Wanted,
        work: Work,
        masks: &[Option<Mask<'_>>],
    ) -> Result<()> {
        let (model, stop) = (self.model.clone(), Arc::clone(&self.stop));
        let mut out = std::mem::take(&mut self.out);
        let mut feeds = [Feed { sequence: self, tokens, phase, wanted, masks: masks.to_vec() }];
        let result = run(&model, &mut feeds, work, &stop, &mut out);
        self.out = out;
        if matches!(result, Err(Error::Stopped)) {
            self.stop.clear();
        }
        result
    }

    /// Makes room in the cache for `rows` more tokens.
    pub(crate) fn reserve(&mut self, pools: &mut Pools, rows: usize) -> Result<()> {
        let len = self.tokens.len();
        self.tables.forget_before_window(pools, len);
        self.tables.reserve(pools, len, len + rows)
    }

    /// Begins an empty sequence with tokens whose keys and values are in the cache: one prefix for each group.
    pub(crate) fn adopt(&mut self, tokens: &[u32], prefixes: Vec<Prefix>) {
        debug_assert!(self.tokens.is_empty());
        self.tables.adopt(&mut self.model.engine().pools, prefixes);
        self.tokens.extend_from_slice(tokens);
    }

    /// Where the positions from `index · BLOCK` on lie, in each group that still holds them.
    pub(crate) fn blocks(&self, index: usize) -> Vec<Option<u32>> {
        self.tables.blocks(index)
    }

    fn check_room(&self, tokens: usize) -> Result<()> {
        let (tokens, context) = (self.tokens.len() + tokens, self.model.context());
        if tokens > context { Err(Error::TooLong { tokens, context }) } else { Ok(()) }
    }

    fn check_outputs(&self, rows: usize) -> Result<()> {
        let most = self.model.0.outputs;
        if rows == 0 || rows > most {
            return Err(Error::Usage {
                problem: format!("{rows} rows of output were asked for"),
                hint: format!("ask for 1 to {most} at a time, or load the model with more outputs"),
            });
        }
        Ok(())
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut engine = self.model.engine();
        self.tables.clear(&mut engine.pools);
        engine.free_slots.push(self.slot);
    }
}
