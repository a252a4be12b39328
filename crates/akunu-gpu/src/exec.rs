//! Running batches: what changed is written to the device's slots, then a list of commands runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use akunu_program::program::{CacheLayer, Program};
use akunu_program::rope::RopeLayout;
use akunu_program::select::{Sampling, Scratch, select};
use akunu_program::slots::{Row, Slots};
use akunu_program::{Batch, Error, Executable, KeyShift, Limits, Outputs, Result, SlotEdit, StopFlag, Work};

use crate::ChipConfig;
use crate::host::{Bind, Host};
use crate::kv::GpuKv;
use crate::lower::{Lowered, lower};
use crate::params::{self, NONE};
use crate::table::{Choice, Segment, Shape, Table, commands};
use crate::weights::GpuWeights;

/// Lists that are kept: those of decoding few rows, which run again and again.
const KEPT: usize = 64;

/// What a stretch of a chain should not take longer than: macOS ends work that keeps the GPU from drawing, and a stop is noticed between
/// stretches.
const LONGEST_STRETCH: Duration = Duration::from_millis(50);

/// How often a list runs, and whether with the tokens it chose.
#[derive(Clone, Copy)]
struct Turns {
    count: u32,
    advance: bool,
}

/// Turns of a chain that were asked for together.
struct Stretch<M> {
    first: u32,
    turns: u32,
    /// Its end, where others were asked for after it.
    mark: Option<M>,
}

pub(crate) struct GpuExecutable<H: Host> {
    host: Arc<H>,
    chip: ChipConfig,
    program: Program,
    limits: Limits,
    slots: Slots,
    rows: Vec<Row>,
    scratch: Scratch,
    lists: HashMap<Shape, H::List>,
    memory: Memory<H>,
}

/// All the device's memory that lists refer to.
struct Memory<H: Host> {
    lowered: Lowered,
    weights: Arc<GpuWeights<H>>,
    kv: Arc<GpuKv<H>>,
    arena: H::Buffer,
    /// `[row][slot, position, token, end of its span]`.
    rows: H::Buffer,
    outputs: H::Buffer,
    tables: H::Buffer,
    angles: H::Buffer,
    /// Where each rotation's angles begin, in floats.
    angle_starts: Vec<u32>,
    tokens: H::Buffer,
    samplings: H::Buffer,
    chosen: H::Buffer,
    /// `[layer][turn_stride]`.
    turns: H::Buffer,
    turn_stride: usize,
}

impl<H: Host> GpuExecutable<H> {
    pub(crate) fn compile(
        host: Arc<H>,
        program: &Program,
        weights: Arc<GpuWeights<H>>,
        kv: Arc<GpuKv<H>>,
        limits: &Limits,
    ) -> Result<GpuExecutable<H>> {
        if !kv.fits(&program.groups) {
            return Err(Error::Batch("the KV store was made for other groups".into()));
        }
        check_heads(program)?;
        let chip = ChipConfig::new(host.facts());
        let lowered = lower(program, &weights.layout, limits, kv.kind, &chip)?;
        let context = limits.context as usize;
        let (angles, angle_starts) = angles(program, context)?;
        let slots = limits.slots as usize;
        let entries = slots * program.groups.len() * lowered.entries;
        let layers = program.groups.iter().map(|g| g.layers).max().unwrap_or(0);
        let turn_stride = 2 + 2 * program.ropes.iter().map(|r| r.frequencies.len()).max().unwrap_or(0);
        let memory = Memory {
            arena: host.allocate(lowered.size * size_of::<f32>())?,
            rows: host.allocate(limits.rows as usize * 16)?,
            outputs: host.allocate(limits.outputs as usize * 4)?,
            tables: host.allocate(entries * 4)?,
            angles: host.allocate(angles.len() * 4)?,
            angle_starts,
            tokens: host.allocate(slots * context * 4)?,
            samplings: host.allocate(slots * size_of::<params::Sampling>())?,
            chosen: host.allocate(chip.turns() as usize * limits.outputs as usize * 4)?,
            turns: host.allocate(layers * turn_stride * 4)?,
            turn_stride,
            lowered,
            weights,
            kv,
        };
        host.write(&memory.angles, 0, bytemuck::cast_slice(&angles))?;
        for (at, matrices) in &memory.lowered.constants {
            host.write(&memory.arena, *at as usize * 4, bytemuck::cast_slice(matrices))?;
        }
        let greedy = vec![params::Sampling::new(&Sampling::GREEDY); slots];
        host.write(&memory.samplings, 0, bytemuck::cast_slice(&greedy))?;
        let slots = Slots::new(limits, program, &memory.kv.blocks());
        let scratch = Scratch::new(program.value(program.logits).width, context);
        let (program, limits) = (program.clone(), *limits);
        Ok(GpuExecutable {
            host,
            chip,
            program,
            limits,
            slots,
            rows: Vec::new(),
            scratch,
            lists: HashMap::new(),
            memory,
        })
    }
}

