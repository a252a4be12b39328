//! The parameters of the kernels, field by field as in `kernels/*.metal`.

use bytemuck::{Pod, Zeroable};

/// Stands for an operand that is not there.
pub(crate) const NONE: u32 = u32::MAX;

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $ty,)* }
        const _: () = assert!(size_of::<$name>().is_multiple_of(16));
    )*};
}

params! {
    /// Where a matrix lies: planes in units of 16 bytes.
    Matrix { low: u32, high: u32, scale: u32, super_scale: u32, first: u32, eights: u32, shift: u32, pad: u32, }
    GemvPart {
        matrix: Matrix,
        rows: u32, out: u32, stride: u32, bias: u32, residual: u32, experts: u32, pad: [u32; 2],
    }
    GemvParams {
        x: u32, x_stride: u32, batch: u32, cols: u32,
        norm: u32, eps: f32, offset: f32, parts: u32,
        gate: u32, activation: u32, scale: f32, cap: f32,
        routes: u32, sharing: u32, blocks: u32, groups: u32,
        rounds: u32, rest: u32, room: u32, together: u32,
        part: [GemvPart; 3],
    }
    TensorParams {
        high: u32, low: u32, totals: u32, factors: u32,
        chunks: u32, batch: u32, scale: f32, cap: f32,
        part: [GemvPart; 3],
    }
    HalveParams {
        x: u32, x_stride: u32, cols: u32, chunks: u32,
        high: u32, low: u32, totals: u32, factors: u32,
    }
    GemmParams {
        matrix: Matrix,
        x: u32, x_stride: u32, batch: u32, cols: u32,
        rows: u32, out: u32, stride: u32, bias: u32,
        residual: u32, scale: f32, cap: f32, pad: u32,
    }
    EmbedParams {
        matrix: Matrix,
        out: u32, stride: u32, width: u32, first: u32,
        scale: f32, by: u32, before: u32, rows: u32,
    }
    NormParams {
        x: u32, out: u32, x_stride: u32, stride: u32,
        width: u32, weight: u32, bias: u32, residual: u32,
        eps: f32, offset: f32, layer: u32, pad: u32,
    }
    ElementParams {
        x: u32, y: u32, out: u32, stride: u32,
        width: u32, operation: u32, activation: u32, scale: f32,
        cap: f32, pad: [u32; 3],
    }
    GatherParams { x: u32, out: u32, stride: u32, width: u32, first: u32, pad: [u32; 3], }
    Cache {
        layer: u32, layers: u32, kv_heads: u32, head_dim: u32,
        padded: u32, table: u32, table_stride: u32, quantised: u32,
    }
    RotateParams {
        cache: Cache,
        q: u32, k: u32, v: u32, out: u32,
        q_stride: u32, k_stride: u32, heads: u32, first: u32,
        angles: u32, pairs: u32, split: u32, keys: u32,
    }
    ShiftParams { cache: Cache, block: u32, stride: u32, pad: [u32; 2], }
    AttendParams {
        cache: Cache,
        q: u32, out: u32, stride: u32, partial: u32,
        heads: u32, first: u32, parts: u32, window: u32,
        scale: f32, cap: f32, arrivals: u32, k: u32,
        v: u32, k_stride: u32, angles: u32, pairs: u32,
        split: u32, sees: u32, pad: [u32; 2],
    }
    UnfoldParams {
        x: u32, x_stride: u32, width: u32, out: u32,
        stride: u32, first: u32, step: u32, pad: u32,
    }
    WeightsParams {
        cache: Cache,
        q: u32, q_stride: u32, out: u32, stride: u32,
        kv_head: u32, positions: u32, first: u32, scale: f32,
    }
    RouteParams {
        logits: u32, stride: u32, experts: u32, chosen: u32,
        out: u32, normalize: u32, pad: [u32; 2],
    }
    MixParams {
        x: u32, x_stride: u32, routes: u32, chosen: u32,
        out: u32, stride: u32, width: u32, pad: u32,
    }
    Sampling {
        temperature: f32, top_k: u32, top_p: f32, log_min_p: f32,
        repeat_penalty: f32, frequency_penalty: f32, presence_penalty: f32, repeat_last_n: u32,
        seed_low: u32, seed_high: u32, pad: [u32; 2],
    }
    SelectParams {
        logits: u32, stride: u32, vocabulary: u32, context: u32,
        thresholds: u32, best: u32, blocks: u32, advance: u32,
        outputs: u32, turns: u32, pad: [u32; 2],
    }
}

impl Sampling {
    /// The device's record of how a slot chooses.
    pub(crate) fn new(s: &akunu_program::select::Sampling) -> Sampling {
        Sampling {
            temperature: s.temperature,
            top_k: s.top_k,
            top_p: s.top_p,
            log_min_p: if s.min_p > 0.0 { s.min_p.ln() } else { f32::NEG_INFINITY },
            repeat_penalty: s.repeat_penalty,
            frequency_penalty: s.frequency_penalty,
            presence_penalty: s.presence_penalty,
            repeat_last_n: if s.penalizes() { s.repeat_last_n } else { 0 },
            seed_low: s.seed as u32,
            seed_high: (s.seed >> 32) as u32,
            pad: [0; 2],
        }
    }
}
