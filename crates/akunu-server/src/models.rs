//! The models a server has: those in memory, and those that can be brought back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use akunu::embed::{EmbedOptions, Embedder};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::disk::OnDisk;
use crate::error::ApiError;
use crate::library::{Library, Loaded, Source, Task};
use crate::resident::{Embedding, Leaving, Listener, Resident, Served};

type Result<T> = std::result::Result<T, ApiError>;

/// How often idle models are looked for, at most.
const LOOK: Duration = Duration::from_secs(30);

/// A model by its id, in memory or not.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// How it is brought back; `None` for one that was handed over in memory.
    source: Option<Source>,
    /// What it can do, once that is known.
    tasks: OnceLock<Vec<Task>>,
    /// One for each task at most.
    residents: RwLock<Vec<Resident>>,
    /// What was said of it when it was in memory last.
    described: RwLock<Value>,
}

/// All models, by id.
pub(crate) struct Models {
    /// Whether only the exact id finds a model.
    strict: bool,
    /// Bytes that models may take together.
    budget: Option<u64>,
    library: Option<Arc<dyn Library>>,
    by_id: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// Held while a model is loaded: one at a time, so that two do not count on the same memory.
    loading: tokio::sync::Mutex<()>,
    /// Models that were unloaded while they answered, until they are done.
    leaving: Mutex<Vec<Leaving>>,
}

impl Models {
    pub(crate) fn new(strict: bool, budget: Option<u64>, library: Option<Arc<dyn Library>>) -> Models {
        let (loading, leaving) = (tokio::sync::Mutex::default(), Mutex::default());
        Models { strict, budget, library, by_id: RwLock::default(), loading, leaving }
    }

    /// Adds a model that is in memory and stays there.
    pub(crate) fn add(&self, id: &str, loaded: Loaded) -> akunu::Result<()> {
        let resident = Resident::new(id, loaded, 0)?;
        let entry = self.insert(id, None)?;
        let _ = entry.tasks.set(vec![resident.task()]);
        entry.set(resident);
        Ok(())
    }

    /// Adds a model of the library, and loads it if there is memory for it: before the server runs. Whether it was loaded.
    pub(crate) fn load_first(&self, id: &str, source: &Source) -> akunu::Result<bool> {
        let entry = self.insert(id, Some(source.clone()))?;
        let Some(library) = &self.library else { return Ok(false) };
        let tasks = library.tasks(source)?;
        let Some(&task) = tasks.first() else { return Ok(false) };
        let _ = entry.tasks.set(tasks);
        let memory = library.memory(source, task)?;
        let fits = self.budget.is_none_or(|budget| self.memory().saturating_add(memory) <= budget);
        if fits {
            entry.set(Resident::new(id, library.load(source, task)?, memory)?);
        }
        Ok(fits)
    }

    /// Adds a model without loading it, unless there is one of that id.
    pub(crate) fn insert(&self, id: &str, source: Option<Source>) -> akunu::Result<Arc<Entry>> {
        let mut described = json!({
            "id": id, "object": "model", "created": unix_time(), "owned_by": "akunu", "loaded": false,
        });
        if let Some(source) = &source {
            OnDisk::of(Path::new(&source.model)).describe(&mut described);
        }
        let described = RwLock::new(described);
        let (tasks, residents) = (OnceLock::new(), RwLock::default());
        let entry = Arc::new(Entry { id: id.to_owned(), source, tasks, residents, described });
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if by_id.contains_key(id) {
            return Err(akunu::Error::Usage {
                problem: format!("there are two models \"{id}\""),
                hint: "give one of them another name".to_owned(),
            });
        }
        by_id.insert(id.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }

    /// Forgets a model.
    pub(crate) fn remove(&self, entry: &Entry) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&entry.id);
        self.unload(entry);
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Those in memory, by id.
    pub(crate) fn loaded(&self) -> Vec<Resident> {
        self.entries().iter().flat_map(|entry| entry.residents()).collect()
    }

