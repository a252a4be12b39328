//! The executable: batches in, logits or tokens out, the workers walking the step list together in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use akunu_program::program::{CacheLayer, Domain, FRAMES_PER_TOKEN, GroupId, KvGroup, Mask, Program};
use akunu_program::select::{Mask as Allowed, Sampling, Scratch as SelectScratch, select};
use akunu_program::slots::Slots;
use akunu_program::{BLOCK, Batch, Cost, Error, Executable, Limits, Outputs, Result, StopFlag, Timing, Work};

use crate::Isa;
use crate::kernels::many::Room;
use crate::kernels::prompt::PromptScratch;
use crate::kernels::rows::Argmax;
use crate::kernels::tiles;
use crate::kv::{CpuKv, padded};
use crate::lower::{Lowered, lower};
use crate::memory::{Shared, Turn};
use crate::pack::Form;
use crate::plan::{BufferId, FEW_ROWS};
use crate::pool::{Broken, Pool, Team};
use crate::rope::RopeRows;
use crate::simd::LANES;
use crate::state::{Grouping, State};
use crate::step::{Attention, Step};
use crate::timing::{Clock, Timings};
use crate::walk_experts::ExpertRows;
use crate::weights::CpuWeights;

/// Positions of the context that one worker attends to at a time in decoding: results are joined in the order of these
/// parts, whose borders are absolute positions.
pub(crate) const PART: usize = 256;
// The block that is written meanwhile belongs to one part alone.
const _: () = assert!(PART.is_multiple_of(BLOCK));

/// Queries of consecutive rows of a prompt that go over the context together, unless in tiles.
const QUERIES_TOGETHER: usize = 128;

/// Stands for "no token" in the workers' argmax results.
const NO_TOKEN: u32 = u32::MAX;

/// A lowered program with all its memory.
pub(crate) struct CpuExecutable {
    pub(crate) machine: Machine,
    pool: Arc<Pool>,
    steps: Vec<Step>,
    /// Only while somebody wants them.
    timings: Option<Timings>,
}

/// Everything the workers share during a run.
pub(crate) struct Machine {
    pub(crate) isa: Isa,
    pub(crate) weights: Arc<CpuWeights>,
    pub(crate) kv: Arc<CpuKv>,
    pub(crate) lowered: Places,
    pub(crate) arena: Shared,
    /// States of attention over parts of the context: `[row][kv_head][part][query][state]`, for few rows.
    pub(crate) parts: Shared,
    /// `f32`s of one row of `parts`.
    pub(crate) parts_row: usize,
    /// One for each worker.
    pub(crate) scratch: Vec<Scratch>,
    /// `[output][worker]`: the largest logit and its index.
    best: Shared,
    pub(crate) ropes: Vec<RopeRows>,
    /// `[group][layer]`: the rope of its keys.
    layer_ropes: Vec<Vec<Option<usize>>>,
    /// Written by worker 0 alone, between barriers.
    pub(crate) state: Turn<State>,
    vocabulary: usize,
}

/// Where the buffers lie.
pub(crate) struct Places {
    pub(crate) buffers: Vec<crate::plan::Buffer>,
    logits: BufferId,
    input: Option<BufferId>,
}

/// Room for one worker's attention and products.
pub(crate) struct Scratch {
    /// `[query][dim]`.
    pub(crate) queries: Shared,
    /// `[query][state]`, or `[part][query][state]`.
    pub(crate) states: Shared,
    /// For attention of prompts, unless in tiles.
    pub(crate) prompt: PromptScratch,
    /// `[query]`: what it sees of a block.
    pub(crate) visible: Shared,
    /// For products of tiles, where there are such.
    pub(crate) tiles: Option<tiles::Scratch>,
    /// For products of many rows, where they are others than those of one.
    pub(crate) many: Option<Room>,
    /// For experts, where there are such.
    pub(crate) experts: Option<ExpertRows>,
    /// For attention of tiles, where there are such.
    pub(crate) attention_tiles: Option<tiles::AttentionScratch>,
}

