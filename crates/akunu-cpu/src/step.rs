//! The steps a program becomes.
//!
//! *Row steps* treat every row on its own; the workers share out the rows, or (few rows) each do all of them on their own
//! copies. *Wide steps* share out columns, heads or experts, and end in a barrier.

use std::ops::Range;

use akunu_program::program::{Activation, CacheLayer, Expert, Index, Mask, NormKind, Slice};

use crate::Isa;
use crate::kernels::product::ProductFn;
use crate::kernels::tiles::{LaidForm, SeveralFn, TileProductFn};
use crate::pack::Form;
use crate::plan::BufferId;
use crate::share::Sharing;

pub(crate) enum Step {
    /// Row step from frames to frames or tokens: a frame beside its neighbours.
    Unfold { x: BufferId, out: BufferId },
    /// Row step: writes keys and values to the cache.
    Store(Stored),
    /// Row step: `out = scale · table[index]`.
    Embed { table: Slice, by: Index, scale: f32, out: BufferId },
    /// Row step.
    Norm { x: BufferId, kind: NormKind, eps: f32, weight: Slice, bias: Option<Slice>, out: BufferId },
    /// Row step.
    Add { x: BufferId, y: BufferId, out: BufferId },
    /// Row step, where the products could not do it.
    Gate { gate: BufferId, up: BufferId, activation: Activation, out: BufferId },
    /// Row step, where the products could not do it.
    Activate { x: BufferId, activation: Activation, out: BufferId },
    /// Row step: `out = x`, scaled and capped; where the products could not do it.
    Cap { x: BufferId, scale: f32, cap: Option<f32>, out: BufferId },
    /// Row step: floats to integers, unless the step before has made them.
    Integers(Integers),
    /// Row step: floats of prompt rows to tiles.
    Split { x: BufferId, form: TileForm, out: BufferId },
    /// Row step: rotates queries and keys, and writes keys and values to the cache, unless [`Step::Attend`] does.
    Rotate(Rotation),
    /// Row step: joins what attention found in parts of the context.
    Merge { attention: Attention },
    /// Row step: the best experts.
    Route { logits: BufferId, normalize: bool, experts: usize, out: BufferId },
    /// Row step from tokens to outputs.
    Gather { x: BufferId, out: BufferId },
    /// Wide step: products of the same rows with several matrices.
    Linear(Linear),
    /// Wide step.
    Attend {
        attention: Attention,
        /// Of the rows' own queries, keys and values, where they have such keys and values.
        rotation: Option<Rotation>,
        /// What is made of the results of decode rows, unless in redundant runs.
        makes: Vec<Integers>,
    },
    /// Wide step: how much rows attend to stored positions.
    Weights(WeightsStep),
    /// Wide step: `inner = activation(gate x) · up x` of each chosen expert.
    ExpertsUp(ExpertsUp),
    /// Wide step: `out = Σ weight · down(inner)`.
    ExpertsDown(ExpertsDown),
}

/// Products of the same rows.
pub(crate) struct Linear {
    pub(crate) parts: Vec<LinearPart>,
    pub(crate) then: Then,
    /// What is made of the columns after that, unless in redundant runs.
    pub(crate) makes: Vec<Integers>,
    pub(crate) shares: Shares,
    /// What each worker multiplies after this, and the first of its panels.
    pub(crate) next: Vec<Option<(Slice, usize)>>,
}

impl Linear {
    /// The first of some panels, and its matrix.
    pub(crate) fn first(&self, panels: &[Range<usize>]) -> Option<(Slice, usize)> {
        self.first_after(0, panels)
    }

    /// The first of some panels of the parts after so many, and its matrix.
    pub(crate) fn first_after(&self, parts: usize, panels: &[Range<usize>]) -> Option<(Slice, usize)> {
        let mut all = self.parts.iter().zip(panels).skip(parts);
        all.find(|(_, panels)| !panels.is_empty()).map(|(part, panels)| (part.weight, panels.start))
    }
}