    /// All of them as `/v1/models` lists them.
    pub(crate) fn describe(&self) -> Vec<Value> {
        self.entries().iter().map(|entry| entry.describe()).collect()
    }

    /// The model a request names: exactly, in other capitals, or by a part of the name that no other has. Without a name, the
    /// only one.
    pub(crate) fn entry(&self, name: Option<&str>) -> Result<Arc<Entry>> {
        let all = self.entries();
        let ids = || all.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return match all.as_slice() {
                [only] => Ok(Arc::clone(only)),
                _ => Err(ApiError::field("model", format!("is missing; there is: {}", ids()))
                    .code("missing_required_parameter")),
            };
        };
        // Ollama's clients name a tag with every model.
        let name = name.strip_suffix(":latest").unwrap_or(name);
        if let Some(entry) = all.iter().find(|entry| entry.id == name) {
            return Ok(Arc::clone(entry));
        }
        let lower = name.to_lowercase();
        let same = |entry: &&Arc<Entry>| entry.id.to_lowercase() == lower;
        let part = |entry: &&Arc<Entry>| !lower.is_empty() && entry.id.to_lowercase().contains(&lower);
        for like in [&same as &dyn Fn(&&Arc<Entry>) -> bool, &part] {
            let found: Vec<_> = all.iter().filter(like).collect();
            match found.as_slice() {
                _ if self.strict => break,
                [] => {}
                [only] => return Ok(Arc::clone(only)),
                several => {
                    let ids: Vec<&str> = several.iter().map(|entry| entry.id.as_str()).collect();
                    let problem = format!("\"{name}\" could be any of: {}", ids.join(", "));
                    return Err(ApiError::field("model", problem).code("model_ambiguous"));
                }
            }
        }
        let message = format!("there is no model \"{name}\"; there is: {}", ids());
        Err(ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found").param("model"))
    }

    /// The model a request names, brought into memory to write if it is not there.
    pub(crate) async fn find(self: &Arc<Models>, name: Option<&str>) -> Result<Arc<Served>> {
        let writer = |resident| if let Resident::Writer(served) = resident { Some(served) } else { None };
        self.find_for(Task::Write, name, writer).await
    }

    /// The same to embed.
    pub(crate) async fn find_embedder(self: &Arc<Models>, name: Option<&str>) -> Result<Arc<Embedding>> {
        let embedder = |resident| if let Resident::Embedder(found) = resident { Some(found) } else { None };
        self.find_for(Task::Embed, name, embedder).await
    }

    /// The same to judge pairs of texts.
    pub(crate) async fn find_ranker(self: &Arc<Models>, name: Option<&str>) -> Result<Arc<Embedding>> {
        let ranker = |resident| if let Resident::Embedder(found) = resident { Some(found) } else { None };
        self.find_for(Task::Rank, name, ranker).await
    }

    /// The same to listen.
    pub(crate) async fn find_listener(self: &Arc<Models>, name: Option<&str>) -> Result<Arc<Listener>> {
        let listener = |resident| if let Resident::Listener(found) = resident { Some(found) } else { None };
        self.find_for(Task::Transcribe, name, listener).await
    }

    async fn find_for<T>(
        self: &Arc<Models>,
        task: Task,
        name: Option<&str>,
        of: impl FnOnce(Resident) -> Option<Arc<T>>,
    ) -> Result<Arc<T>> {
        let entry = self.entry(name)?;
        let resident = match entry.resident(task) {
            Some(resident) => resident,
            None => self.load(&entry, Some(task)).await?,
        };
        resident.last_use().touch();
        of(resident).ok_or_else(met_a_bug)
    }

    /// Brings a model into memory, for a task or for what it does first. That goes on when the client leaves: others may wait
    /// for the same model.
    pub(crate) async fn load(self: &Arc<Models>, entry: &Arc<Entry>, task: Option<Task>) -> Result<Resident> {
        let (models, entry) = (Arc::clone(self), Arc::clone(entry));
        let work = tokio::spawn(async move {
            let _turn = models.loading.lock().await;
            let task = models.task(&entry, task).await?;
            match entry.resident(task) {
                Some(resident) => Ok(resident),
                None => models.bring(&entry, task).await,
            }
        });
        work.await.unwrap_or_else(|_| Err(met_a_bug()))
    }