impl CpuExecutable {
    pub(crate) fn compile(
        program: &Program,
        weights: Arc<CpuWeights>,
        kv: Arc<CpuKv>,
        limits: &Limits,
        isa: Isa,
        pool: Arc<Pool>,
    ) -> Result<CpuExecutable> {
        if !kv.fits(&program.groups) {
            return Err(Error::Batch("the KV store was made for other groups".into()));
        }
        let workers = pool.size();
        let Lowered { steps, mut plan, logits, input } = lower(program, &weights, isa, workers)?;
        let bytes = plan.place(limits.rows as usize, limits.outputs as usize, workers);
        let arena = Shared::for_user(bytes, "room for the rows of a run")?;
        let attentions: Vec<&Attention> = steps
            .iter()
            .filter_map(|s| if let Step::Attend { attention, .. } = s { Some(attention) } else { None })
            .collect();
        let largest = |f: &dyn Fn(&Attention) -> usize| attentions.iter().map(|a| f(a)).max().unwrap_or(0);
        let stored = |a: &Attention| if let Mask::Stored(count) = a.mask { count as usize } else { 0 };
        let parts = largest(&stored).max(limits.context as usize) / PART + 2;
        let state = |a: &Attention| a.sharing * a.state_len();
        let parts_row = largest(&|a| a.kv_heads * parts * state(a));
        let products = || {
            steps
                .iter()
                .flat_map(|s| if let Step::Linear(linear) = s { linear.parts.as_slice() } else { &[] })
        };
        let tiled = products().any(|part| part.tiled.is_some() || part.several.is_some())
            || steps.iter().flat_map(Step::expert_products).any(|(by, _)| by.several.is_some());
        let attends_in_tiles = isa == Isa::Amx;
        let sharing = largest(&|a| a.sharing).max(1);
        let queries_together = if attends_in_tiles { tiles::QUERIES_TOGETHER } else { QUERIES_TOGETHER };
        let together = (queries_together / sharing).max(1);
        // In tiles, other memory is used.
        let plain = if attends_in_tiles { 1 } else { together };
        let dim = largest(&|a| padded(a.head_dim));
        let kv_heads = attentions.iter().map(|a| a.kv_heads).min().unwrap_or(1).max(1);
        let weighed = steps.iter().map(|step| match step {
            Step::Weights(step) => step.heads.iter().map(|head| padded(head.head_dim)).max().unwrap_or(0),
            _ => 0,
        });
        let queries = PromptScratch::queries(largest(&|a| plain * a.sharing));
        let scratch = || Scratch {
            queries: Shared::new(4 * (queries * dim).max(weighed.clone().max().unwrap_or(0))),
            states: Shared::new(4 * largest(&|a| (state(a) * parts).max(queries * a.state_len()))),
            // Nothing where tiles attend.
            prompt: if attends_in_tiles {
                PromptScratch::new(0, 0)
            } else {
                PromptScratch::new(queries, dim)
            },
            visible: Shared::new(2 * together * sharing),
            tiles: tiled.then(tiles::Scratch::new),
            many: Room::new(isa),
            experts: ExpertRows::new(&steps, &weights, workers),
            attention_tiles: attends_in_tiles.then(|| tiles::AttentionScratch::new(together * sharing, dim)),
        };
        let vocabulary = program.value(program.logits).width;
        let rows = limits.rows as usize;
        let slots = Slots::new(limits, program, &kv.blocks());
        let select = SelectScratch::new(vocabulary, limits.context as usize);
        let grouping = Grouping {
            together,
            parts: if attends_in_tiles { 1 } else { (2 * workers).div_ceil(kv_heads) },
            frames: input.is_some(),
            encodes: products().any(|p| weights.matrix(p.weight).is_ok_and(|m| m.form == Form::Pairs)),
        };
        let layer_ropes = |(group, shape): (usize, &KvGroup)| {
            let layer = |layer| CacheLayer { group: GroupId(group as u32), layer };
            (0..shape.layers).map(|l| program.rope_of(layer(l)).map(|rope| rope.0 as usize)).collect()
        };
        let machine = Machine {
            isa,
            kv,
            lowered: Places { buffers: plan.buffers, logits, input },
            arena,
            parts: Shared::new(4 * FEW_ROWS.min(rows) * parts_row),
            parts_row,
            scratch: (0..workers).map(|_| scratch()).collect(),
            best: Shared::new(8 * workers * limits.outputs as usize),
            ropes: program.ropes.iter().map(|r| RopeRows::new(r, limits.context as usize)).collect(),
            layer_ropes: program.groups.iter().enumerate().map(layer_ropes).collect(),
            state: Turn::new(State::new(slots, limits, select, grouping)),
            weights,
            vocabulary,
        };
        machine.check_vectors(&steps)?;
        Ok(CpuExecutable { machine, pool, steps, timings: None })
    }
}