/// Floats as integers.
#[derive(Clone, Copy)]
pub(crate) struct Integers {
    pub(crate) x: BufferId,
    pub(crate) out: BufferId,
    pub(crate) form: IntegerForm,
    pub(crate) by: Maker,
}

#[derive(Clone, Copy)]
pub(crate) enum IntegerForm {
    /// Groups; prompt rows are left out unless `all`, and rows that are laid out too unless `laid`.
    Groups { all: bool, laid: bool },
    /// Decode rows in tiles, where there are several; with sums where they are asked for.
    Laid { form: LaidForm, sums: bool },
}

/// Who makes integers of floats. In redundant runs each worker has to make all of them, so they are made by a step of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Their own step.
    Step,
    /// The product before, as soon as a worker has some columns.
    Product,
    /// The attention before: of decode rows, head by head.
    Attention,
}

/// How panels are given out: lists of what belongs together, a range for each part.
pub(crate) struct Shares {
    pub(crate) sharing: Sharing,
    /// To each worker as much.
    pub(crate) even: Vec<Vec<Range<usize>>>,
    /// Of rows in tiles; others than `even` only where no floats are written.
    pub(crate) tiled: Vec<Vec<Range<usize>>>,
    /// In pieces, for a few rows and for several: most of its own to each worker, then some for whoever has time. None where they
    /// would be too small.
    pub(crate) pieces: [Vec<Vec<Range<usize>>>; 2],
}

/// One product.
pub(crate) struct LinearPart {
    pub(crate) weight: Slice,
    pub(crate) bias: Option<Slice>,
    /// Floats or groups, as the weight's form needs.
    pub(crate) x: BufferId,
    pub(crate) out: BufferId,
    pub(crate) product: ProductFn,
    /// How several rows are multiplied, where it is in another way, to the same bits.
    pub(crate) several: Option<Several>,
    /// How prompt rows are multiplied, where it is in another way.
    pub(crate) tiled: Option<Tiled>,
}

/// The product of several decode rows.
pub(crate) struct Several {
    /// As [`IntegerForm::Laid`] has it.
    pub(crate) x: BufferId,
    pub(crate) form: LaidForm,
    pub(crate) product: SeveralFn,
}

/// The product of rows in tiles.
pub(crate) struct Tiled {
    /// As [`Step::Split`] writes it.
    pub(crate) x: BufferId,
    pub(crate) product: TileProductFn,
}

/// What tiles of activations hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TileForm {
    /// Two of bf16 for each number.
    Split,
    /// Two bytes for each number, and scales.
    Words,
    /// Sixteen bits for each number, and scales.
    Pairs,
}

impl TileForm {
    /// What products with a matrix of this form ask for, where prompt rows are in tiles.
    pub(crate) fn of(isa: Isa, form: Form) -> Option<TileForm> {
        match (isa, form) {
            (Isa::Amx, Form::F32 | Form::F16 | Form::Bf16) => Some(TileForm::Split),
            (Isa::Amx, Form::Int { .. }) => Some(TileForm::Words),
            (Isa::Avx512, Form::F32 | Form::F16 | Form::Bf16) | (_, Form::Pairs) => Some(TileForm::Pairs),
            (Isa::Avx512, Form::Int { .. }) | (Isa::Portable | Isa::Avx2 | Isa::Neon, _) => None,
        }
    }
}

/// What a worker does with the columns it has just computed.
pub(crate) enum Then {
    Nothing,
    /// `out = activation(first part) · second part`; both parts are shared out alike.
    Gate {
        activation: Activation,
        out: BufferId,
        /// Where prompt rows go instead, as tiles for the product that follows.
        tiles: Option<(TileForm, BufferId)>,
    },
    /// In place, on the first part.
    Activate {
        activation: Activation,
        /// Where prompt rows go instead, as pairs for the product that follows.
        pairs: Option<BufferId>,
    },
    /// In place, on the first part.
    Cap {
        scale: f32,
        cap: Option<f32>,
    },
}

