//! The program: what a model computes, as a flat list of typed operations over rows.
//!
//! A value is a matrix: one row per element of its [`Domain`], `width` numbers a row. Every value is written by exactly
//! one operation and read by later ones, so that a backend can plan its buffers from the list alone. Nothing in a
//! program depends on how many rows a run has: one-token decoding, prefill, verification of drafts and many users at
//! once are the same program with different rows.

use std::ops::Range;

use crate::rope::RopeTable;

/// Frames of sound to every token of a program that has [`Op::Input`]: Whisper's second convolution takes every other one.
pub const FRAMES_PER_TOKEN: usize = 2;

/// Set in a token of a batch that belongs to the second of two texts, for programs that tell them apart ([`Index::Segment`]).
pub const SECOND: u32 = 1 << 31;

/// Index into [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Index into [`Program::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// Index into [`Program::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeId(pub u32);

/// Index into [`Program::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u32);

/// What a value has one row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Every token fed in this run.
    Tokens,
    /// The tokens whose logits were asked for.
    Outputs,
    /// Frames of sound, [`FRAMES_PER_TOKEN`] for every token.
    Frames,
}

/// What one element of a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A 32-bit float.
    Number,
    /// An expert's index and its weight.
    Route,
}

/// The shape of a value: `[rows of domain][width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// What the rows are.
    pub domain: Domain,
    /// Elements in a row.
    pub width: usize,
    /// What an element is.
    pub element: Element,
}

/// Consecutive rows of a weight matrix: the whole of it, or one part of a fused one (Q of QKV, one expert of many).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The weight.
    pub weight: WeightId,
    /// The first row.
    pub first: usize,
    /// How many rows.
    pub rows: usize,
}

/// One output of a [`Op::Linear`]: `out = weight · x + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// `[out][in]`.
    pub weight: Slice,
    /// `[out]`.
    pub bias: Option<Slice>,
    /// Where the product goes.
    pub out: ValueId,
}

/// How rows are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps) * (weight + offset)`.
    Rms {
        /// Added to each weight: 1 for Gemma checkpoints that store `w - 1`, otherwise 0.
        offset: f32,
    },
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer,
}

/// The non-linearity of a feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
}

/// Which row of a table a token looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// That of its number in the vocabulary.
    Token,
    /// That of its position, behind so many rows that no position has.
    Position(usize),
    /// The first, whatever the token: for models that could tell texts apart and have a row for one.
    First,
    /// That of its text: the second for tokens marked [`SECOND`], otherwise the first.
    Segment,
}

/// What a row attends to of its own sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// What was before it, and itself.
    Causal,
    /// Everything up to the end of its span. The span must be all of the sequence.
    Full,
    /// So many positions from the first on, whatever its own: another program stored them.
    Stored(u32),
}

/// One layer of a KV group: where keys and values of that layer live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayer {
    /// The group.
    pub group: GroupId,
    /// The layer's index within the group.
    pub layer: usize,
}

/// One gated feed-forward network of a mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expert {
    /// `[inner][hidden]`.
    pub gate: Slice,
    /// `[inner][hidden]`.
    pub up: Slice,
    /// `[hidden][inner]`.
    pub down: Slice,
}

/// One head of one attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// The rotated queries of all heads.
    pub q: ValueId,
    /// The keys.
    pub cache: CacheLayer,
    /// Which of the query heads.
    pub head: usize,
    /// Multiplies the scores.
    pub scale: f32,
}