/// Whether the kernels of attention can take the program's heads.
fn check_heads(program: &Program) -> Result<()> {
    match program.groups.iter().find(|g| g.head_dim > 256 || !g.head_dim.is_multiple_of(2)) {
        Some(group) => Err(Error::Unsupported {
            what: format!("heads of {} on the GPU", group.head_dim),
            supported: "even sizes up to 256".into(),
        }),
        None => Ok(()),
    }
}

/// Cosines and sines of every rotation, `[position][pair][2]`, and where each begins.
fn angles(program: &Program, context: usize) -> Result<(Vec<f32>, Vec<u32>)> {
    let (mut angles, mut starts) = (Vec::new(), Vec::new());
    for rope in &program.ropes {
        let start = u32::try_from(angles.len());
        starts.push(start.map_err(|_| Error::Batch("the context is too long for its rotations".into()))?);
        for position in 0..context {
            for &frequency in &rope.frequencies {
                let angle = position as f64 * f64::from(frequency);
                let magnitude = f64::from(rope.magnitude);
                angles.extend([(angle.cos() * magnitude) as f32, (angle.sin() * magnitude) as f32]);
            }
        }
    }
    Ok((angles, starts))
}

impl<H: Host> Memory<H> {
    fn buffer(&self, bind: Bind) -> &H::Buffer {
        match bind {
            Bind::Weights => &self.weights.buffer,
            Bind::File => self.weights.file.as_ref().unwrap_or(&self.weights.buffer),
            Bind::Arena => &self.arena,
            Bind::Rows => &self.rows,
            Bind::Outputs => &self.outputs,
            Bind::Tables => &self.tables,
            Bind::Angles => &self.angles,
            Bind::Tokens => &self.tokens,
            Bind::Samplings => &self.samplings,
            Bind::Chosen => &self.chosen,
            Bind::Turns => &self.turns,
            Bind::Kv(group) => self.kv.buffer(group),
        }
    }
}

impl<H: Host> Executable for GpuExecutable<H> {
    fn run(&mut self, batch: &Batch<'_>, work: Work, stop: &StopFlag, out: &mut Outputs) -> Result<()> {
        out.logits.clear();
        out.tokens.clear();
        let mut rows = std::mem::take(&mut self.rows);
        let result = self.slots.prepare(batch, work, &mut rows).and_then(|()| {
            self.mirror(batch)?;
            if rows.is_empty() {
                return Ok(());
            }
            self.work(batch, &mut rows, work, stop, out)
        });
        self.rows = rows;
        if result.is_err() {
            out.tokens.clear();
        }
        result
    }
}