    /// A task that the model can do; the one that was asked for, or the first.
    async fn task(&self, entry: &Entry, asked: Option<Task>) -> Result<Task> {
        if entry.tasks.get().is_none()
            && let (Some(library), Some(source)) = (&self.library, &entry.source)
        {
            let (from, what) = (Arc::clone(library), source.clone());
            let tasks = blocking(move || from.tasks(&what)).await?;
            let _ = entry.tasks.set(tasks);
        }
        let tasks = entry.tasks.get().map_or(&[][..], Vec::as_slice);
        let task = asked.or(tasks.first().copied()).unwrap_or(Task::Write);
        if tasks.contains(&task) {
            return Ok(task);
        }
        let problem = match (task, tasks.first()) {
            (Task::Write, Some(Task::Embed)) => "does not write text: it is for /v1/embeddings",
            (Task::Write, Some(Task::Rank)) => "does not write text: it is for /v1/rerank",
            (Task::Write, Some(Task::Transcribe)) => {
                "does not write text: it is for /v1/audio/transcriptions"
            }
            (Task::Write, _) => "does not write text here",
            (Task::Embed, _) => "does not embed texts here",
            (Task::Rank, _) => "does not rank texts: that takes a cross-encoder",
            (Task::Transcribe, _) => "does not listen: transcription takes a model of speech",
        };
        Err(ApiError::invalid(format!("{} {problem}", entry.id)).param("model").code("model_not_supported"))
    }

    async fn bring(&self, entry: &Entry, task: Task) -> Result<Resident> {
        let (Some(library), Some(source)) = (&self.library, &entry.source) else {
            let message = format!("{} was unloaded, and this server cannot load it again", entry.id);
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("model_unloaded"));
        };
        // A model that writes lends its weights to the one that embeds.
        let twin = match entry.resident(Task::Write) {
            Some(Resident::Writer(served)) if task == Task::Embed => Some(served),
            _ => None,
        };
        if task == Task::Write {
            // One that embeds with weights of its own leaves, and comes back with those of this one.
            entry.unload_if_idle(Task::Embed).await;
        }
        let (from, what, shares) = (Arc::clone(library), source.clone(), twin.is_some());
        let memory = blocking(move || {
            let shared = if shares { from.shared(&what)? } else { 0 };
            Ok(from.memory(&what, task)?.saturating_sub(shared))
        })
        .await?;
        self.make_room(memory).await?;
        if let Some(served) = twin {
            let options = EmbedOptions { context: source.context, ..EmbedOptions::default() };
            let of = Arc::clone(&served);
            let embedder = blocking(move || Embedder::of(of.scheduler.model(), &options)).await?;
            let resident = Resident::twin(served, embedder, memory)?;
            entry.set(resident.clone());
            return Ok(resident);
        }
        let (from, what) = (Arc::clone(library), source.clone());
        let loaded = blocking(move || from.load(&what, task)).await?;
        let resident = Resident::new(&entry.id, loaded, memory)?;
        entry.set(resident.clone());
        Ok(resident)
    }

    /// Unloads idle models, those used longest ago first, until so many bytes are free.
    async fn make_room(&self, needed: u64) -> Result<()> {
        let Some(budget) = self.budget else { return Ok(()) };
        loop {
            let used = self.memory();
            if used.saturating_add(needed) <= budget {
                return Ok(());
            }
            let idle = self.entries().into_iter().flat_map(|entry| {
                let idle = entry.idle();
                idle.into_iter().map(move |(since, task)| (since, task, Arc::clone(&entry)))
            });
            let Some((_, task, oldest)) = idle.min_by_key(|(since, ..)| *since) else {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                let message = format!(
                    "the model takes {} MiB of memory, and {} of the {} MiB for models are in use",
                    mib(needed),
                    mib(used),
                    mib(budget),
                );
                return Err(ApiError {
                    retry_after: (needed <= budget).then_some(5),
                    ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("insufficient_memory")
                });
            };
            oldest.unload_if_idle(task).await;
        }
    }

    /// Bytes that models take.
    fn memory(&self) -> u64 {
        self.loaded().iter().chain(&self.leaving()).map(Resident::memory).sum()
    }

    /// Those that were told to leave and answer still.
    fn leaving(&self) -> Vec<Resident> {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|leaving| leaving.upgrade().is_some());
        leaving.iter().filter_map(Leaving::upgrade).collect()
    }

    /// Takes a model out of memory, as soon as the answers it is giving are complete. False if it was not there.
    pub(crate) fn unload(&self, entry: &Entry) -> bool {
        let taken = entry.take(|_| true);
        let left = taken.iter().map(Resident::leaving);
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        !taken.is_empty()
    }

    /// Ends everything that is being answered.
    pub(crate) fn abort(&self) {
        for resident in self.loaded().iter().chain(&self.leaving()) {
            match resident {
                Resident::Writer(served) => served.scheduler.abort(),
                Resident::Embedder(embedding) => embedding.batcher.abort(),
                Resident::Listener(listener) => listener.abort(),
            }
        }
    }

    /// Unloads models that nobody has used for so long, again and again.
    pub(crate) async fn sweep(&self, timeout: Duration) {
        let period = LOOK.min(timeout / 2).max(Duration::from_millis(10));
        loop {
            tokio::time::sleep(period).await;
            for entry in self.entries() {
                for (since, task) in entry.idle() {
                    if since.elapsed() >= timeout {
                        entry.unload_if_idle(task).await;
                    }
                }
            }
        }
    }
}

