//! Texts as vectors.
//!
//! An [`Embedder`] runs a model's program up to its last hidden states, several texts at a time, and makes one vector of
//! each text's states. Encoders (BERT and its kin) see a text whole; models made to write text embed too, a piece of the
//! context at a time. A [`Ranker`] runs two texts together, and gives a number that says how well they go together.

pub(crate) mod pooling;
mod rank;

pub use pooling::Pooling;
pub use rank::{Ranker, is_ranker};

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use akunu_format::ModelFile;
use akunu_program::arch::{Architecture, Names};
use akunu_program::program::{GroupId, Mask, Program, SECOND};
use akunu_program::{
    BLOCK, Backend, Batch, Executable, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span, StopFlag,
    TensorSource, Weights, Work, build_hidden, refuse_extra,
};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenId};

use crate::backends::backend;
use crate::model::choose_context;
use crate::{Error, Model, Result, text};

use pooling::Advice;

/// Most tokens of a text when the model does not say, if it has as much.
const DEFAULT_CONTEXT: usize = 4096;
/// Most texts in one run.
const TEXTS: usize = 64;

/// How an embedder is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedOptions {
    /// The backend's name; `auto` leaves the choice to akunu.
    pub backend: String,
    /// Threads, for backends that run on the CPU; by default all cores.
    pub threads: Option<usize>,
    /// Most tokens of a text; by default what the model's makers say, at most 4096.
    pub context: Option<usize>,
    /// Most tokens that are fed at once, unless a text must be seen whole.
    pub batch: usize,
    /// How states become one vector; by default what the model's makers say, otherwise their mean.
    pub pooling: Option<Pooling>,
}

impl Default for EmbedOptions {
    fn default() -> EmbedOptions {
        EmbedOptions { backend: "auto".to_owned(), threads: None, context: None, batch: 512, pooling: None }
    }
}

/// What happens to a text with more tokens than the model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// It is an error.
    #[default]
    Refuse,
    /// Its end is left out.
    Cut,
}

/// What is wanted of the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Numbers to keep of each; all when absent. Only some models are trained for this.
    pub dimensions: Option<usize>,
    /// Whether they are scaled to length 1.
    pub normalize: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { dimensions: None, normalize: true }
    }
}

/// A model that is ready to embed.
///
/// ```no_run
/// use akunu::embed::{Embedder, EmbedOptions, Shape, TooLong};
///
/// let embedder = Embedder::load("all-MiniLM-L6-v2", &EmbedOptions::default())?;
/// let texts = ["Where is the station?", "How do I get to the train?"];
/// let tokens = texts.map(|text| embedder.tokens(text, TooLong::Refuse));
/// let tokens = tokens.into_iter().collect::<akunu::Result<Vec<_>>>()?;
/// let vectors = embedder.embed(&tokens, Shape::default())?;
/// let likeness: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
/// # Ok::<(), akunu::Error>(())
/// ```
pub struct Embedder {
    path: PathBuf,
    backend: &'static str,
    tokenizer: Option<Tokenizer>,
    pooling: Pooling,
    context: usize,
    dimensions: usize,
    vocabulary: usize,
    /// Whether tokens may be marked as those of a second text.
    pairs: bool,
    groups: u32,
    /// Most rows of a run.
    rows: usize,
    engine: Mutex<Engine>,
}

struct Engine {
    executable: Box<dyn Executable>,
    out: Outputs,
}

/// A program that ends with a model's states, and what it runs on.
pub(crate) struct States {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) program: Program,
    pub(crate) weights: Arc<dyn Weights>,
    /// None where the makers ask for what cannot be done.
    pub(crate) advice: Option<Advice>,
}

/// What makes a model's program.
type Build = fn(&Architecture, &Names, &dyn TensorSource, usize) -> akunu_program::Result<Program>;

/// Whether a model was made to read texts and cannot write any.
pub fn is_encoder(file: &ModelFile) -> Result<bool> {
    Ok(Architecture::of(file).map_err(Error::model(file.path()))?.0.mask == Mask::Full)
}

impl Embedder {
    /// Loads the model at `path`.
    pub fn load(path: impl AsRef<Path>, options: &EmbedOptions) -> Result<Embedder> {
        Embedder::from_file(&ModelFile::open(path)?, options)
    }

    /// Loads a model from an open file.
    pub fn from_file(file: &ModelFile, options: &EmbedOptions) -> Result<Embedder> {
        Embedder::open(file, options, pooling::advice(file)?, build_hidden, false)
    }

