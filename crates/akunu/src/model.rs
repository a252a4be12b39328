//! A model that is ready to run.

use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use akunu_format::{Mapping, ModelFile, Tensor};
use akunu_program::arch::Architecture;
use akunu_program::program::KvGroup;
use akunu_program::rope::Scaling;
use akunu_program::select::Sampling;
use akunu_program::{Executable, KvType, Limits, SlotId, TensorSource, build, build_hidden, refuse_extra};
use akunu_text::Tokenizer;
use akunu_text::chat::ChatTemplates;

use crate::backends::backend;
use crate::constraint::{Compiler, Constraint, Matcher};
use crate::embed::{States, pooling};
use crate::kv::Pools;
use crate::sequence::Sequence;
use crate::{Error, Result, text};

/// The context when none is asked for, if the model has as much.
const DEFAULT_CONTEXT: usize = 4096;

/// How a model is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The backend's name; `auto` leaves the choice to akunu.
    pub backend: String,
    /// Positions of one sequence; by default what the model was made for, at most 4096.
    pub context: Option<usize>,
    /// Threads, for backends that run on the CPU; by default all cores.
    pub threads: Option<usize>,
    /// Sequences that can exist at the same time. Each gets cache for a whole context.
    pub sequences: usize,
    /// Most tokens that are fed at once.
    pub batch: usize,
    /// Most rows of logits that are computed at once: drafts that are verified together, or [`Sequence::logits`].
    pub outputs: usize,
    /// How keys and values are kept.
    pub kv: KvType,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backend: "auto".to_owned(),
            context: None,
            threads: None,
            sequences: 1,
            batch: 512,
            outputs: 16,
            kv: KvType::F16,
        }
    }
}

/// A model that is ready to run. Clones share everything.
#[derive(Clone)]
pub struct Model(pub(crate) Arc<Inner>);

/// What clones of a model share.
pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) architecture: Architecture,
    /// Positions of one sequence.
    pub(crate) context: usize,
    pub(crate) vocabulary: usize,
    pub(crate) groups: Vec<KvGroup>,
    /// The names of the weights, as the program numbers them.
    pub(crate) weights: Vec<String>,
    tokenizer: Option<Tokenizer>,
    templates: ChatTemplates,
    sampling: Option<Sampling>,
    sequences: usize,
    pub(crate) outputs: usize,
    /// `0..batch`: the numbers of a batch's rows.
    pub(crate) rows: Vec<u32>,
    constraints: Compiler,
    /// What an embedder of the same weights is made of.
    pub(crate) states: States,
    engine: Mutex<Engine>,
}

/// What one run at a time may use.
pub(crate) struct Engine {
    pub(crate) executable: Box<dyn Executable>,
    pub(crate) pools: Pools,
    pub(crate) free_slots: Vec<SlotId>,
}

impl Model {
    /// Loads the model at `path`. The file must not be changed or cut short while the model is in use: parts of it may be used where
    /// they lie.
    pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<Model> {
        Model::from_file(&ModelFile::open(path)?, options)
    }

    /// Loads a model from an open file.
    pub fn from_file(file: &ModelFile, options: &Options) -> Result<Model> {
        Model::watched(file, options, &mut |_, _| ())
    }