impl<H: Host> GpuExecutable<H> {
    /// Writes what the batch changes to the device.
    fn mirror(&self, batch: &Batch<'_>) -> Result<()> {
        let (host, memory) = (&*self.host, &self.memory);
        let context = self.limits.context as usize;
        let write =
            |buffer, at: usize, words: &[u32]| host.write(buffer, 4 * at, bytemuck::cast_slice(words));
        for edit in batch.edits {
            match edit {
                SlotEdit::Blocks { slot, group, first, blocks } => {
                    let entries = memory.lowered.entries;
                    let table = slot.0 as usize * self.program.groups.len() + group.0 as usize;
                    write(&memory.tables, table * entries + *first as usize, blocks)?;
                }
                SlotEdit::Tokens { slot, at, tokens } => {
                    write(&memory.tokens, slot.0 as usize * context + *at as usize, tokens)?;
                }
                SlotEdit::Sampling { slot, sampling } => {
                    let record = params::Sampling::new(sampling);
                    let at = slot.0 as usize * size_of::<params::Sampling>();
                    host.write(&memory.samplings, at, bytemuck::bytes_of(&record))?;
                }
            }
        }
        for copy in batch.copies {
            memory.kv.copy(host, *copy)?;
        }
        batch.shifts.iter().try_for_each(|shift| self.shift(*shift))?;
        let mut first = 0;
        // Programs that begin with numbers have no tokens.
        for span in batch.spans.iter().filter(|_| !batch.tokens.is_empty()) {
            let tokens = &batch.tokens[first..first + span.rows as usize];
            write(&memory.tokens, span.slot.0 as usize * context + span.start as usize, tokens)?;
            first += tokens.len();
        }
        if let Some(place) = memory.lowered.input {
            let (width, stride) = (place.width as usize, place.stride as usize);
            let mut frames = vec![0f32; batch.inputs.len() / width * stride];
            for (to, from) in frames.chunks_exact_mut(stride).zip(batch.inputs.chunks_exact(width)) {
                to[..width].copy_from_slice(from);
            }
            host.write(&memory.arena, place.at as usize * 4, bytemuck::cast_slice(&frames))?;
        }
        write(&memory.outputs, 0, batch.outputs)
    }

    fn work(
        &mut self,
        batch: &Batch<'_>,
        rows: &mut [Row],
        work: Work,
        stop: &StopFlag,
        out: &mut Outputs,
    ) -> Result<()> {
        stop.check()?;
        let samplings: Vec<&Sampling> =
            batch.outputs.iter().map(|&o| &self.slots.slot(rows[o as usize].slot).sampling).collect();
        let plain = |s: &&Sampling| s.temperature <= 0.0 && !s.penalizes();
        // Lists of biases and masks have no place on the device: such rows are chosen for on the host.
        let masked = batch.masks.iter().any(Option::is_some);
        let on_host = masked || samplings.iter().any(|s| !s.logit_bias.is_empty());
        let choice = match work {
            Work::Forward => Choice::None,
            _ if on_host => Choice::None,
            _ if samplings.iter().all(plain) => Choice::Greedy,
            _ => Choice::Sampled,
        };
        let phase = |row: &Row| row.phase;
        let shape = Shape {
            tokens: Segment::runs(rows.iter().map(phase)),
            outputs: Segment::runs(batch.outputs.iter().map(|&o| rows[o as usize].phase)),
            choice,
            advance: matches!(work, Work::Chain(_)),
        };
        let turns = Turns { count: if let Work::Chain(n) = work { n } else { 1 }, advance: shape.advance };
        // Taken out while it runs: it is not needed twice at once.
        let list = match self.lists.remove(&shape) {
            Some(list) => list,
            None => self.record(&shape)?,
        };
        let done = match work {
            Work::Forward => self.forward(&list, batch, rows, out),
            _ if on_host => self.choose_each(&list, batch, rows, turns, stop, out),
            _ => self.chain(&list, batch, rows, turns, stop, out),
        };
        // Also where something failed: what still runs uses the list and the buffers.
        let done = done.and(self.host.wait());
        if matches!(shape.tokens[..], [Segment { rows: ..=8, .. }]) && self.lists.len() < KEPT {
            self.lists.insert(shape, list);
        }
        done
    }