impl Machine {
    /// Whether every norm weight and bias is there, so that no step can fail.
    fn check_vectors(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Norm { weight, bias, .. } => {
                    self.weights.vector(*weight)?;
                    bias.map(|b| self.weights.vector(b)).transpose()?;
                }
                Step::Linear(linear) => {
                    for bias in linear.parts.iter().filter_map(|p| p.bias) {
                        self.weights.vector(bias)?;
                    }
                }
                Step::Embed { table, .. } => {
                    self.weights.rows(*table)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How many rows a domain has in this run.
    pub(crate) fn count(&self, state: &State, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => state.rows.len(),
            Domain::Outputs => state.outputs.len(),
            Domain::Frames => FRAMES_PER_TOKEN * state.rows.len(),
        }
    }

    /// The byte at which a worker's view of a buffer begins.
    pub(crate) fn start(&self, state: &State, id: BufferId, worker: usize) -> usize {
        let buffer = &self.lowered.buffers[id.0];
        let copy = if state.redundant && buffer.private { worker * FEW_ROWS * buffer.row_bytes } else { 0 };
        buffer.offset + copy
    }
}

impl Executable for CpuExecutable {
    fn run(&mut self, batch: &Batch<'_>, work: Work, stop: &StopFlag, out: &mut Outputs) -> Result<()> {
        out.logits.clear();
        out.tokens.clear();
        let machine = &mut self.machine;
        let state = machine.state.own();
        state.slots.prepare(batch, work, &mut state.rows)?;
        for copy in batch.copies {
            // SAFETY: no worker runs.
            unsafe { machine.kv.copy(*copy) };
        }
        for shift in batch.shifts {
            let rope_of = |cache: CacheLayer| {
                machine.layer_ropes[cache.group.0 as usize][cache.layer].map(|rope| &machine.ropes[rope])
            };
            // SAFETY: no worker runs.
            unsafe { machine.kv.shift(*shift, rope_of, machine.isa) };
        }
        if state.rows.is_empty() {
            return Ok(());
        }
        let turns = match work {
            Work::Chain(n) => n,
            Work::Forward | Work::Step => 1,
        };
        for row in &state.rows {
            for rope in &mut machine.ropes {
                (row.position..row.position + turns).for_each(|p| rope.prepare(p as usize));
            }
        }
        let tiled = machine.scratch.iter().any(|scratch| scratch.tiles.is_some());
        state.begin(batch, tiled);
        if let Some(input) = machine.lowered.input {
            let offset = machine.lowered.buffers[input.0].offset;
            // SAFETY: no worker runs.
            unsafe { machine.arena.get_mut(offset, batch.inputs.len()) }.copy_from_slice(batch.inputs);
        }
        if matches!(work, Work::Chain(_) | Work::Step) {
            out.tokens.resize(turns as usize * batch.outputs.len(), 0);
        }
        let tokens = Turn::new(&mut out.tokens);
        let timings = self.timings.as_ref();
        let halted = AtomicU32::new(u32::MAX);
        let walk =
            Walk { steps: &self.steps, timings, machine, stop, halted, work, turns, masks: batch.masks };
        let result = self.pool.run(&|worker, team| walk.walk(worker, team, &tokens));
        let halted = walk.halted.into_inner() != u32::MAX;
        if let Some(error) = machine.state.own().error.take() {
            out.tokens.clear();
            return Err(error);
        }
        if halted {
            out.tokens.clear();
            return Err(Error::Stopped);
        }
        result.map_err(|broken| Error::Device(broken.to_string()))?;
        if work == Work::Forward {
            let count = batch.outputs.len() * machine.vocabulary;
            let offset = machine.lowered.buffers[machine.lowered.logits.0].offset;
            // SAFETY: no worker runs.
            out.logits.extend_from_slice(unsafe { machine.arena.get(offset, count) });
        }
        Ok(())
    }

