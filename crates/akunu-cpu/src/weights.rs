//! The weights of a model, packed.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use akunu_format::Tensor;
use akunu_program::program::{Slice, WeightUse};
use akunu_program::{Error, Result, TensorSource, Weights};

use crate::Isa;
use crate::memory::Shared;
use crate::pack::{Matrix, Packing, Table, packed_bytes};
use crate::pool::{Pool, Team};

/// One weight, as it is used.
struct Weight {
    matrix: Option<Matrix>,
    /// A matrix that nothing is multiplied with.
    table: Option<Table>,
    /// Norms and biases.
    vector: Option<Vec<f32>>,
}

/// A matrix that rows are looked up in.
pub(crate) enum Rows<'a> {
    /// Which rows may be multiplied with, too.
    Packed(&'a Matrix),
    /// Which stayed where it was.
    Stored(&'a Table),
}

/// All weights of a program.
pub(crate) struct CpuWeights {
    weights: Vec<Weight>,
}

impl Weights for CpuWeights {}

impl CpuWeights {
    /// Packs the matrices into one region, in the order of their use, and gives back the memory of each original when it and those before
    /// are packed. What is only looked up stays where it is, if it lies in a mapped file.
    pub(crate) fn load(
        source: &dyn TensorSource,
        uses: &[WeightUse],
        isa: Isa,
        pool: &Pool,
    ) -> Result<Arc<CpuWeights>> {
        let stays =
            |used: &WeightUse, tensor: &Tensor<'_>| Table::of(tensor, used.role, source.mapping(&used.name));
        let mut bytes = 0;
        for used in uses.iter().filter(|used| used.role.is_matrix()) {
            if let Some(tensor) = source.find(&used.name)
                && stays(used, &tensor).is_none()
            {
                bytes += packed_bytes(&tensor, used.role, isa)?;
            }
        }
        let data = Arc::new(Shared::for_user(bytes, "the weights")?);
        let mut weights: Vec<Weight> = Vec::with_capacity(uses.len());
        // Those that are packed, and their numbers among all.
        let (mut matrices, mut packed) = (Vec::new(), Vec::new());
        let mut start = 0;
        for (i, used) in uses.iter().enumerate() {
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
            let table = stays(used, &tensor);
            if !used.role.is_matrix() {
                source.release(&used.name);
            } else if table.is_none() {
                let matrix = Packing::new(tensor, used.role, isa, &data, start)?;
                start = matrix.bytes().end;
                matrices.push(matrix);
                packed.push(i);
            }
            weights.push(Weight { matrix: None, table, vector });
        }
        let mut names = packed.iter().map(|i| &uses[*i].name).zip(&matrices).peekable();
        let mut done = 0;
        let mut tell = || {
            while let Some((name, matrix)) = names.next_if(|(_, matrix)| matrix.is_done()) {
                source.release(name);
                done = matrix.bytes().end as u64;
                source.loaded(done, bytes as u64)?;
            }
            // Also where no matrix was finished: who is told may end it.
            source.loaded(done, bytes as u64)
        };
        let tables: Vec<&Table> = weights.iter().filter_map(|weight| weight.table.as_ref()).collect();
        pack(&matrices, &tables, &data, isa, pool, &mut tell)?;
        for (weight, used) in weights.iter_mut().zip(uses) {
            if let Some(table) = weight.table.take() {
                weight.table = Some(table.finish(&used.name)?);
                // All of it was looked at; rows are read again when they are looked up.
                source.release(&used.name);
            }
        }
        for (i, matrix) in packed.into_iter().zip(matrices) {
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

    /// The matrix that the rows of a slice are looked up in.
    pub(crate) fn rows(&self, slice: Slice) -> Result<Rows<'_>> {
        let table = self.weights.get(slice.weight.0 as usize).and_then(|weight| weight.table.as_ref());
        match table.filter(|table| slice.first + slice.rows <= table.rows) {
            Some(table) => Ok(Rows::Stored(table)),
            None => self.matrix(slice).map(Rows::Packed),
        }
    }

    /// The numbers of a slice of a norm's weight or a bias.
    pub(crate) fn vector(&self, slice: Slice) -> Result<&[f32]> {
        let weight = self.weights.get(slice.weight.0 as usize).and_then(|w| w.vector.as_deref());
        weight.ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a vector", slice.weight.0)))
    }
}

impl Rows<'_> {
    /// Writes one row as `f32`, with the values the file's own decoding gives.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        match self {
            Rows::Packed(matrix) => matrix.row(row, out),
            Rows::Stored(table) => table.row(row, out),
        }
    }

    /// The bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        match self {
            Rows::Packed(matrix) => matrix.bytes() / matrix.rows.max(1),
            Rows::Stored(table) => table.row_bytes,
        }
    }
}