#[derive(Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) q: BufferId,
    pub(crate) k: BufferId,
    /// Index into the executable's rope tables.
    pub(crate) rope: Option<usize>,
    /// Rotated; the queries themselves where nothing is.
    pub(crate) q_out: BufferId,
    /// The rotated keys (or the keys themselves), the values, and where they go.
    pub(crate) stored: Stored,
}

/// Keys and values of rows, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) k: BufferId,
    pub(crate) v: BufferId,
    pub(crate) cache: CacheLayer,
    pub(crate) head_dim: usize,
    pub(crate) kv_heads: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Attention {
    pub(crate) q: BufferId,
    pub(crate) cache: CacheLayer,
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    pub(crate) out: BufferId,
    pub(crate) kv_heads: usize,
    /// Query heads to each key and value head.
    pub(crate) sharing: usize,
    pub(crate) head_dim: usize,
    pub(crate) mask: Mask,
    /// Positions a row sees, its own included.
    pub(crate) window: usize,
}

pub(crate) struct WeightsStep {
    pub(crate) heads: Vec<WeightsHead>,
    /// Stored positions.
    pub(crate) positions: usize,
    /// `[head][position]`.
    pub(crate) out: BufferId,
}

pub(crate) struct WeightsHead {
    pub(crate) q: BufferId,
    pub(crate) cache: CacheLayer,
    pub(crate) scale: f32,
    /// The first column of its queries.
    pub(crate) first: usize,
    pub(crate) head_dim: usize,
    pub(crate) kv_head: usize,
}

/// A product that rows have with whichever expert they choose.
pub(crate) struct ExpertProduct {
    /// Floats or groups.
    pub(crate) x: BufferId,
    pub(crate) product: ProductFn,
    /// How several rows are multiplied, where it is in another way than one; they are laid out first, of these floats.
    pub(crate) several: Option<(LaidForm, SeveralFn)>,
    pub(crate) floats: BufferId,
}

impl ExpertProduct {
    /// Whether another product of the same rows takes them as this one does.
    pub(crate) fn takes_what(&self, other: &ExpertProduct) -> bool {
        let form = |by: &ExpertProduct| by.several.map(|(form, _)| form);
        self.x == other.x && self.floats == other.floats && form(self) == form(other)
    }
}

pub(crate) struct ExpertsUp {
    pub(crate) routes: BufferId,
    pub(crate) chosen: usize,
    pub(crate) experts: Vec<Expert>,
    pub(crate) activation: Activation,
    pub(crate) gate: ExpertProduct,
    pub(crate) up: ExpertProduct,
    /// `[chosen][inner]`.
    pub(crate) out: BufferId,
}

pub(crate) struct ExpertsDown {
    pub(crate) routes: BufferId,
    pub(crate) chosen: usize,
    pub(crate) downs: Vec<Slice>,
    /// Of `[chosen]` rows of inner.
    pub(crate) down: ExpertProduct,
    /// `[chosen][hidden]`.
    pub(crate) parts: BufferId,
    pub(crate) out: BufferId,
}

impl Step {
    /// The step's products with experts, each beside what it multiplies with of one expert.
    pub(crate) fn expert_products(&self) -> Vec<(&ExpertProduct, Slice)> {
        match self {
            Step::ExpertsUp(step) => {
                let first = step.experts.first();
                first.map_or(Vec::new(), |e| vec![(&step.gate, e.gate), (&step.up, e.up)])
            }
            Step::ExpertsDown(step) => {
                step.downs.first().map(|down| (&step.down, *down)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the workers share out columns and meet afterwards.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(
            self,
            Step::Linear(_)
                | Step::Attend { .. }
                | Step::Weights(_)
                | Step::ExpertsUp(_)
                | Step::ExpertsDown(_)
        )
    }
}
