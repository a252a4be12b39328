//! Converting whole models to GGUF with other dtypes: GGUF files, Hugging Face directories, and Whisper models of every format, which
//! may also go to whisper.cpp's container.
//!
//! A [`Recipe`] decides which tensor becomes which dtype, the same as llama.cpp's quantiser would choose. Tensors are
//! read, converted and written one after the other in pieces, by several threads, so that memory holds a few pieces and
//! never a model. The file appears under its name when it is complete.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use akunu::quantize::{Options, Recipe, quantize};
//! use akunu_format::gguf::{Gguf, Writer};
//! use akunu_format::{DType, Data};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let (input, output) = (folder.path().join("tiny.gguf"), folder.path().join("tiny-q8.gguf"));
//! let mut writer = Writer::new();
//! writer.metadata("general.architecture", "llama")?;
//! writer.tensor("blk.0.attn_q.weight", DType::F32, &[2, 32])?;
//! let mut tensors = writer.create(&input)?;
//! tensors.append("blk.0.attn_q.weight", &[0; 256])?;
//! tensors.finish()?;
//!
//! let report = quantize(&input, &output, &Options::new(Recipe::Q8_0), &mut |progress| {
//!     eprintln!("{} {}/{}", progress.tensor, progress.done, progress.total);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(report.tensors[0].to, DType::Q8_0);
//! assert_eq!((report.bytes_before, report.bytes_after), (256, 68));
//!
//! let tensor_dtype = |tensor: &akunu_format::Tensor| match tensor.data {
//!     Data::Blocks { dtype, .. } => dtype,
//!     _ => unreachable!(),
//! };
//! assert_eq!(tensor_dtype(&Gguf::open(&output)?.tensor("blk.0.attn_q.weight")?), DType::Q8_0);
//! # Ok::<(), akunu::Error>(())
//! ```

mod convert;
mod huggingface;
mod plan;
mod recipe;
mod rules;
mod source;
mod whisper;

use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;

use akunu_format::gguf::{Gguf, Metadata, TensorWriter, Writer};
use akunu_format::whisper_ggml;
use akunu_format::{DType, ModelFile, Support};
use akunu_program::arch::SpeechArchitecture;

use self::plan::Facts;
pub use self::plan::Planned;
pub use self::recipe::Recipe;
use self::source::Source;
use crate::{Error, Result};

/// The revision of the block formats, which files state as `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

/// Metadata that the converted file has its own of, or none.
const REPLACED: [&str; 5] =
    ["general.quantization_version", "general.file_type", "split.no", "split.count", "split.tensors.count"];

/// How to convert.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to convert to.
    pub recipe: Recipe,
    /// Whether tensors that are quantised already may be quantised again, which loses quality twice.
    pub allow_requantize: bool,
    /// How many threads convert; as many as the machine runs at once by default.
    pub threads: NonZero<usize>,
}

impl Options {
    /// Converts by `recipe`; the rest is as usual.
    pub fn new(recipe: Recipe) -> Self {
        let threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self { recipe, allow_requantize: false, threads }
    }
}

/// How far a conversion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The tensor at work.
    pub tensor: &'a str,
    /// What it becomes.
    pub to: DType,
    /// Which of the tensors it is, from 0.
    pub index: usize,
    /// How many tensors there are.
    pub count: usize,
    /// Bytes of tensors read so far.
    pub done: u64,
    /// Bytes of tensors in all.
    pub total: u64,
}

/// What a conversion did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What became of every tensor, in the order of the new file.
    pub tensors: Vec<Planned>,
    /// Bytes of tensors before.
    pub bytes_before: u64,
    /// Bytes of tensors after.
    pub bytes_after: u64,
    /// What the new file lacks, for people: a vocabulary that was not there, the vision part of a model.
    pub notes: Vec<String>,
}

/// What a conversion would make of every tensor, in the order of the new file: tensors of no layer first, then layer by
/// layer, by name within.
pub fn plan(file: &ModelFile, recipe: Recipe) -> Result<Vec<Planned>> {
    Input::read(file, None)?.planned(recipe)
}

/// Converts the model at `input` by a recipe and writes it to `output` as one GGUF file. A Whisper model goes to whisper.cpp's
/// container if the name of `output` ends in `.bin`.
///
/// A GGUF file keeps its metadata, save for what states the dtypes; a Hugging Face directory's settings, vocabulary and
/// chat template become metadata. `watch` hears how it goes, a few times a second at least, and may stop it; then, as
/// after any error, `output` is what it was before.
pub fn quantize(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &Options,
    watch: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Report> {
    let output = output.as_ref();
    let file = ModelFile::open(input)?;
    let is_speech = SpeechArchitecture::is_in(&file);
    let container = (is_speech && whisper::is_container(output)).then_some(options.recipe);
    let mut input = Input::read(&file, container)?;
    if let Some(same) = input.files.iter().find(|file| is_same_file(file, output)) {
        return Err(Error::Usage {
            problem: format!("{} is both input and output", same.display()),
            hint: "give the output another name".to_owned(),
        });
    }
    let tensors = input.planned(options.recipe)?;
    check(file.path(), &tensors, options)?;

    let mut header = input.header;
    if let Header::Gguf(writer) = &mut header {
        writer.metadata("general.quantization_version", &QUANTIZATION_VERSION)?;
        writer.metadata("general.file_type", &options.recipe.file_type())?;
    }
    let mut bytes_after = 0;
    for (tensor, source) in tensors.iter().zip(&input.sources) {
        header.tensor(tensor)?;
        bytes_after += (source.rows() * tensor.to.row_bytes(source.row_len())?) as u64;
    }
    let bytes_before = input.sources.iter().map(|source| source.byte_len() as u64).sum();
    let out = header.create(output)?;
    convert::write(file.path(), &input.sources, &tensors, options.threads, out, watch)?;
    Ok(Report { tensors, bytes_before, bytes_after, notes: input.notes })
}

/// A model that is to be converted.
struct Input<'a> {
    files: Vec<PathBuf>,
    plan: Plan,
    sources: Vec<Source<'a>>,
    /// The new file's, without its tensors.
    header: Header,
    notes: Vec<String>,
}