    fn set_timing(&mut self, on: bool) -> bool {
        self.timings = on.then(|| Timings::new(self.steps.len()));
        true
    }

    fn timings(&self) -> Vec<Timing> {
        self.timings.as_ref().map_or(Vec::new(), |timings| timings.timings(&self.steps))
    }
}

/// One run, as the workers see it.
struct Walk<'a> {
    steps: &'a [Step],
    timings: Option<&'a Timings>,
    machine: &'a Machine,
    stop: &'a StopFlag,
    /// The number of the barrier after which to halt.
    halted: AtomicU32,
    work: Work,
    turns: u32,
    /// `[output]`, or empty.
    masks: &'a [Option<Allowed<'a>>],
}

/// A worker's place in the walk.
pub(crate) struct Place<'a> {
    pub(crate) worker: usize,
    team: &'a Team,
    /// Barriers passed.
    barriers: u32,
}

impl Walk<'_> {
    fn walk(&self, worker: usize, team: &Team, tokens: &Turn<&mut Vec<u32>>) -> Result<(), Broken> {
        let mut place = Place { worker, team, barriers: 0 };
        let mut clock = Clock::new(self.timings.filter(|_| worker == 0));
        for turn in 0..self.turns {
            self.body(&mut place, &mut clock)?;
            if self.work == Work::Forward {
                break;
            }
            self.select(&mut place, turn as usize, tokens)?;
            clock.lap(self.steps.len(), Cost::default);
        }
        Ok(())
    }

    /// Waits for the others. Worker 0 looks at the stop flag before, and all halt after the same barrier.
    fn barrier(&self, place: &mut Place<'_>) -> Result<(), Broken> {
        if place.worker == 0 && self.stop.check().is_err() {
            self.halt(place);
        }
        place.team.barrier()?;
        place.barriers += 1;
        if self.halted.load(Ordering::Acquire) < place.barriers { Err(Broken::Failed) } else { Ok(()) }
    }

    /// Halts everyone after the next barrier.
    fn halt(&self, place: &Place<'_>) {
        self.halted.fetch_min(place.barriers, Ordering::Release);
    }

    fn body(&self, place: &mut Place<'_>, clock: &mut Clock<'_>) -> Result<(), Broken> {
        // SAFETY: worker 0 writes the state only in `select`, between two barriers.
        let state = unsafe { self.machine.state.get() };
        // Whether rows were written that other workers will read.
        let mut pending = false;
        for (index, step) in self.steps.iter().enumerate() {
            if state.is_idle(step, |id| self.machine.lowered.buffers[id.0].domain) {
                continue;
            }
            let wide = step.is_wide();
            let crosses = matches!(step, Step::Gather { .. } | Step::Unfold { .. });
            if pending && (wide || crosses) {
                self.barrier(place)?;
                pending = false;
            }
            self.machine.step(step, state, place.worker, place.team);
            if wide {
                self.barrier(place)?;
            } else {
                let writes_cache = match step {
                    Step::Rotate(_) => !state.writes_late,
                    Step::Store(_) => true,
                    _ => false,
                };
                pending |= !state.redundant || writes_cache;
            }
            clock.lap(index, || self.machine.cost(step, state));
        }
        // All workers read the logits next.
        if !self.steps.last().is_some_and(Step::is_wide) {
            self.barrier(place)?;
        }
        Ok(())
    }

    /// Chooses the next tokens and, in a chain, makes them the next rows.
    fn select(&self, place: &mut Place<'_>, turn: usize, tokens: &Turn<&mut Vec<u32>>) -> Result<(), Broken> {
        let machine = self.machine;
        let workers = place.team.size();
        // SAFETY: as in `body`.
        machine.find_best(unsafe { machine.state.get() }, self.masks, place.worker, workers);
        self.barrier(place)?;
        if place.worker == 0 {
            // SAFETY: the others wait at the barrier below and touch neither.
            let (state, tokens) = unsafe { (machine.state.get_mut(), tokens.get_mut()) };
            let outputs = state.outputs.len();
            if let Err(error) =
                machine.choose(state, self.masks, workers, &mut tokens[turn * outputs..(turn + 1) * outputs])
            {
                state.error = Some(error);
                self.halt(place);
            } else if matches!(self.work, Work::Chain(_)) {
                for (i, &token) in tokens[turn * outputs..(turn + 1) * outputs].iter().enumerate() {
                    let row = &mut state.rows[i];
                    *row = row.next(token);
                    state.slots.set_token(*row);
                }
            }
        }
        self.barrier(place)
    }
}

