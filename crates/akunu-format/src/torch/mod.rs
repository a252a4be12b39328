//! Checkpoints as `torch.save` writes them (`.pt`): a zip archive of a pickle and the tensors' bytes.
//!
//! ```text
//! archive/data.pkl    which tensors there are: names, shapes, storages
//! archive/data/0 ...  one record of values for each storage
//! archive/byteorder   "little"
//! ```
//!
//! The pickle is read as data and never executed: what is neither a dictionary, a number nor a tensor is refused by name.

mod archive;
mod pickle;

use std::path::{Path, PathBuf};

use crate::mapped::MappedFile;
use crate::table::{self, Entry, Span, Stored, TensorTable};
use crate::{DType, Error, Result, Tensor};

use archive::Archive;
use pickle::{Full, Pickle, STORAGES, Value, View};

/// How a zip archive begins.
pub(crate) const MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Under which keys checkpoints keep their tensors, beside numbers of their own; others are the tensors themselves.
const STATE_DICTS: [&str; 3] = ["model_state_dict", "state_dict", "model"];
/// Under which key OpenAI keeps a model's sizes.
const SIZES: &str = "dims";
/// The most dimensions accepted.
const MAX_RANK: usize = 8;
/// The longest name of the folder, which is that of the file.
const LONGEST_FOLDER: usize = 1024;

/// An open checkpoint.
///
/// ```no_run
/// use akunu_format::torch::TorchCheckpoint;
///
/// let model = TorchCheckpoint::open("tiny.pt")?;
/// assert_eq!(model.size("n_mels"), Some(80));
/// assert_eq!(model.tensor("encoder.conv1.bias")?.shape, [384]);
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
pub struct TorchCheckpoint {
    sizes: Vec<(Box<str>, i64)>,
    table: TensorTable,
}

impl TorchCheckpoint {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(MappedFile::open(path.as_ref())?)
    }

    /// Reads a whole file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::read(MappedFile::from_bytes(PathBuf::from("(in memory)"), bytes))
    }

    fn read(file: MappedFile) -> Result<Self> {
        let (sizes, entries) = describe(&file)?;
        Ok(Self { sizes, table: TensorTable::new(vec![file], entries)? })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        self.table.files()[0].path()
    }

    /// A number the file has under `dims`, where OpenAI's models keep their sizes.
    pub fn size(&self, name: &str) -> Option<i64> {
        self.sizes.iter().find(|(key, _)| **key == *name).map(|(_, size)| *size)
    }

    /// All tensors, in the order of the pickle.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.table.iter()
    }

    /// The tensor called `name`, if there is one.
    pub fn get_tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.table.get(name)
    }

    /// See [`ModelFile::mapping`](crate::ModelFile::mapping).
    pub fn mapping(&self, name: &str) -> Option<&crate::Mapping> {
        self.table.mapping(name)
    }

    /// See [`ModelFile::release_tensor`](crate::ModelFile::release_tensor).
    pub fn release_tensor(&self, name: &str) {
        self.table.release(name);
    }

    /// The tensor called `name`, or an error that says so.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        self.table.require(name, self.path())
    }
}

/// What is in a file: sizes and tensors.
type Contents = (Vec<(Box<str>, i64)>, Vec<Entry>);

fn describe(file: &MappedFile) -> Result<Contents> {
    let path = file.path();
    let archive = Archive::read(file)?;
    let folder = archive.names().find_map(|name| name.strip_suffix("data.pkl"));
    let Some(folder) = folder.filter(|folder| folder.len() <= LONGEST_FOLDER) else {
        let hint = "expected a PyTorch checkpoint, as torch.save writes it since version 1.6";
        return Err(Error::unsupported(path, "a zip archive without data.pkl", hint));
    };
    if archive.get(&format!("{folder}constants.pkl")).is_some() {
        let hint = "save the model's state_dict instead";
        return Err(Error::unsupported(path, "a TorchScript archive", hint));
    }
    if let Some(order) = archive.get(&format!("{folder}byteorder"))
        && file.bytes()[order.clone()] != *b"little"
    {
        let hint = "save it again on a little-endian machine";
        return Err(Error::unsupported(path, "a big-endian checkpoint", hint));
    }
    let data = archive.get(&format!("{folder}data.pkl")).unwrap_or_default();
    let mut pickle = pickle::read(path, file.bytes(), data.clone())?;
    let Value::Dict(root) = pickle.root else {
        let hint = "expected a dictionary of tensors";
        return Err(Error::unsupported(path, "a checkpoint that is no dictionary", hint));
    };
    let sizes = match pickle.get(root, SIZES) {
        Some(Value::Dict(sizes)) => read_sizes(path, &mut pickle, sizes, data.start)?,
        _ => Vec::new(),
    };
    let inner = STATE_DICTS.iter().find_map(|key| match pickle.get(root, key) {
        Some(Value::Dict(tensors)) => Some(tensors),
        _ => None,
    });
    let tensors = inner.unwrap_or(root);
    // Beside the entry, its place in the order of names.
    let taken = size_of::<Entry>() + size_of::<u32>() + MAX_RANK * size_of::<usize>();
    claim(path, &mut pickle, tensors, taken, data.start)?;
    let finder = Finder { file, archive, folder, pickle };
    let entries = finder.tensors(tensors, data.start)?;
    Ok((sizes, entries))
}

