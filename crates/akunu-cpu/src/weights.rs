//! The weights of a model, packed.

use std::sync::Arc;

use akunu_program::program::{Slice, WeightUse};
use akunu_program::{Error, Result, TensorSource, Weights};

use crate::Isa;
use crate::memory::Shared;
use crate::pack::{Matrix, packed_bytes};
use crate::pool::Pool;

/// One weight, as it is used.
pub(crate) struct Weight {
    matrix: Option<Matrix>,
    /// Norms and biases.
    vector: Option<Vec<f32>>,
}

/// All weights of a program.
pub(crate) struct CpuWeights {
    weights: Vec<Weight>,
}

impl Weights for CpuWeights {}

/// Large pages that each worker begins at a time: so many that nobody waits for the last one for long.
const PAGES: usize = 8;

/// Begins the pages of the weights up to a byte, and some more, each by one worker: where two begin one together, the system clears two
/// and throws one away. Returns how many are begun.
fn begin_pages(data: &Shared, begun: usize, end: usize, pool: &Pool) -> Result<usize> {
    let asked = data.pages(end);
    if asked <= begun {
        return Ok(begun);
    }
    let until = asked.max(begun + PAGES * pool.size()).min(data.pages(usize::MAX));
    // SAFETY: what is packed so far lies in the pages before.
    pool.each(until - begun, &|page| unsafe { data.begin_page(begun + page) })
        .map_err(|broken| Error::Device(broken.to_string()))?;
    Ok(until)
}

impl CpuWeights {
    /// Packs the weights one after the other into one region, in the order of their use, and gives back the memory of each
    /// original: there is never a second copy of more than one, and some pages that were begun ahead.
    pub(crate) fn load(
        source: &dyn TensorSource,
        uses: &[WeightUse],
        isa: Isa,
        pool: &Pool,
    ) -> Result<Arc<CpuWeights>> {
        let mut weights = Vec::with_capacity(uses.len());
        let mut bytes = 0;
        for used in uses.iter().filter(|used| used.role.is_matrix()) {
            if let Some(tensor) = source.find(&used.name) {
                bytes += packed_bytes(&tensor, used.role, isa)?;
            }
        }
        let data = Arc::new(Shared::for_user(bytes, "the weights")?);
        let (mut start, mut begun) = (0, 0);
        for used in uses {
            let name = || used.name.clone();
            let tensor = source.find(&used.name).ok_or_else(|| Error::NoWeight(name()))?;
            if tensor.len() != used.rows * used.cols || tensor.row_len() != used.cols {
                let (actual, expected) = (tensor.shape.to_vec(), vec![used.rows, used.cols]);
                return Err(Error::Shape { name: name(), actual, expected });
            }
            let vector = used.role.vector.then(|| tensor.to_f32()).transpose()?;
            if let Some(bad) = vector.iter().flatten().position(|v| !v.is_finite()) {
                return Err(Error::NotFinite { name: name(), row: bad / used.cols });
            }
            if used.role.is_matrix() {
                let end = start + packed_bytes(&tensor, used.role, isa)?;
                begun = begin_pages(&data, begun, end, pool)?;
            }
            let pack = || Matrix::pack(&tensor, used.role, isa, &data, start, pool);
            let matrix = used.role.is_matrix().then(pack).transpose()?;
            start += matrix.as_ref().map_or(0, Matrix::bytes);
            weights.push(Weight { matrix, vector });
            source.release(&used.name);
            source.loaded(start as u64, bytes as u64);
        }
        Ok(Arc::new(CpuWeights { weights }))
    }

    /// The matrix a slice is of.
    pub(crate) fn matrix(&self, slice: Slice) -> Result<&Matrix> {
        let weight = self.weights.get(slice.weight.0 as usize).and_then(|w| w.matrix.as_ref());
        let matrix = weight.filter(|m| slice.first + slice.rows <= m.rows);
        matrix.ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a matrix", slice.weight.0)))
    }

    /// The numbers of a slice of a norm's weight or a bias.
    pub(crate) fn vector(&self, slice: Slice) -> Result<&[f32]> {
        let weight = self.weights.get(slice.weight.0 as usize).and_then(|w| w.vector.as_deref());
        weight.ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a vector", slice.weight.0)))
    }
}