    /// Loads a model for a program that may end with something else than its states, and in which, with `pairs`, tokens may be
    /// marked as those of a second text, if it tells them apart.
    fn open(
        file: &ModelFile,
        options: &EmbedOptions,
        advice: Advice,
        build: Build,
        pairs: bool,
    ) -> Result<Embedder> {
        let wrong = Error::model(file.path());
        let (architecture, names) = Architecture::of(file).map_err(&wrong)?;
        let advised = advice.context.unwrap_or(DEFAULT_CONTEXT).min(architecture.context);
        let context = choose_context(options.context.or(Some(advised)), &architecture)?;
        let backend = backend(&options.backend, options.threads)?;
        let program = build(&architecture, &names, file, context).map_err(&wrong)?;
        // What turns states into logits has no use here.
        let output = names.global("output") + ".weight";
        let tensors = file.tensors().map(|tensor| tensor.name).filter(|&name| name != output);
        refuse_extra(&program, &architecture, &names, tensors).map_err(&wrong)?;
        let weights = backend.load(file, &program.weights).map_err(&wrong)?;
        let whole = architecture.mask == Mask::Full;
        let pairs = pairs && program.has_segments();
        let states = States { backend, program, weights, advice: Some(advice) };
        let tokenizer = text::tokenizer(file)?;
        let embedder = Embedder::new(&states, advice, file.path(), tokenizer, context, whole, options)?;
        Ok(Embedder { pairs, ..embedder })
    }

    /// An embedder of the weights that a model has in memory already; only its cache is its own. It runs where the model runs,
    /// whatever backend and threads the options name, and takes no longer texts than the model.
    ///
    /// ```no_run
    /// use akunu::embed::{EmbedOptions, Embedder};
    ///
    /// let model = akunu::Model::load("model.gguf", &akunu::Options::default())?;
    /// let embedder = Embedder::of(&model, &EmbedOptions::default())?;
    /// # Ok::<(), akunu::Error>(())
    /// ```
    pub fn of(model: &Model, options: &EmbedOptions) -> Result<Embedder> {
        let states = &model.0.states;
        let advice = match states.advice {
            Some(advice) => advice,
            // Which says why.
            None => pooling::advice(&ModelFile::open(model.path())?)?,
        };
        let most = advice.context.unwrap_or(DEFAULT_CONTEXT).min(model.context());
        let context = match options.context {
            None => most,
            Some(asked) if (1..=model.context()).contains(&asked) => asked,
            Some(asked) => {
                return Err(Error::Usage {
                    problem: format!(
                        "a context of {asked}, of a model that was loaded with {}",
                        model.context()
                    ),
                    hint: format!("ask for 1 to {}", model.context()),
                });
            }
        };
        let whole = model.architecture().mask == Mask::Full;
        Embedder::new(states, advice, model.path(), model.tokenizer().ok().cloned(), context, whole, options)
    }

    /// `whole` says that a text must be seen at once.
    fn new(
        states: &States,
        advice: Advice,
        path: &Path,
        tokenizer: Option<Tokenizer>,
        context: usize,
        whole: bool,
        options: &EmbedOptions,
    ) -> Result<Embedder> {
        let States { backend, program, weights, .. } = states;
        let batch = options.batch.clamp(1, u32::MAX as usize);
        let rows = if whole { batch.max(context) } else { batch };
        let blocks = (rows / BLOCK + TEXTS).max(context.div_ceil(BLOCK)) as u32;
        let kv = backend.kv(&program.groups, &vec![blocks; program.groups.len()], KvType::F16)?;
        let limits =
            Limits { slots: TEXTS as u32, rows: rows as u32, outputs: rows as u32, context: context as u32 };
        let executable = backend.compile(program, Arc::clone(weights), kv, &limits)?;
        Ok(Embedder {
            path: path.to_owned(),
            backend: backend.name(),
            tokenizer,
            pooling: options.pooling.or(advice.pooling).unwrap_or(Pooling::Mean),
            context,
            dimensions: program.value(program.logits).width,
            vocabulary: program.token_count(),
            pairs: false,
            groups: program.groups.len() as u32,
            rows,
            engine: Mutex::new(Engine { executable, out: Outputs::default() }),
        })
    }

    /// Where the model came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the backend that runs the model.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// Most tokens of a text.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Numbers of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How states become one vector.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The tokens of a text, with those the model puts around it. Nothing in the text is special.
    pub fn tokens(&self, text: &str, too_long: TooLong) -> Result<Vec<TokenId>> {
        let tokenizer = self.tokenizer.as_ref().ok_or_else(|| text::no_vocabulary(&self.path))?;
        let encode = |text: &str| tokenizer.encode(text, Special::Plain, AddSpecial::Yes);
        let mut tokens = encode(text);
        if tokens.len() > self.context && too_long == TooLong::Cut {
            let around = encode("");
            let before = around.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let after = &around[before..];
            tokens.truncate(self.context.saturating_sub(after.len()));
            tokens.extend_from_slice(after);
        }
        self.check(&tokens)?;
        Ok(tokens)
    }