    /// Loads a model from an open file, and says how many bytes of its weights are made, of how many: what the backend makes of
    /// them, which need not be the size of the file. Where it makes nothing, because it uses the file in place, nothing is said.
    ///
    /// ```
    /// use akunu::{Model, Options};
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures/tiny/llama/model.gguf");
    /// let file = akunu_format::ModelFile::open(path)?;
    /// let mut last = 0.0;
    /// Model::watched(&file, &Options::default(), &mut |done, total| last = done as f64 / total as f64)?;
    /// assert_eq!(last, 1.0);
    /// # Ok::<(), akunu::Error>(())
    /// ```
    pub fn watched(file: &ModelFile, options: &Options, watch: &mut dyn FnMut(u64, u64)) -> Result<Model> {
        options.check()?;
        let (architecture, names) = Architecture::of(file).map_err(Error::model(file.path()))?;
        let context = choose_context(options.context, &architecture)?;
        let batch = options.batch.min(context);
        let backend = backend(&options.backend, options.threads)?;
        let wrong = Error::model(file.path());
        let program = build(&architecture, &names, file, context).map_err(&wrong)?;
        refuse_extra(&program, &architecture, &names, file.tensors().map(|tensor| tensor.name))
            .map_err(&wrong)?;
        let ended = AtomicBool::new(false);
        let watched = Watched { file, watch: RefCell::new(watch), ended: &ended };
        let tokenizer = || {
            // Of a panic, too, nobody should have to wait for the weights to hear.
            let tokenizer = catch_unwind(AssertUnwindSafe(|| text::tokenizer(file)));
            ended.store(!matches!(tokenizer, Ok(Ok(_))), Ordering::Relaxed);
            tokenizer.unwrap_or_else(|panic| resume_unwind(panic))
        };
        let weights = || backend.load(&watched, &program.weights);
        // Both take a while. Where there is no other thread, one comes first.
        let (tokenizer, weights) =
            thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, tokenizer) {
                Ok(beside) => {
                    let weights = weights();
                    (beside.join().unwrap_or_else(|panic| resume_unwind(panic)), weights)
                }
                Err(_) => (tokenizer(), weights()),
            });
        let (tokenizer, weights) = (tokenizer?, weights.map_err(&wrong)?);
        // The beginning of the other program, which numbers the weights alike.
        let hidden = build_hidden(&architecture, &names, file, context).map_err(&wrong)?;
        let sizes = Pools::sizes(&program.groups, options.sequences, context, batch);
        let kv = backend.kv(&program.groups, &sizes, options.kv)?;
        let outputs = options.outputs.min(batch);
        let limits = Limits {
            slots: options.sequences as u32,
            rows: batch as u32,
            outputs: outputs as u32,
            context: context as u32,
        };
        let executable = backend.compile(&program, Arc::clone(&weights), kv, &limits)?;
        let free_slots = (0..limits.slots).rev().map(SlotId).collect();
        Ok(Model(Arc::new(Inner {
            path: file.path().to_owned(),
            architecture,
            context,
            vocabulary: program.value(program.logits).width,
            groups: program.groups,
            weights: program.weights.into_iter().map(|weight| weight.name).collect(),
            tokenizer,
            templates: text::templates(file)?,
            sampling: text::sampling(file)?,
            sequences: options.sequences,
            outputs,
            rows: (0..limits.rows).collect(),
            constraints: Compiler::new(),
            states: States { backend, program: hidden, weights, advice: pooling::advice(file).ok() },
            engine: Mutex::new(Engine { executable, pools: Pools::new(&sizes), free_slots }),
        })))
    }

    /// A new, empty sequence.
    pub fn sequence(&self) -> Result<Sequence> {
        Sequence::new(self)
    }

    /// Where the model came from.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What the model is made of.
    pub fn architecture(&self) -> &Architecture {
        &self.0.architecture
    }

    /// The name of the backend that runs the model.
    pub fn backend(&self) -> &'static str {
        self.0.states.backend.name()
    }

    /// Positions of one sequence.
    pub fn context(&self) -> usize {
        self.0.context
    }

    /// Tokens the model can choose from.
    pub fn vocabulary(&self) -> usize {
        self.0.vocabulary
    }

    /// Most tokens that are fed at once.
    pub fn batch(&self) -> usize {
        self.0.rows.len()
    }

    /// Most rows of logits that are computed at once.
    pub fn outputs(&self) -> usize {
        self.0.outputs
    }

    /// The tokenizer; an error for a model without a vocabulary.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.0.tokenizer.as_ref().ok_or_else(|| text::no_vocabulary(&self.0.path))
    }

    /// Whether a matcher for a constraint is at hand: it was made before, and need not be compiled.
    pub fn has_compiled(&self, constraint: &Constraint) -> bool {
        self.0.constraints.has(constraint)
    }

    /// Compiles a constraint against the model's vocabulary, or takes it from those that were, and gives a matcher at the
    /// beginning of a text.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher> {
        self.0.constraints.matcher(constraint, self.tokenizer()?)
    }

    /// The chat templates; empty for a model that was not made for conversations.
    pub fn templates(&self) -> &ChatTemplates {
        &self.0.templates
    }

    /// How the model's makers sample from it, where they say.
    pub fn recommended_sampling(&self) -> Option<&Sampling> {
        self.0.sampling.as_ref()
    }

    /// How conversations are sampled: as the model's makers say, otherwise as suits most.
    pub fn chat_sampling(&self) -> Sampling {
        self.recommended_sampling().cloned().unwrap_or(Sampling {
            temperature: 0.7,
            top_p: 0.95,
            min_p: 0.05,
            ..Sampling::GREEDY
        })
    }

    /// Sequences that can exist at the same time.
    pub fn sequences(&self) -> usize {
        self.0.sequences
    }

    /// The executable and the cache's accounts.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.lock()
    }
}