    fn record(&self, shape: &Shape) -> Result<H::List> {
        let commands = commands(&self.table(), shape)?;
        // SAFETY: the buffers live as long as `self`, and lists are dropped before; offsets come from the plans the buffers were
        // sized by, rows and blocks from batches that were checked.
        unsafe { self.host.record(&commands, &|bind| self.memory.buffer(bind)) }
    }

    fn forward(&self, list: &H::List, batch: &Batch<'_>, rows: &[Row], out: &mut Outputs) -> Result<()> {
        self.upload(rows)?;
        self.host.replay(list, 1)?;
        self.read_logits(batch.outputs.len(), &mut out.logits)
    }

    /// Turn by turn, where tokens are chosen on the host.
    fn choose_each(
        &mut self,
        list: &H::List,
        batch: &Batch<'_>,
        rows: &mut [Row],
        turns: Turns,
        stop: &StopFlag,
        out: &mut Outputs,
    ) -> Result<()> {
        for _ in 0..turns.count {
            stop.check()?;
            self.upload(rows)?;
            self.host.replay(list, 1)?;
            let first = out.tokens.len();
            self.choose_on_host(batch, rows, out)?;
            self.accept(batch, rows, &out.tokens[first..], turns.advance)?;
        }
        Ok(())
    }

    /// Turns that need nothing of the host, in stretches: while one runs the next is made ready, and each is twice as long as the one
    /// before, so that the device never waits long for the first.
    fn chain(
        &mut self,
        list: &H::List,
        batch: &Batch<'_>,
        rows: &mut [Row],
        turns: Turns,
        stop: &StopFlag,
        out: &mut Outputs,
    ) -> Result<()> {
        let outputs = batch.outputs.len();
        self.upload(rows)?;
        let mut running: VecDeque<Stretch<H::Mark>> = VecDeque::with_capacity(2);
        let (mut asked, mut length) = (0, 1);
        let mut began = Instant::now();
        loop {
            while asked < turns.count && running.len() < 2 {
                stop.check()?;
                if let Some(before) = running.back_mut() {
                    before.mark = Some(self.host.mark()?);
                }
                let count = length.min(turns.count - asked);
                self.host.replay(list, count)?;
                running.push_back(Stretch { first: asked, turns: count, mark: None });
                asked += count;
                length = (2 * length).min(self.chip.chain);
            }
            let Some(stretch) = running.pop_front() else { return Ok(()) };
            let first = out.tokens.len();
            out.tokens.resize(first + stretch.turns as usize * outputs, 0);
            self.read_chosen(&stretch, outputs, &mut out.tokens[first..])?;
            let each = began.elapsed().as_secs_f64() / f64::from(stretch.turns);
            length = length.min((LONGEST_STRETCH.as_secs_f64() / each.max(1e-9)) as u32).max(1);
            began = Instant::now();
            self.accept(batch, rows, &out.tokens[first..], turns.advance)?;
        }
    }

    /// What was chosen in the turns of a stretch.
    fn read_chosen(&self, stretch: &Stretch<H::Mark>, outputs: usize, tokens: &mut [u32]) -> Result<()> {
        let (host, chosen) = (&*self.host, &self.memory.chosen);
        let ring = self.chip.turns();
        let start = stretch.first % ring;
        let (straight, wrapped) = tokens.split_at_mut((ring - start).min(stretch.turns) as usize * outputs);
        for (turn, part) in [(start, straight), (0, wrapped)] {
            let (at, part) = (turn as usize * outputs * 4, bytemuck::cast_slice_mut(part));
            match &stretch.mark {
                Some(mark) => host.read_after(mark, chosen, at, part)?,
                None => host.read(chosen, at, part)?,
            }
        }
        Ok(())
    }

