//! Products: of rows that are decoded, of prompts, and of experts.

use akunu_program::Result;
use akunu_program::program::{NormKind, Part, ValueId};

use super::{List, Segment, number};
use crate::form::{Family, Form};
use crate::host::Bind;
use crate::lower::{Elements, Node, Norm, Then};
use crate::params::{GemmParams, GemvParams, GemvPart, HalveParams, MixParams, NONE, TensorParams};
use crate::weights::Kind;

/// Columns from which on rows of weights are wide: of all products, and of those of at least so many weights.
const WIDE_COLUMNS: u32 = 2048;
const WIDE_COLUMNS_OF_MANY: u32 = 1024;
const MANY_WEIGHTS: u64 = 1 << 20;
/// SIMD groups of a threadgroup of wide ones.
const WIDE_GROUPS: u32 = 16;

/// Rows of inputs that the kernels for several take together, of rows of weights that are not wide: fewer where so many threadgroups for each
/// core would not be had otherwise.
const GEMV_TOGETHER: u32 = 8;
const GEMV_FEWER: u32 = 4;
const GEMV_GROUPS: u32 = 16;

/// Rows of W and of X that a threadgroup multiplies, as in `kernels/tensor.clcpp`.
const TENSOR_W: u32 = 128;
const TENSOR_X: u32 = 128;

/// The same of `kernels/gemm.metal`.
const TILE_W: u32 = 64;
const TILE_X: u32 = 32;

/// Where the rows of a prompt lie as tensor cores take them, as in `kernels/tensor.clcpp`.
#[derive(Clone, Copy)]
pub(crate) struct Halved {
    rows: u32,
    /// Groups of eight columns, to whole steps of a product.
    chunks: u32,
    /// All in floats: `[row][chunk]` of halves and of what they left, `[row][chunk / 2]` of sums, `[row]` of factors.
    high: u32,
    low: u32,
    totals: u32,
    factors: u32,
}

impl Halved {
    /// Of so many rows, from a place in the arena on.
    pub(crate) fn new(at: u32, rows: u32, width: u32) -> Halved {
        let chunks = width.div_ceil(8).next_multiple_of(4);
        let (low, totals) = (at + 4 * rows * chunks, at + 8 * rows * chunks);
        Halved { rows, chunks, high: at, low, totals, factors: totals + rows * chunks / 2 }
    }

    /// Floats it takes.
    pub(crate) fn floats(&self) -> usize {
        (self.factors + self.rows - self.high) as usize
    }
}

/// The kernel that makes rows ready for a product with weights of a form.
fn halve(form: Form) -> &'static str {
    match form {
        Form::F16 => "halve_once",
        Form::BF16 => "halve_brain",
        _ => "halve_twice",
    }
}

/// Takes up to three parts that are stored as the first is.
fn take_alike(parts: &mut Vec<(Kind, GemvPart)>) -> Option<(Kind, Vec<GemvPart>)> {
    let kind = parts.first()?.0;
    let mut alike = Vec::new();
    parts.retain(|(of, part)| {
        let is_taken = *of == kind && alike.len() < 3;
        if is_taken {
            alike.push(*part);
        }
        !is_taken
    });
    Some((kind, alike))
}

/// Whether the rows of these parts are wide.
fn is_wide(form: Form, cols: u32, parts: &[GemvPart]) -> bool {
    let weights: u64 = parts.iter().map(|part| u64::from(part.rows) * u64::from(cols)).sum();
    let least = if weights >= MANY_WEIGHTS { WIDE_COLUMNS_OF_MANY } else { WIDE_COLUMNS };
    cols >= least && cols.is_multiple_of(form.unit())
}

/// Rows of a block of a wide product of so many rows, of which a gate and its other factor each have half: four, or fewer where so
/// many SIMD groups would not have two rows each. What a row gives is the same in all of them.
fn block_rows(rows: u32, groups: u32, gate: bool) -> u32 {
    match rows / groups.max(1) {
        0 if !gate => 1,
        0 | 1 => 2,
        _ => 4,
    }
}

