//! Models in memory, each for one of its tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use akunu::embed::{Embedder, Ranker};
use akunu::scheduler::{Request, Response, Scheduler};
use akunu::speech::Transcriber;
use akunu_text::chat::{ChatTemplate, TemplateError};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::batcher::Batcher;
use crate::disk::OnDisk;
use crate::error::ApiError;
use crate::library::{Loaded, Task};

/// Constraints that may be compiled, or wait for it, on threads of their own at once, of short ones and of others. Further ones
/// wait without one.
const MOST_COMPILING: usize = 16;

/// Requests that may wait for an embedder, or a model of speech. Each takes no more memory than its body.
const MOST_WAITING: usize = 256;

/// A model that answers. Whoever holds it keeps it in memory: nothing is freed under a running request.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) id: String,
    pub(crate) scheduler: Scheduler,
    /// The model's chat template; `None` if it was not made for conversations.
    pub(crate) template: Option<ChatTemplate>,
    /// The one in its place for conversations with tools, where the model has templates of its own, or what is wrong with it.
    tool_template: Option<Result<ChatTemplate, TemplateError>>,
    /// For those who compile constraints: short ones, and others.
    compiling: [Arc<Semaphore>; 2],
    /// What it takes in memory; 0 where nobody counts.
    memory: u64,
    pub(crate) used: LastUse,
}

impl Served {
    /// The template for a conversation with or without tools.
    pub(crate) fn template_for(&self, has_tools: bool) -> Result<Option<&ChatTemplate>, &TemplateError> {
        match &self.tool_template {
            Some(own) if has_tools => own.as_ref().map(Some),
            _ => Ok(self.template.as_ref()),
        }
    }
}

impl Served {
    /// Puts a request into the queue, once its constraint is compiled. That may take a while: not where others wait, nor on all of
    /// the threads for such work.
    pub(crate) async fn submit(
        self: &Arc<Served>,
        request: Request,
    ) -> Result<akunu::Result<Response>, ApiError> {
        let constraint = match &request.settings.constraint {
            Some(constraint) if !self.scheduler.model().has_compiled(constraint) => constraint,
            _ => return Ok(self.scheduler.submit(request)),
        };
        let places = &self.compiling[usize::from(!constraint.is_short())];
        let place = Arc::clone(places).acquire_owned().await;
        let own = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            own.scheduler.submit(request)
        });
        work.await.map_err(|_| ApiError::bug())
    }
}

/// A model that turns texts into vectors, or pairs of them into scores; kept in memory in the same way.
#[derive(Debug)]
pub(crate) struct Embedding {
    pub(crate) id: String,
    pub(crate) batcher: Batcher,
    /// What makes scores, if it is in memory for that.
    pub(crate) ranker: Option<Ranker>,
    /// The one whose weights it has: it stays as long.
    _twin: Option<Arc<Served>>,
    memory: u64,
    pub(crate) used: LastUse,
}

/// A model that writes down speech; kept in memory in the same way.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: String,
    pub(crate) transcriber: Transcriber,
    /// One recording at a time.
    turns: Arc<Semaphore>,
    /// Those under way and those that wait.
    waiting: AtomicUsize,
    memory: u64,
    pub(crate) used: LastUse,
}

/// When a model was used last.
#[derive(Debug)]
pub(crate) struct LastUse(Mutex<Instant>);

impl LastUse {
    fn now() -> LastUse {
        LastUse(Mutex::new(Instant::now()))
    }

    pub(crate) fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is being used.
    pub(crate) fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A model in memory, for one of its tasks.
#[derive(Clone, Debug)]
pub(crate) enum Resident {
    Writer(Arc<Served>),
    Embedder(Arc<Embedding>),
    Listener(Arc<Listener>),
}

/// One that was told to leave memory, and does when nobody holds it any more.
pub(crate) enum Leaving {
    Writer(Weak<Served>),
    Embedder(Weak<Embedding>),
    Listener(Weak<Listener>),
}

impl Resident {
    pub(crate) fn new(id: &str, loaded: Loaded, memory: u64) -> akunu::Result<Resident> {
        let (id, used) = (id.to_owned(), LastUse::now());
        Ok(match loaded {
            Loaded::Writer { scheduler, template } => {
                let templates = scheduler.model().templates();
                let own = |has_tools| templates.choose(None, has_tools);
                let (template, tool_template) = match templates.names().next() {
                    _ if template.is_some() => (template, None),
                    Some(_) => (Some(own(false)?), Some(own(true))),
                    None => (None, None),
                };
                let compiling = [(); 2].map(|()| Arc::new(Semaphore::new(MOST_COMPILING)));
                Resident::Writer(Arc::new(Served {
                    id,
                    scheduler,
                    template,
                    tool_template,
                    compiling,
                    memory,
                    used,
                }))
            }
            Loaded::Embedder(embedder) => {
                let batcher = batcher(Arc::new(embedder))?;
                Resident::Embedder(Arc::new(Embedding {
                    id,
                    batcher,
                    ranker: None,
                    _twin: None,
                    memory,
                    used,
                }))
            }
            Loaded::Ranker(ranker) => {
                let batcher = batcher(Arc::clone(ranker.embedder()))?;
                let ranker = Some(ranker);
                Resident::Embedder(Arc::new(Embedding { id, batcher, ranker, _twin: None, memory, used }))
            }
            Loaded::Transcriber(transcriber) => {
                let (turns, waiting) = (Arc::new(Semaphore::new(1)), AtomicUsize::new(0));
                let transcriber = *transcriber;
                Resident::Listener(Arc::new(Listener { id, transcriber, turns, waiting, memory, used }))
            }
        })
    }

