//! Many requests, one model: continuous batching.
//!
//! A [`Scheduler`] has one thread, which alone runs the model while requests are served. Each step of it feeds one token of
//! every text that is being generated and a chunk of the prompts that are being read, in one run. Requests come and go
//! between steps; nobody waits for another to finish unless all sequences are taken. What a request gets does not depend
//! on what runs beside it: that is the backends' contract, and the sampler's noise depends on nothing but the request's
//! own seed.
//!
//! Prompts that begin alike are read once: whole blocks of the cache stay behind in a trie until their room is needed.
//!
//! ```no_run
//! use akunu::scheduler::{Event, Limits, Request, Scheduler};
//! use akunu::{Model, Options};
//!
//! let model = Model::load("model.gguf", &Options { sequences: 4, ..Options::default() })?;
//! let scheduler = Scheduler::new(model, &Limits::default())?;
//! let answers = [[1, 450, 7483], [1, 450, 3186]].map(|prompt| scheduler.submit(Request::new(prompt.to_vec())));
//! for answer in answers {
//!     for event in answer? {
//!         if let Event::Piece { piece, .. } = event {
//!             print!("{}", piece.text);
//!         }
//!     }
//! }
//! # Ok::<(), akunu::Error>(())
//! ```

mod log_probabilities;
mod pace;
mod prefix;
mod queue;
mod running;
mod worker;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::constraint::Matcher;
use crate::generation::{FinishReason, Statistics};
use crate::model::Model;
use crate::pieces::Piece;
use crate::settings::{Settings, check_sampling};
use crate::transcript::Transcript;
use crate::{Error, Result};

pub use log_probabilities::LogProbabilities;
pub use queue::Load;
use queue::{Closing, Queue};
use worker::Worker;

/// What a scheduler allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most requests that wait for a sequence; one more is refused.
    pub queue: usize,
    /// How much of the prompts a step may read while texts are being generated. Less makes those flow more evenly, more
    /// reads prompts sooner.
    pub chunk: Chunk,
    /// Whether prompts that begin like an earlier one take that part from the cache.
    pub reuse_prefixes: bool,
}

/// A share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// So many tokens.
    Tokens(usize),
    /// As many as are read in this time, or in the time the step takes without them if that is longer: texts that flow
    /// pause for no more than that, or four times that where more wait to begin than flow. How many fit is learned all the
    /// time.
    Time(Duration),
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { queue: 16, chunk: Chunk::Time(Duration::from_millis(50)), reuse_prefixes: true }
    }
}

/// A prompt and what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// How. There is no speculation here, and a run chooses one token: neither would change the text.
    pub settings: Settings,
    /// How many continuations; each after the first has a seed of its own, made of the request's.
    pub choices: usize,
    /// Gives the log-probability of every token, and those of this many of the likeliest beside it.
    pub log_probabilities: Option<usize>,
    /// Who asks. Of those who wait, the one with the fewest requests running goes first.
    pub client: u64,
}

impl Request {
    /// One greedy continuation.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request { prompt, settings: Settings::default(), choices: 1, log_probabilities: None, client: 0 }
    }
}

/// What happens to a request, in this order: it starts; pieces and ends of its choices; it is done. Or it fails.
#[derive(Debug)]
pub enum Event {
    /// It left the queue.
    Started {
        /// Time in the queue.
        waited: Duration,
        /// Tokens of the prompt that are in the cache already.
        cached_tokens: usize,
    },
    /// More text.
    Piece {
        /// Of which continuation, counted from 0.
        choice: usize,
        /// The text and the tokens it completes.
        piece: Piece,
        /// One for each of the piece's tokens, if they were asked for.
        log_probabilities: Vec<LogProbabilities>,
    },
    /// A continuation is complete.
    Finished {
        /// Which.
        choice: usize,
        /// Why.
        reason: FinishReason,
    },
    /// All continuations are complete; the last event.
    Done(Statistics),
    /// Nothing more will come; the last event.
    Failed(Error),
}

/// The events of one request. Dropping it cancels the request within a step.
///
/// As an iterator it blocks the thread until the next event; [`Response::next_event`] waits in a future.
#[derive(Debug)]
pub struct Response(UnboundedReceiver<Event>);