impl List<'_> {
    /// Products of rows that are decoded: one launch for all parts that are stored alike.
    pub(super) fn gemv(
        &mut self,
        x: ValueId,
        norm: Option<(Norm, ValueId)>,
        parts: &[Part],
        then: Then,
        segment: Segment,
    ) -> Result<()> {
        let layout = self.table.layout;
        let input = self.place(norm.map_or(x, |(_, id)| id), segment);
        let mut params = GemvParams {
            x: input.at,
            x_stride: input.stride,
            batch: segment.rows,
            cols: input.width,
            norm: NONE,
            scale: 1.0,
            routes: NONE,
            sharing: 1,
            ..GemvParams::default()
        };
        if let Some((norm, _)) = norm {
            params.norm = layout.vector(norm.weight)?;
            params.eps = norm.eps;
            params.offset = if let NormKind::Rms { offset } = norm.kind { offset } else { 0.0 };
        }
        let mut residual = NONE;
        match then {
            Then::Nothing => {}
            Then::Gate(activation, _) => (params.gate, params.activation) = (1, number(activation)),
            Then::Add(id) => residual = self.place(id, segment).at,
            Then::Cap { scale, cap } => (params.scale, params.cap) = (scale, cap.unwrap_or(0.0)),
        }
        let out = |part: &Part| if let Then::Gate(_, out) = then { out } else { part.out };
        let described = parts.iter().map(|part| self.part(part, out(part), residual, segment));
        let mut described = described.collect::<Result<Vec<_>>>()?;
        while let Some((kind, alike)) = take_alike(&mut described) {
            // Kernels for one row and for several give the same; whether rows are wide does not depend on how many are decoded.
            let rows = alike.iter().map(|part| part.rows).sum();
            let block = block_rows(rows, self.table.chip.wide * WIDE_GROUPS, params.gate == 1);
            let family = match (is_wide(kind.form, params.cols, &alike), segment.rows) {
                (true, 1) => Family::Wide(block),
                (true, _) => Family::Several,
                (false, 1) => Family::Gemv1,
                (false, _) => Family::Gemv8,
            };
            self.gemv_launch(kind, family, params, &alike);
        }
        Ok(())
    }

    /// A part as kernels take it.
    fn part(&self, part: &Part, out: ValueId, residual: u32, segment: Segment) -> Result<(Kind, GemvPart)> {
        let layout = self.table.layout;
        let (kind, matrix) = layout.matrix(part.weight)?;
        let out = self.place(out, segment);
        let described = GemvPart {
            matrix,
            rows: part.weight.rows as u32,
            out: out.at,
            stride: out.stride,
            bias: part.bias.map_or(Ok(NONE), |b| layout.vector(b))?,
            residual,
            experts: NONE,
            pad: [0; 2],
        };
        Ok((kind, described))
    }

    fn gemv_launch(&mut self, kind: Kind, family: Family, mut params: GemvParams, parts: &[GemvPart]) {
        let form = kind.form;
        params.parts = if params.gate == 1 { 1 } else { parts.len() as u32 };
        params.part[..parts.len()].copy_from_slice(parts);
        let rows = if let Family::Wide(rows) = family { rows } else { 2 };
        params.blocks = if params.gate == 1 {
            parts[0].rows.div_ceil(rows / 2)
        } else {
            parts.iter().map(|part| part.rows.div_ceil(rows)).sum()
        };
        params.groups = self.table.chip.wide.min(params.blocks);
        let sharing = (params.groups * WIDE_GROUPS).max(1);
        (params.rounds, params.rest) = (params.blocks / sharing, params.blocks % sharing);
        let groups = match family {
            Family::Wide(_) => [params.groups, params.batch, 1],
            Family::Several => {
                let needed = form.room(params.cols).saturating_mul(params.batch.min(form.together()));
                params.room = self.table.chip.room.min(needed);
                [params.groups, params.batch.div_ceil(form.together()), 1]
            }
            Family::Gemv1 => [params.blocks.div_ceil(4), params.batch, 1],
            _ => {
                let groups = params.blocks.div_ceil(4);
                let fills = groups >= GEMV_GROUPS * self.table.chip.wide;
                params.together = if fills { GEMV_TOGETHER } else { GEMV_FEWER };
                [groups, params.batch.div_ceil(params.together), 1]
            }
        };
        self.push(form.kernel(family), &[kind.bind, Bind::Arena, Bind::Weights], params, groups);
        if let Some(command) = self.commands.last_mut() {
            command.room = params.room;
        }
    }

    /// Products of prompt rows, with the norm before and the gate after as launches of their own; on tensor cores, parts that are
    /// stored alike are one.
    pub(super) fn gemm(
        &mut self,
        x: ValueId,
        norm: Option<(Norm, ValueId)>,
        parts: &[Part],
        then: Then,
        scratch: u32,
        segment: Segment,
    ) -> Result<()> {
        let input = self.place(x, segment);
        if let Some((norm, raw)) = norm {
            self.norm(self.place(raw, segment), norm, NONE, input, segment.rows)?;
        }
        let (mut scale, mut cap, mut residual) = (1.0, 0.0, NONE);
        match then {
            Then::Nothing | Then::Gate(..) => {}
            Then::Add(id) => residual = self.place(id, segment).at,
            Then::Cap { scale: s, cap: c } => (scale, cap) = (s, c.unwrap_or(0.0)),
        }
        let described = parts.iter().map(|part| self.part(part, part.out, residual, segment));
        let mut described = described.collect::<Result<Vec<_>>>()?;
        while let Some((kind, alike)) = take_alike(&mut described) {
            let (form, buffers) = (kind.form, [kind.bind, Bind::Arena, Bind::Weights]);
            if self.table.chip.tensor && form != Form::F32 {
                let Halved { chunks, high, low, totals, factors, .. } =
                    Halved::new(scratch, segment.rows, input.width);
                let params = HalveParams {
                    x: input.at,
                    x_stride: input.stride,
                    cols: input.width,
                    chunks,
                    high,
                    low,
                    totals,
                    factors,
                };
                self.push(halve(form), &[Bind::Arena], params, [segment.rows, 1, 1]);
                let mut params = TensorParams {
                    high,
                    low,
                    totals,
                    factors,
                    chunks,
                    batch: segment.rows,
                    scale,
                    cap,
                    ..TensorParams::default()
                };
                params.part[..alike.len()].copy_from_slice(&alike);
                let blocks = alike.iter().map(|part| part.rows.div_ceil(TENSOR_W)).sum();
                let groups = [segment.rows.div_ceil(TENSOR_X), blocks, 1];
                self.push(form.kernel(Family::Tensor), &buffers, params, groups);
                continue;
            }
            for part in alike {
                let params = GemmParams {
                    matrix: part.matrix,
                    x: input.at,
                    x_stride: input.stride,
                    batch: segment.rows,
                    cols: input.width,
                    rows: part.rows,
                    out: part.out,
                    stride: part.stride,
                    bias: part.bias,
                    residual,
                    scale,
                    cap,
                    pad: 0,
                };
                let groups = [part.rows.div_ceil(TILE_W), segment.rows.div_ceil(TILE_X), 1];
                self.push(form.kernel(Family::Gemm), &buffers, params, groups);
            }
        }
        if let (Then::Gate(activation, out), [gate, up]) = (then, parts) {
            let [gate, up, out] = [gate.out, up.out, out].map(|id| self.place(id, segment));
            self.elements(Elements::Gate(activation), gate.at, up.at, out, segment.rows);
        }
        Ok(())
    }

    pub(super) fn experts(&mut self, node: &Node, segment: Segment) -> Result<()> {
        let Node::Experts { x, routes, experts, activation, out, tables, scratch } = node else {
            return Ok(());
        };
        let Some(first) = experts.first() else { return Ok(()) };
        let layout = self.table.layout;
        let [x, routes, out] = [*x, *routes, *out].map(|id| self.place(id, segment));
        let (inner, chosen) = (first.gate.rows as u32, routes.width);
        let inner_stride = inner.next_multiple_of(4);
        let part = |table: usize, rows: u32, at: u32, stride: u32, slice| {
            let (kind, matrix) = layout.matrix(slice)?;
            let (bias, residual, experts) = (NONE, NONE, tables[table]);
            Ok::<_, akunu_program::Error>((
                kind,
                GemvPart { matrix, rows, out: at, stride, bias, residual, experts, pad: [0; 2] },
            ))
        };
        let up = GemvParams {
            x: x.at,
            x_stride: x.stride,
            batch: segment.rows * chosen,
            cols: x.width,
            norm: NONE,
            gate: 1,
            activation: number(*activation),
            scale: 1.0,
            routes: routes.at,
            sharing: chosen,
            ..GemvParams::default()
        };
        let (kind, gate_part) = part(0, inner, scratch[0], inner_stride, first.gate)?;
        let (_, up_part) = part(1, inner, scratch[0], inner_stride, first.up)?;
        self.gemv_launch(kind, Family::Gemv1, up, &[gate_part, up_part]);
        let down =
            GemvParams { x: scratch[0], x_stride: inner_stride, cols: inner, gate: 0, sharing: 1, ..up };
        let (kind, down_part) = part(2, out.width, scratch[1], out.stride, first.down)?;
        self.gemv_launch(kind, Family::Gemv1, down, &[down_part]);
        let params = MixParams {
            x: scratch[1],
            x_stride: out.stride,
            routes: routes.at,
            chosen,
            out: out.at,
            stride: out.stride,
            width: out.width,
            pad: 0,
        };
        self.push("mix", &[Bind::Arena], params, [out.width.div_ceil(128), segment.rows, 1]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_few_rows_give_every_simd_group_some() {
        assert_eq!(block_rows(4096, 2112, false), 2);
        assert_eq!([block_rows(1024, 2112, false), block_rows(1024, 2112, true)], [1, 2]);
        assert_eq!([block_rows(4224, 2112, false), block_rows(128_256, 2112, false)], [4, 4]);
    }
}
