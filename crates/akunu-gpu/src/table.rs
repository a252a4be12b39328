//! The dispatch table: a lowered program and the shape of a batch give a flat list of commands. What changes from token to token
//! (tokens, positions, block tables, sampling) lies in buffers, so a list made once runs for every token of a chain.

mod encoders;
mod products;

pub(crate) use products::Halved;

use akunu_program::program::{
    Activation, CacheLayer, Domain, FRAMES_PER_TOKEN, Index, Mask, NormKind, Program, RopeId, ValueId,
};
use akunu_program::rope::RopeLayout;
use akunu_program::{KV_GROUP, KeyShift, KvType, Limits, Phase, Result};
use bytemuck::Pod;

use crate::ChipConfig;
use crate::form::Family;
use crate::host::{Bind, Command};
use crate::kv::padded;
use crate::lower::{Elements, Lowered, Node, Norm, Place};
use crate::params::{
    AttendParams, Cache, ElementParams, EmbedParams, GatherParams, NONE, NormParams, RotateParams,
    RouteParams, SelectParams, ShiftParams,
};
use crate::weights::Layout;

/// Positions that one threadgroup attends to, as in `kernels/attention.metal`.
const PART: usize = 128;

/// Heads that attention takes together, as there.
const TOGETHER: usize = 4;

/// Rows that are decoded by one launch of attention, which bounds the room for their parts.
const DECODE_ROWS: usize = 32;

/// Kernels for heads of up to 64, 128 and 256: over halves, and over bytes.
const ATTEND_ALL: [[&str; 3]; 2] = [
    ["attend_all_64", "attend_all_128", "attend_all_256"],
    ["attend_all_q8_64", "attend_all_q8_128", "attend_all_q8_256"],
];
const ATTEND_PART: [[&str; 3]; 2] = [
    ["attend_part_64", "attend_part_128", "attend_part_256"],
    ["attend_part_q8_64", "attend_part_q8_128", "attend_part_q8_256"],
];

/// Parts that a row may have.
pub(crate) fn attend_parts(mask: Mask, window: Option<usize>, context: u32) -> u32 {
    let all = (context as usize).div_ceil(PART);
    let parts = match mask {
        Mask::Causal => window.map_or(all, |w| all.min(w.div_ceil(PART) + 1)),
        Mask::Full => all,
        Mask::Stored(count) => (count as usize).div_ceil(PART),
    };
    parts as u32
}

/// Rows that are decoded by one launch of attention.
pub(crate) fn decode_rows(limits: &Limits) -> usize {
    DECODE_ROWS.min(limits.rows as usize)
}

/// Consecutive rows of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Segment {
    pub(crate) first: u32,
    pub(crate) rows: u32,
    pub(crate) decode: bool,
}

impl Segment {
    /// Cuts rows into runs of one phase.
    pub(crate) fn runs(phases: impl Iterator<Item = Phase>) -> Vec<Segment> {
        let mut runs: Vec<Segment> = Vec::new();
        for (i, phase) in phases.enumerate() {
            let decode = phase == Phase::Decode;
            match runs.last_mut() {
                Some(run) if run.decode == decode => run.rows += 1,
                _ => runs.push(Segment { first: i as u32, rows: 1, decode }),
            }
        }
        runs
    }

    /// The frames of sound of these rows.
    fn frames(self) -> Segment {
        let each = FRAMES_PER_TOKEN as u32;
        Segment { first: each * self.first, rows: each * self.rows, ..self }
    }
}

/// What follows the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    /// Nothing.
    None,
    /// The largest logit.
    Greedy,
    /// Penalties, filters and noise as the slots ask for.
    Sampled,
}

/// What a list of commands depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) tokens: Vec<Segment>,
    pub(crate) outputs: Vec<Segment>,
    pub(crate) choice: Choice,
    /// Whether the tokens chosen become the next rows.
    pub(crate) advance: bool,
}

/// A lowered program with all it refers to.
pub(crate) struct Table<'a> {
    pub(crate) program: &'a Program,
    pub(crate) lowered: &'a Lowered,
    pub(crate) layout: &'a Layout,
    pub(crate) limits: &'a Limits,
    pub(crate) kind: KvType,
    /// Where the angles of each rotation begin, in floats.
    pub(crate) angles: &'a [u32],
    pub(crate) chip: ChipConfig,
}

