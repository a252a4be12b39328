//! The weights of a model, packed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use akunu_program::program::{Slice, WeightUse};
use akunu_program::{Error, Result, TensorSource, Weights};

use crate::Isa;
use crate::memory::Shared;
use crate::pack::{Matrix, Packing, packed_bytes};
use crate::pool::{Pool, Team};

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

impl CpuWeights {
    /// Packs the matrices into one region, in the order of their use, and gives back the memory of each original when it and those before
    /// are packed.
    pub(crate) fn load(
        source: &dyn TensorSource,
        uses: &[WeightUse],
        isa: Isa,
        pool: &Pool,
    ) -> Result<Arc<CpuWeights>> {
        let mut bytes = 0;
        for used in uses.iter().filter(|used| used.role.is_matrix()) {
            if let Some(tensor) = source.find(&used.name) {
                bytes += packed_bytes(&tensor, used.role, isa)?;
            }
        }
        let data = Arc::new(Shared::for_user(bytes, "the weights")?);
        let (mut weights, mut matrices) = (Vec::with_capacity(uses.len()), Vec::new());
        let mut start = 0;
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
                let matrix = Packing::new(tensor, used.role, isa, &data, start)?;
                start = matrix.bytes().end;
                matrices.push(matrix);
            } else {
                source.release(&used.name);
            }
            weights.push(Weight { matrix: None, vector });
        }
        let of_matrices = || uses.iter().zip(0..).filter(|(used, _)| used.role.is_matrix());
        let mut names = of_matrices().map(|(used, _)| &used.name).zip(&matrices).peekable();
        let mut tell = || {
            while let Some((name, matrix)) = names.next_if(|(_, matrix)| matrix.is_done()) {
                source.release(name);
                source.loaded(matrix.bytes().end as u64, bytes as u64);
            }
        };
        pack(&matrices, &data, isa, pool, &mut tell)?;
        for ((_, i), matrix) in of_matrices().zip(matrices) {
            weights[i].matrix = Some(matrix.finish()?);
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

/// Packs all matrices, page by page: a worker takes the next large page, has it cleared, and writes the panels that end in it while much
/// of it is still in a cache. Where two workers began a page together, the system would clear two and throw one away; but where a panel
/// begins, somebody has taken the page before. The caller's worker calls `after` each page.
///
/// It ends early where a number is not finite. Pages are taken in order, so what comes before the first such number has been packed then.
fn pack(
    matrices: &[Packing<'_>],
    data: &Shared,
    isa: Isa,
    pool: &Pool,
    after: &mut dyn FnMut(),
) -> Result<()> {
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let pack_page = || {
        if ended.load(Ordering::Relaxed) {
            return false;
        }
        let Some(page) = data.page(next.fetch_add(1, Ordering::Relaxed)) else { return false };
        data.populate(&page);
        let first = matrices.partition_point(|matrix| matrix.bytes().end <= page.start);
        for matrix in matrices[first..].iter().take_while(|matrix| matrix.bytes().start < page.end) {
            // SAFETY: each page is taken once, and each panel ends in one.
            if !unsafe { matrix.write(&page, isa) } {
                ended.store(true, Ordering::Relaxed);
            }
        }
        true
    };
    let others = |_, _: &Team| {
        while pack_page() {}
        Ok(())
    };
    // A panic in what is called is the caller's, not a worker's.
    let mut panic = None;
    let own = |_: &Team| {
        while panic.is_none() && pack_page() {
            panic = catch_unwind(AssertUnwindSafe(&mut *after)).err();
        }
        ended.fetch_or(panic.is_some(), Ordering::Relaxed);
        Ok(())
    };
    let result = pool.run_beside(&others, own);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    result.map_err(|broken| Error::Device(broken.to_string()))?;
    after();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use akunu_format::{DType, Data, Tensor};
    use akunu_program::program::{Role, WeightId};

    use super::*;

    /// The names and shapes of tensors of F32.
    const SHAPES: [(&str, [usize; 2]); 6] = [
        ("small", [100, 300]),
        ("panels larger than pages", [40, 40_000]),
        ("norm", [1, 300]),
        ("some pages", [333, 5000]),
        ("no columns", [16, 0]),
        ("last", [1, 64]),
    ];

    /// Tensors of numbers of which each is another one, and what is said of them.
    struct Numbers {
        bytes: Vec<Vec<u8>>,
        loaded: RefCell<Vec<(u64, u64)>>,
        released: RefCell<Vec<String>>,
    }

    impl Numbers {
        fn new() -> Numbers {
            let numbers = |rows, cols| (0..rows * cols).flat_map(|i| (i as f32).to_le_bytes()).collect();
            let bytes = SHAPES.iter().map(|(_, [rows, cols])| numbers(*rows, *cols)).collect();
            Numbers { bytes, loaded: RefCell::default(), released: RefCell::default() }
        }

        fn load(&self, isa: Isa, threads: usize) -> Result<Arc<CpuWeights>> {
            let uses = SHAPES.map(|(name, [rows, cols])| {
                let vector = name == "norm";
                let role = Role { multiply: !vector, vector, ..Role::default() };
                WeightUse { name: name.to_owned(), rows, cols, role }
            });
            CpuWeights::load(self, &uses, isa, &Pool::new(threads).unwrap())
        }
    }

    impl TensorSource for Numbers {
        fn find(&self, name: &str) -> Option<Tensor<'_>> {
            let at = SHAPES.iter().position(|(other, _)| *other == name)?;
            let data = Data::Blocks { dtype: DType::F32, bytes: &self.bytes[at] };
            Some(Tensor { name: SHAPES[at].0, shape: &SHAPES[at].1, data })
        }

        fn release(&self, name: &str) {
            self.released.borrow_mut().push(name.to_owned());
        }

        fn loaded(&self, done: u64, total: u64) {
            self.loaded.borrow_mut().push((done, total));
        }
    }

    #[test]
    fn panels_that_lie_across_pages_are_packed_once() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for threads in [1, 2, 5] {
                let source = Numbers::new();
                let weights = source.load(isa, threads).unwrap();
                for (i, (_, [rows, cols])) in SHAPES.into_iter().enumerate().filter(|(i, _)| *i != 2) {
                    let slice = Slice { weight: WeightId(i as u32), first: 0, rows };
                    let (matrix, mut numbers) = (weights.matrix(slice).unwrap(), vec![0.0; cols]);
                    for row in 0..rows {
                        matrix.row(row, &mut numbers);
                        assert!(
                            numbers.iter().zip(row * cols..).all(|(x, i)| *x == i as f32),
                            "{isa}: {row}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_source_is_told_how_far_loading_is() {
        let source = Numbers::new();
        source.load(Isa::Portable, 3).unwrap();
        let (loaded, mut released) = (source.loaded.into_inner(), source.released.into_inner());
        let (done, total) = *loaded.last().unwrap();
        assert!(loaded.is_sorted() && done == total && loaded.len() == 5);
        let mut names = SHAPES.map(|(name, _)| name);
        names.sort_unstable();
        released.sort_unstable();
        assert_eq!(released, names);
    }

    #[test]
    fn a_panic_of_who_is_told_is_the_callers() {
        let source = Numbers::new();
        let borrowed = source.loaded.borrow();
        let result = catch_unwind(AssertUnwindSafe(|| source.load(Isa::Portable, 2)));
        let panic = result.err().expect("the list is borrowed");
        assert!(panic.downcast_ref::<String>().is_some_and(|said| said.contains("borrowed")));
        drop(borrowed);
    }

    #[test]
    fn the_first_bad_row_of_the_first_bad_matrix_is_named() {
        let mut source = Numbers::new();
        let nan = f32::NAN.to_le_bytes();
        for (tensor, row) in [(3, 222), (3, 5), (1, 39), (1, 17)] {
            let cols = SHAPES[tensor].1[1];
            source.bytes[tensor][4 * (row * cols + 7)..][..4].copy_from_slice(&nan);
        }
        let error = source.load(Isa::Portable, 2).err().expect("numbers that are none");
        assert!(matches!(error, Error::NotFinite { ref name, row: 17 } if name == SHAPES[1].0), "{error}");
    }
}
