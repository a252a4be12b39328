//! Where models come from.

use akunu::embed::{Embedder, Ranker};
use akunu::scheduler::Scheduler;
use akunu::speech::Transcriber;
use akunu_text::chat::ChatTemplate;

/// A model by the name under which a [`Library`] knows it, and how it is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A path, or a name.
    pub model: String,
    /// Positions of one sequence; by default what the library takes.
    pub context: Option<usize>,
}

/// What a model is in memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Writing text.
    Write,
    /// Turning texts into vectors.
    Embed,
    /// Telling how well texts answer a question.
    Rank,
    /// Writing down speech.
    Transcribe,
}

impl Task {
    /// How clients are told of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Task::Write => "write",
            Task::Embed => "embed",
            Task::Rank => "rank",
            Task::Transcribe => "transcribe",
        }
    }
}

/// A model that is ready for a task.
#[derive(Debug)]
pub enum Loaded {
    /// One that writes text.
    Writer {
        /// What answers.
        scheduler: Scheduler,
        /// A chat template in place of the model's own.
        template: Option<ChatTemplate>,
    },
    /// One that turns texts into vectors.
    Embedder(Embedder),
    /// One that tells how well texts answer a question.
    Ranker(Ranker),
    /// One that writes down speech.
    Transcriber(Box<Transcriber>),
}

/// Where models come from: at the beginning, when a client asks for one, and again after one was idle. The functions may
/// take their time and are not called from a thread that others wait for.
pub trait Library: Send + Sync + 'static {
    /// What the model can do; it is loaded for the first of these unless a request asks for another.
    fn tasks(&self, source: &Source) -> akunu::Result<Vec<Task>>;

    /// Bytes the model will take, as far as its file tells.
    fn memory(&self, source: &Source, task: Task) -> akunu::Result<u64>;

    /// Bytes of them that another task has in memory already, where it is the same model.
    fn shared(&self, _source: &Source) -> akunu::Result<u64> {
        Ok(0)
    }

    /// Loads the model for a task that it can do.
    fn load(&self, source: &Source, task: Task) -> akunu::Result<Loaded>;
}