/// Packs all matrices, page by page: a worker takes the next large page, has it cleared, and writes the panels that end in it while much
/// of it is still in a cache. Where two workers began a page together, the system would clear two and throw one away; but where a panel
/// begins, somebody has taken the page before. The caller's worker calls `after` each page; a break ends it.
///
/// It ends early where a number is not finite. Pages are taken in order, so what comes before the first such number has been packed then.
/// Tables are looked at for such numbers before.
fn pack(
    matrices: &[Packing<'_>],
    tables: &[&Table],
    data: &Shared,
    isa: Isa,
    pool: &Pool,
    after: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<()> {
    let pieces = tables.iter().flat_map(|table| table.pieces().map(move |rows| (table, rows)));
    let (pieces, next, ended) = (pieces.collect::<Vec<_>>(), AtomicUsize::new(0), AtomicBool::new(false));
    let pack_page = || {
        if ended.load(Ordering::Relaxed) {
            return false;
        }
        let taken = next.fetch_add(1, Ordering::Relaxed);
        if let Some((table, rows)) = pieces.get(taken) {
            if !table.check(rows.clone()) {
                ended.store(true, Ordering::Relaxed);
            }
            return true;
        }
        let Some(page) = data.page(taken - pieces.len()) else { return false };
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
    let mut told = Ok(ControlFlow::Continue(()));
    let own = |_: &Team| {
        while matches!(told, Ok(ControlFlow::Continue(()))) && pack_page() {
            told = catch_unwind(AssertUnwindSafe(&mut *after));
        }
        ended.fetch_or(!matches!(told, Ok(ControlFlow::Continue(()))), Ordering::Relaxed);
        Ok(())
    };
    let result = pool.run_beside(&others, own);
    let told = told.unwrap_or_else(|panic| resume_unwind(panic));
    result.map_err(|broken| Error::Device(broken.to_string()))?;
    if told.is_break() || after().is_break() { Err(Error::Stopped) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use akunu_format::gguf::Writer;
    use akunu_format::quant::quantize;
    use akunu_format::{DType, Data, ModelFile};
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
        /// When so many bytes are loaded, it wants no more.
        enough: u64,
    }

    impl Numbers {
        fn new() -> Numbers {
            let numbers = |rows, cols| (0..rows * cols).flat_map(|i| (i as f32).to_le_bytes()).collect();
            let bytes = SHAPES.iter().map(|(_, [rows, cols])| numbers(*rows, *cols)).collect();
            Numbers { bytes, loaded: RefCell::default(), released: RefCell::default(), enough: u64::MAX }
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

        fn loaded(&self, done: u64, total: u64) -> ControlFlow<()> {
            self.loaded.borrow_mut().push((done, total));
            if done >= self.enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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

    /// Of F32 more than are looked at together.
    const ROWS: usize = 1100;

    /// The dtypes that tables may have, and one that they may not.
    const OF_TABLES: [DType; 16] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::IQ4_NL,
        DType::IQ4_XS,
        DType::Q2_K,
        DType::Q3_K,
        DType::Q4_K,
        DType::Q5_K,
        DType::Q6_K,
        DType::MXFP4,
    ];

    /// A file of one tensor for each of these dtypes, of so many rows of 512 columns, and their uses. One number of two bytes of
    /// each may be replaced: in some row, at some place of the row's bytes.
    fn tables(
        dtypes: &[DType],
        replaced: Option<(usize, usize, u16)>,
    ) -> (tempfile::TempDir, ModelFile, Vec<WeightUse>) {
        let values: Vec<f32> = (0..ROWS * 512).map(|i| ((i * 7919 % 1013) as f32 - 500.0) / 100.0).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tables.gguf");
        let mut writer = Writer::new();
        for dtype in dtypes {
            writer.tensor(dtype.name(), *dtype, &[ROWS, 512]).unwrap();
        }
        let mut tensors = writer.create(&path).unwrap();
        for dtype in dtypes {
            let row_bytes = dtype.row_bytes(512).unwrap();
            let mut bytes = vec![0; ROWS * row_bytes];
            // Of those that cannot be written, zeros.
            let _ = quantize(*dtype, &values, &mut bytes);
            if let Some((row, at, number)) = replaced {
                bytes[row * row_bytes + at..][..2].copy_from_slice(&number.to_le_bytes());
            }
            tensors.append(dtype.name(), &bytes).unwrap();
        }
        tensors.finish().unwrap();
        let role = Role { lookup: true, ..Role::default() };
        let of = |dtype: &DType| WeightUse { name: dtype.name().to_owned(), rows: ROWS, cols: 512, role };
        (folder, ModelFile::open(path).unwrap(), dtypes.iter().map(of).collect())
    }

    #[test]
    fn what_is_only_looked_up_stays_in_its_file() {
        let (_folder, file, uses) = tables(&OF_TABLES, None);
        let weights = CpuWeights::load(&file, &uses, Isa::Portable, &Pool::new(2).unwrap()).unwrap();
        for (i, used) in uses.iter().enumerate() {
            let rows = weights.rows(Slice { weight: WeightId(i as u32), first: 0, rows: ROWS }).unwrap();
            assert_eq!(matches!(rows, Rows::Stored(_)), used.name != "MXFP4");
            let (mut row, mut expected) = ([0.0; 512], [0.0; 512]);
            for number in [0, 17, ROWS - 1] {
                rows.row(number, &mut row);
                file.get_tensor(&used.name)
                    .unwrap()
                    .dequantize_rows(number..number + 1, &mut expected)
                    .unwrap();
                assert_eq!(row, expected, "{}", used.name);
            }
        }
        let multiplied = Role { lookup: true, multiply: true, ..Role::default() };
        let uses: Vec<WeightUse> =
            uses.into_iter().map(|used| WeightUse { role: multiplied, ..used }).collect();
        let weights = CpuWeights::load(&file, &uses, Isa::Portable, &Pool::new(2).unwrap()).unwrap();
        assert!(matches!(
            weights.rows(Slice { weight: WeightId(3), first: 0, rows: ROWS }),
            Ok(Rows::Packed(_))
        ));
    }

    #[test]
    fn a_number_of_a_table_that_is_none_is_named_with_its_row() {
        let places = [
            (DType::F32, 2046, 0x7F80),
            (DType::F16, 510, 0x7C01),
            (DType::BF16, 0, 0xFF80),
            (DType::Q4_0, 18, 0x7C00),
            (DType::Q4_1, 2, 0xFC00),
            (DType::Q5_0, 22, 0x7E00),
            (DType::Q5_1, 24, 0x7C00),
            (DType::Q8_0, 34 * 15, 0x7C00),
            (DType::IQ4_NL, 18, 0x7C00),
            (DType::IQ4_XS, 136, 0x7C00),
            (DType::Q2_K, 80, 0x7C00),
            (DType::Q2_K, 84 + 82, 0x7C00),
            (DType::Q3_K, 108, 0x7C00),
            (DType::Q4_K, 144, 0x7C00),
            (DType::Q5_K, 2, 0x7C00),
            (DType::Q6_K, 210 + 208, 0x7C00),
        ];
        for (dtype, at, number) in places {
            let (_folder, file, uses) = tables(&[dtype], Some((1077, at, number)));
            let error = CpuWeights::load(&file, &uses, Isa::Portable, &Pool::new(2).unwrap()).err();
            assert!(
                matches!(error, Some(Error::NotFinite { ref name, row: 1077 }) if name == dtype.name()),
                "{dtype:?}: {error:?}"
            );
            // It is one: decoded, the row has numbers that are not finite.
            let (tensor, mut row) = (file.get_tensor(dtype.name()).unwrap(), [0.0; 512]);
            tensor.dequantize_rows(1077..1078, &mut row).unwrap();
            assert!(row.iter().any(|value| !value.is_finite()), "{dtype:?}");
        }
    }

    #[test]
    fn the_source_is_told_how_far_loading_is() {
        let source = Numbers::new();
        source.load(Isa::Portable, 3).unwrap();
        let (loaded, mut released) = (source.loaded.into_inner(), source.released.into_inner());
        let (done, total) = *loaded.last().unwrap();
        assert!(loaded.is_sorted() && done == total);
        let steps: BTreeSet<u64> = loaded.iter().map(|(done, _)| *done).filter(|done| *done > 0).collect();
        // What has no columns ends where the one before it does.
        assert_eq!(steps.len(), 4);
        let mut names = SHAPES.map(|(name, _)| name);
        names.sort_unstable();
        released.sort_unstable();
        assert_eq!(released, names);
    }

    #[test]
    fn loading_ends_when_nobody_wants_it() {
        for enough in [1, 4 * 48 * 40_000] {
            let mut source = Numbers::new();
            source.enough = enough;
            assert!(matches!(source.load(Isa::Portable, 2).err(), Some(Error::Stopped)));
            assert_eq!(source.loaded.into_inner().iter().filter(|(done, _)| *done >= enough).count(), 1);
        }
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