    /// One vector for each text, given as tokens.
    pub fn embed(&self, texts: &[Vec<TokenId>], shape: Shape) -> Result<Vec<Vec<f32>>> {
        if let Some(asked) = shape.dimensions.filter(|&n| n == 0 || n > self.dimensions) {
            return Err(Error::Usage {
                problem: format!("{asked} dimensions of vectors that have {}", self.dimensions),
                hint: format!("ask for 1 to {}", self.dimensions),
            });
        }
        texts.iter().try_for_each(|tokens| self.check(tokens))?;
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors = Vec::with_capacity(texts.len());
        while let Some(left) = texts.get(vectors.len()..).filter(|left| !left.is_empty()) {
            let mut rows = 0;
            let fits = left.iter().take(TEXTS).take_while(|tokens| {
                rows += tokens.len();
                rows <= self.rows
            });
            match fits.count() {
                0 => vectors.push(self.embed_long(&mut engine, &left[0])?),
                count => self.embed_together(&mut engine, &left[..count], &mut vectors)?,
            }
        }
        vectors.iter_mut().for_each(|vector| pooling::finish(vector, shape));
        Ok(vectors)
    }

    /// Whether a text's tokens can be embedded.
    pub fn check(&self, tokens: &[TokenId]) -> Result<()> {
        let problem = if tokens.is_empty() {
            "a text without tokens has no embedding".to_owned()
        } else if tokens.len() > self.context {
            return Err(Error::TooLong { tokens: tokens.len(), context: self.context });
        } else if let Some(&id) = tokens.iter().find(|&&id| self.number(id) >= self.vocabulary) {
            format!("token {} is not in the vocabulary of {}", self.number(id), self.vocabulary)
        } else {
            return Ok(());
        };
        Err(Error::Usage { problem, hint: "give texts, or ids the model's tokenizer makes".to_owned() })
    }

    /// A token's number in the vocabulary.
    fn number(&self, token: TokenId) -> usize {
        (if self.pairs { token & !SECOND } else { token }) as usize
    }

    /// Embeds texts that fit into one run.
    fn embed_together(
        &self,
        engine: &mut Engine,
        texts: &[Vec<TokenId>],
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<()> {
        let mut blocks = 0;
        let tables: Vec<Vec<u32>> = texts
            .iter()
            .map(|tokens| {
                let first = blocks;
                blocks += tokens.len().div_ceil(BLOCK) as u32;
                (first..blocks).collect()
            })
            .collect();
        let mut outputs = Vec::new();
        let mut first = 0;
        for tokens in texts {
            let wanted = self.pooling.rows(tokens.len());
            outputs.extend((first + wanted.start..first + wanted.end).map(|row| row as u32));
            first += tokens.len();
        }
        let span = |(slot, tokens): (usize, &Vec<TokenId>)| Span {
            slot: SlotId(slot as u32),
            start: 0,
            rows: tokens.len() as u32,
            phase: Phase::Prompt,
        };
        let spans: Vec<Span> = texts.iter().enumerate().map(span).collect();
        let tokens: Vec<u32> = texts.iter().flatten().copied().collect();
        self.run(engine, &tables, &spans, &tokens, &outputs)?;
        let mut states = engine.out.logits.chunks_exact(self.dimensions);
        for tokens in texts {
            let count = self.pooling.rows(tokens.len()).len();
            let mut sum = vec![0.0; self.dimensions];
            states.by_ref().take(count).for_each(|state| pooling::add(&mut sum, state));
            vectors.push(pooling::mean(&sum, count));
        }
        Ok(())
    }

    /// Embeds one text of more rows than a run has, piece by piece; only models that see no further than a row let this be.
    fn embed_long(&self, engine: &mut Engine, tokens: &[TokenId]) -> Result<Vec<f32>> {
        let table: Vec<u32> = (0..tokens.len().div_ceil(BLOCK) as u32).collect();
        let wanted = self.pooling.rows(tokens.len());
        let mut sum = vec![0.0; self.dimensions];
        for (i, piece) in tokens.chunks(self.rows).enumerate() {
            let start = i * self.rows;
            let outputs: Vec<u32> = (0..piece.len())
                .filter(|row| wanted.contains(&(start + row)))
                .map(|row| row as u32)
                .collect();
            let span =
                Span { slot: SlotId(0), start: start as u32, rows: piece.len() as u32, phase: Phase::Prompt };
            self.run(engine, std::slice::from_ref(&table), &[span], piece, &outputs)?;
            for state in engine.out.logits.chunks_exact(self.dimensions) {
                pooling::add(&mut sum, state);
            }
        }
        Ok(pooling::mean(&sum, wanted.len()))
    }

    /// Runs a batch whose slots hold these blocks, in every group alike.
    fn run(
        &self,
        engine: &mut Engine,
        tables: &[Vec<u32>],
        spans: &[Span],
        tokens: &[u32],
        outputs: &[u32],
    ) -> Result<()> {
        let edits: Vec<SlotEdit<'_>> = (0..self.groups)
            .flat_map(|group| {
                tables.iter().enumerate().map(move |(slot, blocks)| SlotEdit::Blocks {
                    slot: SlotId(slot as u32),
                    group: GroupId(group),
                    first: 0,
                    blocks,
                })
            })
            .collect();
        let batch = Batch { edits: &edits, spans, tokens, outputs, ..Batch::default() };
        Ok(engine.executable.run(&batch, Work::Forward, &StopFlag::default(), &mut engine.out)?)
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder")
            .field("path", &self.path)
            .field("backend", &self.backend)
            .field("pooling", &self.pooling)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