/// The commands for a batch of this shape.
pub(crate) fn commands(table: &Table<'_>, shape: &Shape) -> Result<Vec<Command>> {
    let mut list = List { table, commands: Vec::with_capacity(2 * table.lowered.nodes.len()) };
    let frames: Vec<Segment> = shape.tokens.iter().map(|segment| segment.frames()).collect();
    for (i, node) in table.lowered.nodes.iter().enumerate() {
        let segments = match table.program.value(node.rows_of()).domain {
            Domain::Tokens => &shape.tokens,
            Domain::Outputs => &shape.outputs,
            Domain::Frames => &frames,
        };
        let next = table.lowered.nodes.get(i + 1);
        for segment in segments {
            let is_left =
                matches!(node, Node::Rotate { .. }) && next.is_some_and(|n| list.rotates(n, *segment));
            if !is_left {
                list.node(node, *segment)?;
            }
        }
    }
    let outputs = shape.outputs.iter().map(|s| s.rows).sum();
    if shape.choice != Choice::None && outputs > 0 {
        list.choose(shape, outputs);
    }
    Ok(list.commands)
}

impl Node {
    /// A value whose rows are those the node works on.
    fn rows_of(&self) -> ValueId {
        match self {
            Node::Linear { parts, x, .. } => parts.first().map_or(*x, |part| part.out),
            Node::Store { k, .. } => *k,
            Node::Unfold { out, .. }
            | Node::Weights { out, .. }
            | Node::Embed { out, .. }
            | Node::Norm { out, .. }
            | Node::Rotate { out, .. }
            | Node::Attend { out, .. }
            | Node::Elements { out, .. }
            | Node::Route { out, .. }
            | Node::Experts { out, .. }
            | Node::Gather { out, .. } => *out,
        }
    }
}

struct List<'a> {
    table: &'a Table<'a>,
    commands: Vec<Command>,
}

/// The number kernels know an activation by.
fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::GeluErf => 2,
    }
}

impl Table<'_> {
    /// Where a layer's cache lies.
    fn cache(&self, cache: CacheLayer) -> Cache {
        let group = &self.program.groups[cache.group.0 as usize];
        let entries = self.lowered.entries as u32;
        Cache {
            layer: cache.layer as u32,
            layers: group.layers as u32,
            kv_heads: group.kv_heads as u32,
            head_dim: group.head_dim as u32,
            padded: padded(group.head_dim) as u32,
            table: cache.group.0 * entries,
            table_stride: self.program.groups.len() as u32 * entries,
            quantised: u32::from(self.kind == KvType::Q8_0),
        }
    }

    /// The command that turns the keys of a block by what lies in the buffer of turns, `stride` floats a layer.
    pub(crate) fn shift(&self, shift: KeyShift, stride: u32) -> Command {
        let cache = self.cache(CacheLayer { group: shift.group, layer: 0 });
        let params = ShiftParams { cache, block: shift.block, stride, pad: [0; 2] };
        Command {
            kernel: "shift_keys",
            buffers: vec![Bind::Kv(shift.group.0), Bind::Turns],
            params: bytemuck::bytes_of(&params).to_vec(),
            groups: [cache.kv_heads, cache.layers, 1],
            room: 0,
        }
    }
}

