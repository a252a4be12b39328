//! Weights in the layout their kernels stream fastest. One packed copy serves decoding, prompts and embedding lookup; what only
//! prompts are multiplied with may be packed for these alone, and what is only looked up stays in its file.

mod assemble;
mod extract;
mod finite;
mod fit;
mod form;
mod interleave;
mod panel;
mod table;

pub(crate) use form::{Codes, Form, IQ4_CODES, PAIRS_STRETCH, Planes, Scales, TILE, TILES_PER_SUPER};
pub(crate) use table::Table;

use fit::Lattice;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use akunu_format::{DType, Data, Tensor};
use akunu_program::Error;
use akunu_program::program::Role;
use half::{bf16, f16};

use crate::Isa;
use crate::kernels::tiles::pack_pairs;
use crate::memory::{Plain, Shared};
use crate::simd::LANES;

/// A packed matrix.
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) form: Form,
    pub(crate) planes: Planes,
    /// `[panel]`, each [`Planes::end`] bytes, from byte `start` on.
    data: Arc<Shared>,
    start: usize,
}

/// The bytes a tensor takes when it is packed.
pub(crate) fn packed_bytes(tensor: &Tensor<'_>, role: Role, isa: Isa) -> Result<usize, Error> {
    Ok(tensor.rows().div_ceil(LANES) * form_of(tensor, role, isa)?.planes(tensor.row_len()).end)
}

/// A matrix that is being packed.
pub(crate) struct Packing<'a> {
    matrix: Matrix,
    tensor: Tensor<'a>,
    /// Panels that are not written yet.
    left: AtomicUsize,
    /// The first row with something that is not finite.
    bad_row: AtomicUsize,
}

impl<'a> Packing<'a> {
    /// Of a tensor whose shape has been checked, into `data` from byte `start` on, where nothing else lies.
    pub(crate) fn new(
        tensor: Tensor<'a>,
        role: Role,
        isa: Isa,
        data: &Arc<Shared>,
        start: usize,
    ) -> Result<Packing<'a>, Error> {
        let (rows, cols) = (tensor.rows(), tensor.row_len());
        let form = form_of(&tensor, role, isa)?;
        let matrix = Matrix { rows, cols, form, planes: form.planes(cols), data: Arc::clone(data), start };
        // What has no columns has no bytes.
        let left = if matrix.planes.end == 0 { 0 } else { matrix.panels() };
        Ok(Packing { matrix, tensor, left: AtomicUsize::new(left), bad_row: AtomicUsize::new(usize::MAX) })
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> Range<usize> {
        self.matrix.start..self.matrix.start + self.matrix.bytes()
    }

    /// Writes the panels that end in some bytes. Returns whether all their numbers are finite.
    ///
    /// # Safety
    /// Nobody else writes them.
    pub(crate) unsafe fn write(&self, bytes: &Range<usize>, isa: Isa) -> bool {
        let Matrix { rows, form, planes, start, ref data, .. } = self.matrix;
        if planes.end == 0 {
            return true;
        }
        let below = |byte: usize| (byte.saturating_sub(start) / planes.end).min(self.matrix.panels());
        let panels = below(bytes.start)..below(bytes.end);
        let mut finite = true;
        for panel in panels.clone() {
            let at = start + panel * planes.end;
            let lanes = panel * LANES..rows.min((panel + 1) * LANES);
            // SAFETY: the caller's promise, and nobody reads before packing is done. `form_of` has seen AVX-512 where it chose pairs.
            let written = unsafe {
                match form {
                    Form::Pairs => self.matrix.write_pairs(panel, &self.tensor),
                    _ => panel::write(data.get_mut(at, planes.end), form, &self.tensor, lanes, isa),
                }
            };
            if let Err(row) = written {
                self.bad_row.fetch_min(row, Ordering::Relaxed);
                finite = false;
            }
        }
        self.left.fetch_sub(panels.len(), Ordering::Release);
        finite
    }

    /// Whether all is written.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// The matrix, when all is written.
    pub(crate) fn finish(self) -> Result<Matrix, Error> {
        match self.bad_row.into_inner() {
            usize::MAX => {
                assert_eq!(self.left.into_inner(), 0, "each panel is written once");
                Ok(self.matrix)
            }
            row => Err(Error::NotFinite { name: self.tensor.name.to_owned(), row }),
        }
    }
}

impl Matrix {
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes a product with this matrix reads.
    pub(crate) fn bytes(&self) -> usize {
        self.panels() * self.planes.end
    }

    /// `count` values of a plane of one panel.
    #[inline(always)]
    pub(crate) fn plane<T: Plain>(&self, panel: usize, plane: usize, count: usize) -> &[T] {
        // SAFETY: a matrix is not written once it is packed.
        unsafe { self.data.get(self.start + panel * self.planes.end + plane, count) }
    }