/// Whether a row just takes the largest logit.
fn is_plain(sampling: &Sampling, mask: Option<Allowed<'_>>) -> bool {
    mask.is_none() && sampling.temperature <= 0.0 && sampling.logit_bias.is_empty() && !sampling.penalizes()
}

impl Machine {
    /// The largest logit of this worker's share of every output.
    fn find_best(&self, state: &State, masks: &[Option<Allowed<'_>>], worker: usize, workers: usize) {
        let vectors = self.vocabulary.div_ceil(LANES);
        let from = vectors * worker / workers * LANES;
        let to = (vectors * (worker + 1) / workers * LANES).min(self.vocabulary);
        let logits = self.lowered.buffers[self.lowered.logits.0].offset;
        for (i, &output) in state.outputs.iter().enumerate() {
            let mask = masks.get(i).copied().flatten();
            if !is_plain(&state.slots.slot(state.rows[output as usize].slot).sampling, mask) {
                continue;
            }
            let mut best = None;
            // SAFETY: logits are complete since the last barrier; every worker writes its own entry of `best`.
            let (x, entry) = unsafe {
                let x = self.arena.get(logits + 4 * (i * self.vocabulary + from), to - from);
                (x, self.best.get_mut::<u32>(8 * (i * workers + worker), 2))
            };
            self.isa.run(Argmax { x, best: &mut best });
            let (value, token) =
                best.map_or((f32::NEG_INFINITY, NO_TOKEN), |(value, at)| (value, at + from as u32));
            entry.copy_from_slice(&[value.to_bits(), token]);
        }
    }

    /// One token for every output.
    fn choose(
        &self,
        state: &mut State,
        masks: &[Option<Allowed<'_>>],
        workers: usize,
        tokens: &mut [u32],
    ) -> Result<()> {
        let logits = self.lowered.buffers[self.lowered.logits.0].offset;
        for (i, (&output, chosen)) in state.outputs.iter().zip(tokens).enumerate() {
            let row = state.rows[output as usize];
            let slot = state.slots.slot(row.slot);
            let mask = masks.get(i).copied().flatten();
            let token = if is_plain(&slot.sampling, mask) {
                // SAFETY: all workers have passed the barrier after `find_best`.
                let entries: &[u32] = unsafe { self.best.get(8 * i * workers, 2 * workers) };
                let mut best = (f32::NEG_INFINITY, NO_TOKEN);
                for entry in entries.as_chunks::<2>().0 {
                    if entry[1] != NO_TOKEN && f32::from_bits(entry[0]) > best.0 {
                        best = (f32::from_bits(entry[0]), entry[1]);
                    }
                }
                (best.1 != NO_TOKEN).then_some(best.1)
            } else {
                // SAFETY: the other workers wait.
                let logits = unsafe { self.arena.get_mut(logits + 4 * i * self.vocabulary, self.vocabulary) };
                let history = &slot.tokens[..=row.position as usize];
                select(logits, &slot.sampling, history, row.position, mask, &mut state.select)
            };
            *chosen = token.ok_or(Error::NoChoice { position: row.position })?;
        }
        Ok(())
    }
}