/// One operation. Shapes are those of the values it names.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The numbers given with the batch.
    Input {
        /// Frames × width.
        out: ValueId,
    },
    /// Sets each row beside its two neighbours, so that a convolution of three taps is a product: `out[column · 3 + tap]` is
    /// `x[row · stride + tap - 1][column]`, and zero before the first frame of a span and after its last one.
    Unfold {
        /// Frames × width.
        x: ValueId,
        /// Frames × 3 width with a stride of 1; Tokens × 3 width with a stride of [`FRAMES_PER_TOKEN`].
        out: ValueId,
    },
    /// `out = scale · table[index]`.
    Embed {
        /// `[vocabulary][hidden]`, or one row for each position.
        table: Slice,
        /// Which row.
        by: Index,
        /// Gemma multiplies embeddings by √hidden.
        scale: f32,
        /// Tokens × hidden.
        out: ValueId,
    },
    /// Normalises each of `groups` equal parts of every row on its own (1: whole rows; heads: per-head norms).
    Norm {
        /// The input.
        x: ValueId,
        /// RMS or layer norm.
        kind: NormKind,
        /// Added to the mean square or the variance.
        eps: f32,
        /// One row of `width / groups` weights, shared by all groups.
        weight: Slice,
        /// One row of biases (layer norm only).
        bias: Option<Slice>,
        /// Parts of a row.
        groups: usize,
        /// The output, shaped as `x`.
        out: ValueId,
    },
    /// One or more matrix products over the same input.
    Linear {
        /// The input.
        x: ValueId,
        /// The products: Q, K and V; gate and up; or a single one.
        parts: Vec<Part>,
    },
    /// Rotates queries and keys by position and writes keys and values to the cache.
    RopeKv {
        /// Tokens × (heads · `head_dim`).
        q: ValueId,
        /// Tokens × (`kv_heads` · `head_dim`).
        k: ValueId,
        /// Tokens × (`kv_heads` · `head_dim`).
        v: ValueId,
        /// The rotation; none for models with learned positions.
        rope: Option<RopeId>,
        /// Where keys and values go.
        cache: CacheLayer,
        /// The rotated queries, shaped as `q`.
        out: ValueId,
    },
    /// Writes keys and values to the cache, for another program to attend to.
    Store {
        /// Tokens × (`kv_heads` · `head_dim`).
        k: ValueId,
        /// Tokens × (`kv_heads` · `head_dim`).
        v: ValueId,
        /// Where they go.
        cache: CacheLayer,
    },
    /// How much each row attends to each of so many stored positions, in some heads: `softmax(scale · q · k)`.
    Weights {
        /// The heads, each with as many query heads as its cache has key heads.
        heads: Vec<Head>,
        /// Stored positions.
        positions: u32,
        /// Tokens × (heads · positions).
        out: ValueId,
    },
    /// Attention of each row over its own sequence's cache, as far as the mask and the group's window let it see.
    Attend {
        /// Tokens × (heads · `head_dim`), rotated.
        q: ValueId,
        /// How far it sees.
        mask: Mask,
        /// The keys and values.
        cache: CacheLayer,
        /// Multiplies the scores.
        scale: f32,
        /// Soft cap on scores: `cap · tanh(score / cap)`.
        cap: Option<f32>,
        /// Tokens × (heads · `head_dim`).
        out: ValueId,
    },
    /// `out = activation(gate) · up`, element by element.
    Gate {
        /// The gate.
        gate: ValueId,
        /// The other factor.
        up: ValueId,
        /// Applied to `gate`.
        activation: Activation,
        /// The product.
        out: ValueId,
    },
    /// `out = activation(x)`, element by element.
    Activate {
        /// The input.
        x: ValueId,
        /// Applied to it.
        activation: Activation,
        /// The output, shaped as `x`.
        out: ValueId,
    },
    /// `out = x + y`: the residual stream.
    Add {
        /// One term.
        x: ValueId,
        /// The other.
        y: ValueId,
        /// The sum.
        out: ValueId,
    },
    /// Chooses the `width of out` best experts of each row by the softmax of its logits.
    Route {
        /// Tokens × experts.
        logits: ValueId,
        /// Whether the chosen weights are scaled to sum to 1.
        normalize: bool,
        /// Tokens × chosen, of [`Element::Route`]; best first, lower index first among equals.
        out: ValueId,
    },
    /// `out = Σ weight · down(activation(gate x) · up x)` over each row's chosen experts.
    Experts {
        /// Tokens × hidden.
        x: ValueId,
        /// What [`Op::Route`] chose.
        routes: ValueId,
        /// The networks, by expert index.
        experts: Vec<Expert>,
        /// Applied to the gate.
        activation: Activation,
        /// Tokens × hidden.
        out: ValueId,
    },
    /// Keeps the rows whose logits are wanted: Tokens to Outputs.
    Gather {
        /// Tokens × width.
        x: ValueId,
        /// Outputs × width.
        out: ValueId,
    },
    /// `out = cap · tanh(scale · x / cap)`, or `scale · x` without a cap: the last step of some models' logits.
    Cap {
        /// The input.
        x: ValueId,
        /// Multiplies the input.
        scale: f32,
        /// The soft cap.
        cap: Option<f32>,
        /// The output, shaped as `x`.
        out: ValueId,
    },
}

impl Op {
    /// Calls `f` with every value the operation reads.
    pub fn reads(&self, mut f: impl FnMut(ValueId)) {
        match self {
            Op::Input { .. } | Op::Embed { .. } => {}
            Op::Unfold { x, .. } => f(*x),
            Op::Store { k, v, .. } => [*k, *v].into_iter().for_each(f),
            Op::Weights { heads, .. } => heads.iter().for_each(|head| f(head.q)),
            Op::Norm { x, .. }
            | Op::Linear { x, .. }
            | Op::Activate { x, .. }
            | Op::Gather { x, .. }
            | Op::Cap { x, .. } => f(*x),
            Op::RopeKv { q, k, v, .. } => [*q, *k, *v].into_iter().for_each(f),
            Op::Attend { q, .. } => f(*q),
            Op::Gate { gate, up, .. } => [*gate, *up].into_iter().for_each(f),
            Op::Add { x, y, .. } => [*x, *y].into_iter().for_each(f),
            Op::Route { logits, .. } => f(*logits),
            Op::Experts { x, routes, .. } => [*x, *routes].into_iter().for_each(f),
        }
    }

