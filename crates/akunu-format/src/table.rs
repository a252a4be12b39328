//! The tensors of an open model: where each lies, and how it is found by name.

use std::ops::Range;
use std::path::Path;

use crate::mapped::{MappedFile, Mapping};
use crate::{DType, Data, Error, Result, Tensor, mlx};

/// Bytes in one of a model's files. Checked against the file's size before it enters a table.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Which of the model's files.
    pub(crate) file: usize,
    pub(crate) range: Range<usize>,
}

/// How a tensor is stored.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    Blocks { dtype: DType, bytes: Span },
    Opaque { dtype: &'static str, bytes: Span },
    Affine(Box<StoredAffine>),
}

impl Stored {
    /// The values, or their codes.
    pub(crate) fn span(&self) -> &Span {
        match self {
            Self::Blocks { bytes, .. } | Self::Opaque { bytes, .. } => bytes,
            Self::Affine(affine) => &affine.codes,
        }
    }
}

/// The three arrays of an [`mlx::Affine`].
#[derive(Clone, Debug)]
pub(crate) struct StoredAffine {
    pub(crate) bits: u32,
    pub(crate) group_size: usize,
    pub(crate) scale_dtype: DType,
    pub(crate) codes: Span,
    pub(crate) scales: Span,
    pub(crate) biases: Span,
}

/// One tensor.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    /// Outermost first.
    pub(crate) shape: Box<[usize]>,
    pub(crate) stored: Stored,
}

/// The files of a model and the tensors in them.
#[derive(Debug)]
pub(crate) struct TensorTable {
    files: Vec<MappedFile>,
    /// In file order.
    entries: Vec<Entry>,
    /// Positions in `entries`, sorted by name.
    by_name: Box<[u32]>,
}

impl TensorTable {
    /// Fails when two entries have the same name.
    pub(crate) fn new(files: Vec<MappedFile>, entries: Vec<Entry>) -> Result<Self> {
        match sorted_unique(entries.len(), |i| &*entries[i].name) {
            Ok(by_name) => Ok(Self { files, entries, by_name }),
            Err(repeated) => {
                let Entry { name, stored, .. } = &entries[repeated];
                let span = stored.span();
                let field = format!("tensor \"{name}\", whose data is");
                let problem = "another tensor has the same name";
                Err(Error::malformed(files[span.file].path(), field, span.range.start, problem))
            }
        }
    }

    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.entries.iter().map(|entry| self.view(entry))
    }

    /// The tensor called `name`; `path` is what an error calls the model.
    pub(crate) fn require(&self, name: &str, path: &Path) -> Result<Tensor<'_>> {
        self.get(name).ok_or_else(|| Error::NoTensor { path: path.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn get(&self, name: &str) -> Option<Tensor<'_>> {
        self.entry(name).map(|entry| self.view(entry))
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let position =
            self.by_name.binary_search_by(|&i| self.entries[i as usize].name.as_ref().cmp(name)).ok()?;
        Some(&self.entries[self.by_name[position] as usize])
    }

    /// The mapped file that a tensor's blocks lie in.
    pub(crate) fn mapping(&self, name: &str) -> Option<&Mapping> {
        match &self.entry(name)?.stored {
            Stored::Blocks { bytes, .. } => self.files[bytes.file].mapping(),
            Stored::Opaque { .. } | Stored::Affine(_) => None,
        }
    }

    /// Gives the memory of a tensor back to the system.
    pub(crate) fn release(&self, name: &str) {
        let Some(entry) = self.entry(name) else { return };
        let release = |span: &Span| self.files[span.file].release(span.range.clone());
        match &entry.stored {
            Stored::Blocks { bytes, .. } | Stored::Opaque { bytes, .. } => release(bytes),
            Stored::Affine(affine) => {
                [&affine.codes, &affine.scales, &affine.biases].into_iter().for_each(release);
            }
        }
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> Tensor<'a> {
        let bytes = |span: &Span| &self.files[span.file].bytes()[span.range.clone()];
        let data = match &entry.stored {
            Stored::Blocks { dtype, bytes: span } => Data::Blocks { dtype: *dtype, bytes: bytes(span) },
            Stored::Opaque { dtype, bytes: span } => Data::Opaque { dtype, bytes: bytes(span) },
            Stored::Affine(stored) => Data::Affine(mlx::Affine {
                bits: stored.bits,
                group_size: stored.group_size,
                row_len: entry.shape.last().copied().unwrap_or(1),
                scale_dtype: stored.scale_dtype,
                codes: bytes(&stored.codes),
                scales: bytes(&stored.scales),
                biases: bytes(&stored.biases),
            }),
        };
        Tensor { name: &entry.name, shape: &entry.shape, data }
    }
}

/// The numbers `0..len` sorted by key; fails with the larger of two numbers that have the same key.
pub(crate) fn sorted_unique<'k>(len: usize, key: impl Fn(usize) -> &'k str) -> Result<Box<[u32]>, usize> {
    let mut order: Box<[u32]> = (0..len as u32).collect();
    order.sort_unstable_by(|&a, &b| key(a as usize).cmp(key(b as usize)));
    match order.windows(2).find(|pair| key(pair[0] as usize) == key(pair[1] as usize)) {
        Some(pair) => Err(pair[0].max(pair[1]) as usize),
        None => Ok(order),
    }
}

/// Finds two entries of one file whose data share a byte: their positions, in order of where the data begin.
pub(crate) fn first_overlap(entries: &[Entry]) -> Option<(usize, usize)> {
    let range = |i: u32| &entries[i as usize].stored.span().range;
    let mut order: Vec<u32> = (0..entries.len() as u32).filter(|&i| !range(i).is_empty()).collect();
    order.sort_unstable_by_key(|&i| range(i).start);
    let pair = order.windows(2).find(|pair| range(pair[0]).end > range(pair[1]).start)?;
    Some((pair[0] as usize, pair[1] as usize))
}

/// The product of a shape's dimensions; `None` when it does not fit.
///
/// Dimensions of zero do not hide others that are too large: any sub-product of an accepted shape fits too.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    let product = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim.max(1)))?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// Bytes of a whole tensor, or why there is no such tensor.
pub(crate) fn byte_len(shape: &[usize], dtype: DType) -> Result<usize, String> {
    let elements = element_count(shape).ok_or("the number of elements does not fit 64 bits")?;
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_len()) {
        return Err(format!("rows of {row} are not whole blocks of {} ({dtype})", dtype.block_len()));
    }
    // Also of a tensor without rows: its readers reckon with the size of one.
    let bytes = dtype.row_bytes(row).and_then(|_| dtype.row_bytes(elements));
    bytes.map_err(|_| "the size in bytes does not fit 64 bits".to_owned())
}