/// A file whose loading is watched.
struct Watched<'a> {
    file: &'a ModelFile,
    watch: RefCell<&'a mut dyn FnMut(u64, u64)>,
    /// Whether there is no use for the weights any more.
    ended: &'a AtomicBool,
}

impl TensorSource for Watched<'_> {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        self.file.find(name)
    }

    fn mapping(&self, name: &str) -> Option<&Mapping> {
        TensorSource::mapping(self.file, name)
    }

    fn release(&self, name: &str) {
        self.file.release(name);
    }

    fn loaded(&self, done: u64, total: u64) -> ControlFlow<()> {
        (self.watch.borrow_mut())(done, total);
        if self.ended.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Inner {
    /// The executable and the cache's accounts.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        // Every change to the accounts is complete before anything can panic.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.0.path)
            .field("family", &self.0.architecture.family)
            .field("backend", &self.backend())
            .field("context", &self.0.context)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Whatever the model: numbers that no machine has memory for.
    fn check(&self) -> Result<()> {
        let ranges = [
            ("context", self.context.unwrap_or(1), u32::MAX as usize),
            ("sequences", self.sequences, 1 << 16),
            ("batch", self.batch, 1 << 20),
            ("outputs", self.outputs, 1 << 20),
        ];
        for (field, value, most) in ranges {
            if value == 0 || value > most {
                return Err(Error::Usage {
                    problem: format!("{field} is {value}"),
                    hint: format!("it must be at least 1 and at most {most}"),
                });
            }
        }
        Ok(())
    }
}

/// Positions of a sequence: as many as asked for, if the model or a scaling of its rotations reaches that far.
pub(crate) fn choose_context(asked: Option<usize>, architecture: &Architecture) -> Result<usize> {
    let Some(asked) = asked else { return Ok(architecture.context.min(DEFAULT_CONTEXT)) };
    let scaled = architecture.ropes.iter().map(|rope| stretched_context(&rope.scaling)).min().unwrap_or(0);
    let most = architecture.context.max(scaled);
    if asked == 0 || asked > most {
        return Err(Error::Usage {
            problem: format!("a context of {asked}, for a model that was made for {most} positions"),
            hint: format!("ask for at most {most}"),
        });
    }
    Ok(asked)
}

/// The context a scaling of the rotations reaches, where it says so.
fn stretched_context(scaling: &Scaling) -> usize {
    match scaling {
        Scaling::Llama3 { factor, original_context, .. } | Scaling::Yarn { factor, original_context, .. } => {
            (*original_context as f64 * factor) as usize
        }
        Scaling::None | Scaling::Linear { .. } | Scaling::Factors { .. } | Scaling::Long { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_reaches_as_far_as_the_model_or_its_scaling() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny/llama-yarn");
        let file = ModelFile::open(path.join("model.gguf")).unwrap();
        let (architecture, _) = Architecture::of(&file).unwrap();
        // 64 positions, stretched by 4.
        for made_for in [64, 256] {
            let architecture = Architecture { context: made_for, ..architecture.clone() };
            assert_eq!(choose_context(None, &architecture).unwrap(), made_for);
            assert_eq!(choose_context(Some(256), &architecture).unwrap(), 256);
            assert_eq!(
                choose_context(Some(257), &architecture).unwrap_err().hint().unwrap(),
                "ask for at most 256"
            );
        }
        let long = Architecture { context: 131_072, ..architecture };
        assert_eq!(choose_context(None, &long).unwrap(), DEFAULT_CONTEXT);
    }
}