impl List<'_> {
    fn push(&mut self, kernel: &'static str, buffers: &[Bind], params: impl Pod, groups: [u32; 3]) {
        let (buffers, params) = (buffers.to_vec(), bytemuck::bytes_of(&params).to_vec());
        self.commands.push(Command { kernel, buffers, params, groups, room: 0 });
    }

    /// Where a value's rows of a segment begin.
    fn place(&self, id: ValueId, segment: Segment) -> Place {
        let place = self.table.lowered.places[id.0 as usize];
        Place { at: place.at + segment.first * place.stride, ..place }
    }

    fn node(&mut self, node: &Node, segment: Segment) -> Result<()> {
        let rows = segment.rows;
        match *node {
            Node::Unfold { x, out } => self.unfold(x, out, segment),
            Node::Store { k, v, cache } => self.store(k, v, cache, segment),
            Node::Weights { ref heads, positions, out } => self.weights(heads, positions, out, segment),
            Node::Embed { table, by, scale, out } => {
                let (kind, matrix) = self.table.layout.matrix(table)?;
                let out = self.place(out, segment);
                let (by, before) = match by {
                    Index::Token => (0, 0),
                    Index::Position(before) => (1, before as u32),
                    Index::First => (2, 0),
                    Index::Segment => (3, 0),
                };
                let params = EmbedParams {
                    matrix,
                    out: out.at,
                    stride: out.stride,
                    width: out.width,
                    first: segment.first,
                    scale,
                    by,
                    before,
                    rows: table.rows as u32,
                };
                let groups = [matrix.eights.div_ceil(128), rows, 1];
                self.push(
                    kind.form.kernel(Family::Embed),
                    &[kind.bind, Bind::Arena, Bind::Rows],
                    params,
                    groups,
                );
            }
            Node::Norm { x, norm, residual, out } => {
                let residual = residual.map_or(NONE, |id| self.place(id, segment).at);
                self.norm(self.place(x, segment), norm, residual, self.place(out, segment), rows)?;
            }
            Node::Linear { x, norm, ref parts, then, scratch } => {
                // The kernels for few rows take columns by eight.
                if segment.decode && self.place(x, segment).width.is_multiple_of(8) {
                    self.gemv(x, norm, parts, then, segment)?;
                } else {
                    self.gemm(x, norm, parts, then, scratch, segment)?;
                }
            }
            Node::Rotate { .. } => self.rotate(node, segment),
            Node::Attend { .. } => self.attend(node, segment),
            Node::Elements { operation, x, y, out } => {
                let [x, y, out] = [x, y, out].map(|id| self.place(id, segment));
                self.elements(operation, x.at, y.at, out, rows);
            }
            Node::Route { logits, normalize, out } => {
                let experts = self.place(logits, segment);
                let out = self.place(out, segment);
                let params = RouteParams {
                    logits: experts.at,
                    stride: experts.stride,
                    experts: experts.width,
                    chosen: out.width,
                    out: out.at,
                    normalize: u32::from(normalize),
                    pad: [0; 2],
                };
                self.push("route", &[Bind::Arena], params, [1, rows, 1]);
            }
            Node::Experts { .. } => self.experts(node, segment)?,
            Node::Gather { x, out } => {
                // Which rows is said by the outputs, counted from the first row of all.
                let (x, out) = (self.table.lowered.places[x.0 as usize], self.place(out, segment));
                let params = GatherParams {
                    x: x.at,
                    out: out.at,
                    stride: x.stride,
                    width: x.width,
                    first: segment.first,
                    pad: [0; 3],
                };
                self.push("gather", &[Bind::Arena, Bind::Outputs], params, [x.width.div_ceil(128), rows, 1]);
            }
        }
        Ok(())
    }

    fn norm(&mut self, x: Place, norm: Norm, residual: u32, out: Place, rows: u32) -> Result<()> {
        let layout = self.table.layout;
        let (layer, offset) = match norm.kind {
            NormKind::Rms { offset } => (0, offset),
            NormKind::Layer => (1, 0.0),
        };
        let params = NormParams {
            x: x.at,
            out: out.at,
            x_stride: x.stride,
            stride: out.stride,
            width: x.width / norm.groups as u32,
            weight: layout.vector(norm.weight)?,
            bias: norm.bias.map_or(Ok(NONE), |b| layout.vector(b))?,
            residual,
            eps: norm.eps,
            offset,
            layer,
            pad: 0,
        };
        self.push("norm", &[Bind::Weights, Bind::Arena], params, [norm.groups as u32, rows, 1]);
        Ok(())
    }

    fn elements(&mut self, operation: Elements, x: u32, y: u32, out: Place, rows: u32) {
        let mut params = ElementParams {
            x,
            y,
            out: out.at,
            stride: out.stride,
            width: out.width,
            ..ElementParams::default()
        };
        match operation {
            Elements::Add => params.operation = 0,
            Elements::Gate(activation) => (params.operation, params.activation) = (1, number(activation)),
            Elements::Activate(activation) => {
                (params.operation, params.activation) = (3, number(activation));
            }
            Elements::Cap { scale, cap } => {
                (params.operation, params.scale, params.cap) = (2, scale, cap.unwrap_or(0.0));
            }
        }
        self.push("elements", &[Bind::Arena], params, [out.width.div_ceil(128), rows, 1]);
    }

    /// Where a rotation's angles lie, its pairs, and whether these are split.
    fn turns(&self, rope: Option<RopeId>) -> (u32, u32, u32) {
        rope.map_or((NONE, 0, 0), |id| {
            let table = &self.table.program.ropes[id.0 as usize];
            let split = u32::from(table.layout == RopeLayout::SplitHalf);
            (self.table.angles[id.0 as usize], table.frequencies.len() as u32, split)
        })
    }

    fn rotate(&mut self, node: &Node, segment: Segment) {
        let &Node::Rotate { q, k, v, rope, cache, out, scratch } = node else { return };
        let described = self.table.cache(cache);
        let [q, k, v, out] = [q, k, v, out].map(|id| self.place(id, segment));
        let heads = q.width / described.head_dim;
        let (angles, pairs, split) = self.turns(rope);
        let params = RotateParams {
            cache: described,
            q: q.at,
            k: k.at,
            v: v.at,
            out: out.at,
            q_stride: q.stride,
            k_stride: k.stride,
            heads,
            first: segment.first,
            angles,
            pairs,
            split,
            keys: scratch + segment.first * k.stride,
        };
        let threads = (heads + 2 * described.kv_heads) * described.head_dim / 2;
        let buffers = [Bind::Arena, Bind::Kv(cache.group.0), Bind::Rows, Bind::Tables, Bind::Angles];
        self.push("rotate", &buffers, params, [threads.div_ceil(128), segment.rows, 1]);
        if self.table.kind == KvType::Q8_0 {
            self.remember(&buffers[..4], params, segment.rows);
        }
    }

    /// Stores keys and values as bytes.
    fn remember(&mut self, buffers: &[Bind], params: RotateParams, rows: u32) {
        let threads = 2 * params.cache.kv_heads * params.cache.head_dim.div_ceil(KV_GROUP as u32);
        self.push("remember", buffers, params, [threads.div_ceil(64), rows, 1]);
    }

    /// Whether attention rotates and stores by itself: for one row, which sees no other row's keys of the same launch.
    fn rotates(&self, node: &Node, segment: Segment) -> bool {
        let is_raw = matches!(node, Node::Attend { raw: Some(_), .. });
        is_raw && segment.decode && segment.rows == 1 && self.table.kind != KvType::Q8_0
    }

    fn attend(&mut self, node: &Node, segment: Segment) {
        let &Node::Attend { q, raw, mask, cache, scale, cap, out, scratch } = node else { return };
        let raw = raw.filter(|_| self.rotates(node, segment));
        let q = raw.map_or(q, |raw| raw.q);
        let described = self.table.cache(cache);
        let window = self.table.program.groups[cache.group.0 as usize].window;
        let parts = attend_parts(mask, window, self.table.limits.context);
        let (q, out) = (self.place(q, segment), self.place(out, segment));
        let heads = q.width / described.head_dim;
        let sharing = heads / described.kv_heads;
        let chunks = described.kv_heads * sharing.div_ceil(TOGETHER as u32);
        let mut params = AttendParams {
            cache: described,
            q: q.at,
            out: out.at,
            stride: q.stride,
            partial: scratch,
            heads,
            first: segment.first,
            parts,
            window: window.unwrap_or(0) as u32,
            scale,
            cap: cap.unwrap_or(0.0),
            arrivals: if self.table.chip.ordered { self.table.lowered.arrivals } else { NONE },
            k: NONE,
            sees: match mask {
                Mask::Causal => 0,
                Mask::Full => NONE,
                Mask::Stored(count) => count,
            },
            ..AttendParams::default()
        };
        if let Some(raw) = raw {
            let [k, v] = [raw.k, raw.v].map(|id| self.place(id, segment));
            (params.k, params.v, params.k_stride) = (k.at, v.at, k.stride);
            (params.angles, params.pairs, params.split) = self.turns(raw.rope);
        }
        let size = match described.padded {
            ..=64 => 0,
            65..=128 => 1,
            _ => 2,
        };
        let quantised = usize::from(self.table.kind == KvType::Q8_0);
        let buffers = [Bind::Arena, Bind::Kv(cache.group.0), Bind::Rows, Bind::Tables, Bind::Angles];
        if !segment.decode {
            self.push(ATTEND_ALL[quantised][size], &buffers, params, [chunks, segment.rows, 1]);
            return;
        }
        let kernel = ATTEND_PART[quantised][size];
        let together = decode_rows(self.table.limits) as u32;
        for first in (0..segment.rows).step_by(together as usize) {
            let rows = together.min(segment.rows - first);
            params.first = segment.first + first;
            params.q = q.at + first * q.stride;
            params.out = out.at + first * out.stride;
            self.push(kernel, &buffers, params, [chunks, rows, parts]);
            if !self.table.chip.ordered && parts > 1 {
                self.push("attend_merge", &[Bind::Arena, Bind::Rows], params, [heads, rows, 1]);
            }
        }
    }

    fn choose(&mut self, shape: &Shape, outputs: u32) {
        let logits = self.table.lowered.places[self.table.program.logits.0 as usize];
        let blocks = self.table.chip.blocks;
        let params = SelectParams {
            logits: logits.at,
            stride: logits.stride,
            vocabulary: logits.width,
            context: self.table.limits.context,
            thresholds: self.table.lowered.thresholds,
            best: self.table.lowered.best,
            blocks,
            advance: u32::from(shape.advance),
            outputs,
            turns: self.table.chip.turns(),
            pad: [0; 2],
        };
        let [arena, rows, picked] = [Bind::Arena, Bind::Rows, Bind::Outputs];
        if shape.choice == Choice::Sampled {
            let penalize = [arena, rows, picked, Bind::Tokens, Bind::Samplings];
            self.push("penalize", &penalize, params, [outputs, 1, 1]);
            self.push("threshold", &[arena, rows, picked, Bind::Samplings], params, [outputs, 1, 1]);
        }
        self.push("best_of_block", &[arena, rows, picked, Bind::Samplings], params, [blocks, outputs, 1]);
        self.push("choose", &[arena, rows, picked, Bind::Tokens, Bind::Chosen], params, [outputs, 1, 1]);
    }
}