    /// An embedder that has the weights of a model that writes.
    pub(crate) fn twin(of: Arc<Served>, embedder: Embedder, memory: u64) -> akunu::Result<Resident> {
        let (id, used, batcher) = (of.id.clone(), LastUse::now(), batcher(Arc::new(embedder))?);
        Ok(Resident::Embedder(Arc::new(Embedding {
            id,
            batcher,
            ranker: None,
            _twin: Some(of),
            memory,
            used,
        })))
    }

    pub(crate) fn task(&self) -> Task {
        match self {
            Resident::Writer(_) => Task::Write,
            Resident::Embedder(embedding) if embedding.ranker.is_some() => Task::Rank,
            Resident::Embedder(_) => Task::Embed,
            Resident::Listener(_) => Task::Transcribe,
        }
    }

    pub(crate) fn id(&self) -> &str {
        match self {
            Resident::Writer(served) => &served.id,
            Resident::Embedder(embedding) => &embedding.id,
            Resident::Listener(listener) => &listener.id,
        }
    }

    /// Bytes it takes; 0 where nobody counts.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Resident::Writer(served) => served.memory,
            Resident::Embedder(embedding) => embedding.memory,
            Resident::Listener(listener) => listener.memory,
        }
    }

    pub(crate) fn last_use(&self) -> &LastUse {
        match self {
            Resident::Writer(served) => &served.used,
            Resident::Embedder(embedding) => &embedding.used,
            Resident::Listener(listener) => &listener.used,
        }
    }

    /// Whether nobody but its entry holds it.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Resident::Writer(served) => Arc::strong_count(served) == 1,
            Resident::Embedder(embedding) => Arc::strong_count(embedding) == 1,
            Resident::Listener(listener) => Arc::strong_count(listener) == 1,
        }
    }

    pub(crate) fn leaving(&self) -> Leaving {
        match self {
            Resident::Writer(served) => Leaving::Writer(Arc::downgrade(served)),
            Resident::Embedder(embedding) => Leaving::Embedder(Arc::downgrade(embedding)),
            Resident::Listener(listener) => Leaving::Listener(Arc::downgrade(listener)),
        }
    }

    /// As `/v1/models` lists it, but for what its entry knows.
    pub(crate) fn describe(&self) -> Value {
        let (path, backend, more) = match self {
            Resident::Writer(served) => {
                let model = served.scheduler.model();
                let more = json!({
                    "family": model.architecture().family,
                    "context_length": model.context(),
                    "parallel": model.sequences(),
                });
                (model.path(), model.backend(), more)
            }
            Resident::Embedder(embedding) => {
                let embedder = embedding.batcher.embedder();
                let more = match embedding.ranker {
                    Some(_) => json!({"context_length": embedder.context()}),
                    None => json!({
                        "context_length": embedder.context(),
                        "dimensions": embedder.dimensions(),
                        "pooling": embedder.pooling().name(),
                    }),
                };
                (embedder.path(), embedder.backend(), more)
            }
            Resident::Listener(listener) => {
                let transcriber = &listener.transcriber;
                let more = json!({"family": "whisper", "multilingual": transcriber.multilingual()});
                (transcriber.path(), transcriber.backend(), more)
            }
        };
        let mut described = json!({
            "id": self.id(),
            "object": "model",
            "created": 0,
            "owned_by": "akunu",
            "memory": self.memory(),
            "backend": backend,
            "loaded": true,
        });
        OnDisk::of(path).describe(&mut described);
        for (name, value) in more.as_object().into_iter().flatten() {
            described[name] = value.clone();
        }
        described
    }
}

impl Leaving {
    /// While somebody holds it.
    pub(crate) fn upgrade(&self) -> Option<Resident> {
        match self {
            Leaving::Writer(served) => served.upgrade().map(Resident::Writer),
            Leaving::Embedder(embedding) => embedding.upgrade().map(Resident::Embedder),
            Leaving::Listener(listener) => listener.upgrade().map(Resident::Listener),
        }
    }
}

fn batcher(embedder: Arc<Embedder>) -> akunu::Result<Batcher> {
    let path = embedder.path().to_owned();
    Batcher::new(embedder, MOST_WAITING).map_err(|source| akunu::Error::Io { path, source })
}

/// One's turn at a model that does one thing at a time.
pub(crate) struct Turn {
    _counted: Waiting,
    _permit: OwnedSemaphorePermit,
}

/// Counts one that waits, until it is dropped.
struct Waiting(Arc<Listener>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listener {
    /// Waits for one's turn.
    pub(crate) async fn turn(self: &Arc<Listener>) -> Result<Turn, ApiError> {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let counted = Waiting(Arc::clone(self));
        if waiting >= MOST_WAITING {
            return Err(akunu::Error::Busy { waiting }.into());
        }
        let permit = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| akunu::Error::Stopped)?;
        Ok(Turn { _counted: counted, _permit: permit })
    }

    /// Recordings that are not done.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets no more recordings begin. The one under way ends with its connection.
    pub(crate) fn abort(&self) {
        self.turns.close();
    }
}
