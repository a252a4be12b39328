//! The weights of a model, on the device.

use std::sync::Arc;

use akunu_format::{Data, Tensor};
use akunu_program::program::{Slice, WeightUse};
use akunu_program::{Error, Result, TensorSource, Weights};

use crate::form::{Form, Planes};
use crate::host::Host;
use crate::params::{Matrix, NONE};

/// Planes begin at multiples of so many bytes; their offsets are counted in them.
const UNIT: usize = 16;

/// Where one weight lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) form: Form,
    pub(crate) matrix: Matrix,
    pub(crate) rows: usize,
    /// F32, for norms and biases; [`NONE`] when it is not used as a vector.
    pub(crate) vector: u32,
}

/// Where all weights lie, and how many bytes they take.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) placed: Vec<Placed>,
    pub(crate) units: usize,
}

/// All weights in one buffer.
pub(crate) struct GpuWeights<H: Host> {
    pub(crate) layout: Layout,
    pub(crate) buffer: H::Buffer,
}

impl<H: Host> Weights for GpuWeights<H> {}

impl<H: Host> GpuWeights<H> {
    /// Uploads the weights one after the other, so that the host never holds a second copy of more than one.
    pub(crate) fn load(
        host: &H,
        source: &dyn TensorSource,
        uses: &[WeightUse],
    ) -> Result<Arc<GpuWeights<H>>> {
        let mut layout = Layout::default();
        for used in uses {
            layout.place(used, &checked(source, used)?)?;
        }
        let buffer = host.allocate(layout.units * UNIT)?;
        for (used, placed) in uses.iter().zip(&layout.placed) {
            let tensor = checked(source, used)?;
            if placed.matrix.low != NONE {
                let Planes { low, high, scale, super_scale } = placed.form.planes(&tensor)?;
                let m = &placed.matrix;
                for (at, plane) in
                    [(m.low, low), (m.high, high), (m.scale, scale), (m.super_scale, super_scale)]
                {
                    host.write(&buffer, at as usize * UNIT, &plane)?;
                }
            }
            if placed.vector != NONE {
                let values = tensor.to_f32()?;
                if let Some(bad) = values.iter().position(|v| !v.is_finite()) {
                    return Err(Error::NotFinite { name: used.name.clone(), row: bad / used.cols });
                }
                host.write(&buffer, placed.vector as usize * UNIT, bytemuck::cast_slice(&values))?;
            }
            source.release(&used.name);
        }
        Ok(Arc::new(GpuWeights { layout, buffer }))
    }
}

fn checked<'a>(source: &'a dyn TensorSource, used: &WeightUse) -> Result<Tensor<'a>> {
    let tensor = source.find(&used.name).ok_or_else(|| Error::NoWeight(used.name.clone()))?;
    if tensor.len() != used.rows * used.cols || tensor.row_len() != used.cols {
        let (actual, expected) = (tensor.shape.to_vec(), vec![used.rows, used.cols]);
        return Err(Error::Shape { name: used.name.clone(), actual, expected });
    }
    Ok(tensor)
}

impl Layout {
    /// Finds room for a weight.
    pub(crate) fn place(&mut self, used: &WeightUse, tensor: &Tensor<'_>) -> Result<()> {
        let form = Form::of(tensor);
        let (mut matrix, mut vector) = (Matrix { low: NONE, ..Matrix::default() }, NONE);
        let eights = used.cols.div_ceil(8);
        if used.role.multiply || used.role.lookup {
            let count = used.rows * eights;
            let bytes = plane_bytes(form, tensor, count);
            matrix = Matrix {
                low: self.take(bytes[0])?,
                high: self.take(bytes[1])?,
                scale: self.take(bytes[2])?,
                super_scale: self.take(bytes[3])?,
                first: 0,
                eights: eights as u32,
                shift: if let Data::Affine(a) = tensor.data { (a.group_size / 8).ilog2() } else { 0 },
                pad: 0,
            };
            if u32::try_from(count).is_err() {
                return Err(Error::Batch(format!("tensor \"{}\" is too large for this backend", used.name)));
            }
        }
        if used.role.vector {
            vector = self.take(used.rows * used.cols * size_of::<f32>())?;
        }
        self.placed.push(Placed { form, matrix, rows: used.rows, vector });
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<u32> {
        let at = self.units;
        self.units += bytes.div_ceil(UNIT);
        u32::try_from(at).map_err(|_| Error::Batch("the weights take more than 64 GiB".into()))
    }

    /// The matrix a slice is of, and how it is stored.
    pub(crate) fn matrix(&self, slice: Slice) -> Result<(Form, Matrix)> {
        let placed = self.placed.get(slice.weight.0 as usize);
        let placed = placed.filter(|p| p.matrix.low != NONE && slice.first + slice.rows <= p.rows);
        let placed = placed
            .ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a matrix", slice.weight.0)))?;
        Ok((placed.form, Matrix { first: slice.first as u32, ..placed.matrix }))
    }

    /// Where a norm's weight or a bias lies.
    pub(crate) fn vector(&self, slice: Slice) -> Result<u32> {
        let vector = self.placed.get(slice.weight.0 as usize).map(|p| p.vector).filter(|v| *v != NONE);
        vector.ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a vector", slice.weight.0)))
    }
}

/// Bytes of the four planes of so many groups of eight.
fn plane_bytes(form: Form, tensor: &Tensor<'_>, eights: usize) -> [usize; 4] {
    use akunu_format::DType as D;
    match form {
        Form::F32 => [32 * eights, 0, 0, 0],
        Form::F16 | Form::BF16 => [16 * eights, 0, 0, 0],
        Form::Affine(bits) => {
            let group = if let Data::Affine(a) = tensor.data { a.group_size / 8 } else { 1 };
            let high = high_bits(bits) as usize;
            [(bits as usize - high) * eights, high * eights, 8 * eights / group, 0]
        }
        Form::Quantised(dtype) => {
            let (bits, scale, super_scale) = match dtype {
                D::Q4_0 | D::IQ4_NL => (4, eights / 4 * 2, 0),
                D::Q4_1 => (4, eights / 4 * 4, 0),
                D::Q5_0 => (5, eights / 4 * 2, 0),
                D::Q5_1 => (5, eights / 4 * 4, 0),
                D::Q8_0 => (8, eights / 4 * 2, 0),
                D::Q2_K => (2, eights / 2 * 2, eights / 32 * 4),
                D::Q3_K => (3, eights / 2, eights / 32 * 2),
                D::Q4_K => (4, eights / 4 * 2, eights / 32 * 4),
                D::Q5_K => (5, eights / 4 * 2, eights / 32 * 4),
                _ => (6, eights / 2, eights / 32 * 2),
            };
            let high = high_bits(bits) as usize;
            [(bits as usize - high) * eights, high * eights, scale, super_scale]
        }
    }
}

/// Bits of a code that lie in a plane of their own.
fn high_bits(bits: u32) -> u32 {
    match bits {
        3 | 5 => 1,
        6 => 2,
        _ => 0,
    }
}
