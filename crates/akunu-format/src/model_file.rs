//! Any model file, opened by what it is rather than by what it is called.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::gguf::{self, Gguf};
use crate::torch::{self, TorchCheckpoint};
use crate::whisper_ggml::{self, WhisperGgml};
use crate::{Error, Mapping, Result, Tensor};

/// What the error for anything else recommends.
const EXPECTED: &str = "expected a GGUF file, a directory with config.json and *.safetensors, a .safetensors file, \
                        or a Whisper model in whisper.cpp's format or OpenAI's";

/// An open model of any format this crate reads.
///
/// ```no_run
/// use akunu_format::ModelFile;
///
/// let model = ModelFile::open("model.gguf")?;
/// for tensor in model.tensors() {
///     println!("{:40} {:?} {}", tensor.name, tensor.shape, tensor.dtype_name());
/// }
/// match &model {
///     ModelFile::Gguf(gguf) => println!("{}", gguf.metadata().require::<&str>("general.architecture")?),
///     ModelFile::Checkpoint(checkpoint) => println!("{:?}", checkpoint.companion("tokenizer.json")),
///     ModelFile::WhisperGgml(whisper) => println!("{} mel bands", whisper.hparams().mels),
///     ModelFile::Torch(checkpoint) => println!("{:?} mel bands", checkpoint.size("n_mels")),
/// }
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
pub enum ModelFile {
    /// GGUF, in one file or in shards.
    Gguf(Gguf),
    /// SafeTensors: a Hugging Face or MLX directory, or a single file.
    Checkpoint(Checkpoint),
    /// Whisper in whisper.cpp's own container.
    WhisperGgml(WhisperGgml),
    /// What `torch.save` wrote: OpenAI's Whisper models.
    Torch(TorchCheckpoint),
}

impl ModelFile {
    /// Opens a file or directory, or says what was found instead of a model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(io)?;
        if metadata.is_dir() {
            return Checkpoint::open(path).map(Self::Checkpoint);
        }
        if !metadata.is_file() {
            return Err(Error::unsupported(path, "what is neither a file nor a directory", EXPECTED));
        }
        let mut start = Vec::new();
        File::open(path).map_err(io)?.take(9).read_to_end(&mut start).map_err(io)?;
        if start.starts_with(&gguf::MAGIC) {
            return Gguf::open(path).map(Self::Gguf);
        }
        if whisper_ggml::has_magic(&start) {
            return WhisperGgml::open(path).map(Self::WhisperGgml);
        }
        if start.starts_with(&torch::MAGIC) {
            return TorchCheckpoint::open(path).map(Self::Torch);
        }
        // SafeTensors has no magic: eight bytes of length, then a JSON object.
        let called_safetensors = path.extension().is_some_and(|extension| extension == "safetensors");
        if called_safetensors || start.get(8) == Some(&b'{') {
            return Checkpoint::open(path).map(Self::Checkpoint);
        }
        Err(Error::unsupported(path, describe(&start), EXPECTED))
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(gguf) => gguf.path(),
            Self::Checkpoint(checkpoint) => checkpoint.path(),
            Self::WhisperGgml(whisper) => whisper.path(),
            Self::Torch(checkpoint) => checkpoint.path(),
        }
    }

    /// The format's name, for people.
    pub fn format(&self) -> &'static str {
        match self {
            Self::Gguf(_) => "GGUF",
            Self::Checkpoint(_) => "SafeTensors",
            Self::WhisperGgml(_) => "Whisper GGML",
            Self::Torch(_) => "PyTorch",
        }
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> Box<dyn ExactSizeIterator<Item = Tensor<'_>> + '_> {
        match self {
            Self::Gguf(gguf) => Box::new(gguf.tensors()),
            Self::Checkpoint(checkpoint) => Box::new(checkpoint.tensors()),
            Self::WhisperGgml(whisper) => Box::new(whisper.tensors()),
            Self::Torch(checkpoint) => Box::new(checkpoint.tensors()),
        }
    }

    /// The tensor called `name`, if there is one.
    pub fn get_tensor(&self, name: &str) -> Option<Tensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.get_tensor(name),
            Self::Checkpoint(checkpoint) => checkpoint.get_tensor(name),
            Self::WhisperGgml(whisper) => whisper.get_tensor(name),
            Self::Torch(checkpoint) => checkpoint.get_tensor(name),
        }
    }

    /// The file that holds the blocks of the tensor called `name`, as it is mapped: for those who use the tensor where it lies,
    /// which the bytes of [`Tensor`] say, for longer than this value lives. None where it is not mapped.
    pub fn mapping(&self, name: &str) -> Option<&Mapping> {
        match self {
            Self::Gguf(gguf) => gguf.mapping(name),
            Self::Checkpoint(checkpoint) => checkpoint.mapping(name),
            Self::WhisperGgml(whisper) => whisper.mapping(name),
            Self::Torch(checkpoint) => checkpoint.mapping(name),
        }
    }

    /// Gives the memory that holds a tensor back to the system, for those who have made a copy of their own. The tensor
    /// stays readable; the next touch reads the file again.
    pub fn release_tensor(&self, name: &str) {
        match self {
            Self::Gguf(gguf) => gguf.release_tensor(name),
            Self::Checkpoint(checkpoint) => checkpoint.release_tensor(name),
            Self::WhisperGgml(whisper) => whisper.release_tensor(name),
            Self::Torch(checkpoint) => checkpoint.release_tensor(name),
        }
    }

    /// The tensor called `name`, or an error that says so.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensor(name),
            Self::Checkpoint(checkpoint) => checkpoint.tensor(name),
            Self::WhisperGgml(whisper) => whisper.tensor(name),
            Self::Torch(checkpoint) => checkpoint.tensor(name),
        }
    }
}

/// Says what a file seems to be from its first bytes.
fn describe(start: &[u8]) -> String {
    match start {
        [] => "an empty file".to_owned(),
        [b'P', b'K', ..] => "an empty zip archive".to_owned(),
        [0x80, ..] => "a bare pickle (from PyTorch before 1.6, perhaps: load and save it again)".to_owned(),
        [b't', b'j', b'g', b'g', ..] | [b'f', b'm', b'g', b'g', ..] => {
            "llama.cpp's format from before GGUF".to_owned()
        }
        [b'<', ..] | [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', ..] => {
            format!("a text file (\"{}...\": a web page or an LFS pointer, perhaps)", start.escape_ascii())
        }
        _ => format!("a file that begins with \"{}\"", start.escape_ascii()),
    }
}