    /// Calls `f` with every value the operation writes.
    pub fn writes(&self, mut f: impl FnMut(ValueId)) {
        match self {
            Op::Linear { parts, .. } => parts.iter().for_each(|p| f(p.out)),
            Op::Store { .. } => {}
            Op::Input { out }
            | Op::Unfold { out, .. }
            | Op::Weights { out, .. }
            | Op::Embed { out, .. }
            | Op::Norm { out, .. }
            | Op::RopeKv { out, .. }
            | Op::Attend { out, .. }
            | Op::Gate { out, .. }
            | Op::Activate { out, .. }
            | Op::Add { out, .. }
            | Op::Route { out, .. }
            | Op::Experts { out, .. }
            | Op::Gather { out, .. }
            | Op::Cap { out, .. } => f(*out),
        }
    }
}

/// Layers whose keys and values share a block table, because they keep the same positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroup {
    /// Layers in the group.
    pub layers: usize,
    /// Key and value heads in each layer.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions a row may see, its own included; everything when absent.
    pub window: Option<usize>,
}

/// A weight a program uses, as it is called in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightUse {
    /// The tensor's name in its file.
    pub name: String,
    /// Rows: 1 for a vector; experts × rows for a stack of matrices.
    pub rows: usize,
    /// Elements in a row.
    pub cols: usize,
    /// How it is used.
    pub role: Role,
}

/// How a weight is used; decides how a backend keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Its rows are looked up by token.
    pub lookup: bool,
    /// It is multiplied with rows, of which there may be few.
    pub multiply: bool,
    /// It is multiplied with rows of whole sequences, as an encoder's weights are. A backend may take all rows of a program with such
    /// weights for prompts.
    pub encode: bool,
    /// It is a norm's weight or a bias, wanted as `f32`.
    pub vector: bool,
}

impl Role {
    /// Whether it is wanted as a matrix.
    pub fn is_matrix(self) -> bool {
        self.lookup || self.multiply || self.encode
    }
}

/// A model's computation from token to logits, or to what an embedding is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The values, in the order they are written.
    pub values: Vec<Value>,
    /// The operations, in order.
    pub body: Vec<Op>,
    /// The value that is asked for: logits, Outputs × vocabulary; Outputs × hidden in a program that embeds.
    pub logits: ValueId,
    /// The KV groups.
    pub groups: Vec<KvGroup>,
    /// The rotations.
    pub ropes: Vec<RopeTable>,
    /// The weights.
    pub weights: Vec<WeightUse>,
}

impl Program {
    /// The shape of a value.
    pub fn value(&self, id: ValueId) -> Value {
        self.values[id.0 as usize]
    }

    /// The rotation of the keys in one layer of a group.
    pub fn rope_of(&self, layer: CacheLayer) -> Option<RopeId> {
        self.body.iter().find_map(|op| match op {
            Op::RopeKv { rope, cache, .. } if *cache == layer => *rope,
            _ => None,
        })
    }

    /// The width of the numbers that batches of this program give, if it takes any.
    pub fn input_width(&self) -> Option<usize> {
        self.body.iter().find_map(|op| match op {
            Op::Input { out } => Some(self.value(*out).width),
            _ => None,
        })
    }

    /// What rows `start..end` need of a group: the positions that they write or see.
    pub(crate) fn needs(&self, group: GroupId) -> Need {
        let mut need = Need::default();
        for op in &self.body {
            match op {
                Op::RopeKv { cache, .. } | Op::Store { cache, .. } if cache.group == group => need.own = true,
                Op::Attend { cache, mask: Mask::Stored(count), .. } if cache.group == group => {
                    need.stored = need.stored.max(*count as usize);
                }
                Op::Weights { heads, positions, .. } if heads.iter().any(|h| h.cache.group == group) => {
                    need.stored = need.stored.max(*positions as usize);
                }
                _ => {}
            }
        }
        need
    }

    /// Tokens that can be fed: the rows of the table they are looked up in.
    pub fn token_count(&self) -> usize {
        let tables = self.body.iter().filter_map(|op| match op {
            Op::Embed { table, by: Index::Token, .. } => Some(table.rows),
            _ => None,
        });
        tables.min().unwrap_or_else(|| self.value(self.logits).width)
    }

    /// Whether tokens may be marked [`SECOND`].
    pub fn has_segments(&self) -> bool {
        self.body.iter().any(|op| matches!(op, Op::Embed { by: Index::Segment, .. }))
    }
}

/// What a program needs of a KV group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Whether rows have keys and values of their own in it.
    own: bool,
    /// Positions that were stored before.
    stored: usize,
}

impl Need {
    /// The positions that rows `start..end` write or see, in a group with that window.
    pub(crate) fn positions(self, start: usize, end: usize, window: Option<usize>) -> Range<usize> {
        if !self.own {
            return 0..self.stored;
        }
        let begin = window.map_or(0, |window| (start + 1).saturating_sub(window));
        begin..end.max(self.stored)
    }

    /// Entries of a block table for sequences of up to `context` positions.
    pub(crate) fn entries(self, context: usize, block: usize) -> usize {
        context.max(self.stored).div_ceil(block)
    }
}
