//! Where models come from.

use akunu::scheduler::Scheduler;
use akunu_text::chat::ChatTemplate;

/// A model by the name under which a [`Library`] knows it, and how it is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A path, or a name.
    pub model: String,
    /// Positions of one sequence; by default what the library takes.
    pub context: Option<usize>,
}

/// A model that is ready to answer.
#[derive(Debug)]
pub struct Loaded {
    /// What answers.
    pub scheduler: Scheduler,
    /// A chat template in place of the model's own.
    pub template: Option<ChatTemplate>,
}

/// Where models come from: at the beginning, when a client asks for one, and again after one was idle. Both functions may
/// take their time and are not called from a thread that others wait for.
pub trait Library: Send + Sync + 'static {
    /// Bytes the model will take, as far as its file tells.
    fn memory(&self, source: &Source) -> akunu::Result<u64>;

    /// Loads the model.
    fn load(&self, source: &Source) -> akunu::Result<Loaded>;
}