/// How it is decided what tensors become.
enum Plan {
    /// As llama.cpp does.
    Text(Facts),
    /// As whisper.cpp does.
    Speech {
        /// Whether all matrices must have the same dtype.
        same: bool,
    },
}

/// A file that is to be written.
enum Header {
    Gguf(Writer),
    WhisperGgml(whisper_ggml::Writer),
}

impl Header {
    fn tensor(&mut self, Planned { name, to, shape, .. }: &Planned) -> Result<()> {
        match self {
            Self::Gguf(writer) => writer.tensor(name, *to, shape).map(drop)?,
            Self::WhisperGgml(writer) => writer.tensor(name, *to, shape).map(drop)?,
        }
        Ok(())
    }

    fn create(self, output: &Path) -> Result<TensorWriter> {
        Ok(match self {
            Self::Gguf(writer) => writer.create(output)?,
            Self::WhisperGgml(writer) => writer.create(output)?,
        })
    }
}

impl<'a> Input<'a> {
    /// `container` is the recipe for whisper.cpp's container, where the new file is to be one.
    fn read(file: &'a ModelFile, container: Option<Recipe>) -> Result<Self> {
        match file {
            _ if SpeechArchitecture::is_in(file) => whisper::read(file, container),
            ModelFile::Gguf(gguf) => Self::of_gguf(gguf),
            ModelFile::Checkpoint(checkpoint) => huggingface::read(file, checkpoint),
            ModelFile::WhisperGgml(_) | ModelFile::Torch(_) => {
                Err(Error::Format(akunu_format::Error::Unsupported {
                    path: file.path().to_owned(),
                    what: format!("converting from {}", file.format()),
                    hint: Some("give a GGUF file or a Hugging Face directory".to_owned()),
                }))
            }
        }
    }

    /// Puts the tensors into the order of the new file, and decides for each.
    fn planned(&mut self, recipe: Recipe) -> Result<Vec<Planned>> {
        match &self.plan {
            Plan::Text(facts) => Ok(plan::plan(recipe, facts, &mut self.sources)),
            Plan::Speech { same } => whisper::plan(recipe, &self.sources, *same),
        }
    }

    fn of_gguf(gguf: &'a Gguf) -> Result<Self> {
        let mut header = Writer::new();
        copy_metadata(&gguf.metadata(), &mut header)?;
        Ok(Self {
            files: gguf.files().map(Path::to_owned).collect(),
            plan: Plan::Text(Facts::of_gguf(&gguf.metadata(), gguf.tensors().map(|tensor| tensor.name))?),
            sources: gguf.tensors().map(|tensor| Source::stored(tensor.name, tensor)).collect(),
            header: Header::Gguf(header),
            notes: Vec::new(),
        })
    }
}

fn copy_metadata(metadata: &Metadata<'_>, header: &mut Writer) -> Result<()> {
    for (key, value) in metadata.iter().filter(|(key, _)| !REPLACED.contains(key)) {
        header.metadata_value(key, value)?;
    }
    Ok(())
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Refuses what cannot be converted before anything is written.
fn check(path: &Path, tensors: &[Planned], options: &Options) -> Result<()> {
    for tensor in tensors.iter().filter(|tensor| !tensor.is_copied()) {
        let from = DType::from_name(&tensor.from);
        if from.is_some_and(|from| from.support() < Support::Read) {
            return Err(Error::Usage {
                problem: format!(
                    "{}: tensor \"{}\" is {} and cannot become {}",
                    path.display(),
                    tensor.name,
                    tensor.from,
                    tensor.to
                ),
                hint: format!("{} values can be copied, not converted", tensor.from),
            });
        }
        if !options.allow_requantize && from.is_none_or(DType::is_quantized) {
            return Err(Error::Usage {
                problem: format!(
                    "{}: tensor \"{}\" is quantised already ({})",
                    path.display(),
                    tensor.name,
                    tensor.from
                ),
                hint: "start from F32, F16 or BF16, or allow requantising (--allow-requantize), which loses quality \
                       twice"
                    .to_owned(),
            });
        }
    }
    Ok(())
}