impl Response {
    /// The next event; `None` after the last.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// The same for those who poll.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(context)
    }
}

impl Iterator for Response {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.blocking_recv()
    }
}

/// A request on its way.
struct Job {
    request: Request,
    /// One for each choice.
    transcripts: Vec<Transcript>,
    /// At the beginning of a text, if texts are constrained.
    matcher: Option<Matcher>,
    events: UnboundedSender<Event>,
    submitted: Instant,
}

/// Serves many requests with one model. Dropping it cancels them all.
#[derive(Debug)]
pub struct Scheduler {
    model: Model,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts a scheduler. All sequences of the model are for it: as many choices are generated at the same time.
    pub fn new(model: Model, limits: &Limits) -> Result<Scheduler> {
        let sequences = model.sequences();
        for (what, most) in [("batch", model.batch()), ("outputs", model.outputs())] {
            if most < sequences {
                return Err(Error::Usage {
                    problem: format!("{sequences} sequences cannot run together in {what} of {most}"),
                    hint: format!("load the model with {what} of at least {sequences}"),
                });
            }
        }
        if limits.chunk == Chunk::Tokens(0) {
            return Err(Error::Usage {
                problem: "prompts cannot be read in chunks of 0 tokens".to_owned(),
                hint: "the chunk must be at least 1".to_owned(),
            });
        }
        model.tokenizer()?;
        let queue = Arc::new(Queue::new(limits.queue, sequences));
        let worker = Worker::new(model.clone(), Arc::clone(&queue), limits);
        let thread = std::thread::Builder::new()
            .name("scheduler".to_owned())
            .spawn(move || worker.work())
            .map_err(Error::io(model.path()))?;
        Ok(Scheduler { model, queue, thread: Some(thread) })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Puts a request into the queue. An error if it makes no sense, or with [`Error::Busy`] if too many wait already.
    pub fn submit(&self, request: Request) -> Result<Response> {
        self.check(&request)?;
        let tokenizer = self.model.tokenizer()?;
        let transcript = || Transcript::new(tokenizer.clone(), &request.settings);
        let transcripts = (0..request.choices).map(|_| transcript()).collect::<Result<_>>()?;
        let constraint = request.settings.constraint.as_ref();
        let matcher = constraint.map(|constraint| self.model.matcher(constraint)).transpose()?;
        let (events, response) = unbounded_channel();
        self.queue.push(Job { request, transcripts, matcher, events, submitted: Instant::now() })?;
        Ok(Response(response))
    }

    /// What it is doing, and has done.
    pub fn load(&self) -> Load {
        self.queue.load()
    }

    /// Takes no more requests, and finishes those it has.
    pub fn close(&self) {
        self.queue.close(Closing::Draining);
    }

    /// Takes no more requests, and ends those it has with [`Error::Stopped`] within a step.
    pub fn abort(&self) {
        self.queue.close(Closing::Now);
    }

    fn check(&self, request: &Request) -> Result<()> {
        let refuse = |problem: String, hint: String| Err(Error::Usage { problem, hint });
        let (context, vocabulary) = (self.model.context(), self.model.vocabulary());
        if request.prompt.is_empty() {
            return refuse("the prompt is empty".to_owned(), "give it at least one token".to_owned());
        }
        if request.prompt.len() > context {
            return Err(Error::TooLong { tokens: request.prompt.len(), context });
        }
        if let Some(token) = request.prompt.iter().find(|&&token| token as usize >= vocabulary) {
            let hint = format!("the model's vocabulary has {vocabulary} tokens, numbered from 0");
            return refuse(format!("there is no token {token}"), hint);
        }
        if !(1..=self.model.sequences()).contains(&request.choices) {
            let hint = format!("ask for 1 to {}", self.model.sequences());
            return refuse(format!("{} choices were asked for", request.choices), hint);
        }
        if request.log_probabilities.is_some_and(|n| n > vocabulary) {
            return refuse("more log-probabilities than tokens".to_owned(), format!("at most {vocabulary}"));
        }
        check_sampling(&request.settings.sampling)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.queue.close(Closing::Now);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}