impl Entry {
    fn residents(&self) -> Vec<Resident> {
        self.residents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn resident(&self, task: Task) -> Option<Resident> {
        self.residents().into_iter().find(|resident| resident.task() == task)
    }

    fn set(&self, resident: Resident) {
        let tasks = self.tasks.get().map_or(&[][..], Vec::as_slice);
        if tasks.first().is_none_or(|first| *first == resident.task()) {
            let mut described = resident.describe();
            described["created"] = self.describe()["created"].take();
            described["tasks"] = tasks.iter().map(|task| task.name()).collect();
            *self.described.write().unwrap_or_else(PoisonError::into_inner) = described;
        }
        self.residents.write().unwrap_or_else(PoisonError::into_inner).push(resident);
    }

    /// Takes out those of which `condition` holds, in which nobody can get hold of them in between.
    fn take(&self, condition: impl Fn(&Resident) -> bool) -> Vec<Resident> {
        let mut residents = self.residents.write().unwrap_or_else(PoisonError::into_inner);
        let taken: Vec<Resident> = residents.extract_if(.., |resident| condition(resident)).collect();
        if residents.is_empty() {
            self.described.write().unwrap_or_else(PoisonError::into_inner)["loaded"] = json!(false);
        }
        taken
    }

    /// Since when nobody uses it for which task; nothing if it cannot be brought back.
    fn idle(&self) -> Vec<(Instant, Task)> {
        let residents = self.residents.read().unwrap_or_else(PoisonError::into_inner);
        let idle = residents.iter().filter(|resident| self.source.is_some() && resident.is_idle());
        idle.map(|resident| (resident.last_use().get(), resident.task())).collect()
    }

    /// Frees the model's memory, unless somebody has come to use it.
    async fn unload_if_idle(&self, task: Task) {
        let taken = self.take(|resident| resident.task() == task && resident.is_idle());
        // The model's thread is waited for, and much memory given back: not here, where others wait.
        let _ = tokio::task::spawn_blocking(move || drop(taken)).await;
    }

    /// The model as `/v1/models` lists it, in memory or as it was.
    pub(crate) fn describe(&self) -> Value {
        self.described.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Does something that takes time where nobody waits for the thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> akunu::Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(met_a_bug()),
    }
}

fn met_a_bug() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "loading the model met a bug in the server")
}
