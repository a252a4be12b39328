//! Checkpoints as Hugging Face and MLX keep them: a directory of SafeTensors files with JSON beside them.

mod config;
mod json;
mod quantization;
mod safetensors;
mod weights;

use std::path::{Path, PathBuf};

use crate::mapped::MappedFile;
use crate::table::TensorTable;
use crate::{Error, Result, Tensor};

pub use config::Config;

/// An open checkpoint.
///
/// Weights come from `model.safetensors`, or the shards that `model.safetensors.index.json` lists, or all
/// `model*.safetensors`, or all `*.safetensors` in the directory. Where `config.json` announces MLX's quantisation, each triplet of `X.weight`,
/// `X.scales` and `X.biases` appears as one tensor `X.weight` with [`Data::Affine`](crate::Data::Affine).
#[derive(Debug)]
pub struct Checkpoint {
    /// The path that was opened.
    path: PathBuf,
    /// Where the files lie.
    directory: PathBuf,
    config: Option<Config>,
    generation_config: Option<Config>,
    table: TensorTable,
}

impl Checkpoint {
    /// Opens a directory, which must have a `config.json`, or a single `.safetensors` file, which may have one beside
    /// it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.is_dir() {
            let directory = path.parent().unwrap_or(Path::new("")).to_owned();
            let file = MappedFile::open(path)?;
            let mut tensors = Vec::new();
            safetensors::read(&file, 0, &mut tensors)?;
            sort(&mut tensors, std::slice::from_ref(&file))?;
            return Self::new(path, directory, vec![file], tensors);
        }
        if !path.join("config.json").is_file() {
            return Err(Error::unsupported(
                path,
                "a directory without config.json",
                format!("it holds {}", weights::describe(path)),
            ));
        }
        let weights = weights::find(path)?;
        let mut files = Vec::with_capacity(weights.paths.len());
        let mut tensors = Vec::new();
        for path in &weights.paths {
            let file = MappedFile::open(path)?;
            safetensors::read(&file, files.len(), &mut tensors)?;
            files.push(file);
        }
        sort(&mut tensors, &files)?;
        weights.check_index(path, &files, &tensors)?;
        Self::new(path, path.to_owned(), files, tensors)
    }

    /// Reads one SafeTensors file, and a `config.json` for it, that are in memory already.
    pub fn from_bytes(weights: Vec<u8>, config: Option<Config>) -> Result<Self> {
        let file = MappedFile::from_bytes(PathBuf::from("(in memory)"), weights);
        let mut tensors = Vec::new();
        safetensors::read(&file, 0, &mut tensors)?;
        sort(&mut tensors, std::slice::from_ref(&file))?;
        let entries = quantization::assemble(config.as_ref(), std::slice::from_ref(&file), tensors)?;
        let path = file.path().to_owned();
        let table = TensorTable::new(vec![file], entries)?;
        Ok(Self { path, directory: PathBuf::new(), config, generation_config: None, table })
    }

    fn new(
        path: &Path,
        directory: PathBuf,
        files: Vec<MappedFile>,
        tensors: Vec<safetensors::RawTensor>,
    ) -> Result<Self> {
        let read_config = |name: &str| {
            let path = directory.join(name);
            path.is_file().then(|| Config::open(&path)).transpose()
        };
        let config = read_config("config.json")?;
        let generation_config = read_config("generation_config.json")?;
        let entries = quantization::assemble(config.as_ref(), &files, tensors)?;
        let table = TensorTable::new(files, entries)?;
        Ok(Self { path: path.to_owned(), directory, config, generation_config, table })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold the weights.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.table.files().iter().map(MappedFile::path)
    }

    /// `config.json`; a directory always has one.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// `generation_config.json`.
    pub fn generation_config(&self) -> Option<&Config> {
        self.generation_config.as_ref()
    }

    /// The path of another file of the checkpoint, such as `tokenizer.json`, if it is there.
    pub fn companion(&self, name: &str) -> Option<PathBuf> {
        let path = self.directory.join(name);
        path.is_file().then_some(path)
    }

    /// All tensors, in file order.
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
        self.table.require(name, &self.path)
    }
}

/// Sorts tensors by name; no two may share one.
fn sort(tensors: &mut [safetensors::RawTensor], files: &[MappedFile]) -> Result<()> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    match tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some([_, repeated]) => Err(Error::malformed(
            files[repeated.file].path(),
            format_args!("tensor \"{}\"", repeated.name),
            repeated.described_at,
            "another tensor has the same name",
        )),
        _ => Ok(()),
    }
}