    /// Where a plane of a panel is in memory, or would be if there were such a panel.
    #[inline(always)]
    pub(crate) fn address(&self, panel: usize, plane: usize) -> usize {
        self.data.address() + self.start + panel * self.planes.end + plane
    }

    /// Writes a panel of floats as pairs. The error is a row with something that is not finite.
    ///
    /// # Safety
    /// Nobody else touches the panel, and the processor has what [`Isa::Avx512`] asks for.
    unsafe fn write_pairs(&self, panel: usize, tensor: &Tensor<'_>) -> Result<(), usize> {
        let mut columns = vec![[0.0; LANES]; self.cols];
        let mut values = vec![0.0; self.cols];
        for row in panel * LANES..self.rows.min((panel + 1) * LANES) {
            let decoded = tensor.dequantize_rows(row..row + 1, &mut values);
            if decoded.is_err() || values.iter().any(|value| !value.is_finite()) {
                return Err(row);
            }
            columns.iter_mut().zip(&values).for_each(|(column, value)| column[row % LANES] = *value);
        }
        let start = self.start + panel * self.planes.end;
        let scales = start + self.planes.scales;
        // SAFETY: the caller's promise; two planes of the panel.
        unsafe {
            let pairs = self.data.get_mut(start, self.cols.next_multiple_of(LANES) / 2 * LANES);
            let scales = self.data.get_mut(scales, self.cols.div_ceil(PAIRS_STRETCH) * LANES);
            pack_pairs(&columns, pairs, scales);
        }
        Ok(())
    }

    /// Writes one row as `f32`, with the values the file's own decoding gives.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (row / LANES, row % LANES);
        let cols = self.cols;
        match self.form {
            Form::F32 => {
                let plane = self.plane::<f32>(panel, 0, cols * LANES);
                out.iter_mut().zip(plane.chunks_exact(LANES)).for_each(|(o, p)| *o = p[lane]);
            }
            Form::F16 => {
                let plane = self.plane::<u16>(panel, 0, cols * LANES);
                out.iter_mut()
                    .zip(plane.chunks_exact(LANES))
                    .for_each(|(o, p)| *o = f16::from_bits(p[lane]).to_f32());
            }
            Form::Bf16 => {
                let plane = self.plane::<u16>(panel, 0, cols * LANES);
                out.iter_mut()
                    .zip(plane.chunks_exact(LANES))
                    .for_each(|(o, p)| *o = bf16::from_bits(p[lane]).to_f32());
            }
            Form::Pairs => unreachable!("no rows are looked up in what is packed for products alone"),
            Form::Int { codes, scales, zero } => {
                let bytes = codes.tile_bytes();
                let plane = self.plane::<u8>(panel, 0, cols / TILE * bytes);
                for (tile, (out, plane)) in
                    out.as_chunks_mut::<TILE>().0.iter_mut().zip(plane.chunks_exact(bytes)).enumerate()
                {
                    let group = |half| self.scale_and_min(panel, lane, scales, tile, half);
                    let groups = [group(0), group(1)];
                    for (k, out) in out.iter_mut().enumerate() {
                        let (scale, min) = groups[k / 16];
                        let code = i32::from(codes.value(read_code(codes, plane, lane, k)));
                        *out = scale * (code - zero) as f32 + min;
                    }
                }
            }
        }
    }

    /// The scale and minimum of one group of a row.
    fn scale_and_min(
        &self,
        panel: usize,
        lane: usize,
        scales: Scales,
        tile: usize,
        half: usize,
    ) -> (f32, f32) {
        let group = if scales.halves() { 2 * tile + half } else { tile };
        let at = group * LANES + lane;
        let half_at = |plane, at: usize| f16::from_bits(self.plane::<u16>(panel, plane, at + 1)[at]).to_f32();
        match scales {
            Scales::Half { min } => {
                (half_at(self.planes.scales, at), if min { half_at(self.planes.mins, at) } else { 0.0 })
            }
            Scales::Super { min, .. } => {
                let of = |plane, supers| {
                    let scale = f32::from(self.plane::<i8>(panel, plane, at + 1)[at]);
                    scale * half_at(supers, tile / TILES_PER_SUPER * LANES + lane)
                };
                let scale = of(self.planes.scales, self.planes.supers);
                (scale, if min { of(self.planes.mins, self.planes.super_mins) } else { 0.0 })
            }
            Scales::Nibbles => {
                let both = self.plane::<u8>(panel, self.planes.scales, at + 1)[at];
                let outer = |supers| half_at(supers, tile / TILES_PER_SUPER * LANES + lane);
                let [scale, min] = [both & 15, both >> 4].map(f32::from);
                (scale * outer(self.planes.supers), min * outer(self.planes.super_mins))
            }
            Scales::Float { min, .. } => {
                let of = |plane| self.plane::<f32>(panel, plane, at + 1)[at];
                (of(self.planes.scales), if min { of(self.planes.mins) } else { 0.0 })
            }
        }
    }
}