/// Makes sure that a dictionary has every key once, and that there is room for its keys and `taken` bytes with each.
fn claim(path: &Path, pickle: &mut Pickle<'_>, object: u32, taken: usize, at: usize) -> Result<()> {
    if let Some(key) = pickle.repeated(object) {
        let field = format!("pickle: key \"{}\"", pickle::shown(key));
        return Err(Error::malformed(path, field, at, "a dictionary has it twice"));
    }
    let bytes = pickle.entries(object).map(|(key, _)| taken + pickle.text(key).map_or(0, str::len)).sum();
    pickle.charge(bytes).map_err(|Full| Error::malformed(path, "pickle: dictionary", at, Full::PROBLEM))
}

fn read_sizes(path: &Path, pickle: &mut Pickle<'_>, object: u32, at: usize) -> Result<Vec<(Box<str>, i64)>> {
    claim(path, pickle, object, size_of::<(Box<str>, i64)>(), at)?;
    let size = |(key, value)| match value {
        Value::Int(size) => Some((pickle.text(key)?.into(), size)),
        _ => None,
    };
    Ok(pickle.entries(object).filter_map(size).collect())
}

/// Where the tensors of a pickle lie.
struct Finder<'a> {
    file: &'a MappedFile,
    archive: Archive<'a>,
    /// The folder of all records, with the stroke.
    folder: &'a str,
    pickle: Pickle<'a>,
}

impl Finder<'_> {
    fn tensors(&self, object: u32, at: usize) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(self.pickle.list(object).len() / 2);
        for (name, value) in self.pickle.entries(object) {
            let Some(name) = self.pickle.text(name) else {
                let problem = "a key that is no text";
                return Err(Error::malformed(self.file.path(), "pickle: state dict", at, problem));
            };
            let Value::Tensor(view) = value else {
                let hint = "save the model's state_dict alone";
                let what = format!("\"{name}\", which is no tensor,");
                return Err(Error::unsupported(self.file.path(), what, hint));
            };
            entries.push(self.tensor(name, &self.pickle.views[view as usize])?);
        }
        Ok(entries)
    }

    fn tensor(&self, name: &str, view: &View) -> Result<Entry> {
        let field = format!("tensor \"{name}\"");
        let malformed = |problem: String| Error::malformed(self.file.path(), &field, view.at, problem);
        let numbers = |object: u32, what: &str| -> Result<Box<[usize]>> {
            let list = self.pickle.list(object);
            let number = |value: &Value| match value {
                Value::Int(number) => usize::try_from(*number).ok(),
                _ => None,
            };
            if list.len() > MAX_RANK {
                return Err(malformed(format!("{} dimensions; at most {MAX_RANK} are read", list.len())));
            }
            list.iter()
                .map(number)
                .collect::<Option<_>>()
                .ok_or_else(|| malformed(format!("its {what} are no sizes")))
        };
        let (shape, strides) = (numbers(view.shape, "dimensions")?, numbers(view.strides, "strides")?);
        let count = table::element_count(&shape)
            .ok_or_else(|| malformed("the number of elements does not fit 64 bits".to_owned()))?;
        if count > 0 && !is_row_major(&shape, &strides) {
            let what = format!("the tensor \"{name}\" with strides {strides:?} for {shape:?}");
            let hint = "make it contiguous() and save it again";
            return Err(Error::unsupported(self.file.path(), what, hint));
        }
        let storage = self.pickle.storages[view.storage as usize];
        let record = self.archive.get(&format!("{}data/{}", self.folder, storage.key));
        let record =
            record.ok_or_else(|| malformed(format!("there is no record \"data/{}\"", storage.key)))?;
        let (_, element) = STORAGES[usize::from(storage.kind)];
        let width = element_bytes(element);
        let range = usize::try_from(view.offset)
            .ok()
            .and_then(|offset| offset.checked_mul(width))
            .and_then(|offset| offset.checked_add(record.start))
            .and_then(|start| Some(start..start.checked_add(count.checked_mul(width)?)?))
            .filter(|range| range.end <= record.end)
            .ok_or_else(|| {
                let problem = format!(
                    "{count} values of {element} from {} on do not fit into the {} bytes of \"data/{}\"",
                    view.offset,
                    record.len(),
                    storage.key
                );
                malformed(problem)
            })?;
        let bytes = Span { file: 0, range };
        let stored = match DType::from_name(element) {
            Some(dtype) => Stored::Blocks { dtype, bytes },
            None => Stored::Opaque { dtype: element, bytes },
        };
        Ok(Entry { name: name.into(), shape, stored })
    }
}

/// Whether neighbours along the last dimension are neighbours in memory, and so on; where a dimension is 1, its stride does not
/// count.
fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(&dim, &stride)| {
            let fits = dim == 1 || stride == expected;
            expected *= dim;
            fits
        })
}

fn element_bytes(name: &str) -> usize {
    match name {
        "F64" | "I64" | "C64" => 8,
        "F32" | "I32" => 4,
        "F16" | "BF16" | "I16" => 2,
        _ => 1,
    }
}