    /// Notes the tokens of some turns, with which a chain goes on.
    fn accept(&mut self, batch: &Batch<'_>, rows: &mut [Row], tokens: &[u32], advance: bool) -> Result<()> {
        for turn in tokens.chunks_exact(batch.outputs.len().max(1)) {
            for (&output, &token) in batch.outputs.iter().zip(turn) {
                let row = &mut rows[output as usize];
                if token == NONE {
                    return Err(Error::NoChoice { position: row.position });
                }
                if advance {
                    *row = row.next(token);
                    self.slots.set_token(*row);
                }
            }
        }
        Ok(())
    }

    fn upload(&self, rows: &[Row]) -> Result<()> {
        let records: Vec<[u32; 4]> = rows.iter().map(|r| [r.slot.0, r.position, r.token, r.end]).collect();
        self.host.write(&self.memory.rows, 0, bytemuck::cast_slice(&records))
    }

    fn table(&self) -> Table<'_> {
        Table {
            program: &self.program,
            lowered: &self.memory.lowered,
            layout: &self.memory.weights.layout,
            limits: &self.limits,
            kind: self.memory.kv.kind,
            angles: &self.memory.angle_starts,
            chip: self.chip,
        }
    }

    /// Turns the keys of a block. Their magnitude is in them already.
    fn shift(&self, shift: KeyShift) -> Result<()> {
        let mut turns = Vec::new();
        for layer in 0..self.program.groups[shift.group.0 as usize].layers {
            let start = turns.len();
            if let Some(rope) = self.program.rope_of(CacheLayer { group: shift.group, layer }) {
                let table = &self.program.ropes[rope.0 as usize];
                let split = if table.layout == RopeLayout::SplitHalf { 1.0 } else { 0.0 };
                turns.extend([table.frequencies.len() as f32, split]);
                for &frequency in &table.frequencies {
                    let angle = f64::from(shift.by) * f64::from(frequency);
                    turns.extend([angle.cos() as f32, angle.sin() as f32]);
                }
            }
            turns.resize(start + self.memory.turn_stride, 0.0);
        }
        self.host.write(&self.memory.turns, 0, bytemuck::cast_slice(&turns))?;
        let command = self.table().shift(shift, self.memory.turn_stride as u32);
        // SAFETY: the buffers live as long as `self`; the block was checked.
        let list = unsafe { self.host.record(&[command], &|bind| self.memory.buffer(bind))? };
        self.host.replay(&list, 1)?;
        self.host.wait()
    }

    fn read_logits(&self, outputs: usize, logits: &mut Vec<f32>) -> Result<()> {
        let place = self.memory.lowered.places[self.program.logits.0 as usize];
        let (width, stride) = (place.width as usize, place.stride as usize);
        logits.resize(outputs * width, 0.0);
        if width == stride {
            return self.host.read(
                &self.memory.arena,
                place.at as usize * 4,
                bytemuck::cast_slice_mut(logits),
            );
        }
        for (i, row) in logits.chunks_exact_mut(width).enumerate() {
            let at = (place.at as usize + i * stride) * 4;
            self.host.read(&self.memory.arena, at, bytemuck::cast_slice_mut(row))?;
        }
        Ok(())
    }

    fn choose_on_host(&mut self, batch: &Batch<'_>, rows: &[Row], out: &mut Outputs) -> Result<()> {
        let width = self.program.value(self.program.logits).width;
        let mut logits = std::mem::take(&mut out.logits);
        self.read_logits(batch.outputs.len(), &mut logits)?;
        for (i, logits) in logits.chunks_exact_mut(width).enumerate() {
            let row = rows[batch.outputs[i] as usize];
            let mask = batch.masks.get(i).copied().flatten();
            let slot = self.slots.slot(row.slot);
            let history = &slot.tokens[..=row.position as usize];
            let token = select(logits, &slot.sampling, history, row.position, mask, &mut self.scratch);
            out.tokens.push(token.ok_or(Error::NoChoice { position: row.position })?);
        }
        logits.clear();
        out.logits = logits;
        Ok(())
    }
}