/// The form a tensor is packed into: what prompts alone are multiplied with is in the form that they take, where that is not made
/// of another one anyhow.
fn form_of(tensor: &Tensor<'_>, role: Role, isa: Isa) -> Result<Form, Error> {
    let only_prompts = role.encode && !role.multiply && !role.lookup;
    match own_form(tensor)? {
        Form::F32 | Form::F16 | Form::Bf16 if only_prompts && isa == Isa::Avx512 => Ok(Form::Pairs),
        form => Ok(form),
    }
}

/// The form that keeps a tensor as it is.
fn own_form(tensor: &Tensor<'_>) -> Result<Form, Error> {
    let int = |codes, scales, zero| Ok(Form::Int { codes, scales, zero });
    match tensor.data {
        Data::Blocks { dtype, .. } => match dtype {
            DType::F32 => Ok(Form::F32),
            DType::F16 => Ok(Form::F16),
            DType::BF16 => Ok(Form::Bf16),
            DType::Q4_0 => int(Codes::B4, Scales::Half { min: false }, 8),
            DType::Q4_1 => int(Codes::B4, Scales::Half { min: true }, 0),
            DType::Q5_0 => int(Codes::B5, Scales::Half { min: false }, 16),
            DType::Q5_1 => int(Codes::B5, Scales::Half { min: true }, 0),
            DType::Q8_0 => int(Codes::B8, Scales::Half { min: false }, 128),
            DType::IQ4_NL => int(Codes::Listed(&IQ4_CODES), Scales::Half { min: false }, 128),
            DType::IQ4_XS => int(Codes::Listed(&IQ4_CODES), Scales::Super { halves: false, min: false }, 128),
            DType::Q2_K => int(Codes::B2, Scales::Nibbles, 0),
            DType::Q3_K => int(Codes::B3, Scales::Super { halves: true, min: false }, 4),
            DType::Q4_K => int(Codes::B4, Scales::Super { halves: false, min: true }, 0),
            DType::Q5_K => int(Codes::B5, Scales::Super { halves: false, min: true }, 0),
            DType::Q6_K => int(Codes::B6, Scales::Super { halves: true, min: false }, 32),
            DType::IQ3_S
            | DType::IQ3_XXS
            | DType::IQ2_S
            | DType::IQ2_XS
            | DType::IQ2_XXS
            | DType::IQ1_S
            | DType::IQ1_M
            | DType::TQ1_0
            | DType::TQ2_0
            | DType::MXFP4
            | DType::NVFP4 => {
                let lattice = Lattice::of(dtype).expect("one of those that have one");
                let (codes, zero) = lattice.codes();
                int(codes, Scales::Float { halves: lattice.halves, min: false }, zero)
            }
            DType::Q8_1
            | DType::Q8_K
            | DType::Q1_0
            | DType::Q2_0
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::F64 => Err(unsupported(tensor)),
        },
        Data::Affine(affine) => {
            let scales = Scales::Float { halves: false, min: true };
            match affine.bits {
                2 => int(Codes::B2, scales, 0),
                3 => int(Codes::B3, scales, 0),
                4 => int(Codes::B4, scales, 0),
                5 => int(Codes::B5, scales, 0),
                6 => int(Codes::B6, scales, 0),
                8 => int(Codes::B8, scales, 128),
                _ => Err(unsupported(tensor)),
            }
        }
        Data::Opaque { .. } => Err(unsupported(tensor)),
    }
}

fn unsupported(tensor: &Tensor<'_>) -> Error {
    Error::Unsupported {
        what: format!("tensor \"{}\" of type {}", tensor.name, tensor.dtype_name()),
        supported: "weights of every dtype that can be read".to_owned(),
    }
}

/// The code of element `k` of one row's tile.
fn read_code(codes: Codes, tile: &[u8], lane: usize, k: usize) -> u8 {
    let (step, byte) = (k / 4, 4 * lane + k % 4);
    let low4 = || tile[64 * (step % 4) + byte] >> (4 * (step / 4)) & 15;
    let low2 = |from: usize| tile[from + 64 * (step / 4) + byte] >> (2 * (step % 4)) & 3;
    let bit = |from: usize| tile[from + byte] >> step & 1;
    match codes {
        Codes::B2 => low2(0),
        Codes::B3 => low2(0) | bit(128) << 2,
        Codes::B4 | Codes::Listed(_) => low4(),
        Codes::B5 => low4() | bit(256) << 4,
        Codes::B6 => low4() | low2(256) << 4,
        Codes::B8 => tile[64 * step + byte],
    }
}
